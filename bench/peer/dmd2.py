# SPDX-License-Identifier: Apache-2.0
"""DMD2 as a PyTorch user writes it. Prints one JSON line.

A timed step is one update of the student (rollout, guided teacher, critic, loss, backward,
clipping, fused AdamW, average) and then one of the critic on the next batch, with a rollout of its
own. Making the inputs, imports and building the models are not timed.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F

from . import fill, sizes
from .model import build
from .sft import RSS_AFTER_IMPORT, peak_rss


def make_round(size: sizes.Size, step: int, number: int) -> dict:
    """Inputs of round `number` of a step: 0 the student's, 1 the critic's."""
    group = 2 * step + number
    steps = size.common["dmd2"]["steps"]

    def tensor(array):
        return torch.from_numpy(array)

    return {
        "exit": step % len(steps),
        "text": tensor(fill.data(size.text_shape, group, fill.TEXT)),
        "noise": tensor(fill.data(size.latents_shape, group, fill.NOISE)),
        "rollout": [tensor(fill.data(size.latents_shape, group, fill.ROLLOUT + i))
                    for i in range(len(steps))],
        "score_t": tensor(fill.score_timesteps(size, group)),
    }


class Distillation:
    def __init__(self, size: sizes.Size, args):
        self.dmd2 = size.common["dmd2"]
        self.levels = size.common["levels"]
        self.runs_all = args.rollout == "all"
        self.student, self.critic = build(size), build(size, "critic")
        self.teacher = build(size, "teacher").requires_grad_(False).eval()
        if args.compile == "blocks":
            for model in (self.student, self.critic, self.teacher):
                model.compile_repeated_blocks(fullgraph=True)
        self.times = [torch.full((size.batch,), t) for t in fill.few_steps(size)]
        self.negative = torch.from_numpy(fill.negative_text(size)).expand(size.batch, -1, -1)
        self.average = [p.detach().clone() for p in self.student.parameters()]
        shared = dict(betas=tuple(self.dmd2["betas"]), eps=self.dmd2["eps"],
                      weight_decay=self.dmd2["weight_decay"], fused=True)
        self.student_optimizer = torch.optim.AdamW(self.student.parameters(),
                                                   lr=self.dmd2["student_lr"], **shared)
        self.critic_optimizer = torch.optim.AdamW(self.critic.parameters(),
                                                  lr=self.dmd2["critic_lr"], **shared)
        self.forwards = {"student": 0, "teacher": 0, "critic": 0}

    def predict(self, role: str, x, t, text, grad: bool = False):
        """x0 and velocity."""
        self.forwards[role] += 1
        with torch.set_grad_enabled(grad):
            v = getattr(self, role)(x, t, text, return_dict=False)[0]
            return x - self.sigma(t) * v, v

    def sigma(self, t):
        return (t / self.levels).view(-1, 1, 1, 1, 1)

    def noised(self, x0, noise, t):
        return (1.0 - self.sigma(t)) * x0 + self.sigma(t) * noise

    def rollout(self, batch, grad: bool):
        """Only the forward at the exit step carries a gradient."""
        x = at_exit = batch["rollout"][0]
        for i in range(len(self.times) - 1 if self.runs_all else batch["exit"]):
            x0, _ = self.predict("student", x, self.times[i], batch["text"])
            x = self.noised(x0, batch["rollout"][i + 1], self.times[i + 1])
            if i + 1 == batch["exit"]:
                at_exit = x
        return self.predict("student", at_exit, self.times[batch["exit"]], batch["text"], grad)[0]

    def student_loss(self, batch):
        x = self.rollout(batch, True)
        with torch.no_grad():
            t, text = batch["score_t"], batch["text"]
            noisy = self.noised(x, batch["noise"], t)
            fake, _ = self.predict("critic", noisy, t, text)
            conditional, _ = self.predict("teacher", noisy, t, text)
            unconditional, _ = self.predict("teacher", noisy, t, self.negative)
            real = unconditional + self.dmd2["guidance"] * (conditional - unconditional)
            norm = (x - real).abs().mean(dim=(1, 2, 3, 4), keepdim=True).clamp_min(1e-6)
            direction = torch.nan_to_num((fake - real) / norm, nan=0.0, posinf=0.0, neginf=0.0)
        return 0.5 * F.mse_loss(x, (x - direction).detach())

    def critic_loss(self, batch):
        x0 = self.rollout(batch, False)
        noisy = self.noised(x0, batch["noise"], batch["score_t"])
        _, v = self.predict("critic", noisy, batch["score_t"], batch["text"], True)
        return F.mse_loss(v, batch["noise"] - x0)

    def update(self, model, optimizer, loss) -> tuple[float, float]:
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.dmd2["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), float(norm)

    def step(self, rounds: list[dict]) -> dict:
        self.forwards = dict.fromkeys(self.forwards, 0)
        generator = self.update(self.student, self.student_optimizer, self.student_loss(rounds[0]))
        with torch.no_grad():
            torch._foreach_lerp_(self.average, list(self.student.parameters()),
                                 1.0 - self.dmd2["ema_decay"])
        critic = self.update(self.critic, self.critic_optimizer, self.critic_loss(rounds[1]))
        return {"generator_loss": generator[0], "grad_norm/student": generator[1],
                "fake_score_loss": critic[0], "grad_norm/critic": critic[1],
                "forwards": dict(self.forwards)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sizes.names(), default="tiny")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="timed steps")
    parser.add_argument("--compile", choices=["none", "blocks"], default="none")
    parser.add_argument("--rollout", choices=["stop", "all"], default="stop",
                        help="stop at the exit step, or run all steps as FastVideo does")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    size = sizes.load(args.size)
    distillation = Distillation(size, args)
    records, wall, cpu = [], [], []
    for number in range(args.warmup + args.steps):
        rounds = [make_round(size, number, i) for i in range(2)]
        wall_begin, cpu_begin = time.perf_counter(), time.process_time()
        records.append(distillation.step(rounds))
        wall.append(time.perf_counter() - wall_begin)
        cpu.append(time.process_time() - cpu_begin)

    print(json.dumps({
        "records": records, "step_s": wall, "step_cpu_s": cpu,
        "growth_bytes": peak_rss() - RSS_AFTER_IMPORT,
        "torch": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability(),
    }))


if __name__ == "__main__":
    main()
