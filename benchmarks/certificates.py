"""Whether anything that `unmix` certifies is false: thousands of random networks and batches.

    python benchmarks/certificates.py --victims 10000 --out benchmarks/results/unmix_certificates.csv
    python benchmarks/certificates.py --victims 1000 --sent update --out certificates_update.csv
    python benchmarks/certificates.py --victims 1000 --sent noise --out certificates_noise.csv
    python benchmarks/certificates.py --victims 1000 --sent normalised --out certificates_normalised.csv

Each victim has a network of random depth and widths with a random initialisation, and a batch of a random size from a
random table: rows as they come, rows with copies (under one label or several), or rows of which some are affine
combinations of others (two rows and what comes of swapping some of their columns). A certified record is false if the
batch has no record of its own for it, with the same label, the same categories and numbers that count as right. With
`--sent` the client sends what 1 to 10 epochs over the whole batch changed, or a gradient with noise of a standard
deviation between 1e-8 and 1e-4, in place of an exact gradient; or each of two or three hidden layers is normalised by
the batch, whose statistics are granted. Victims come in blocks of 250, one line a block and kind; a block that is in
the file is not run again.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from seepage import datasets
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets.dataset import Dataset
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.learning import LocalTraining, batch_statistics, gradient, local_update
from seepage.models.batch_norm import BatchNorm
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.run.memory import keep_freed_memory
from seepage.run.provenance import commit
from seepage.tabular.align import right_cells
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, UpdateView, View

TABLES = ("adult", "german", "lawschool", "health_heritage")
KINDS = ("plain", "copies", "hull")
BLOCK = 250
LARGE = 16
FIELDS = ["block", "kind", "victims", "large", "records", "certified", "whole", "false", "seconds", "commit"]


@dataclass
class Tally:
    """Of the victims of a block and kind."""

    victims: int = 0
    large: int = 0
    records: int = 0
    certified: int = 0
    whole: int = 0
    false: int = 0
    seconds: float = 0.0


def main() -> None:
    """Add one line a block and kind to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=10_000)
    parser.add_argument("--sent", choices=("gradient", "update", "noise", "normalised"), default="gradient")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    done: set[int] = set()
    if arguments.out.exists():
        with arguments.out.open(encoding="utf-8", newline="") as file:
            done = {int(line["block"]) for line in csv.DictReader(file)}
    tables = {name: datasets.load(name) for name in TABLES}
    for block in range(-(-arguments.victims // BLOCK)):
        if block in done:
            continue
        tallies = {kind: Tally() for kind in KINDS}
        for victim in range(block * BLOCK, (block + 1) * BLOCK):
            attack_one(victim, tables, tallies, arguments.sent)
        write(arguments.out, block, tallies.items())


def write(out: Path, block: int, tallies: Iterable[tuple[str, Tally]]) -> None:
    """Add the lines of a block."""
    begun = out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not begun:
            writer.writeheader()
        for kind, tally in tallies:
            line = {"block": block, "kind": kind, **vars(tally), "seconds": round(tally.seconds, 1)}
            writer.writerow(line | {"commit": str((commit() or {}).get("hash", ""))[:9]})


def attack_one(victim: int, tables: dict[str, Dataset], tallies: dict[str, Tally], sent: str) -> None:
    """Attack one random victim and count what was certified."""
    generator = torch.Generator().manual_seed(victim)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    data = tables[TABLES[draw(0, len(TABLES) - 1)]]
    normalised = sent == "normalised"
    widths = [draw(20, 120) for _ in range(draw(1 + normalised, 3))]
    records = draw(1 + normalised, max(1, int(0.9 * min(widths))))
    kind = KINDS[draw(0, len(KINDS) - 1)]
    chosen = torch.randint(len(data.train), (records,), generator=generator)
    cells, labels = data.train.cells[chosen].clone(), data.train.labels[chosen].clone()
    if kind == "copies" and records > 1:
        for _ in range(draw(1, min(6, records))):
            cells[draw(0, records - 1)] = cells[draw(0, records - 1)]
    if kind == "hull":
        for first in range(0, min(records - 3, 4 * draw(1, 3)), 4):
            swapped = torch.rand(cells.shape[1], generator=generator) < 0.5
            cells[first + 2] = torch.where(swapped, cells[first], cells[first + 1])
            cells[first + 3] = torch.where(swapped, cells[first + 1], cells[first])
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = mlp(data.schema, widths, seed=victim)
    if normalised:
        *hidden, last = model.module.children()
        norms = [[BatchNorm(part.out_features)] if isinstance(part, nn.Linear) else [] for part in hidden]
        layers = chain.from_iterable([one, *norm] for one, norm in zip(hidden, norms, strict=True))
        model = Model(nn.Sequential(*layers, last), model.head, "normalised")
    rows, told = encoder.encode(cells[None]), labels[None].float()
    known = Knowledge(data.schema, data.statistics, records)
    if sent == "update":
        training = LocalTraining(draw(1, 10), records, learning_rate=0.01)
        epochs = (rows[:, None].expand(-1, training.epochs, -1, -1), told[:, None].expand(-1, training.epochs, -1))
        view: View = UpdateView(model, local_update(model, *epochs, training), training)
    elif sent == "noise":
        defense = GaussianNoise(10.0 ** -draw(4, 8))
        view = GradientView(model, defense(gradient(model, rows, told), [victim]))
        known = replace(known, defense=defense.describe())
    else:
        view = GradientView(model, gradient(model, rows, told))
        known = replace(known, batch_statistics=batch_statistics(model, rows) if normalised else None)
    begun = time.perf_counter()
    guess = unmix(starts=128, restarts=1, iterations=1)(view, known, [victim])
    tally = tallies[kind]
    tally.seconds += time.perf_counter() - begun
    certified = cast(Tensor, guess.certified)[0]
    proved = certified.any(-1)
    tally.victims += 1
    tally.large += records >= LARGE
    tally.records += records
    tally.certified += int(proved.sum())
    tally.whole += bool(certified.all())
    free = list(range(records))
    for i in proved.nonzero()[:, 0].tolist():
        right = right_cells(data.schema, guess.cells[0, i], cells[free]) | ~certified[i]
        fits = right.all(-1) & (labels[free] == cast(Tensor, guess.labels)[0, i])
        if fits.any():
            free.pop(int(fits.long().argmax()))
        else:
            tally.false += 1
            print(f"false: victim {victim}, {kind}, {records} records, widths {widths}", flush=True)


if __name__ == "__main__":
    main()
