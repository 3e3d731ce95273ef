#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a few steps with the trackers jsonl and tensorboard and reads what the latter wrote with
TensorBoard's own readers, both of them: the one that its server uses, and its event accumulator.

Runs in .interop/ (scripts/setup --interop); exits with 77, skipped, where that has no TensorBoard.

usage: tensorboard_test.py PROGRAM
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(program, arguments):
    done = subprocess.run(
        [program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"limbeck {' '.join(arguments)} failed:\n{done.stderr}")


def train(program, folder):
    """Two runs: one makes the clips, the other trains on them and samples twice."""
    data = folder / "data"
    run(
        program,
        ["train", "configs/quickstart-judge.toml", "--set", "training.loop.max_train_steps=1"]
        + ["--override-output-dir", str(folder / "judge")]
        + ["--set", f'callbacks.parquet_writer.data_path="{data}"'],
    )
    settings = [
        f'training.data.data_path="{data}"',
        'training.tracker.trackers=["jsonl", "tensorboard"]',
        "training.data.train_batch_size=4",
        'models.text_encoder.type="digit_table"',
        "callbacks.validation.every_steps=2",
        'callbacks.validation.prompts=["digit 3", "digit 4"]',
        "callbacks.validation.sampling_steps=2",
        "callbacks.validation.latent_shape=[4, 6, 4, 8]",
    ]
    arguments = ["train", "tests/e2e/tiny_sft.toml", "--override-output-dir", str(folder / "out")]
    for setting in settings:
        arguments += ["--set", setting]
    run(program, arguments)
    return folder / "out"


def metrics_of(out):
    """{name: [(step, value)]} of the jsonl tracker."""
    series = {}
    for line in (out / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "file" in record:
            continue
        for name, value in record.items():
            if name not in ("step", "time"):
                series.setdefault(name, []).append((record["step"], float(value)))
    return series


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def close(a, b):
    return a == b or math.isclose(a, b, rel_tol=1e-6)  # TensorBoard keeps single precision


def check_accumulator(out):
    from tensorboard.backend.event_processing import event_accumulator

    events = event_accumulator.EventAccumulator(
        str(out / "tensorboard"), size_guidance={event_accumulator.IMAGES: 0}
    )
    events.Reload()
    expected = metrics_of(out)
    tags = events.Tags()
    check(set(tags["scalars"]) == set(expected), "the scalars are the metrics of metrics.jsonl")
    for name, series in expected.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        check([s for s, _ in found] == [s for s, _ in series], f"steps of {name}")
        check(all(close(a, b) for (_, a), (_, b) in zip(found, series)), f"values of {name}")

    names = {"validation_frames_2_steps": b"\x89PNG", "validation_videos_2_steps": b"GIF8"}
    check(set(tags["images"]) == set(names), f"the images are {set(names)}")
    for name, magic in names.items():
        images = events.Images(name)
        check([image.step for image in images] == [0, 2, 4], f"steps of {name}")
        for image in images:
            check(image.encoded_image_string.startswith(magic), f"{name} is what it should be")
            check(image.width > 8 and image.height > 8, f"size of {name}")
        file = out / "validation" / ("step_4.png" if magic == b"\x89PNG" else "step_4.gif")
        check(images[-1].encoded_image_string == file.read_bytes(), f"{name} has the file's bytes")

    texts = {
        tag: [
            value.decode()
            for event in events.Tensors(tag)
            for value in event.tensor_proto.string_val
        ]
        for tag in tags["tensors"]
    }
    check("digit 3 | digit 4" in texts["validation_frames_2_steps/caption"], "the caption")
    resolved = (out / "config.resolved.toml").read_text()
    shown = "".join(line[4:] for line in texts["manifest"][0].splitlines(keepends=True))
    check(tomllib.loads(shown) == tomllib.loads(resolved), "the manifest is the resolved one")


def check_server_reader(out):
    """The loader of the server, which knows nothing of what the accumulator forgives."""
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.util import tensor_util

    files = list((out / "tensorboard").glob("events.out.tfevents.*"))
    check(len(files) == 1, "a run writes one file")
    scalars, plugins = {}, {}
    for event in event_file_loader.EventFileLoader(str(files[0])).Load():
        for value in event.summary.value:
            plugin = value.metadata.plugin_data.plugin_name
            if plugin:
                plugins[value.tag] = plugin
            if plugins.get(value.tag) == "scalars":
                number = float(tensor_util.make_ndarray(value.tensor).item())
                scalars.setdefault(value.tag, []).append((event.step, number))
    check(len(scalars["loss"]) == 4, "four losses")
    for (_, a), (_, b) in zip(scalars["loss"], metrics_of(out)["loss"]):
        check(close(a, b), "losses of the server's reader")
    check(plugins["validation_videos_2_steps"] == "images", "animations are images")
    check(plugins["manifest"] == "text", "the manifest is text")


def check_restart(program, out):
    """A second run in the same folder: the first one's points are dropped."""
    from tensorboard.backend.event_processing import event_accumulator

    run(
        program,
        ["train", str(out / "config.resolved.toml"), "--set", "training.loop.max_train_steps=2"],
    )
    events = event_accumulator.EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    check([event.step for event in events.Scalars("loss")] == [1, 2], "steps after a new start")
    check(len(list((out / "tensorboard").iterdir())) == 2, "the first file is still there")


def main():
    interop = ROOT / ".interop/bin/python"
    if not interop.exists():
        print("skipped: there is no .interop/; scripts/setup --interop makes it")
        return SKIPPED
    if pathlib.Path(sys.prefix).resolve() != interop.parents[1].resolve():
        os.execv(interop, [str(interop), *sys.argv])
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        print("skipped: .interop/ has no TensorBoard; run scripts/setup --interop again")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        out = train(sys.argv[1], pathlib.Path(folder))
        check_accumulator(out)
        check_server_reader(out)
        check_restart(sys.argv[1], out)
    print("TensorBoard reads what was written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
