# SPDX-License-Identifier: Apache-2.0
"""Puts the numbers of a quickstart into one flat JSON file, and says where time went and files are.

usage: quickstart_summary.py OUTPUT name=value...
"""

import json
import sys
from pathlib import Path

# Of a sampler: its name in the report of the distillation, and for people.
SAMPLERS = [("teacher40_cfg2", "teacher, 40 steps, CFG 2"), ("teacher4", "teacher, 4 steps"),
            ("student4", "student, 4 steps"), ("student2", "student, 2 steps"),
            ("student1", "student, 1 step")]
MEASURES = [("acc", ".3f"), ("clip", ".3f"), ("fd", ".1f"), ("mot", ".3f"), ("div", ".1f")]


def number(text: str):
    """An int, a float, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def step_seconds(metrics: Path) -> float:
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return sum(step.get("step_time_sec", 0.0) for step in steps)


def table(report: dict) -> str:
    lines = ["sampler".ljust(26) + "".join(name.rjust(8) for name, _ in MEASURES)]
    for name, title in SAMPLERS:
        values = [report[f"{name}.{measure}"] for measure, _ in MEASURES]
        cells = [("-" if value is None else format(value, form)).rjust(8)
                 for value, (_, form) in zip(values, MEASURES)]
        lines.append(title.ljust(26) + "".join(cells))
    return "\n".join(lines)


def main() -> int:
    output = Path(sys.argv[1])
    summary = {key: number(value) for key, _, value in (item.partition("=") for item in sys.argv[2:])}
    training = step_seconds(output / "sft/metrics.jsonl")
    distilling = step_seconds(output / "dmd2/metrics.jsonl")
    summary["training_seconds"] = round(training, 1)
    summary["distillation_seconds"] = round(distilling, 1)
    summary["sampling_and_report_seconds"] = round(
        summary["model_seconds"] + summary["distil_seconds"] - training - distilling, 1)
    judge = json.loads((output / "judge/judge.json").read_text())
    sft = json.loads((output / "sft/report.json").read_text())
    dmd2 = json.loads((output / "dmd2/report.json").read_text())
    passed = all([bool(report.pop("passed")) for report in (judge, sft, dmd2)])
    summary.update(judge, **sft)
    summary.update({f"dmd2.{name}": value for name, value in dmd2.items()}, passed=passed)
    path = output / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n")

    print()
    print(table(dmd2))
    print()
    print(f"set-up {summary['setup_seconds']} s, build {summary['build_seconds']} s, "
          f"judge and data {summary['judge_seconds']} s, training {summary['training_seconds']} s, "
          f"distillation {summary['distillation_seconds']} s, sampling and reports "
          f"{summary['sampling_and_report_seconds']} s on {summary['threads']} threads")
    for name, what in [("dmd2/samples.png", "teacher and student side by side, a row for each digit"),
                       ("dmd2/samples.gif", "the same, moving"),
                       ("sft/samples.png", "two clips of every digit by the teacher"),
                       ("sft/loss.png", "the teacher's training loss")]:
        print(f"{output / name}  {what}")
    print(f"{path}  every number")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
