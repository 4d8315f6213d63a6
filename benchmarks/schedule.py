"""What matching attacks read by number and size of their steps, on the same victims, and the processor time of each.

    python benchmarks/schedule.py                  # continues benchmarks/results/schedule.csv
    python benchmarks/schedule.py --dataset german

The victims are none of those that a published table reports. Seconds are processor seconds a victim, start-up included.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from csv_lines import signed
from recommend import processor_seconds

import seepage
from seepage.settings.part import Part

OUT = Path(__file__).parent / "results" / "schedule.csv"
WAY = ("dataset", "protocol", "batch_size", "defense", "attack", "steps", "step", "schedule")
FIELDS = (*WAY, "victims", "mean", "std")
# As published; by its number of steps and first step, falling along a cosine.
PUBLISHED = (1500, 0.06, "constant")
FALLING = tuple((steps, step, "cosine") for steps, step in ((300, 0.5), (400, 0.35), (500, 0.25), (500, 0.35)))
# Of unconstrained rows.
LONGER = (3000, 0.12, "cosine")
FEDAVG = {"local_batch_size": 8, "epochs": 5, "learning_rate": 0.01}
NOISE = "gaussian_noise:{scale: 0.01}"
# Dataset, protocol, batch size, defense, attack, victims.
CASES = (
    *((name, "fedsgd", 32, "none", "tableak", 8) for name in ("german", "adult", "lawschool")),
    *((name, "fedsgd", 8, "none", "tableak", 10) for name in ("german", "adult", "lawschool")),
    *((name, "fedavg", 32, "none", "tableak", 5) for name in ("german", "adult")),
    ("german", "fedsgd", 32, NOISE, "tableak", 5),
    ("german", "fedsgd", 32, "none", "inverting_gradients", 6),
    ("adult", "fedsgd", 8, "none", "inverting_gradients", 6),
    *((name, "fedsgd", size, "none", "dlg", 20) for name in ("german", "adult") for size in (8, 32)),
)


def measured(case: tuple[str, str, int, str, str, int], descent: tuple[int, float, str]) -> dict[str, object]:
    """Return one line of the results."""
    dataset, protocol, batch_size, defense, attack, victims = case
    steps, step, schedule = descent
    begun = processor_seconds()
    report = seepage.audit(
        dataset,
        attacks=[Part(name=attack, options={"iterations": steps, "step": step, "schedule": schedule})],
        **{"baselines": (), "metrics": ("accuracy",), "control": False, "labels": "true", "replacement": True},
        **{"protocol": protocol, "protocol_options": FEDAVG if protocol == "fedavg" else {}, "defenses": (defense,)},
        **{"batch_sizes": batch_size, "victims": victims, "seed": 77, "model_seed": 0, "workers": 1, "device": "cpu"},
    )
    [row] = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    values = (*case[:5], *descent, victims, round(row.mean or 0, 4), round(row.std or 0, 4))
    return {**dict(zip(FIELDS, values, strict=True)), "seconds": round((processor_seconds() - begun) / victims, 2)}


def main() -> None:
    """Measure what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", action="append")
    chosen = parser.parse_args().dataset
    done = set()
    if OUT.exists():
        with OUT.open(newline="") as file:
            done = {tuple(line[name] for name in WAY) for line in csv.DictReader(file)}
    with OUT.open("a", newline="") as file:
        lines = csv.DictWriter(file, [*FIELDS, "seconds", "commit"])
        if not done:
            lines.writeheader()
        for case in CASES:
            for descent in (PUBLISHED, LONGER) if case[4] == "dlg" else (PUBLISHED, *FALLING):
                if (chosen is None or case[0] in chosen) and tuple(map(str, (*case[:5], *descent))) not in done:
                    lines.writerow(signed(measured(case, descent)))
                    file.flush()


if __name__ == "__main__":
    main()
