"""What `unmix` reads where the client's loss is not the declared one: undeclared forms of a gradient message.

    python benchmarks/gradient_forms.py --victims 3 --out benchmarks/results/gradient_forms.csv

NN3 untrained on German, Adult, scikit-learn's wine, whose columns are numbers with three classes, and a generated table
of categories with five classes. The attacker takes every message for the gradient of the mean cross-entropy. `read`
is the share of records read whole, and `labels` that of these with their label. `false` counts records that are shown
at no uncertainty and are in no batch, and copies of records beyond those that are. `certified` counts cells that the
kernel certified. Seconds are CPU time of the attack for one victim. A line that is in the file is not measured again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from sklearn.datasets import load_wine
from torch import Tensor
from torch.nn.functional import cross_entropy

from seepage import datasets, registry
from seepage.datasets.dataset import Dataset, read_table
from seepage.models.calling import call
from seepage.models.mlp import nn3
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Schema
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess

KEYS = ("dataset", "form", "batch_size")
FIELDS = [*KEYS, "n", "read", "labels", "sure", "false", "certified", "seconds", "regime", "commit", "kernel"]
TABLES = ("german", "adult", "wine", "categories")
Loss = Callable[[Tensor, Tensor], Tensor]
_EVEN, _ODD = 9.0, 0.3  # weights of the second and the first class
_CLIPPED = 0.3
_SURE = -2.0  # uncertainty of a number from which on it is none


def main() -> None:
    """Add one line a setting to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=3)
    parser.add_argument("--batch-size", type=int, nargs="*", default=(8, 32))
    parser.add_argument("--dataset", choices=TABLES, nargs="*", default=TABLES)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    done = {tuple(line[key] for key in KEYS) for line in read_lines(arguments.out)}
    for size in arguments.batch_size:
        for name in arguments.dataset:
            for form in forms(2):
                if (name, form, str(size)) not in done:
                    line = {"dataset": name, "form": form, "batch_size": size}
                    add_lines(arguments.out, FIELDS, [line | run(name, form, size, arguments.victims)])


@cache
def table(name: str) -> Dataset:
    """Return a table by its name."""
    if name == "wine":
        wine: Any = load_wine()
        frame = pd.DataFrame(wine["data"], columns=wine["feature_names"])
        return read_table(frame.assign(kind=[f"kind {code}" for code in wine["target"]]), target="kind")
    if name != "categories":
        return datasets.load(name)
    draw = np.random.default_rng(0)
    columns = {f"column {i}": draw.choice([f"{j}" for j in range(2 + 3 * i)], 1000) for i in range(9)}
    answers = draw.choice(list("abcde"), 1000, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    return read_table(pd.DataFrame({**columns, "answer": answers}), target="answer")


def forms(classes: int) -> dict[str, Loss]:
    """Return losses of a batch, by outputs and labels, that are not the mean cross-entropy."""
    heavy = torch.tensor([1.0, _EVEN] + [3.0] * (classes - 2))
    light = torch.tensor([_ODD, 1.0] + [2.0] * (classes - 2))

    def accumulated(outputs: Tensor, labels: Tensor) -> Tensor:
        parts = max(1, len(labels) // 4)
        return sum(map(cross_entropy, outputs.split(parts), labels.split(parts)), outputs.new_zeros(()))

    def uneven(outputs: Tensor, labels: Tensor) -> Tensor:
        first = len(labels) // 3
        return (cross_entropy(outputs[:first], labels[:first]) + cross_entropy(outputs[first:], labels[first:])) / 2

    def by_record(outputs: Tensor, labels: Tensor) -> Tensor:
        weights = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) * 10
        return (weights * cross_entropy(outputs, labels, reduction="none")).mean()

    def focal(outputs: Tensor, labels: Tensor) -> Tensor:
        losses = cross_entropy(outputs, labels, reduction="none")
        return ((1 - (-losses).exp()).square() * losses).mean()

    return {
        "mean": cross_entropy,
        "sum": lambda o, y: cross_entropy(o, y, reduction="sum"),
        "a quarter": lambda o, y: cross_entropy(o, y) / 4,
        "accumulated batches": accumulated,
        "loss scale 65536": lambda o, y: cross_entropy(o, y) * 65536,
        "clipped": lambda o, y: cross_entropy(o, y) * _CLIPPED,
        "class weights": lambda o, y: cross_entropy(o, y, weight=heavy),
        "class weights, sum": lambda o, y: cross_entropy(o, y, weight=light, reduction="sum"),
        "label smoothing": lambda o, y: cross_entropy(o, y, label_smoothing=0.1),
        "label smoothing, sum": lambda o, y: cross_entropy(o, y, label_smoothing=0.2, reduction="sum"),
        "class weights, label smoothing": lambda o, y: cross_entropy(o, y, weight=heavy, label_smoothing=0.1),
        "focal loss": focal,
        "reversed sign": lambda o, y: -cross_entropy(o, y),
        "uneven micro-batches": uneven,
        "weights of records": by_record,
    }


def run(name: str, form: str, size: int, victims: int) -> dict[str, object]:
    """Attack the victims of a setting one after the other."""
    data = table(name)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    loss = forms(data.schema.target.width)[form]
    attack = registry.attacks.create("unmix", restarts=2, iterations=10)
    read, labelled, sure, false, certified, seconds, regimes = 0, 0, 0, 0, 0, 0.0, []
    for victim in range(victims):
        model = nn3(data.schema, seed=victim)
        draw = torch.Generator().manual_seed(stream(0, victim, "batch"))
        cells, labels = data.train.take(torch.randperm(len(data.train), generator=draw)[None, :size])
        parameters = dict(model.module.named_parameters())
        value = loss(call(model.module, parameters, encoder.encode(cells[0])), labels[0].long())
        sent = torch.autograd.grad(value, list(parameters.values()))
        view = GradientView(model, {key: part[None] for key, part in zip(parameters, sent, strict=True)})
        begun = time.process_time()
        guess = attack(view, Knowledge(data.schema, data.statistics, size), [stream(0, victim, "starts")])
        seconds += time.process_time() - begun
        found = compared(data.schema, cells[0], labels[0], guess)
        read, labelled, sure, false = (a + b for a, b in zip((read, labelled, sure, false), found, strict=True))
        certified += int(guess.certified.sum()) if guess.certified is not None else 0
        regimes += list(guess.regime or ())
    return {
        "n": victims,
        "read": round(read / (size * victims), 4),
        "labels": round(labelled / max(read, 1), 4),
        "sure": sure,
        "false": false,
        "certified": certified,
        "seconds": round(seconds / victims, 2),
        "regime": regimes[0],
    }


def compared(schema: Schema, cells: Tensor, labels: Tensor, guess: RecordsGuess) -> tuple[int, int, int, int]:
    """Return the numbers of records read whole, of these with their label, of records that are sure, and false ones."""
    rows, read, labelled = guess.cells[0], 0, 0
    near = torch.tensor([max(c.tolerance, 1e-2) if isinstance(c, Continuous) else 0.0 for c in schema.columns])
    same = ((rows[:, None] - cells).abs() <= near + 1e-9).all(2)
    alike = ((rows[:, None] - rows).abs() <= near + 1e-9).all(2)
    assert guess.labels is not None
    assert guess.uncertainty is not None
    open_ = torch.ones(len(cells), dtype=torch.bool)
    for i, label in enumerate(guess.labels[0]):
        places = (same[i] & open_).nonzero()[:, 0]
        if len(places):
            chosen = places[(labels[places] == label).long().argmax()]
            open_[chosen] = False
            read, labelled = read + 1, labelled + int(labels[chosen] == label)
    doubt, numbers = guess.uncertainty[0], list(schema.continuous)
    sure = (doubt[:, list(schema.discrete)] <= 0).all(1) & (doubt[:, numbers] < _SURE).all(1)
    # The copies that are sure, up to this one, are more than there are.
    copies = (alike & sure & sure[:, None]).tril().sum(1)
    return read, labelled, int(sure.sum()), int((sure & (copies > same.sum(1))).sum())


if __name__ == "__main__":
    main()
