#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters go between limbeck and PEFT with equal effect.

A small model is trained with adapters here, and PEFT merges them into the model; PEFT makes adapters
with ranks and scales of every kind, and limbeck reads them. Each time the first loss of a run with
the adapters is that of a run on what PEFT merged.

Runs in .interop/ (scripts/setup --interop); exits with 77, skipped, where there is none, or none with
PEFT.

usage: adapters_test.py PROGRAM
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


class Runs:
    """Runs of the small model on the quickstart's clips."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.count = 0
        self.limbeck("configs/quickstart-judge.toml", folder / "judge",
                     "training.loop.max_train_steps=1",
                     f'callbacks.parquet_writer.data_path="{folder}/data"')

    def limbeck(self, manifest, output, *settings):
        command = [self.program, "train", manifest, "--override-output-dir", str(output)]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}")

    def train(self, steps, *settings):
        """Returns the output folder."""
        self.count += 1
        output = self.folder / f"run{self.count}"
        self.limbeck("tests/e2e/tiny_sft.toml", output, f'training.data.data_path="{self.folder}/data"',
                     f"training.loop.max_train_steps={steps}", *settings)
        return output

    def loss(self, *settings):
        """Of the first step, before anything has moved."""
        lines = (self.train(1, *settings) / "metrics.jsonl").read_text().splitlines()
        return next(json.loads(line)["loss"] for line in lines if '"loss"' in line)


def merged(base, adapters, folder):
    """PEFT's adapters in the weights of the model, as PEFT puts them there."""
    import peft
    from diffusers import WanTransformer3DModel

    model = WanTransformer3DModel.from_pretrained(base, subfolder="transformer")
    model = peft.PeftModel.from_pretrained(model, str(adapters))
    model.merge_and_unload().save_pretrained(folder)
    return folder


def made_by_peft(base, folder, **options):
    import peft
    import torch
    from diffusers import WanTransformer3DModel

    torch.manual_seed(5)
    model = WanTransformer3DModel.from_pretrained(base, subfolder="transformer")
    model = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **options))
    model.save_pretrained(folder)
    return folder


def compare(runs, base, adapters, name):
    start = f'models.student.init_from="{base}"'
    alone = runs.loss(start)
    ours = runs.loss(start, "models.student.lora.enable=true",
                     f'models.student.adapters=["{adapters}"]')
    theirs = runs.loss(f'models.student.init_from="{merged(base, adapters, runs.folder / name)}"')
    print(f"{name}: loss {ours:.9g}, merged by PEFT {theirs:.9g}, without {alone:.9g}")
    check(abs(ours - theirs) < 5e-7 * abs(theirs), f"{name}: the losses differ")
    check(abs(ours - alone) > 2e-5 * abs(alone), f"{name}: the adapters do nothing")


def main(program):
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(program, pathlib.Path(name))
        base = runs.train(4) / "export/student"
        for kind, extra in {"ours": [], "ours-rslora": ["models.student.lora.use_rslora=true"]}.items():
            trained = runs.train(40, f'models.student.init_from="{base}"',
                                 "models.student.lora={enable=true, rank=4, alpha=6}",
                                 "training.optimizer.learning_rate=0.02", *extra)
            compare(runs, base, trained / "export/student", kind)
        plain = made_by_peft(base, runs.folder / "plain", r=3, lora_alpha=5,
                             target_modules=["to_q", "to_v", "ffn.net.2"])
        compare(runs, base, plain, "plain")
        patterns = made_by_peft(
            base, runs.folder / "patterns", r=4, lora_alpha=2, use_rslora=True,
            target_modules=r".*attn[12]\.to_(q|k|out\.0)", rank_pattern={"attn1.to_q": 2},
            alpha_pattern={r"blocks.0.attn2.to_k": 7})
        compare(runs, base, patterns, "patterns")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    python = ROOT / ".interop/bin/python"
    if importlib.util.find_spec("peft") is None or importlib.util.find_spec("diffusers") is None:
        if not python.exists() or pathlib.Path(sys.executable).parent == python.parent:
            print("skipped: no PEFT in .interop/, which scripts/setup --interop makes")
            sys.exit(SKIPPED)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    main(sys.argv[1])
