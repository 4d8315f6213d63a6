"""Whether anything that `unmix` certifies is false: thousands of random networks and batches of many kinds.

    python benchmarks/certificates.py --victims 10000 --out benchmarks/results/unmix_certificates.csv
    python benchmarks/certificates.py --victims 1000 --sent update --out certificates_update.csv
    python benchmarks/certificates.py --victims 1000 --sent noise --out certificates_noise.csv
    python benchmarks/certificates.py --victims 1000 --sent normalised --out certificates_normalised.csv
    python benchmarks/certificates.py --victims 10000 --sent forms --out certificates_forms.csv
    python benchmarks/certificates.py --victims 1000 --sent written --out certificates_written.csv
    python benchmarks/certificates.py --victims 1000 --sent towers --out certificates_towers.csv
    python benchmarks/certificates.py --count benchmarks/results/unmix_certificates.csv

Each victim has a network of random depth and widths with a random initialisation, and a batch of a random size from a
random table, a real one or one of skewed numbers. Its kind says what else is done, see `KINDS`. False is a certified
record for which the batch has no record of its own with the same label and all certified cells. Where the attacker was
told a wrong batch size, or the message is not what the attacker was told, the conditions of the certificate do not
hold; then false is a certified cell that fits no record of the batches behind the message, and a batch size of which
the certificate says that it leaves the same message, though the true one is no multiple of it.

With `--sent` the client sends what 1 to 10 epochs over the whole batch changed, or a gradient with noise of a standard
deviation between 1e-8 and 1e-4, in place of an exact gradient; or each of two or three hidden layers is normalised by
the batch, whose statistics are granted. `forms` are exact gradients of networks of other forms than a chain of affine
layers and ReLUs, see `forms.py`, of all kinds. `written` are those of networks with products, weight norm or embeddings
of their own, and of residual networks that are normalised by the batch, whose statistics are granted. `towers` are
those of networks in which two halves of the columns meet late, without the kinds about dead units. Victims come in
blocks of 60, one line a block and kind; a block that is in the file is not run again. `--count` adds a file up, with
the upper end of the exact 95% interval of the share of victims with a false certificate.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from forms import ACTIVATIONS, FORMS, TOWERS, WRITTEN, network
from scipy.optimize import linear_sum_assignment
from scipy.special import betaincinv
from torch import Tensor, nn

from seepage import datasets
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import distinct
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.learning import LocalTraining, batch_statistics, gradient, local_update
from seepage.models.batch_norm import BatchNorm
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.run.memory import keep_freed_memory
from seepage.tabular.align import right_cells, tolerances
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, UpdateView, View

REAL = ("adult", "german", "lawschool", "health_heritage")
# What is done to a victim. Batches: rows as they come, with copies, with affine combinations of other rows, with rows
# closer to each other than the tolerances. Networks: units without records or nearly so, few units, trained ones.
# Tables: one column of either kind, categories alone. Then what the attacker is not told: the true batch size, that
# only the largest entries or 16 bits of each were sent, that a part of the message is not the client's.
KINDS = (
    "plain",
    "copies",
    "hull",
    "close",
    "dead units",
    "nearly dead units",
    "few units",
    "trained 200",
    "trained 6000",
    "one column",
    "categories",
    "wrong size",
    "silent top-k",
    "silent 16 bits",
    "forged",
)
PLAIN = ("plain", "copies", "hull")
BLOCK = 60
LARGE = 16
FIELDS = [
    *("block", "kind", "victims", "large", "records", "certified", "cells", "whole", "traceless", "false"),
    *("seconds", "commit"),
]


@dataclass
class Tally:
    """Of the victims of a block and kind."""

    victims: int = 0
    large: int = 0
    records: int = 0
    certified: int = 0
    cells: int = 0
    whole: int = 0
    traceless: int = 0
    false: int = 0
    seconds: float = 0.0


SENT = ("gradient", "update", "noise", "normalised", "forms", "written", "towers")


def main() -> None:
    """Add one line a block and kind to a CSV file, or count one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=10_000)
    parser.add_argument("--sent", choices=SENT, default="gradient")
    parser.add_argument("--tables", nargs="+", choices=REAL, default=list(REAL), help="real tables to draw from")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--count", type=Path, help="file to add up")
    arguments = parser.parse_args()
    if arguments.count is not None:
        count(arguments.count)
        return
    if arguments.out is None:
        parser.error("--out or --count is needed")
    keep_freed_memory()
    torch.set_num_threads(1)
    done = {int(line["block"]) for line in read_lines(arguments.out)}
    kinds = KINDS if arguments.sent in ("gradient", "forms", "written", "towers") else PLAIN
    if arguments.sent == "towers":
        kinds = tuple(kind for kind in kinds if not kind.endswith("dead units"))
    for block in range(-(-arguments.victims // BLOCK)):
        if block in done:
            continue
        tallies = {kind: Tally() for kind in kinds}
        for victim in range(block * BLOCK, (block + 1) * BLOCK):
            attack_one(victim, arguments.tables, kinds[victim % len(kinds)], tallies, arguments.sent)
        named = ({"block": block, "kind": kind, **vars(tally)} for kind, tally in tallies.items())
        add_lines(arguments.out, FIELDS, [{**line, "seconds": round(line["seconds"], 1)} for line in named])


def count(path: Path) -> None:
    """Print the sums of a file, and what they say of the share of victims with a false certificate."""
    lines = read_lines(path)
    total = {name: sum(int(line[name]) for line in lines) for name in FIELDS[2:-2]}
    n, false = total["victims"], total["false"]
    # Of no false victims among n the exact (Clopper-Pearson) upper end is 1 - 0.025^(1/n), one-sided 95% about 3/n.
    upper = float(betaincinv(false + 1, n - false, 0.975)) if false < n else 1.0
    once = float(betaincinv(false + 1, n - false, 0.95)) if false < n else 1.0
    print(", ".join(f"{name} {value}" for name, value in total.items()))
    print(f"share of false victims: at most {100 * once:.3f}% (one-sided 95%), {100 * upper:.3f}% (two-sided)")
    for kind in dict.fromkeys(line["kind"] for line in lines):
        own = [line for line in lines if line["kind"] == kind]
        print(kind, *(f"{name} {sum(int(line[name]) for line in own)}" for name in FIELDS[2:-2]), sep=", ")


@cache
def real(name: str) -> Dataset:
    """Return a real table."""
    return datasets.load(name)


@cache
def skewed(numbers: int, categories: int, spread: float, seed: int) -> Dataset:
    """Return a table of skewed numbers, whose bounds are far from where most of them are, and of categories."""
    generator = np.random.default_rng(seed)
    frame = {f"number_{i}": np.exp(generator.normal(0, spread, 400)).round(4) for i in range(numbers)}
    frame |= {f"category_{i}": generator.integers(0, 2 + i, 400) for i in range(categories)}
    frame |= {"label": generator.integers(0, 2, 400)}
    table = pd.DataFrame(frame)
    columns = [
        *(
            Continuous(
                name=f"number_{i}",
                low=0.0,
                high=float(table[f"number_{i}"].max()),
                tolerance=float(0.2 * table[f"number_{i}"].std()),
            )
            for i in range(numbers)
        ),
        *(Discrete(name=f"category_{i}", categories=tuple(range(2 + i))) for i in range(categories)),
    ]
    schema = Schema(columns=tuple(columns), target=Discrete(name="label", categories=(0, 1)))
    return Dataset("skewed", Table(schema, table), None, ("generated",), "generated", "none needed")


class Drawn(NamedTuple):
    """A victim before its message is sent."""

    data: Dataset
    model: Model
    cells: Tensor
    labels: Tensor


Draw = Callable[[int, int], int]


def table_of(kind: str, draw: Draw, tables: list[str]) -> Dataset:
    """Return the table of a victim."""
    if kind == "one column":
        numbers = draw(0, 1)
        return distinct(rows=60, continuous=numbers, discrete=1 - numbers, seed=draw(0, 9))
    if kind == "categories":
        return skewed(0, draw(2, 8), 1.0, draw(0, 9))
    if kind.startswith("trained"):
        return [skewed(6, 3, 1.0, 0), *map(real, tables)][draw(0, len(tables))]
    if draw(0, 2) == 0:
        return skewed(draw(1, 12), draw(0, 4), float(draw(1, 3)), draw(0, 9))
    return real(tables[draw(0, len(tables) - 1)])


def widths_of(kind: str, draw: Draw, least: int) -> list[int]:
    """Return the widths of a victim's hidden layers."""
    low, high = (3, 24) if kind == "few units" else (20, 120)
    return [draw(low, high) for _ in range(draw(least, 3))]


def drawn(victim: int, kind: str, tables: list[str], sent: str) -> Drawn:
    """Return a random table, network and batch."""
    generator = torch.Generator().manual_seed(victim)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    data, normalised = table_of(kind, draw, tables), sent == "normalised"
    form, activation = "", ""
    if sent == "forms":
        # Units lose their records by the bias of a layer that takes the encoded row.
        form = FORMS[draw(0, len(FORMS) - 3 if kind.endswith("dead units") else len(FORMS) - 1)]
        activation = list(ACTIVATIONS)[draw(0, len(ACTIVATIONS) - 1)]
    if sent == "towers":
        form = TOWERS[draw(0, len(TOWERS) - 1)]
        activation = list(ACTIVATIONS)[draw(0, len(ACTIVATIONS) - 1)]
    if sent == "written":
        form = WRITTEN[draw(0, 1 if kind.endswith("dead units") else len(WRITTEN) - 1)]
        activation = list(ACTIVATIONS)[draw(0, len(ACTIVATIONS) - 1)]
    by_batch = normalised or form == "batch norm"
    if kind.startswith("trained"):
        depth = draw(1, 2)
        model = trained(data, depth, int(kind.split()[1]), form, activation)
        widths = [TRAINED_WIDTH] * depth
    elif form:
        widths = widths_of(kind, draw, 1)
        model = network(data, form, activation, widths, victim)
    else:
        widths = widths_of(kind, draw, 1 + normalised)
        model = mlp(data.schema, widths, seed=victim)
    if sent == "towers" and draw(0, 2) == 0:
        with torch.no_grad():
            # Chances that round to 1: records of one label have the same error, and their halves fit each other.
            [part for part in model.module.modules() if isinstance(part, nn.Linear)][-1].bias[0] += 20.0
    records = draw(1 + by_batch, max(1 + by_batch, int(0.9 * min(widths))))
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
    if kind == "close" and records > 1:
        for _ in range(draw(1, min(6, records))):
            near, other = draw(0, records - 1), draw(0, records - 1)
            cells[near], labels[near] = moved(data.schema, cells[other], generator), labels[other]
    if kind.endswith("dead units"):
        silence(model, data, cells, generator, nearly=kind.startswith("nearly"))
    return Drawn(data, model, cells, labels)


def moved(schema: Schema, cells: Tensor, generator: torch.Generator) -> Tensor:
    """Return a record whose numbers are off by up to twice the tolerances."""
    shift = (2 * torch.rand(len(cells), generator=generator, dtype=torch.float64) - 1) * 2 * tolerances(schema)
    near = cells + shift * float(torch.rand((), generator=generator))
    for i in schema.continuous:
        column = cast(Continuous, schema.columns[i])
        value = near[i].round() if column.integer else near[i]
        near[i] = value.clamp(column.low, column.high)
    return near


def silence(model: Model, data: Dataset, cells: Tensor, generator: torch.Generator, nearly: bool) -> None:
    """Lower the first bias until some records have no active unit, or some have one that is hardly active."""
    first = next(part for part in model.module.modules() if isinstance(part, nn.Linear))
    rows = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(cells)
    with torch.no_grad():
        highest = first(rows).amax(1).sort().values
        which = int(torch.randint(len(highest), (), generator=generator))
        size = 10.0 ** -float(torch.randint(1, 8, (), generator=generator))
        first.bias -= highest[which] + (-size if nearly else size)


TRAINED_WIDTH = 40


@cache
def trained(data: Dataset, depth: int, steps: int, form: str, activation: str) -> Model:
    """Return a network after so many steps of Adam on its table."""
    widths = [TRAINED_WIDTH] * depth
    model = mlp(data.schema, widths, seed=steps + depth)
    model = network(data, form, activation, widths, steps + depth) if form else model
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    generator = torch.Generator().manual_seed(steps)
    optimiser = torch.optim.Adam(model.module.parameters(), lr=1e-3)
    rows, labels = encoder.encode(data.train.cells), data.train.labels.long()
    for _ in range(steps):
        some = torch.randint(len(rows), (64,), generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model.module(rows[some]), labels[some]).backward()
        optimiser.step()
    return model


def attack_one(victim: int, tables: list[str], kind: str, tallies: dict[str, Tally], sent: str) -> None:
    """Attack one random victim and count what was certified."""
    normalised = sent == "normalised"
    data, model, cells, labels = drawn(victim, kind, tables, sent)
    generator = torch.Generator().manual_seed(victim + 10**6)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    records = len(cells)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    if normalised:
        model = with_norms(model)
    rows, told = encoder.encode(cells[None]), labels[None].float()
    known = Knowledge(data.schema, data.statistics, records)
    holds = True
    if sent == "update":
        training = LocalTraining(draw(1, 10), records, learning_rate=0.01)
        epochs = (rows[:, None].expand(-1, training.epochs, -1, -1), told[:, None].expand(-1, training.epochs, -1))
        view: View = UpdateView(model, local_update(model, *epochs, training), training)
    elif sent == "noise":
        defense = GaussianNoise(10.0 ** -draw(4, 8))
        view = GradientView(model, defense(gradient(model, rows, told), [victim]))
        known = replace(known, defense=defense.describe())
    else:
        message = gradient(model, rows, told)
        known = replace(known, batch_statistics=batch_statistics(model, rows) or None)
        if kind == "wrong size":
            sizes = (2 * records, 3 * records, records // 2, records + 1, records - 1)
            known = replace(known, batch_size=max(1, sizes[draw(0, 4)]))
            holds = known.batch_size == records
        if kind.startswith("silent"):
            message, holds = changed(message, kind, draw), False
        if kind == "forged":
            other = torch.randint(len(data.train), (records,), generator=generator)
            theirs = data.train.cells[other], data.train.labels[other]
            strange = gradient(model, encoder.encode(theirs[0][None]), theirs[1][None].float())
            message, holds = forged(message, strange, draw), False
            cells, labels = torch.cat([cells, theirs[0]]), torch.cat([labels, theirs[1]])
        view = GradientView(model, message)
    begun = time.perf_counter()
    guess = unmix(starts=64, rounds=8, restarts=1, iterations=1)(view, known, [victim])
    tally = tallies[kind]
    tally.seconds += time.perf_counter() - begun
    certified = cast(Tensor, guess.certified)[0]
    tally.victims += 1
    tally.large += records >= LARGE
    tally.records += records
    tally.certified += int(certified.any(-1).sum())
    tally.cells += int(certified.sum())
    tally.whole += bool(certified.all())
    [regime] = guess.regime or ("",)
    silent = re.search(r"(\d+) leaves? no trace", regime)
    tally.traceless += 0 if silent is None else int(silent[1])
    if is_false(data.schema, guess, cells, labels, records, holds):
        tally.false += 1
        print(f"false: victim {victim}, {kind}, {records} records, {model.name}, {regime}", flush=True)


def with_norms(model: Model) -> Model:
    """Return the network with each hidden layer normalised by the batch."""
    *hidden, last = model.module.children()
    norms = [[BatchNorm(part.out_features)] if isinstance(part, nn.Linear) else [] for part in hidden]
    layers = chain.from_iterable([one, *norm] for one, norm in zip(hidden, norms, strict=True))
    return Model(nn.Sequential(*layers, last), model.head, "normalised")


def changed(message: dict[str, Tensor], kind: str, draw: Draw) -> dict[str, Tensor]:
    """Return a message of which only the largest entries, or 16 bits of each, were sent."""
    if kind == "silent 16 bits":
        narrow = (torch.bfloat16, torch.float16)[draw(0, 1)]
        return {name: part.to(narrow).float() for name, part in message.items()}
    share = (0.01, 0.1, 0.5, 0.9, 0.99)[draw(0, 4)]
    every = torch.cat([part.flatten() for part in message.values()]).abs()
    least = every.topk(max(1, int(share * len(every)))).values[-1]
    return {name: torch.where(part.abs() >= least, part, 0.0) for name, part in message.items()}


def forged(message: dict[str, Tensor], strange: dict[str, Tensor], draw: Draw) -> dict[str, Tensor]:
    """Return a message of which a part is another batch's, zero, or a multiple of itself."""
    names = list(message)
    layer = 2 * draw(0, len(names) // 2 - 1)
    parts = names[layer : layer + 1 + draw(0, 1)]
    how = draw(0, 2)
    swapped = dict(message)
    for name in parts:
        swapped[name] = (strange[name], torch.zeros_like(message[name]), 2.0 * message[name])[how]
    return swapped


def is_false(schema: Schema, guess: RecordsGuess, cells: Tensor, labels: Tensor, records: int, holds: bool) -> bool:
    """Return whether a certificate is false.

    Args:
        schema: of the table.
        guess: of one victim.
        cells, labels: all records that are behind the message.
        records: number of those that the client has.
        holds: whether the conditions hold; else any record may stand for several certified ones.
    """
    certified = cast(Tensor, guess.certified)[0]
    proved = certified.any(-1).nonzero()[:, 0]
    right = right_cells(schema, guess.cells[0, proved, None], cells[None]) | ~certified[proved, None]
    fits = right.all(-1)
    certificates = guess.certificates or (None,)
    if not holds:
        size = certificates[0].multiple_of if certificates[0] is not None else 1
        whole = bool(certified.all()) and len(cells) == records
        return not bool(fits.any(1).all()) or (whole and records % size != 0)
    fits &= labels == cast(Tensor, guess.labels)[0, proved, None]
    if len(proved) > len(cells):
        return True
    first, second = linear_sum_assignment((~fits).numpy())
    return not bool(fits[first, second].all())


if __name__ == "__main__":
    main()
