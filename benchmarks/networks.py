"""What `unmix` reads and proves of the networks that people train: one factor at a time from a base cell.

    python benchmarks/networks.py --victims 10 --out benchmarks/results/unmix_forms.csv
    python benchmarks/networks.py --victims 10 --only transformer --out benchmarks/results/unmix_forms.csv

The base cell is a chain of two hidden layers of 100 units with ReLUs, untrained, 32 records, an exact gradient in
float32. Form, activation, batch size, steps of training, the client's optimiser and the number format of the message
are changed one at a time; then 20 drawn combinations are measured. Networks are those of `forms.py`, written as their
users write them; training is plain SGD at rate 0.1 on 128 records a step. Where a cell has an `optimizer`, the client
makes one local step with it at rate 0.01 and sends the change. `read` is the share of cells, `whole` of records,
`proved` of records with a certified cell; `false` counts certified cells that are wrong. TabLeak stands beside some
cells. Where values are dropped, `masks` says what it does about the masks that it does not know. Seconds are of
processor time a victim, in one thread.
A line that is in the file is not measured again.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from csv_lines import add_lines, read_lines
from forms import network

from seepage import datasets, registry
from seepage.assessment.measurement import Measurement
from seepage.datasets.dataset import Dataset
from seepage.devices import keep_freed_memory
from seepage.learning import mean_loss
from seepage.models.model import Model
from seepage.protocols.clients import Clients
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import stream
from seepage.tabular.align import match, pairwise_error, reorder, tolerances
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge
from seepage.wire.precision import Precision


class Cell(NamedTuple):
    """What is measured: a network, its training, what clients send, an attack and what it does about masks."""

    dataset: str = "adult"
    form: str = "chain"
    activation: str = "relu"
    widths: str = "100 100"
    steps: int = 0
    batch_size: int = 32
    attack: str = "unmix"
    dropout: float = 0.0
    masks: str = ""
    optimizer: str = ""
    precision: Precision = "full"


# Settings of a client's local step by the name in the file; none sends the gradient.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "weight decay": {"weight_decay": 0.01},
    "adam": {"optimizer": "adam"},
    "adamw": {"optimizer": "adamw"},
}
FIGURES = ("read", "whole", "proved")
FIELDS = [*Cell._fields, "n", *(f"{name}{end}" for name in FIGURES for end in ("", "_low", "_high"))]
FIELDS += ["false", "seconds", "longest", "commit", "kernel"]


def main() -> None:
    """Add one line a cell to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=10)
    parser.add_argument("--only", help="only cells of this form")
    parser.add_argument("--dropout", action="store_true", help="only cells about dropout, and TabLeak without it")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in Cell._fields) for line in read_lines(arguments.out)}
    for cell in cells():
        about = cell.dropout > 0 or (cell.form == "chain" and cell.attack == "tableak")
        chosen = arguments.only in (None, cell.form) and (about or not arguments.dropout)
        if tuple(map(str, cell)) not in done and chosen:
            add_lines(arguments.out, FIELDS, [measured(cell, arguments.victims)])


def cells() -> Iterator[Cell]:
    """Return all cells: one factor at a time, TabLeak beside some, then crossed ones."""
    for dataset in ("adult", "german"):
        yield Cell(dataset)
        for form in ("biasless", "residual", "wide and deep", "embeddings"):
            yield Cell(dataset, form)
        for activation in ("leaky_relu", "gelu", "elu", "silu", "tanh"):
            yield Cell(dataset, activation=activation)
        yield Cell(dataset, steps=500)
    for form, activation in (("residual", "gelu"), ("embeddings", "silu"), ("embeddings", "relu"), ("chain", "gelu")):
        yield Cell(form=form, activation=activation, steps=500)
    for dataset in ("adult", "german"):
        yield Cell(dataset, form="transformer", widths="64 64", batch_size=8)
    for batch_size in (8, 64, 128):
        yield Cell(batch_size=batch_size)
        yield Cell(activation="gelu", batch_size=batch_size)
        yield Cell(form="residual", batch_size=batch_size)
    for optimizer in OPTIMIZERS:
        yield Cell(optimizer=optimizer)
    for precision in ("float16", "bfloat16", "int8"):
        yield Cell(precision=precision)
        yield Cell(precision=precision, batch_size=8)
    for dataset in ("adult", "german"):
        for form in ("chain", "biasless", "residual", "wide and deep", "embeddings"):
            yield Cell(dataset, form, steps=50)
        for activation in ("leaky_relu", "gelu", "elu", "silu", "tanh"):
            yield Cell(dataset, activation=activation, steps=50)
        yield Cell(dataset, form="transformer", widths="64 64", batch_size=8, steps=50)
    yield Cell(steps=5000)
    yield Cell(form="residual", steps=5000)
    yield Cell(activation="gelu", steps=5000)
    yield Cell(widths="256 256", batch_size=128)
    for form in ("chain", "residual", "embeddings"):
        yield Cell(form=form, attack="tableak", batch_size=8)
        yield Cell(form=form, attack="tableak")
    yield Cell(widths="512 512", batch_size=256)
    yield Cell(form="transformer", widths="64 64", batch_size=32)
    yield Cell(form="transformer", widths="64 64", batch_size=8, attack="tableak")
    for dataset in ("german", "adult"):
        for rate in (0.1, 0.5):
            for batch_size in (8, 32):
                yield Cell(dataset, batch_size=batch_size, dropout=rate)
        for masks in ("variables", "ignored"):
            yield Cell(dataset, batch_size=8, attack="tableak", dropout=0.1, masks=masks)
        yield Cell(dataset, batch_size=8, attack="tableak", dropout=0.1, masks="drawn")
        yield Cell(dataset, batch_size=8, attack="tableak")
        for masks in ("variables", "ignored"):
            yield Cell(dataset, attack="tableak", dropout=0.1, masks=masks)
        yield Cell(dataset, attack="tableak")
    yield Cell(attack="tableak", steps=50)
    yield Cell(attack="tableak", activation="gelu", batch_size=8)
    yield Cell(attack="tableak", optimizer="adam", batch_size=8)
    yield from crossed()


def crossed() -> Iterator[Cell]:
    """Return 20 cells whose factors are drawn all at once."""
    drawn = random.Random(0)
    for _ in range(20):
        form = drawn.choice(("chain", "biasless", "residual", "wide and deep", "embeddings"))
        yield Cell(
            dataset=drawn.choice(("adult", "german")),
            form=form,
            activation=drawn.choice(("relu", "leaky_relu", "gelu", "elu", "silu", "tanh")),
            widths=drawn.choice(("128 64", "100 100", "256 128")),
            steps=drawn.choice((0, 50, 500)),
            batch_size=drawn.choice((8, 16, 32)),
            optimizer=drawn.choice(("", "", "sgd", "adam")),
            precision=drawn.choice(("full", "full", "full", "float16")),
        )


@cache
def table(name: str) -> Dataset:
    """Return a table."""
    return datasets.load(name)


@cache
def trained(cell: Cell) -> Model:
    """Return the network of a cell after its training."""
    data = table(cell.dataset)
    model = network(data, cell.form, cell.activation, _numbers(cell.widths), seed=0, dropout=cell.dropout)
    rows = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(data.train.cells)
    labels = data.train.labels
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.SGD(model.module.parameters(), lr=0.1)
    for _ in range(cell.steps):
        some = torch.randint(len(rows), (128,), generator=generator)
        optimiser.zero_grad()
        mean_loss(model.head, model.module(rows[some]), labels[some]).backward()
        optimiser.step()
    return model


def protocol(cell: Cell) -> Clients[Any]:
    """Return what clients of a cell send."""
    if not cell.optimizer:
        return FedSGD(cell.batch_size, replacement=False, precision=cell.precision)
    return FedAvg(cell.batch_size, precision=cell.precision, **OPTIMIZERS[cell.optimizer])


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split()]


def measured(cell: Cell, victims: int) -> dict[str, object]:
    """Attack the victims of a cell one after the other and return its line."""
    data, model = (
        table(cell.dataset),
        trained(cell._replace(attack="unmix", batch_size=0, masks="", optimizer="", precision="full")),
    )
    schema, records = data.schema, cell.batch_size
    encoder = Encoder(schema, data.statistics, dtype=torch.float32)
    seeds = [stream(0, victim, "batch") for victim in range(victims)]
    ran = protocol(cell).run(model, data.train, encoder, seeds)
    known = Knowledge(schema, data.statistics, records)
    attack = registry.attacks.create(cell.attack, **({"masks": cell.masks} if cell.masks else {}))
    held: dict[str, list[float]] = {name: [] for name in FIGURES}
    seconds, false = [], 0
    for victim in range(victims):
        own = slice(victim, victim + 1)
        begun = time.process_time()
        guess = attack(ran.view.of(own), known.of(own), [stream(0, victim, "starts")])
        seconds.append(time.process_time() - begun)
        true = ran.secret.cells[victim]
        order = match(pairwise_error(schema, guess.cells, true[None]))
        right = (reorder(guess.cells, order)[0] - true).abs() <= tolerances(schema)
        certain = torch.zeros_like(right)
        if guess.certified is not None:
            certain = reorder(guess.certified.double(), order)[0] > 0
        false += int((certain & ~right).sum())
        for name, share in zip(FIGURES, (right, right.all(1), certain.any(1)), strict=True):
            held[name].append(float(share.double().mean()))
    line: dict[str, object] = {**cell._asdict(), "n": victims, "false": false}
    for name, values in held.items():
        found = Measurement(name, None, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0)).estimate()
        for end, value in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            line[f"{name}{end}"] = None if value is None else round(value, 4)
    return line | {"seconds": round(sum(seconds) / victims, 2), "longest": round(max(seconds), 2)}


if __name__ == "__main__":
    main()
