# SPDX-License-Identifier: Apache-2.0
"""Flow-matching SFT as a PyTorch user writes it. Prints one JSON line.

A timed step is forward, velocity MSE, backward, clipping, fused AdamW and reading loss and norm.
Making the inputs, imports and building the model are not timed.
"""

import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F

from . import fill, sizes
from .model import build


def peak_rss() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


RSS_AFTER_IMPORT = peak_rss()


def make_batch(size: sizes.Size, group: int) -> list[torch.Tensor]:
    """Latents, noise, text, timesteps."""
    return [torch.from_numpy(array) for array in (
        fill.data(size.latents_shape, group, fill.LATENTS),
        fill.data(size.latents_shape, group, fill.NOISE),
        fill.data(size.text_shape, group, fill.TEXT),
        fill.timesteps(size, group),
    )]


def flow_loss(model, size: sizes.Size, batch: list[torch.Tensor]) -> torch.Tensor:
    latents, noise, text, timestep = batch
    sigma = (timestep / size.common["levels"]).view(-1, 1, 1, 1, 1)
    noisy = (1.0 - sigma) * latents + sigma * noise
    velocity = model(noisy, timestep, text, return_dict=False)[0]
    return F.mse_loss(velocity, noise - latents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sizes.names(), default="tiny")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, help="timed steps; default from sizes.json")
    parser.add_argument("--compile", choices=["none", "blocks"], default="none")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    size = sizes.load(args.size)
    model = build(size)
    if args.compile == "blocks":
        model.compile_repeated_blocks(fullgraph=True)
    params = list(model.parameters())
    adamw = size.common["adamw"]
    optimizer = torch.optim.AdamW(params, lr=adamw["lr"], betas=tuple(adamw["betas"]),
                                  eps=adamw["eps"], weight_decay=adamw["weight_decay"], fused=True)

    losses, norms, wall, cpu = [], [], [], []
    for group in range(args.warmup + (args.steps or size.steps)):
        batch = make_batch(size, group)
        wall_begin, cpu_begin = time.perf_counter(), time.process_time()
        loss = flow_loss(model, size, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, adamw["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        norms.append(float(norm))
        wall.append(time.perf_counter() - wall_begin)
        cpu.append(time.process_time() - cpu_begin)

    print(json.dumps({
        "losses": losses, "grad_norms": norms, "step_s": wall, "step_cpu_s": cpu,
        "growth_bytes": peak_rss() - RSS_AFTER_IMPORT, "parameters": sum(p.numel() for p in params),
        "torch": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability(),
    }))


if __name__ == "__main__":
    main()
