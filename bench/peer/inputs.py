# SPDX-License-Identifier: Apache-2.0
"""Writes what limbeck needs to do the peer's work: weights, data, recorded draws, manifest.

Everything is in formats that users have too: a Diffusers folder, Parquet, safetensors.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from . import fill, sizes
from .model import build

MANIFEST = """\
# The work of bench/peer/sft.py. Paths are relative to this file's folder, the current one.
plugins = ["wan", "sft", "basics", "parquet"{plugins}]

[run]
name = "{name}"
threads = 1
replay = "draws.safetensors"

[models.student]
type = "wan"
init_from = "weights"
dtype = "fp32"
compute_dtype = "fp32"
enable_gradient_checkpointing_type = "none"

[[prepare]]
type = "flow_noise"
weighting_scheme = "uniform"

[training.data]
type = "parquet"
data_path = "data"
train_batch_size = {batch}
shuffle = false

[training.optimizer]
learning_rate = {lr}
betas = {betas}
eps = {eps}
weight_decay = {weight_decay}
lr_scheduler = "constant"

[training.loop]
max_train_steps = {steps}

[training.tracker]
trackers = ["jsonl"]

[callbacks.grad_clip]
max_grad_norm = {clip}
{callbacks}
[pipeline]
flow_shift = {flow_shift}
"""

CLOCK = """
[callbacks.step_cpu]
"""


def write_data(size: sizes.Size, steps: int, folder: Path) -> None:
    """All samples in the order of training; a row group is a batch, so every step reads one."""
    schema = [("id", pa.string()), ("caption", pa.string())]
    for name in ("vae_latent", "text_embedding"):
        schema += [(f"{name}_bytes", pa.binary()), (f"{name}_shape", pa.list_(pa.int64())),
                   (f"{name}_dtype", pa.string())]
    schema = pa.schema(schema)
    folder.mkdir()
    with pq.ParquetWriter(folder / "samples.parquet", schema, compression="none",
                          use_dictionary=False, write_statistics=False) as writer:
        for group in range(steps):
            latents = fill.data(size.latents_shape, group, fill.LATENTS)
            texts = fill.data(size.text_shape, group, fill.TEXT)
            rows = [{
                "id": f"{group}-{i}", "caption": "",
                "vae_latent_bytes": latents[i].tobytes(), "vae_latent_shape": latents[i].shape,
                "vae_latent_dtype": "float32",
                "text_embedding_bytes": texts[i].tobytes(), "text_embedding_shape": texts[i].shape,
                "text_embedding_dtype": "float32",
            } for i in range(size.batch)]
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=size.batch)


def write_draws(size: sizes.Size, steps: int, path: Path) -> None:
    """Entries <purpose>/<step>/<micro-step>/<index>; limbeck counts steps from 1."""
    draws = {}
    for group in range(steps):
        places = fill.places(size, group)
        single = places.astype(np.float32)
        n = np.float32(size.common["levels"])
        if not np.array_equal(np.floor(single * n), np.floor(places * float(n))):
            raise ValueError(f"step {group + 1}: a place is so near to the next level of the grid "
                             "that 32 bits give another one; take fewer steps")
        draws[f"flow_noise.timestep/{group + 1}/0/0"] = single
        draws[f"flow_noise.noise/{group + 1}/0/0"] = fill.data(size.latents_shape, group,
                                                               fill.NOISE)
    save_file(draws, path)


def write(size: sizes.Size, steps: int, folder: Path, clock: str = "") -> None:
    """`clock`: the plugin file of bench/step_cpu; empty: without CPU seconds."""
    folder.mkdir(parents=True)
    build(size).save_pretrained(folder / "weights")
    write_data(size, steps, folder / "data")
    write_draws(size, steps, folder / "draws.safetensors")
    adamw = {key: repr(value) for key, value in size.common["adamw"].items()}
    (folder / "sft.toml").write_text(MANIFEST.format(
        name=f"sft-{size.name}", batch=size.batch, steps=steps,
        flow_shift=size.common["flow_shift"], plugins=f', "{clock}"' if clock else "",
        callbacks=CLOCK if clock else "", **adamw))


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
