# SPDX-License-Identifier: Apache-2.0
"""limbeck's DMD2 step against the same work in PyTorch: equal losses first, then speed.

Both programs run in turn with equal weights, texts and noise, `update_order = "sequential"`. Losses
of the first steps must agree; where they do not, no ratio is printed and the exit code is 1. A time
is the mean over whole cycles of the exit step, which decides how many forwards a step has, of the
fastest step with each exit; a ratio compares the best settings of each program.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from compare_sft import POLICIES, BenchError, environment, execute, list_of, table
from peer import sizes

HERE = Path(__file__).resolve().parent
COMPARED_STEPS = 3
TOLERANCE = 1e-4  # relative
LOSSES = ("generator_loss", "fake_score_loss")


def cycle_mean(seconds: list, warmup: int, exits: int) -> float:
    """Mean over exits of the fastest timed step with that exit."""
    best = {}
    for step, value in list(enumerate(seconds))[warmup:]:
        best[step % exits] = min(value, best.get(step % exits, value))
    return sum(best.values()) / len(best)


class Bench:
    def __init__(self, size: sizes.Size, args, work: Path):
        self.size, self.args, self.work = size, args, work
        self.folder = work / size.name
        self.total = args.warmup + args.steps
        self.python("peer.dmd2_inputs", "--size", size.name, "--steps", self.total, "--clock",
                    args.build / "bench" / "step_cpu.so", self.folder)

    def python(self, module: str, *options, policy: str = "default") -> str:
        return execute([sys.executable, "-m", module, *options], HERE,
                       environment(policy, self.work))[0]

    def run(self, program: str, threads: int, policy: str) -> dict:
        exits = len(self.size.common["dmd2"]["steps"])
        if program == "limbeck":
            records, wall, cpu = self.run_limbeck(threads, policy)
        else:
            told = json.loads(self.python(
                "peer.dmd2", "--size", self.size.name, "--threads", threads, "--warmup",
                self.args.warmup, "--steps", self.args.steps, "--rollout", program.split()[1],
                policy=policy).splitlines()[-1])
            records, wall, cpu = told["records"], told["step_s"], told["step_cpu_s"]
        return {"program": program, "setting": f"{threads} threads, {policy}",
                "load": os.getloadavg()[0], "records": records,
                "step_s": cycle_mean(wall, self.args.warmup, exits),
                "step_cpu_s": cycle_mean(cpu, self.args.warmup, exits)}

    def run_limbeck(self, threads: int, policy: str):
        execute([self.args.build / "bin" / "limbeck", "train", "dmd2.toml", "--set",
                 f"run.threads={threads}", "--override-output-dir", "out"], self.folder,
                environment(policy, self.work))
        lines = (self.folder / "out" / "metrics.jsonl").read_text().splitlines()
        steps = [line for line in map(json.loads, lines) if "fake_score_loss" in line]
        if len(steps) != self.total:
            raise BenchError(f"metrics.jsonl has {len(steps)} steps, expected {self.total}")
        for step in steps:
            step["forwards"] = {role: step[f"perf/role/{role}/forward_calls"]
                                for role in ("student", "teacher", "critic")}
        return steps, [s["step_time_sec"] for s in steps], [s["step_cpu_sec"] for s in steps]


def deviation(runs: list) -> float:
    """Of the first losses, relative, from PyTorch's."""
    reference = next(run for run in runs if run["program"] != "limbeck")["records"]
    worst = 0.0
    for run in runs:
        for ours, theirs in list(zip(run["records"], reference))[:COMPARED_STEPS]:
            for name in LOSSES:
                difference = abs(ours[name] - theirs[name]) / abs(theirs[name])
                worst = max(worst, difference if difference == difference else float("inf"))
    return worst


def mean_forwards(run: dict) -> dict:
    """Of each role in a step."""
    records = run["records"]
    return {role: sum(r["forwards"][role] for r in records) / len(records)
            for role in records[0]["forwards"]}


def measure(size: sizes.Size, args, work: Path) -> dict:
    bench = Bench(size, args, work)
    programs = ["limbeck", "pytorch stop", "pytorch all"]
    order = [(program, threads, policy) for threads in args.threads for policy in args.policies
             for program in programs]
    runs = []
    for number in range(args.rounds):
        for setting in order if number % 2 == 0 else reversed(order):
            runs.append(bench.run(*setting))
            print(f"{size.name}: round {number + 1}, {runs[-1]['program']}, "
                  f"{runs[-1]['setting']}: {1e3 * runs[-1]['step_s']:.1f} ms", file=sys.stderr,
                  flush=True)
    return {"size": size.name, "deviation": deviation(runs), "runs": runs}


def tell(report: list) -> str:
    rows = []
    for size in report:
        def best(program, what):
            return min(r[what] for r in size["runs"] if r["program"] == program)

        cells = [size["size"], f"{size['deviation']:.1e}"]
        if size["deviation"] > TOLERANCE:
            rows.append(cells + ["**not equal**"] + [""] * 6)
            continue
        ours = best("limbeck", "step_s"), best("limbeck", "step_cpu_s")
        cells.append(f"{1e3 * ours[0]:.1f}")
        for program in ("pytorch stop", "pytorch all"):
            wall, cpu = best(program, "step_s"), best(program, "step_cpu_s")
            cells += [f"{1e3 * wall:.1f}", f"**{wall / ours[0]:.2f}** ({cpu / ours[1]:.2f})"]
        load = max(run["load"] for run in size["runs"])
        ours = next(run for run in size["runs"] if run["program"] == "limbeck")
        counts = " + ".join(f"{count:g}" for count in mean_forwards(ours).values())
        rows.append(cells + [counts, f"{load:.1f}"])
    return table(["size", "losses differ by", "limbeck ms", "PyTorch, stop, ms", "ratio (CPU)",
                  "PyTorch, all, ms", "ratio (CPU)", "forwards of student + teacher + critic",
                  "load"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench peer-dmd2", description=__doc__)
    parser.add_argument("--sizes", type=list_of(sizes.names()), default=["quick", "tiny", "small"])
    parser.add_argument("--threads", type=lambda text: [int(t) for t in text.split(",")],
                        default=[1, 2])
    parser.add_argument("--policies", type=list_of(POLICIES), default=list(POLICIES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8, help="timed steps")
    parser.add_argument("--build", type=Path, default=HERE.parent / "build" / "release")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    args = parser.parse_args()
    args.build = args.build.resolve()
    try:
        with tempfile.TemporaryDirectory(prefix="limbeck-bench-") as work:
            report = [measure(sizes.load(name), args, Path(work)) for name in args.sizes]
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(tell(report))
    return 0 if all(size["deviation"] <= TOLERANCE for size in report) else 1


if __name__ == "__main__":
    sys.exit(main())
