#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch reads the checkpoints that we write, into plain tensors and into an FSDP2 model on one and
two processes, with the lines of docs/checkpoint-format.md; and we read what PyTorch then saves.

Runs in .interop/ (scripts/setup --interop); exits with 77, skipped, where there is none.

usage: dcp_test.py DCP_SAMPLE
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {"long.weight": (5, 3), "row.weight": (1, 5), "flat.bias": (7,), "cube.weight": (3, 2, 2)}
# What the numbers of parameter k begin with, in addition to 100 k.
KINDS = {
    "roles.student.transformer.{}": 0.0,
    "optimizers.student.state.transformer.{}.exp_avg": 1000.0,
    "optimizers.student.state.transformer.{}.exp_avg_sq": 2000.0,
    "ema.student.transformer.{}": 3000.0,
}


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def sample(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    check(done.returncode == 0, f"{arguments}: {done.stderr}")


def snippets():
    text = (ROOT / "docs/checkpoint-format.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def quarters(sizes, first):
    import torch

    count = torch.Size(sizes).numel()
    return (first + torch.arange(count, dtype=torch.float32) / 4).reshape(sizes)


def expected():
    import torch

    tensors = {
        kind.format(name): quarters(sizes, first + 100.0 * k)
        for kind, first in KINDS.items()
        for k, (name, sizes) in enumerate(SIZES.items())
    }
    tensors["other.scalar"] = torch.tensor(7.5)
    tensors["other.empty"] = torch.zeros(0, 3)
    tensors["other.half"] = torch.arange(9.0).to(torch.bfloat16).reshape(3, 3)
    eighth = torch.arange(16, 30, dtype=torch.uint8).view(torch.float8_e4m3fn)
    tensors["other.eighth"] = eighth.reshape(2, 7)
    tensors["other.count"] = (1 << 40) - torch.arange(4)
    tensors["other.mask"] = torch.arange(6) % 3 == 0
    values = {
        "other.text": '{"step": 12, "name": "é"}',
        "other.bytes": bytes(range(256)),
        "other.dict": {"key": [-3]},
        "other.list": [1 << 40, -2.5, True, None, "key"],
    }
    return tensors, values


def same(a, b):
    import torch

    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)) if a.dim() else a == b


def check_state(state, what):
    tensors, values = expected()
    for name, tensor in tensors.items():
        check(same(state[name], tensor), f"{what}: {name} is {state[name]}")
    for name, value in values.items():
        check(state[name] == value, f"{what}: {name} is {state[name]}")


def read_plain(checkpoint):
    """Into tensors of the right types and sizes, and by PyTorch's own converter."""
    import torch
    import torch.distributed.checkpoint as dcp

    tensors, values = expected()
    state = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    state.update(dict.fromkeys(values))
    dcp.load(state, checkpoint_id=checkpoint / "dcp")
    check_state(state, "dcp.load")

    _, convert, list_entries = snippets()
    scope = {"checkpoint": str(checkpoint)}
    exec(convert, scope)
    check_state(scope["state"], "dcp_to_torch_save")
    exec(list_entries, scope)
    check(set(scope["entries"]) == set(tensors) | set(values), "names of the entries")


def model_of_zeros():
    import torch

    model = torch.nn.Module()
    for name, sizes in SIZES.items():
        part, parameter = name.split(".")
        model.add_module(part, torch.nn.Module())
        zeros = torch.nn.Parameter(torch.zeros(sizes))
        model.get_submodule(part).register_parameter(parameter, zeros)
    return model


def read_sharded(rank, ranks, checkpoint, out):
    """On each process: into the shards of a model and of its moments; then all of it is saved."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = dist.FileStore(f"{out}.store", ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    model = model_of_zeros()
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    scope = {"model": model, "checkpoint": str(checkpoint)}
    exec(snippets()[0], scope)
    for k, (name, parameter) in enumerate(model.state_dict().items()):
        full = parameter.full_tensor()
        check(same(full, quarters(SIZES[name], 100.0 * k)), f"{ranks} processes: {name} is {full}")

    tensors, values = expected()
    state = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    state.update(dict.fromkeys(values))
    for kind in KINDS:
        for name, parameter in model.state_dict().items():
            state[kind.format(name)] = torch.zeros_like(parameter)  # sharded
    dcp.load(state, checkpoint_id=checkpoint / "dcp")
    dcp.save(state, checkpoint_id=out)
    dist.destroy_process_group()


def in_processes(ranks, checkpoint, out):
    import torch.multiprocessing as mp

    mp.start_processes(read_sharded, (ranks, checkpoint, out), nprocs=ranks, start_method="fork")


def main():
    interop = ROOT / ".interop/bin/python"
    if not interop.exists():
        print("skipped: there is no .interop/; scripts/setup --interop makes it")
        return SKIPPED
    if pathlib.Path(sys.prefix).resolve() != interop.parents[1].resolve():
        os.execv(interop, [str(interop), "-W", "ignore", *sys.argv])
    import torch

    torch.set_num_threads(1)
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ranks in (1, 3):
            sample(program, "write", folder / f"ours-{ranks}/dcp", ranks)
            read_plain(folder / f"ours-{ranks}")
        for ranks in (1, 2):
            in_processes(ranks, folder / "ours-3", folder / f"theirs-{ranks}")
            sample(program, "check", folder / f"theirs-{ranks}")
        # The check can fail.
        shutil.copy(folder / "ours-1/dcp/.metadata", folder / "theirs-1/.metadata")
        done = subprocess.run([program, "check", folder / "theirs-1"], capture_output=True)
        check(done.returncode == 1, "a mixed checkpoint is told from the sample")
    print("PyTorch reads what limbeck writes, and limbeck what PyTorch writes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
