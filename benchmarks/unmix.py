"""What `unmix` reads and proves, beside TabLeak: by table, batch size, network and noise.

    python benchmarks/unmix.py batch --victims 20 --out benchmarks/results/unmix_batch.csv
    python benchmarks/unmix.py network --victims 10 --out benchmarks/results/unmix_network.csv
    python benchmarks/unmix.py training --victims 10 --out benchmarks/results/unmix_training.csv

FedSGD without a defense, labels restored. `batch`: NN3 (2 x 100 units) untrained on four tables. `network`: Adult at
batch size 32, one to three hidden layers of 50 to 400 units. `training`: Adult at batch size 32, NN3 after rounds of
training. The same victims for both attacks. Seconds are of one process with one thread, of the attack alone; under
`certified` the share of records proved, under `whole` the victims all of whose records are. A line that is in the file
is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from seepage.assessment import measure
from seepage.assessment.measurement import Measurement
from seepage.audit import make_spec, prepare, stream
from seepage.audit.memory import keep_freed_memory
from seepage.audit.provenance import commit
from seepage.knowledge import Knowledge
from seepage.models.mlp import mlp
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.transcript import RecordsSecret

TABLES = ("adult", "german", "lawschool", "health_heritage")
KEYS = ("dataset", "hidden_layers", "units", "rounds", "batch_size", "attack")
FIGURES = ("accuracy", "exact_match", "certified", "certified_wrong")
FIELDS = [*KEYS, "n", *(f"{name}{end}" for name in FIGURES for end in ("", "_low", "_high"))]
FIELDS += ["whole", "seconds", "longest", "commit"]


def main() -> None:
    """Add one line a setting to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=sorted(SWEEPS))
    parser.add_argument("--victims", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    done = set()
    if arguments.out.exists():
        with arguments.out.open(encoding="utf-8", newline="") as file:
            done = {tuple(line[key] for key in KEYS) for line in csv.DictReader(file)}
    for setting in SWEEPS[arguments.sweep]():
        if tuple(str(setting[key]) for key in KEYS) in done:
            continue
        line = setting | run(setting, arguments.victims)
        begun = arguments.out.exists()
        with arguments.out.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if not begun:
                writer.writeheader()
            writer.writerow(line | {"commit": str((commit() or {}).get("hash", ""))[:9]})


def setting(dataset: str, depth: int, units: int, rounds: int, batch_size: int, attack: str) -> dict[str, Any]:
    """Return a setting by the names of the file's columns."""
    return dict(zip(KEYS, (dataset, depth, units, rounds, batch_size, attack), strict=True))


def by_batch() -> Iterator[dict[str, Any]]:
    """Four tables and many batch sizes."""
    for dataset in TABLES:
        for size in (4, 8, 16, 24, 32, 48, 64, 80, 90):
            yield setting(dataset, 2, 100, 0, size, "unmix")
    for size in (32, 8, 64):
        for dataset in TABLES:
            yield setting(dataset, 2, 100, 0, size, "tableak")


def by_network() -> Iterator[dict[str, Any]]:
    """Depths and widths."""
    for depth in (2, 3, 1):
        for units in (50, 100, 200, 400):
            yield setting("adult", depth, units, 0, 32, "unmix")


def by_training() -> Iterator[dict[str, Any]]:
    """Rounds of training before the attack."""
    for rounds in (0, 1, 4, 9, 14, 50, 200):
        yield setting("adult", 2, 100, rounds, 32, "unmix")


SWEEPS = {"batch": by_batch, "network": by_network, "training": by_training}


def run(setting: dict[str, Any], victims: int) -> dict[str, object]:
    """Attack the victims of a setting one after the other."""
    rounds = setting["rounds"]
    spec = make_spec(dataset=setting["dataset"], model="nn3", training={"rounds": rounds} if rounds else None)
    subject = prepare(spec)
    data, records = subject.dataset, setting["batch_size"]
    own = (setting["hidden_layers"], setting["units"]) == (2, 100)
    model = subject.model if own else mlp(data.schema, [setting["units"]] * setting["hidden_layers"], seed=0)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    seeds = [stream(0, victim, "batch") for victim in range(victims)]
    ran = FedSGD(records, replacement=False).run(model, data.train, encoder, seeds)
    attack = attacks.create(setting["attack"])
    known = Knowledge(data.schema, data.statistics, records)
    held: dict[str, list[float]] = {name: [] for name in FIGURES}
    seconds = []
    for victim in range(victims):
        one = slice(victim, victim + 1)
        begun = time.perf_counter()
        guess = attack(ran.view.of(one), known, [stream(0, victim, "starts")])
        seconds.append(time.perf_counter() - begun)
        found = {
            m.metric: float(m.values[0])
            for m in measure(
                data.schema, data.statistics, RecordsSecret(ran.secret.cells[one], ran.secret.labels[one]), guess
            )
            if isinstance(m, Measurement) and m.column is None
        }
        for name in FIGURES:
            held[name].append(found.get(name, math.nan))
    line: dict[str, object] = {"n": victims}
    for name, values in held.items():
        found = Measurement(name, None, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0)).estimate()
        for end, value in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            line[f"{name}{end}"] = None if value is None else round(value, 4)
    whole = sum(value == 1 for value in held["certified"])
    line |= {"whole": f"{whole}/{victims}", "seconds": round(sum(seconds) / victims, 2)}
    return line | {"longest": round(max(seconds), 2)}


if __name__ == "__main__":
    main()
