# SPDX-License-Identifier: Apache-2.0
"""limbeck's SFT step against the same work in PyTorch: equal losses first, then speed.

Runs both programs in turn with equal weights, data and noise, for every number of threads and
OpenMP wait policy, and compares the best settings of each. Losses and gradient norms of the first
steps must agree in every run; where they do not, no ratio is printed and the exit code is 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from peer import sizes

HERE = Path(__file__).resolve().parent
COMPARED_STEPS = 3
LOSS_TOLERANCE = 1e-5  # relative
# PyTorch's norm of per-tensor norms is itself only so exact.
NORM_TOLERANCE = 5e-5
POLICIES = ("default", "passive")


class BenchError(Exception):
    """What a user can mend; printed without a traceback."""


@dataclass(frozen=True)
class Setting:
    program: str  # limbeck or pytorch
    threads: int
    policy: str  # of POLICIES
    compile: str = "none"

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        compiled = f", compile {self.compile}" if self.compile != "none" else ""
        return f"{threads}, {self.policy}{compiled}"


@dataclass
class Result:
    """One process."""

    setting: Setting
    losses: list
    grad_norms: list
    step_s: list
    step_cpu_s: list
    growth_bytes: int  # peak memory over that of a process that has loaded its libraries only
    about: dict  # what else the program says of itself
    load_before: float = 0.0

    def timed(self, name: str, warmup: int) -> float:
        return min(getattr(self, name)[warmup:])


# ---- Running


def environment(policy: str, work: Path) -> dict:
    unset = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
             "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME")
    env = {key: value for key, value in os.environ.items() if key not in unset}
    env.update(PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1",
               TORCHINDUCTOR_CACHE_DIR=str(work / "inductor"))  # compiled once for all rounds
    if policy != "default":
        env["OMP_WAIT_POLICY"] = policy
    return env


def execute(command: list, cwd: Path, env: dict) -> tuple[str, int]:
    """Standard output and peak memory in bytes."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(part) for part in command], cwd=cwd, env=env, stdout=out,
                                   stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            tail = "\n".join((out.read() + err.read()).strip().splitlines()[-15:])
            raise BenchError(f"exit code {process.returncode} of {' '.join(map(str, command))}\n"
                             f"{tail}")
        return out.read(), usage.ru_maxrss * 1024


class Bench:
    """Both programs at one size. `work` is a folder for inputs and outputs."""

    def __init__(self, size: sizes.Size, args, work: Path):
        self.size = size
        self.work = work
        self.folder = work / size.name
        self.program = args.build / "bin" / "limbeck"
        self.warmup = args.warmup
        self.steps = args.steps or size.steps
        self._python("peer.inputs", "--size", size.name, "--steps", self.warmup + self.steps,
                     "--clock", args.build / "bench" / "step_cpu.so", self.folder)

    def run(self, setting: Setting) -> Result:
        run = self._run_limbeck if setting.program == "limbeck" else self._run_peer
        load = os.getloadavg()[0]
        result = run(setting)
        result.load_before = load
        return result

    def _python(self, module: str, *options, policy: str = "default") -> str:
        return execute([sys.executable, "-m", module, *options], HERE,
                       environment(policy, self.work))[0]

    def _run_peer(self, setting: Setting) -> Result:
        line = self._python("peer.sft", "--size", self.size.name, "--threads", setting.threads,
                            "--warmup", self.warmup, "--steps", self.steps, "--compile",
                            setting.compile, policy=setting.policy).splitlines()[-1]
        told = json.loads(line)
        keys = ("losses", "grad_norms", "step_s", "step_cpu_s", "growth_bytes")
        return Result(setting, *(told.pop(key) for key in keys), about=told)

    def _run_limbeck(self, setting: Setting) -> Result:
        env = environment(setting.policy, self.work)
        common = ["sft.toml", "--set", f"run.threads={setting.threads}", "--override-output-dir",
                  "out"]
        _, floor = execute([self.program, "check", *common], self.folder, env)
        _, peak = execute([self.program, "train", *common], self.folder, env)
        lines = (self.folder / "out" / "metrics.jsonl").read_text().splitlines()
        steps = [line for line in map(json.loads, lines) if "loss" in line]
        if len(steps) != self.warmup + self.steps:
            raise BenchError(f"metrics.jsonl has {len(steps)} steps, expected "
                             f"{self.warmup + self.steps}")
        columns = ("loss", "grad_norm/student", "step_time_sec", "step_cpu_sec")
        return Result(setting, *([step[column] for step in steps] for column in columns),
                      growth_bytes=peak - floor, about={})


# ---- Comparing


def deviation(ours: list, theirs: list) -> float:
    """The largest relative difference in the first steps; infinite for what is no number."""
    pairs = list(zip(ours[:COMPARED_STEPS], theirs[:COMPARED_STEPS], strict=True))
    differences = [abs(a - b) / abs(b) for a, b in pairs]
    return max(d if d == d else float("inf") for d in differences)


def compare(results: list[Result]) -> dict:
    """How far every run is from the first eager run of PyTorch."""
    reference = next(r for r in results if r.setting.program == "pytorch"
                     and r.setting.compile == "none")
    loss = max(deviation(r.losses, reference.losses) for r in results)
    norm = max(deviation(r.grad_norms, reference.grad_norms) for r in results)
    ours = next(r for r in results if r.setting.program == "limbeck")
    return {
        "loss_deviation": loss, "grad_norm_deviation": norm,
        "is_equal": loss <= LOSS_TOLERANCE and norm <= NORM_TOLERANCE,
        "losses": {"limbeck": ours.losses[:COMPARED_STEPS],
                   "pytorch": reference.losses[:COMPARED_STEPS]},
        "grad_norms": {"limbeck": ours.grad_norms[:COMPARED_STEPS],
                       "pytorch": reference.grad_norms[:COMPARED_STEPS]},
    }


def best_by_setting(results: list[Result], warmup: int) -> list[dict]:
    """One row for every setting: the best step of all rounds."""
    rows = []
    for setting in dict.fromkeys(r.setting for r in results):
        own = [r for r in results if r.setting == setting]
        rows.append({
            **asdict(setting), "title": str(setting), "rounds": len(own),
            "step_s": min(r.timed("step_s", warmup) for r in own),
            "step_cpu_s": min(r.timed("step_cpu_s", warmup) for r in own),
            "growth_bytes": min(r.growth_bytes for r in own),
        })
    return rows


def ratios(rows: list[dict]) -> dict:
    """PyTorch over limbeck, each at its own best setting."""
    ours, theirs = ([row for row in rows if row["program"] == program]
                    for program in ("limbeck", "pytorch"))

    def least(of: list[dict], key: str) -> dict:
        return min(of, key=lambda row: row[key])

    fastest, fastest_peer = least(ours, "step_s"), least(theirs, "step_s")
    return {
        "limbeck_setting": fastest["title"], "pytorch_setting": fastest_peer["title"],
        "wall": fastest_peer["step_s"] / fastest["step_s"],
        "cpu": least(theirs, "step_cpu_s")["step_cpu_s"] / least(ours, "step_cpu_s")["step_cpu_s"],
        "memory": least(theirs, "growth_bytes")["growth_bytes"]
        / least(ours, "growth_bytes")["growth_bytes"],
    }


def settings(args) -> list[Setting]:
    """Neighbours are what is compared with each other."""
    return [Setting(program, threads, policy, compiled)
            for threads in args.threads for policy in args.policies
            for program, compiled in [("limbeck", "none"), *(("pytorch", c) for c in args.compile)]]


def measure(size: sizes.Size, args, work: Path) -> dict:
    bench = Bench(size, args, work)
    order = settings(args)
    results = []
    for round_number in range(args.rounds):
        for setting in order if round_number % 2 == 0 else reversed(order):
            results.append(bench.run(setting))
            best = 1e3 * results[-1].timed("step_s", args.warmup)
            print(f"{size.name}: round {round_number + 1}, {setting.program}, {setting}: "
                  f"{best:.1f} ms", file=sys.stderr, flush=True)
    report = {"size": size.name, "batch": size.batch, "warmup": args.warmup, "steps": bench.steps,
              **compare(results), "runs": [asdict(r) for r in results]}
    if report["is_equal"]:
        report["settings"] = best_by_setting(results, args.warmup)
        report["ratios"] = ratios(report["settings"])
    return report


# ---- Telling


def machine(args) -> dict:
    name, cores = "unknown processor", len(os.sched_getaffinity(0))
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    version = subprocess.run([str(args.build / "bin" / "limbeck"), "--version"],
                             capture_output=True, text=True, check=True).stdout.strip()
    return {"processor": name, "cores": cores, "load_at_start": round(os.getloadavg()[0], 2),
            "limbeck": version, "build": args.build.name, "date": time.strftime("%Y-%m-%d")}


def machine_line(report: dict) -> str:
    about = report["machine"]
    return (f"{about['processor']}, {about['cores']} cores, {about['isa']}; torch "
            f"{about['torch']}; {about['limbeck']}, build '{about['build']}'; {about['date']}; "
            f"load {about['load_at_start']} at the start")


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths)) + " |"

    return "\n".join([line(header), "|" + "|".join("-" * (w + 2) for w in widths) + "|",
                      *map(line, rows)])


def tell(report: dict) -> str:
    """The report as Markdown: a summary, then every setting."""
    parts = [machine_line(report)]
    summary, details = [], []
    for size in report["sizes"]:
        equal = [f"{size['loss_deviation']:.1e}", f"{size['grad_norm_deviation']:.1e}"]
        if not size["is_equal"]:
            summary.append([size["size"], *equal, "**not equal**", "", "", "", ""])
            continue
        r, rows = size["ratios"], size["settings"]
        best = {row["program"]: 0.0 for row in rows}
        for program in best:
            best[program] = 1e3 * min(row["step_s"] for row in rows if row["program"] == program)
        summary.append([
            size["size"], *equal, f"{best['limbeck']:.1f} ({r['limbeck_setting']})",
            f"{best['pytorch']:.1f} ({r['pytorch_setting']})", f"**{r['wall']:.2f}**",
            f"{r['cpu']:.2f}", f"{r['memory']:.2f}"])
        details += [[size["size"], row["program"], row["title"], f"{1e3 * row['step_s']:.1f}",
                     f"{1e3 * row['step_cpu_s']:.1f}", f"{row['growth_bytes'] / 1e6:.0f}"]
                    for row in rows]
    parts.append(table(["size", "loss differs by", "norm differs by", "limbeck ms", "PyTorch ms",
                        "wall ratio", "CPU ratio", "memory ratio"], summary))
    if details:
        parts.append(table(["size", "program", "setting", "ms per step", "CPU ms per step",
                            "memory growth MB"], details))
    for size in report["sizes"]:
        if not size["is_equal"]:
            parts.append(f"{size['size']}: not the same work, so no ratio. First losses "
                         f"{size['losses']}, gradient norms {size['grad_norms']}")
    return "\n\n".join(parts)


def list_of(known):
    """An argparse type: words separated by commas, all of `known`."""

    def parse(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(known)}")
        return words

    return parse


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench peer", description=__doc__)
    parser.add_argument("--sizes", type=list_of(sizes.names()), default=["quick", "tiny", "small"],
                        help=f"of {', '.join(sizes.names())}")
    parser.add_argument("--threads", type=lambda text: [count(t) for t in text.split(",")],
                        default=[1, 2])
    parser.add_argument("--policies", type=list_of(POLICIES), default=list(POLICIES),
                        help="values of OMP_WAIT_POLICY; default: not set, threads spin")
    parser.add_argument("--compile", type=list_of(("none", "blocks")), default=["none"],
                        help="how PyTorch runs: none (eager), blocks (torch.compile)")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--warmup", type=count, default=2, help="steps that are not timed")
    parser.add_argument("--steps", type=count, help="timed steps of a run; default by size")
    parser.add_argument("--build", type=Path, default=HERE.parent / "build" / "release",
                        help="build folder of limbeck")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    parser.add_argument("--keep", type=Path, help="folder for inputs and outputs, which stay there")
    parser.add_argument("--show", type=Path, help="print the tables of such a file; run nothing")
    args = parser.parse_args()
    if "none" not in args.compile:
        args.compile.insert(0, "none")  # the reference for losses
    if args.steps is not None and args.warmup + args.steps < COMPARED_STEPS:
        parser.error(f"--warmup and --steps together are less than {COMPARED_STEPS}")
    args.build = args.build.resolve()
    return args


def check_places(args) -> None:
    """Whatever would fail after minutes, now."""
    for needed in (args.build / "bin" / "limbeck", args.build / "bench" / "step_cpu.so"):
        if not needed.exists():
            raise BenchError(f"{needed} is not there; build it first with scripts/setup, or name "
                             "another build folder with --build")
    if args.json and not args.json.resolve().parent.is_dir():
        raise BenchError(f"--json: there is no folder {args.json.resolve().parent}")
    for size in args.sizes:
        if args.keep and (args.keep / size).exists():
            raise BenchError(f"--keep: {args.keep / size} exists; remove it or name another folder")


def measure_all(args) -> dict:
    check_places(args)
    report = {"machine": machine(args), "sizes": []}
    with tempfile.TemporaryDirectory(prefix="limbeck-bench-") as temporary:
        work = (args.keep or Path(temporary)).resolve()
        for name in args.sizes:
            report["sizes"].append(measure(sizes.load(name), args, work))
            about = next(run["about"] for run in report["sizes"][-1]["runs"] if run["about"])
            report["machine"].update(isa=about["isa"], torch=about["torch"])
            if args.json:
                args.json.write_text(json.dumps(report, indent=1) + "\n")
    return report


def main() -> int:
    args = parse_arguments()
    try:
        report = json.loads(args.show.read_text()) if args.show else measure_all(args)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(tell(report))
    busy = report["machine"]["load_at_start"]
    if busy > 0.5:
        print(f"\nOther programs were running (load {busy}): only the CPU ratio means something.")
    return 0 if all(size["is_equal"] for size in report["sizes"]) else 1


if __name__ == "__main__":
    sys.exit(main())
