"""What `unmix` reads and proves, beside TabLeak and SPEAR: by table, batch size, network, local training and noise.

    python benchmarks/unmix.py batch --victims 20 --batch-size 32 --out benchmarks/results/unmix_batch.csv
    python benchmarks/unmix.py batch --victims 10 --out benchmarks/results/unmix_batch.csv
    python benchmarks/unmix.py network --victims 10 --out benchmarks/results/unmix_network.csv
    python benchmarks/unmix.py training --victims 10 --out benchmarks/results/unmix_training.csv
    python benchmarks/unmix.py fedavg --victims 10 --out benchmarks/results/unmix_fedavg.csv
    python benchmarks/unmix.py noise --victims 10 --out benchmarks/results/unmix_noise.csv
    python benchmarks/unmix.py normalised --victims 10 --out benchmarks/results/unmix_normalised.csv

Labels restored. `batch`: FedSGD, NN3 (2 x 100 units) untrained on four tables. `network`: Adult at batch size 32, one
to three hidden layers of 50 to 400 units. `training`: Adult at batch size 32, NN3 after rounds of training. `fedavg`:
Adult, clients of 32 records that train for 1, 5 or 10 epochs in 1, 2 or 4 shuffled batches at rate 0.01. `noise`:
Adult at batch size 32, gradients with noise whose standard deviation the attacker knows, and the accuracy of the task
where all clients add it. `normalised`: networks with batch normalisation, whose statistics are granted. The same
victims for all attacks. SPEAR gets as many submatrices as take it the mean time of `unmix` on the first victim,
doubled from 1,024 until it does. Seconds are of one process with one thread, of the attack alone; under `certified`
the share of records proved, under `whole` the victims all of whose records are. `deficient` are the victims whose
encoded rows with a column of ones are linearly dependent; their cells also stand apart. A line that is in the file is
not measured again.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from csv_lines import add_lines, read_lines

from seepage import registry
from seepage.assessment import measure
from seepage.assessment.measurement import Measurement
from seepage.assessment.utility import measure_utility
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.defenses.none import Undefended
from seepage.devices import keep_freed_memory
from seepage.learning import batch_statistics
from seepage.models.mlp import mlp
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import stream
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.tabular.encoder import Encoder
from seepage.tabular.rank import rank_ceiling
from seepage.wire.horizontal import Knowledge, RecordsGuess, View
from seepage.wire.secret import RecordsSecret

TABLES = ("adult", "german", "lawschool", "health_heritage")
KEYS = ("dataset", "network", "hidden_layers", "units", "rounds", "epochs", "batches", "noise", "batch_size", "attack")
USUAL = {
    "dataset": "adult",
    "network": "mlp",
    "hidden_layers": 2,
    "units": 100,
    "rounds": 0,
    "epochs": 0,
    "batches": 1,
    "noise": 0.0,
}
FIGURES = ("accuracy", "exact_match", "certified", "certified_wrong")
FIELDS = [*KEYS, "n", *(f"{name}{end}" for name in FIGURES for end in ("", "_low", "_high"))]
FIELDS += [
    "whole",
    "deficient",
    "accuracy_deficient",
    "seconds",
    "longest",
    "submatrices",
    "task_accuracy",
    "commit",
    "kernel",
]
# Fewest submatrices that SPEAR gets, and most, where it is done in less time.
LEAST, MOST = 2**10, 2**24


def main() -> None:
    """Add one line a setting to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=sorted(SWEEPS))
    parser.add_argument("--victims", type=int, default=20)
    parser.add_argument("--batch-size", type=int, nargs="*", help="only these")
    parser.add_argument("--dataset", choices=TABLES, nargs="*", help="only these")
    parser.add_argument("--attack", choices=("unmix", "tableak", "spear"), nargs="*", help="only these")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    done = {tuple(line[key] for key in KEYS): line for line in read_lines(arguments.out)}
    own = 0.0
    for setting in SWEEPS[arguments.sweep]():
        chosen = {name: getattr(arguments, name) for name in ("batch_size", "dataset", "attack")}
        if any(only and setting[name] not in only for name, only in chosen.items()):
            continue
        held: Mapping[str, object] | None = done.get(tuple(str(setting[key]) for key in KEYS))
        if held is None:
            held = setting | run(setting, arguments.victims, own)
            add_lines(arguments.out, FIELDS, [held])
        if setting["attack"] == "unmix":
            own = float(str(held["seconds"]))


def setting(**values: Any) -> dict[str, Any]:
    """Return a setting by the names of the file's columns."""
    given = {**USUAL, "batch_size": 32, "attack": "unmix", **values}
    return {key: given[key] for key in KEYS}


def by_batch() -> Iterator[dict[str, Any]]:
    """Four tables and many batch sizes; `tableak`, the slow one, at the powers of two."""
    for size in (32, 16, 8, 64, 128, 4, 24, 48, 80, 90):
        beside = ("tableak", "spear") if size.bit_count() == 1 else ("spear",)
        for dataset in TABLES:
            for attack in ("unmix", *beside):
                yield setting(dataset=dataset, batch_size=size, attack=attack)


def by_network() -> Iterator[dict[str, Any]]:
    """Depths and widths."""
    for depth in (2, 3, 1):
        for units in (50, 100, 200, 400):
            yield setting(hidden_layers=depth, units=units)


def by_training() -> Iterator[dict[str, Any]]:
    """Rounds of training before the attack."""
    for rounds in (0, 1, 4, 9, 14, 50, 200):
        yield setting(rounds=rounds)


def by_local_training() -> Iterator[dict[str, Any]]:
    """Local epochs and batches."""
    for epochs in (10, 1, 5):
        for batches in (4, 1, 2):
            yield setting(epochs=epochs, batches=batches)


def by_noise() -> Iterator[dict[str, Any]]:
    """Standard deviations of the noise."""
    for noise in (0.0, 1e-6, 1e-5, 3e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        yield setting(noise=noise)


def by_normalisation() -> Iterator[dict[str, Any]]:
    """Networks with batch normalisation."""
    for network, sizes in (("resnet_bn", (32, 8, 16, 64, 80)), ("cnn_bn", (32,))):
        for size in sizes:
            for dataset in TABLES if network == "resnet_bn" else TABLES[:2]:
                yield setting(dataset=dataset, network=network, batch_size=size)


SWEEPS = {
    "normalised": by_normalisation,
    "batch": by_batch,
    "network": by_network,
    "training": by_training,
    "fedavg": by_local_training,
    "noise": by_noise,
}


def run(setting: dict[str, Any], victims: int, own: float) -> dict[str, object]:
    """Attack the victims of a setting one after the other.

    Args:
        setting: which.
        victims: how many.
        own: mean seconds that `unmix` took for a victim of the same setting.
    """
    rounds, noise = setting["rounds"], setting["noise"]
    network = "nn3" if setting["network"] == "mlp" else setting["network"]
    spec = make_spec(dataset=setting["dataset"], model=network, training={"rounds": rounds} if rounds else None)
    subject = prepare(spec)
    data, records = subject.dataset, setting["batch_size"]
    usual = (setting["hidden_layers"], setting["units"]) == (2, 100)
    model = subject.model if usual else mlp(data.schema, [setting["units"]] * setting["hidden_layers"], seed=0)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    seeds = [stream(0, victim, "batch") for victim in range(victims)]
    defense = GaussianNoise(noise) if noise else Undefended()
    if setting["epochs"]:
        each = records // setting["batches"]
        protocol = FedAvg(records, epochs=setting["epochs"], local_batch_size=each, learning_rate=0.01)
    else:
        protocol = FedSGD(records, replacement=False, defense=defense if noise else None)
    guards = [stream(0, victim, "defense") for victim in range(victims)]
    ran = protocol.run(model, data.train, encoder, seeds, defense_seeds=guards if noise else ())
    known = Knowledge(data.schema, data.statistics, records, defense=defense.describe())
    if granted := batch_statistics(model, encoder.encode(ran.secret.cells)):
        known = replace(known, batch_statistics=granted)
    starts = [stream(0, victim, "starts") for victim in range(victims)]
    options: dict[str, Any] = {}
    if setting["attack"] == "spear":
        options["submatrices"] = LEAST
        first = ran.view.of(slice(1)), known.of(slice(1)), starts[:1]
        while options["submatrices"] < MOST and timed(registry.attacks.create("spear", **options), *first)[1] < own:
            options["submatrices"] *= 2
    attack = registry.attacks.create(setting["attack"], **options)
    held: dict[str, list[float]] = {name: [] for name in FIGURES}
    seconds = []
    deficient = []
    for victim in range(victims):
        one = slice(victim, victim + 1)
        guess, taken = timed(attack, ran.view.of(one), known.of(one), starts[one])
        seconds.append(taken)
        secret = RecordsSecret(ran.secret.cells[one], ran.secret.labels[one])
        deficient.append(rank_ceiling(Encoder(data.schema, data.statistics), secret.cells[0]) < records)
        found = {
            m.metric: float(m.values[0])
            for m in measure(data.schema, data.statistics, secret, guess)
            if isinstance(m, Measurement) and m.column is None
        }
        for name in FIGURES:
            held[name].append(found.get(name, math.nan))
    line: dict[str, object] = {"n": victims, **options}
    for name, values in held.items():
        found = Measurement(name, None, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0)).estimate()
        for end, value in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            line[f"{name}{end}"] = None if value is None else round(value, 4)
    if noise:
        task = measure_utility(data, model, encoder, records, defense)
        line["task_accuracy"] = task.estimate().mean
    whole = sum(value == 1 for value in held["certified"])
    dependent = [value for value, one in zip(held["accuracy"], deficient, strict=True) if one]
    line |= {"deficient": len(dependent), "accuracy_deficient": round(fmean(dependent), 4) if dependent else None}
    line |= {"whole": f"{whole}/{victims}", "seconds": round(sum(seconds) / victims, 2)}
    return line | {"longest": round(max(seconds), 2)}


def timed(attack: Any, view: View, known: Knowledge, seeds: list[int]) -> tuple[RecordsGuess, float]:
    """Return a guess and the seconds that it took."""
    begun = time.perf_counter()
    guess = attack(view, known, seeds)
    return guess, time.perf_counter() - begun


if __name__ == "__main__":
    main()
