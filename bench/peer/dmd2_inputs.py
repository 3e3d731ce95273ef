# SPDX-License-Identifier: Apache-2.0
"""Writes what limbeck needs to do the work of dmd2.py: weights, texts, recorded draws, manifest."""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from . import fill, sizes
from .inputs import CLOCK
from .model import build

ROLE = """\
[models.{role}]
type = "wan"
init_from = "{role}"
dtype = "fp32"
compute_dtype = "fp32"
"""

MANIFEST = """\
# The work of bench/peer/dmd2.py. Paths are relative to this file's folder, the current one.
plugins = ["wan", "dmd2", "basics", "parquet", "stored_text"{plugins}]

[run]
name = "{name}"
threads = 1
replay = "draws.safetensors"

{roles}
[models.student.ema]
decay = {ema_decay}

[models.text_encoder]
type = "stored_text"
init_from = "negative"

[method]
type = "dmd2"
rollout_mode = "simulate"
dmd_denoising_steps = {steps}
warp_denoising_step = true
latent_shape = {latents}
update_order = "sequential"
real_score_guidance_scale = {guidance}
min_timestep_ratio = {low}
max_timestep_ratio = {high}
fake_score_learning_rate = {critic_lr}

[training.data]
type = "parquet"
sample_type = "text_only"
data_path = "data"
train_batch_size = {batch}
shuffle = false

[training.optimizer]
learning_rate = {student_lr}
betas = {betas}
eps = {eps}
weight_decay = {weight_decay}
lr_scheduler = "constant"

[training.loop]
max_train_steps = {max_steps}

[training.tracker]
trackers = ["jsonl"]

[callbacks.grad_clip]
max_grad_norm = {clip}
{callbacks}
[pipeline]
flow_shift = {flow_shift}
"""


def write_texts(size: sizes.Size, steps: int, folder: Path) -> None:
    """Two batches a step: the student's, then the critic's."""
    schema = pa.schema([("id", pa.string()), ("caption", pa.string()),
                        ("text_embedding_bytes", pa.binary()),
                        ("text_embedding_shape", pa.list_(pa.int64())),
                        ("text_embedding_dtype", pa.string())])
    folder.mkdir()
    with pq.ParquetWriter(folder / "texts.parquet", schema, compression="none",
                          use_dictionary=False, write_statistics=False) as writer:
        for group in range(2 * steps):
            texts = fill.data(size.text_shape, group, fill.TEXT)
            rows = [{"id": f"{group}-{i}", "caption": "", "text_embedding_bytes": text.tobytes(),
                     "text_embedding_shape": text.shape, "text_embedding_dtype": "float32"}
                    for i, text in enumerate(texts)]
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=size.batch)


def write_draws(size: sizes.Size, steps: int, path: Path) -> None:
    """Entries <purpose>/<step>/<micro-step>/<index>; the index of round r begins at r * 2^24."""
    draws = {}
    count = len(size.common["dmd2"]["steps"])
    for step in range(steps):
        for number, role in enumerate(("student", "critic")):
            group, first = 2 * step + number, number << 24
            places = fill.places(size, group)
            single = places.astype(np.float32)
            n = np.float32(size.common["levels"])
            if not np.array_equal(np.floor(single * n), np.floor(places * float(n))):
                raise ValueError(f"step {step + 1}: a place is so near to the next level of the "
                                 "grid that 32 bits give another one; take fewer steps")

            def add(what, value, index=0):
                draws[f"dmd2.{role}.{what}/{step + 1}/0/{first + index}"] = value

            add("exit", np.array([step % count], dtype=np.int64))
            add("level", single)
            add("noise", fill.data(size.latents_shape, group, fill.NOISE))
            for i in range(count):
                add("rollout", fill.data(size.latents_shape, group, fill.ROLLOUT + i), i)
    save_file(draws, path)


def write(size: sizes.Size, steps: int, folder: Path, clock: str = "") -> None:
    """`clock`: the plugin file of bench/step_cpu; empty: without CPU seconds."""
    folder.mkdir(parents=True)
    for role in fill.ROLES:
        build(size, role).save_pretrained(folder / role)
    negative = folder / "negative"
    negative.mkdir()
    save_file({"context": fill.negative_text(size)}, negative / "model.safetensors")
    (negative / "config.json").write_text(
        json.dumps({"tokens": size.text_len, "width": size.text_dim}))
    write_texts(size, steps, folder / "data")
    write_draws(size, steps, folder / "draws.safetensors")
    dmd2 = dict(size.common["dmd2"])
    n = size.common["levels"]
    (folder / "dmd2.toml").write_text(MANIFEST.format(
        name=f"dmd2-{size.name}", batch=size.batch, max_steps=steps, latents=list(size.latents),
        roles="\n".join(ROLE.format(role=role) for role in fill.ROLES),
        flow_shift=size.common["flow_shift"], low=dmd2.pop("t_min") / n,
        high=dmd2.pop("t_max") / n, plugins=f', "{clock}"' if clock else "",
        callbacks=CLOCK if clock else "", **{key: repr(value) for key, value in dmd2.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sizes.names(), required=True)
    parser.add_argument("--steps", type=int, required=True, help="all steps, warm-up included")
    parser.add_argument("--clock", default="", help="the built plugin step_cpu.so")
    parser.add_argument("folder", type=Path, help="must not exist")
    args = parser.parse_args()
    write(sizes.load(args.size), args.steps, args.folder, args.clock)


if __name__ == "__main__":
    main()
