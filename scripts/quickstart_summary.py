# SPDX-License-Identifier: Apache-2.0
"""Puts the numbers of a quickstart into one flat JSON file, and says where time went and files are.

usage: quickstart_summary.py OUTPUT name=value...
"""

import json
import sys
from pathlib import Path


def number(text: str):
    """An int, a float, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def main() -> int:
    output = Path(sys.argv[1])
    summary = {key: number(value) for key, _, value in (item.partition("=") for item in sys.argv[2:])}
    steps = [json.loads(line) for line in (output / "sft/metrics.jsonl").read_text().splitlines()]
    training = sum(step.get("step_time_sec", 0.0) for step in steps)
    summary["training_seconds"] = round(training, 1)
    summary["sampling_and_report_seconds"] = round(summary["model_seconds"] - training, 1)
    judge = json.loads((output / "judge/judge.json").read_text())
    report = json.loads((output / "sft/report.json").read_text())
    passed = bool(judge.pop("passed")) and bool(report.pop("passed"))
    summary.update(judge, **report, passed=passed)
    path = output / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n")

    print()
    print(f"set-up {summary['setup_seconds']} s, build {summary['build_seconds']} s, "
          f"judge and data {summary['judge_seconds']} s, training {summary['training_seconds']} s, "
          f"sampling and report {summary['sampling_and_report_seconds']} s "
          f"on {summary['threads']} threads")
    for name, what in [("samples.png", "the samples, a row for each digit"),
                       ("samples.gif", "the same, moving"),
                       ("loss.png", "the training loss")]:
        print(f"{output / 'sft' / name}  {what}")
    print(f"{path}  every number")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
