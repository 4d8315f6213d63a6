"""What attacks that descend read at their own number of steps and at twice as many, on the same units.

    python benchmarks/convergence.py                       # continues benchmarks/results/convergence.csv
    python benchmarks/convergence.py --setting vertical --attack ginver

German Credit, the setting's defaults, one unit (twenty victims of eight records in horizontal learning). An attack
whose reading rises by more than two points had not arrived. Attacks without a number of steps, iterations or epochs
have none to double.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Mapping
from pathlib import Path

from csv_lines import signed

import seepage
from seepage import registry
from seepage.results.checks.descent import steps_of
from seepage.settings.part import Part

OUT = Path(__file__).parent / "results" / "convergence.csv"
FIELDS = ("setting", "attack", "options", "figure", "read", "read_at_twice", "rise", "n", "seconds", "seconds_at_twice")
SETTINGS = ("horizontal", "split", "vertical", "pooled", "trees")
UNITS = {"horizontal": {"victims": 20, "batch_sizes": 8}}
# What attacks need beyond their setting's defaults: activations of a client that holds all columns, a column whose
# share is asked for, sums over another party's columns.
NEEDS: dict[tuple[str, str], dict[str, str]] = {
    **{("split", name): {"topology": "vanilla"} for name in ("ginver", "informed_sa", "layer_inversion")},
    ("pooled", "deep_sets"): {"sensitive": "telephone"},
    ("trees", "bin_sums"): {"protocol": "secureboost"},
}


def read(setting: str, name: str, options: Mapping[str, int]) -> tuple[str, float | None, int, float]:
    """Return the name of the figure, the share that an attack reads in percent, the units and its processor seconds."""
    begun = time.process_time()
    fixed = {"baselines": (), "control": False, "workers": 1, "device": "cpu", "seed": 5}
    units = UNITS.get(setting, {"repetitions": 1})
    fixed |= NEEDS.get((setting, name), {})
    attack = Part(name=name, options=dict(options))
    report = seepage.audit("german", setting=setting, attacks=[attack], **fixed, **units)
    seconds = time.process_time() - begun
    figures = {row.column: row for row in report.rows if row.is_attack and row.metric == "accuracy"}
    if not figures:
        return "", None, 0, seconds
    column = None if None in figures else next(iter(figures))
    row = figures[column]
    return column or "all cells", None if row.mean is None else 100 * row.mean, row.n, seconds


def compared(setting: str, name: str) -> dict[str, object] | None:
    """Return a line of the results; None for an attack without steps."""
    numbers = steps_of(registry.attacks.of(setting).create(name))
    if not numbers:
        return None
    line: dict[str, object] = {"setting": setting, "attack": name}
    line["options"] = " ".join(f"{option}={number}" for option, number in numbers.items())
    try:
        figure, once, n, seconds = read(setting, name, numbers)
        _, twice, _, longer = read(setting, name, {option: 2 * number for option, number in numbers.items()})
    except seepage.BadInputError as error:
        return {**line, "figure": f"not run: {str(error)[:100]}"}
    if once is None or twice is None:
        return {**line, "figure": "no accuracy"}
    values = (figure, round(once, 1), round(twice, 1), round(twice - once, 1), n, round(seconds, 1), round(longer, 1))
    return {**line, **dict(zip(FIELDS[3:], values, strict=True))}


def main() -> None:
    """Compare what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=SETTINGS, action="append")
    parser.add_argument("--attack", action="append")
    chosen = parser.parse_args()
    done = set()
    if OUT.exists():
        with OUT.open(newline="") as file:
            done = {(line["setting"], line["attack"]) for line in csv.DictReader(file)}
    with OUT.open("a", newline="") as file:
        lines = csv.DictWriter(file, (*FIELDS, "commit"), lineterminator="\n")
        if not done:
            lines.writeheader()
        for setting in chosen.setting or SETTINGS:
            for name in registry.attacks.of(setting).names():
                if (setting, name) in done or (chosen.attack and name not in chosen.attack):
                    continue
                line = compared(setting, name)
                if line is not None:
                    lines.writerow(signed(line))
                    file.flush()
                    print(*(line.get(field, "") for field in FIELDS), flush=True)


if __name__ == "__main__":
    main()
