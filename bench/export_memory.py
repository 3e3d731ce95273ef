#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much memory and time `limbeck export` needs for a model of some gigabytes.

PyTorch saves a state of random numbers as a checkpoint, in .interop/ (scripts/setup --interop); the
program exports it, as it is and as bf16, with and without --verify. Prints the peak that the program
reports, as a part of the model's size.

usage: .interop/bin/python bench/export_memory.py [GIGABYTES] [FOLDER]
"""

import ctypes
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build/release/bin/limbeck"
LARGEST = 64 << 20  # numbers of the largest tensor: 256 MiB


def xxh3(text):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    return library.XXH3_64bits(text, ctypes.c_size_t(len(text)))


def make_checkpoint(folder, gigabytes):
    """The bytes of the weights."""
    import torch
    import torch.distributed.checkpoint as dcp

    numbers = int(gigabytes * 1e9 / 4)
    state = {"roles.student.transformer.large.weight": torch.randn(LARGEST // 8192, 8192)}
    block = 0
    while sum(t.numel() for t in state.values()) < numbers:
        state[f"roles.student.transformer.blocks.{block}.weight"] = torch.randn(1536, 8960)
        block += 1
    dcp.save(state, checkpoint_id=folder / "dcp", no_dist=True)
    size = sum(t.numel() for t in state.values())
    role = {"type": "wan", "init_from": "", "averaged": False, "parameters": size}
    role["parts"] = {"transformer": {"class": "WanTransformer3DModel", "config": {}}}
    record = {"format": "limbeck.checkpoint", "version": 1, "step": 1, "saved": "", "limbeck": ""}
    record |= {"plugins": [], "files": [], "roles": {"student": role}}
    text = json.dumps(record).encode()
    (folder / "limbeck.json").write_bytes(text)
    (folder / "COMPLETE").write_text(f"limbeck.json xxh3 {xxh3(text):016x}\n")
    return 4 * size


def export(checkpoint, out, options):
    """Seconds, and bytes over those at the beginning."""
    command = [PROGRAM, "export", checkpoint, "--role", "student", "--output-dir", out, *options]
    begin = time.monotonic()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    seconds = time.monotonic() - begin
    shutil.rmtree(out)
    growth, unit = re.search(r"peak .*, ([0-9.]+) (\w+) more", done.stdout).groups()
    return seconds, float(growth) * {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def main():
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 2.2
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        folder = pathlib.Path(name)
        size = make_checkpoint(folder / "checkpoint-1", gigabytes)
        print(f"a model of {size / 1e9:.2f} GB, its largest tensor {LARGEST * 4 / 1e6:.0f} MB")
        for options in ([], ["--verify"], ["--dtype", "bf16"], ["--dtype", "fp16"]):
            seconds, growth = export(folder / "checkpoint-1", folder / "out", options)
            print(
                f"{' '.join(options) or 'as saved':15} {seconds:6.1f} s, {growth / 1e6:8.1f} MB more "
                f"than at the beginning: {growth / size:.3f} of the model"
            )


if __name__ == "__main__":
    main()
