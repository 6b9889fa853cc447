#!/usr/bin/env python3
"""Holds what a calibration predicts of the plans that ran on a GPU, none of which it has seen, against their times.

Usage: judge.py ORRERY CALIBRATION.yaml FOLDER…     FOLDER: of a call of scripts/gpu-check, or its results.tar.gz
       judge.py --unpack FOLDER TARGET              what its archive has, below TARGET
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile

from reading import median, number, objects, parsed
from steps import extract

JUDGED = ("gpt2", "unseen", "speed")  # plans of tests are too small to be worth a prediction


def unpack(results, target):
    """-> whether there was an archive."""
    results = pathlib.Path(results)
    archive = results if results.is_file() else results / "results.tar.gz"
    if archive.exists():
        extract(archive, target)
    return archive.exists()


def measured(folder, name):
    """Step time and memory of a run; None where it gave no figure."""
    rows, _ = objects(folder / f"run-{name}/metrics.jsonl")
    time = median([number(row.get("step_time_s")) for row in rows[len(rows) // 2 :]])  # behind what warms up
    memory = number(rows[-1].get("memory_peak_bytes")) if rows else None
    return (time, memory) if time and memory else None


def row(orrery, calibration, plan):
    """A line of the table and, where there is one, the relative error of the prediction."""
    name = plan.stem[5:]
    ran = measured(plan.parent, name)
    if ran is None:
        return f"| {name} | did not run | | | | |", None
    time, memory = ran
    said = subprocess.run(
        [orrery, "simulate", str(plan), "--calibration", calibration, "--json"], capture_output=True, text=True
    )
    result = (parsed(said.stdout) or {}).get("result") if said.returncode == 0 else None
    if not result:
        why = said.stderr.strip().splitlines()[-1] if said.stderr.strip() else "nothing"
        return f"| {name} | {time * 1e3:.1f} ms | {why} | | | |", None
    error = result["step_time_s"] / time - 1
    return (
        f"| {name} | {time * 1e3:.1f} ms | {result['step_time_s'] * 1e3:.1f} ms | {100 * error:+.1f} % "
        f"| {memory / 2**20:.0f} MiB | {result['memory_peak_bytes'] / 2**20:.0f} MiB |"
    ), error


def judge(orrery, calibration, folders):
    errors = []
    print("| plan | measured | predicted | error | memory measured | predicted |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for number_, results in enumerate(folders):
            folder = pathlib.Path(work) / str(number_)
            if not unpack(results, folder):
                folder = pathlib.Path(results)
            for plan in sorted(folder.glob("plan-*.yaml")):
                if plan.stem[5:].startswith(JUDGED):
                    line, error = row(orrery, calibration, plan)
                    print(line)
                    errors += [] if error is None else [abs(error)]
    if errors:
        worst = f"worst {100 * max(errors):.1f} %, of {len(errors)} plans"
        print(f"\nmedian error {100 * statistics.median(errors):.1f} %, {worst}")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--unpack":
        sys.exit(0 if unpack(sys.argv[2], sys.argv[3]) else 1)
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    judge(sys.argv[1], sys.argv[2], sys.argv[3:])
