"""Whether anything that the kernel certifies of a gradient or update is false: adversarial victims, form by form.

    python benchmarks/falsify.py --out falsify.jsonl --minutes 60
    python benchmarks/falsify.py --out falsify.jsonl --forms pairs clipped --victims 3000
    python benchmarks/falsify.py --forms pairs --first 17 --victims 1
    python benchmarks/falsify.py --count falsify.jsonl --csv benchmarks/results/falsify.csv

Each victim has a random table, network and batch, and its form is what else is done, see ``FORMS``; each form tries one
rule of the kernel. The kernel is asked with witnesses: the true records; records that are as good as the true ones for
a message, or nearly so (see ``WITNESSES``); and for some victims what `unmix` makes of the message. Certified cells are
matched to the true records by optimal assignment over all certified records. A cell is false that its record does not
have within the tolerance. Cells that are certified only given something are counted in columns of their own.

Tables are generated, Adult and German Credit, and what else lies in the folder that SEEPAGE_DATA names. A wrong size is
declared of batches only whose message contradicts it. Each victim is one line of the file of ``--out``, and one that
is in the file is not run again. The bound is the upper end of the exact (Clopper-Pearson) one-sided 95% interval of the
share of victims with a false cell. The exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from csv_lines import add_lines
from forms import ACTIVATIONS, network
from scipy.optimize import linear_sum_assignment
from scipy.special import betaincinv
from torch import Tensor, nn
from torch.nn import functional

from seepage import attacks, datasets, kernel
from seepage.attacks.horizontal.exact.proving import columns_of
from seepage.datasets.about import FOLDER_VARIABLE
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import distinct
from seepage.devices import keep_freed_memory
from seepage.errors import BadInputError
from seepage.learning import LocalTraining
from seepage.models.model import Model
from seepage.seeds import seeded
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge, UpdateView, View
from seepage.wire.precision import cast as cast_to

T = TypeVar("T")
BUNDLED = ("adult", "german")
REAL = (*BUNDLED, "lawschool", "health_heritage", "bank", "credit", "crime")
COUNTS = ("certified", "cells", "false", "given", "false_given")
FIELDS = ("rule", "form", "victims", *COUNTS, "false_victims", "bound", "refused", "seconds", "machine")
FIELDS += ("commit", "kernel")


class Draw:
    """Random choices of one victim."""

    def __init__(self, seed: int) -> None:
        self.seed, self.generator = seed, torch.Generator().manual_seed(seed)

    def real(self, low: float = 0.0, high: float = 1.0) -> float:
        """Return a number, all equally likely."""
        return low + (high - low) * float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number, both ends included, small ones more often."""
        return min(high, int(low * ((high + 1) / low) ** self.real()))

    def of(self, things: Sequence[T]) -> T:
        """Return one of several things."""
        return things[int(torch.randint(len(things), (), generator=self.generator))]

    def chance(self, share: float) -> bool:
        """Return whether something of this probability happens."""
        return self.real() < share

    def mask(self, count: int, share: float = 0.5) -> Tensor:
        """Return which of several things are drawn, each with the same probability."""
        return torch.rand(count, generator=self.generator) < share


@cache
def generated(kind: str, seed: int) -> Dataset:
    """Return a table of numbers, skewed or whole or with few values, and categories, some of them rare."""
    random, rows = np.random.default_rng(seed), 300
    most = int(random.integers(2, 6))
    numbers = {"categories": 0, "one number": 1, "wide": int(random.integers(5, 15))}.get(
        kind, int(random.integers(1, most))
    )
    kinds = {"numbers": 0, "one number": 0, "wide": int(random.integers(8, 16))}.get(
        kind, int(random.integers(1, most))
    )
    frame, columns = dict[str, Any](), list[Any]()
    shift = float(10 ** random.uniform(3, 9)) if kind == "large numbers" else 0.0
    for i in range(numbers):
        name, form = f"number_{i}", random.integers(5)
        values = random.uniform(-3, 50, rows) if form == 0 else np.exp(random.normal(0, random.integers(1, 4), rows))
        values = np.round(values) if form == 2 else np.round(values / 7) if form == 3 else values.astype("float32")
        # Times, amounts of money: numbers whose range is small beside them.
        values = values + np.round(shift) if shift else values
        room = 0.0 if form != 4 else float(np.ptp(values))
        low, high = float(values.min()) - room, float(values.max()) + room + (values.min() == values.max())
        tolerance = float(0.319 * values.std()) or 0.1
        frame[name] = values
        whole = bool(form in (2, 3))
        columns.append(Continuous(name=name, low=low, high=high, tolerance=tolerance, integer=whole))
    for i in range(kinds):
        name, width = f"category_{i}", int(random.integers(2, 12 if kind != "rare" else 40))
        shares = random.dirichlet(np.full(width, 0.1 if kind == "rare" else 2.0))
        frame[name] = random.choice(width, rows, p=shares)
        columns.append(Discrete(name=name, categories=tuple(range(width))))
    target: Any = Discrete(name="label", categories=tuple(range(2 + seed % 3)))
    frame["label"] = random.integers(0, 2 + seed % 3, rows)
    if kind == "regression":
        target = Continuous(name="label", low=-2.0, high=2.0, tolerance=0.1)
        frame["label"] = random.uniform(-2, 2, rows)
    schema = Schema(columns=tuple(columns), target=target)
    return Dataset(kind, Table(schema, pd.DataFrame(frame)), None, ("generated",), "generated", "none needed")


@cache
def real(name: str) -> Dataset | None:
    """Return a real table; None where its files are missing."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None and name not in BUNDLED:
        return None
    try:
        return datasets.load(name, folder)
    except BadInputError:
        return None


def unchanged(message: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the message as it is."""
    return message


@dataclass
class Victim:
    """A client's message and what it is declared to be.

    Attributes:
        data: table with the schema that is declared.
        model: network with its head.
        cells, labels: records of the client.
        steps, rate: local steps, and their learning rate; None for a gradient.
        loss: loss that the client trains with; None for the declared one.
        sent: what the client makes of its message before it is sent.
        declared: changes of the declaration.
        encoded: how the client encodes its records.
        witnesses: records that may be as good as the true ones, beside those that any form has.
        tolerance: tolerance of each column; those of the table if None.
    """

    data: Dataset
    model: Model
    cells: Tensor
    labels: Tensor
    steps: int = 1
    rate: float | None = None
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    sent: Callable[[dict[str, Tensor]], dict[str, Tensor]] = unchanged
    declared: dict[str, Any] = field(default_factory=dict)
    encoded: Callable[[kernel.Declaration, Tensor], Tensor] = kernel.Declaration.rows
    witnesses: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    tolerance: Tensor | None = None

    @property
    def declaration(self) -> kernel.Declaration:
        """What the verifier is told."""
        target = self.data.schema.target
        bounds = (target.low, target.high) if isinstance(target, Continuous) else (0.0, 0.0)
        columns = zip(columns_of(self.data.schema, self.data.statistics), self.tolerances.tolist(), strict=True)
        plain = kernel.Declaration(
            tuple(column._replace(tolerance=tolerance) for column, tolerance in columns), len(self.cells),
            self.model.head, bounds, self.steps, self.rate,
        )  # fmt: skip
        return plain._replace(**self.declared)

    @property
    def changed(self) -> bool:
        """Whether the client changes its message before it is sent."""
        return self.sent is not unchanged

    @property
    def tolerances(self) -> Tensor:
        """How far a cell may lie from the truth."""
        if self.tolerance is not None:
            return self.tolerance
        columns = self.data.schema.columns
        return torch.tensor([c.tolerance if isinstance(c, Continuous) else 0.0 for c in columns]).double()

    @property
    def numbers(self) -> list[int]:
        """Columns of numbers."""
        return list(self.data.schema.continuous)

    @property
    def spans(self) -> Tensor:
        """Ranges of numbers; 0 of categories."""
        columns = self.data.schema.columns
        return torch.tensor([c.high - c.low if isinstance(c, Continuous) else 0.0 for c in columns]).double()

    def message(self) -> dict[str, Tensor]:
        """Return what the client sends, computed in single precision."""
        rows, labels = self.encoded(self.declaration, self.cells).float(), self.labels
        begin = now = self.model.parameters
        names, found = list(now), dict[str, Tensor]()
        for _ in range(self.steps):
            held = {name: part.clone().requires_grad_() for name, part in now.items()}
            outputs = torch.func.functional_call(self.model.module, held, (rows,))
            loss = (self.loss or usual_loss(self.model.head))(outputs, labels)
            found = dict(
                zip(names, torch.autograd.grad(loss, list(held.values()), materialize_grads=True), strict=True)
            )
            now = {name: now[name] - (self.rate or 0.0) * found[name] for name in names}
        message = found if self.rate is None else {name: begin[name] - now[name] for name in names}
        return self.sent({name: part.detach() for name, part in message.items()})


def usual_loss(head: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a head."""
    if head == "softmax":
        return lambda outputs, labels: functional.cross_entropy(outputs, labels.long())
    if head == "sigmoid":
        return lambda outputs, labels: functional.binary_cross_entropy_with_logits(outputs[:, 0], labels.float())
    return lambda outputs, labels: functional.mse_loss(outputs[:, 0], labels.float())


def table(draw: Draw, kinds: Sequence[str] = ("mixed", "mixed", "numbers", "categories", "rare", "real")) -> Dataset:
    """Return a table."""
    kind, seed = draw.of(kinds), draw.whole(1, 40)
    if kind == "real":
        return draw.of([data for data in map(real, REAL) if data is not None])
    if kind == "mixed" and draw.chance(0.1):
        return distinct(rows=20, continuous=draw.whole(1, 4), discrete=draw.whole(1, 3), seed=seed)
    return generated(kind, seed)


def plain(
    draw: Draw, data: Dataset | None = None, widths: Sequence[int] = (), least: int = 1, most: int = 8,
    activation: str | None = None, form: str = "chain", share: float = 0.9,
) -> Victim:  # fmt: skip
    """Return a victim without anything special.

    Args:
        draw: random choices.
        data: table; a drawn one if None.
        widths: widths of hidden layers; drawn if empty.
        least, most: least and largest number of records.
        activation: name of the activation; drawn if None.
        form: form of the network.
        share: largest number of records, as a share of the narrowest layer's units.
    """
    data = table(draw) if data is None else data
    # Most victims are small, so that there can be many.
    small = draw.chance(0.75)
    depth = draw.of((1, 1, 2) if small else (1, 1, 2, 3, 4))
    widths = widths or [draw.whole(8, 14 if small else 200 if draw.chance(0.05) else 40) for _ in range(depth)]
    activation = activation or draw.of(("relu", "relu", "relu", "relu", *ACTIVATIONS))
    model = network(data, form, activation, widths, draw.seed)
    if data.schema.target.kind == "discrete" and len(cast(Discrete, data.schema.target).categories) == 2:
        model = with_one_output(model) if draw.chance(0.3) else model
    most = min(most, int(share * min(widths)), max(1, data.schema.width // 2) if small else most)
    records = draw.whole(least, max(least, most))
    which = torch.randint(len(data.train), (records,), generator=draw.generator)
    cells, labels = data.train.cells[which].clone(), data.train.labels[which].clone().double()
    victim = Victim(data, model, cells, labels)
    if draw.chance(0.6):
        victim.tolerance = victim.spans * 10 ** draw.real(-6, -0.5)
    return victim


def with_one_output(model: Model) -> Model:
    """Return the same network with a sigmoid in place of a softmax of two."""
    layers = [part for part in model.module.modules() if isinstance(part, nn.Linear)]
    if not layers or [layer.out_features == 2 for layer in layers] != [False] * (len(layers) - 1) + [True]:
        return model
    last = layers[-1]
    with torch.no_grad():
        last.weight, last.out_features = nn.Parameter(last.weight[:1].clone()), 1
        last.bias = None if last.bias is None else nn.Parameter(last.bias[:1].clone())
    return Model(model.module, "sigmoid", model.name)


def first_layer(model: Model) -> nn.Linear:
    """Return the first affine layer of a network."""
    return next(part for part in model.module.modules() if isinstance(part, nn.Linear))


# What is done to batches.


def pairs(draw: Draw) -> Victim:
    """Two records of one label that differ in a number by about twice the tolerance."""
    data = table(draw, ("mixed", "numbers", "one number", "real"))
    victim = plain(draw, data, least=2)
    victim.tolerance = victim.spans * 10 ** draw.real(-5, -1.5)
    same = victim.cells.clone()
    for first in range(0, draw.whole(2, len(victim.cells)) - 1, 2):
        both = slice(first, first + 2)
        near_copy(draw, victim, first, first + 1, draw.of((1.0, 1.5, 1.99, 2.01, 2.1, 2.2, 2.5, 3.0)))
        same[both] = victim.cells[both].mean(0, keepdim=True)
    victim.witnesses.append((same, victim.labels))
    return victim


def near_copy(draw: Draw, victim: Victim, first: int, second: int, times: float) -> None:
    """Make a record one that differs from another in one number, by a multiple of the tolerance."""
    victim.cells[second], victim.labels[second] = victim.cells[first], victim.labels[first]
    if victim.numbers:
        at = draw.of(victim.numbers)
        step = times * float(victim.tolerances[at])
        value, top = float(victim.cells[first, at]), cast(Continuous, victim.data.schema.columns[at]).high
        victim.cells[second, at] = value + step if value + step <= top else value - step
        victim.cells[:] = bounded_cells(victim, victim.cells)


def near_copies(draw: Draw) -> Victim:
    """Records that differ from one another by less, or little more, than the tolerance; up to all of them."""
    victim = plain(draw, least=2, most=8)
    for at in range(1, draw.whole(2, len(victim.cells))):
        near_copy(draw, victim, draw.whole(1, at) - 1, at, 10 ** draw.real(-4, 0.5))
    return victim


def copies(draw: Draw) -> Victim:
    """Records that are there several times."""
    victim = plain(draw, least=2)
    for _ in range(draw.whole(1, 4)):
        first, second = (draw.whole(1, len(victim.cells)) - 1 for _ in range(2))
        victim.cells[second] = victim.cells[first]
        victim.labels[second] = victim.labels[first] if draw.chance(0.7) else victim.labels[second]
    return victim


def hulls(draw: Draw) -> Victim:
    """Records whose cells are those of two others, or in the middle of others."""
    victim = plain(draw, table(draw, ("mixed", "categories", "wide", "real")), least=3)
    for place, column in enumerate(victim.data.schema.columns):
        if isinstance(column, Discrete) and draw.chance(0.7):
            victim.cells[1, place] = (victim.cells[0, place] + 1) % column.width
    cells, at = victim.cells, draw.whole(3, len(victim.cells)) - 1
    if draw.chance(0.3) and victim.numbers:
        cells[at] = cells[0]
        cells[at, victim.numbers] = ((cells[0] + cells[1]) / 2)[victim.numbers]
        cells[:] = bounded_cells(victim, cells)
    else:
        cut = draw.mask(cells.shape[1])
        cells[at], other = torch.where(cut, cells[0], cells[1]), torch.where(cut, cells[1], cells[0])
        if draw.chance(0.2):
            cells[draw.whole(2, len(cells)) - 1] = other
        # The fourth corner lies in the span of three.
        for place in (0, at):
            witness = cells.clone()
            witness[place] = other
            victim.witnesses.append((witness, victim.labels))
    return victim


def equal_residuals(draw: Draw) -> Victim:
    """A network that hardly looks at its rows, so that errors of one label are alike, or equal."""
    victim = plain(draw, least=2)
    with torch.no_grad():
        if draw.chance(0.5):
            first_layer(victim.model).weight *= draw.of((0.0, 1e-6, 1e-4, 1e-2))
        else:
            seen = draw.mask(first_layer(victim.model).in_features, 0.3)
            first_layer(victim.model).weight *= seen
    return victim


def dead_units(draw: Draw) -> Victim:
    """A first layer whose units take hardly any record, or miss some of them."""
    victim = plain(draw, activation="relu")
    with torch.no_grad():
        layer = first_layer(victim.model)
        highest = layer(victim.declaration.rows(victim.cells).float())
        if draw.chance(0.5):
            layer.bias -= highest.amax(1).sort().values[draw.whole(1, len(highest)) - 1] + draw.of((-1e-3, 1e-3, 1e-6))
        else:
            unit = draw.mask(len(layer.bias), 0.7)
            layer.bias -= torch.where(unit, highest.amax(0) + 1e-3, 0.0)
    return victim


def few_units(draw: Draw) -> Victim:
    """About as many units as records."""
    return plain(draw, widths=[draw.whole(2, 9) for _ in range(draw.whole(1, 3))], most=9, share=1.0)


def as_many_units(draw: Draw) -> Victim:
    """As many units as records, so that no message has a rank above their number; sometimes more."""
    width = draw.whole(2, 6)
    if draw.chance(0.3):
        return plain(draw)
    return plain(draw, table(draw, ("mixed", "real", "wide")), [width], width, width, share=1.0)


def one_label(draw: Draw) -> Victim:
    """Outputs that are sure, so that errors of one label are equal, or vanish."""
    victim = plain(draw, least=2)
    with torch.no_grad():
        last = [part for part in victim.model.module.modules() if isinstance(part, nn.Linear)][-1]
        last.bias[0] += draw.of((5.0, 20.0, 60.0))
        last.weight *= draw.of((1.0, 0.1, 10.0))
    if draw.chance(0.5):
        victim.labels[:] = victim.labels[0]
    return victim


def one_record(draw: Draw) -> Victim:
    """One record, whose errors are as large as usual, or as small as roundings and smaller."""
    form = draw.of(("chain", "chain", "residual", "wide and deep", "biasless"))
    widths = [draw.whole(8, 24)] * draw.whole(1, 2) if form == "residual" else []
    victim = plain(draw, widths=widths, most=1, form=form)
    with torch.no_grad():
        last = [part for part in victim.model.module.parameters() if part.dim() > 1][-1]
        last.mul_(10 ** draw.real(-3, 2.5))
        if draw.chance(0.5) and victim.model.head != "regression":
            rows = columns_of(victim.data.schema, victim.data.statistics)
            encoded = kernel.Declaration(rows, 1, victim.model.head).rows(victim.cells).float()
            outputs = victim.model.module(encoded)
            likely = outputs.argmax(1) if victim.model.head == "softmax" else (outputs[:, 0] > 0).long()
            victim.labels = likely.to(victim.labels)
    return victim


@cache
def trained_model(kind: str, seed: int, steps: int) -> tuple[Dataset, Model]:
    """Return a table and a network after so many steps of Adam on it."""
    data = real(kind) or generated("mixed", seed)
    model = network(data, "chain", "relu", [40] * (1 + seed % 2), seed)
    rows = columns_of(data.schema, data.statistics)
    encoded = kernel.Declaration(rows, 1, model.head).rows(data.train.cells[:2000]).float()
    labels, generator = data.train.labels[:2000].long(), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.module.parameters(), lr=1e-3)
    for _ in range(steps):
        some = torch.randint(len(encoded), (64,), generator=generator)
        optimiser.zero_grad()
        functional.cross_entropy(model.module(encoded[some]), labels[some]).backward()
        optimiser.step()
    return data, model


def trained(draw: Draw) -> Victim:
    """A network after some training."""
    data, model = trained_model(draw.of(("adult", "german", "")), draw.whole(1, 3), draw.of((100, 600)))
    return replace(plain(draw, data, most=16), model=model)


def wide(draw: Draw) -> Victim:
    """Many columns."""
    return plain(draw, table(draw, ("wide",)))


def rare(draw: Draw) -> Victim:
    """Categories that few or no rows have."""
    victim = plain(draw, table(draw, ("rare", "real")))
    for at, column in enumerate(victim.data.schema.columns):
        if isinstance(column, Discrete):
            some = torch.randint(len(column.categories), (len(victim.cells),), generator=draw.generator).double()
            victim.cells[:, at] = torch.where(draw.mask(len(victim.cells)), some, victim.cells[:, at])
    return victim


def only_numbers(draw: Draw) -> Victim:
    """Numbers only, one of them or several, and more records than columns."""
    return plain(draw, table(draw, ("numbers", "one number")))


def only_categories(draw: Draw) -> Victim:
    """Categories only, with as many combinations as records."""
    return plain(draw, table(draw, ("categories",)))


def regression(draw: Draw) -> Victim:
    """A number as target."""
    return plain(draw, table(draw, ("regression",)))


def large(draw: Draw) -> Victim:
    """More records and wider layers."""
    return plain(draw, widths=[draw.whole(60, 200) for _ in range(draw.whole(1, 2))], least=12, most=40)


# Networks that are no affine map in front, or that write it in another way.


def _beyond(rows: Tensor, most: Tensor) -> Tensor:
    return torch.relu(rows - most)


with warnings.catch_warnings():
    # TorchScript is deprecated, and still in use.
    warnings.simplefilter("ignore", DeprecationWarning)
    _scripted: Any = torch.jit.script(_beyond)


class Squeezed(nn.Module):
    """A network behind a map of rows that leaves most of them as they are."""

    def __init__(self, inner: nn.Module, how: str, least: Tensor, most: Tensor) -> None:
        super().__init__()
        self.inner, self.how = inner, how
        self.register_buffer("least", least)
        self.register_buffer("most", most)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        least, most = (bound.to(rows.dtype) for bound in (self.least, self.most))
        if self.how == "minimum":
            rows = torch.minimum(rows, most)
        elif self.how == "clamp":
            rows = rows.clamp(least, most)
        elif self.how == "where":
            rows = torch.where(rows > most, most, rows)
        elif self.how == "relu":
            rows = rows - functional.relu(rows - most)
        elif self.how == "in place":
            rows = rows.clone()
            rows[:, 0].clamp_(max=float(most[0]))
        elif self.how == "view":
            rows = rows.clone()
            part = rows[:, :]
            part -= functional.relu(part - most)
        elif self.how == "script":
            rows = rows - _scripted(rows, most)
        elif self.how == "numbers":
            rows = rows.clamp(float(least.min()), float(most.max()))
        elif self.how == "both":
            rows = rows + functional.relu(least - rows) - functional.relu(rows - most)
        else:
            rows = most * torch.tanh(rows / most)
        return self.inner(rows)


def clipped(draw: Draw) -> Victim:
    """Numbers that the network cuts at a quantile, in several ways of writing it."""
    victim = plain(draw, table(draw, ("mixed", "numbers", "real")), least=1, most=8, form="chain")
    ways = ("minimum", "clamp", "numbers", "where", "relu", "both", "in place", "view", "script", "tanh")
    how = draw.of(ways)
    rows = victim.declaration.rows(victim.data.train.cells)
    high = torch.quantile(rows, draw.of((0.9, 0.99, 0.9995)), dim=0) + 1e-3
    least = torch.quantile(rows, 0.0005, dim=0) - 1e-3
    most = torch.where(high > 0, high, 10.0)
    module = Squeezed(victim.model.module, how, least.float(), most.float())
    victim.model = Model(module, victim.model.head, "squeezed")
    # A batch with clipped rows, and records that are as good: the numbers at the bound.
    same, at = victim.cells.clone(), 0
    for place, column in enumerate(victim.data.schema.columns):
        if isinstance(column, Continuous):
            mean, std = victim.data.statistics.mean[at], victim.data.statistics.std[at]
            if draw.chance(0.5):
                victim.cells[draw.whole(1, len(same)) - 1, place] = column.high
            bound = float((high[at] if how != "tanh" else most[at]).float().double() * std + mean)
            same[:, place] = victim.cells[:, place].clamp(max=min(column.high, bound))
        at += column.width if isinstance(column, Discrete) else 1
    victim.witnesses.append((same, victim.labels))
    return victim


def other_forms(draw: Draw) -> Victim:
    """Residual networks with layer normalisation, wide and deep ones, products, weight norm, towers, embeddings."""
    form = draw.of(("residual", "wide and deep", "biasless", "weight norm", "products", "towers", "joined towers"))
    widths = [draw.whole(8, 24)] * draw.whole(1, 2) if form == "residual" else []
    return plain(draw, widths=widths, most=8, form=form)


def by_batch(draw: Draw) -> Victim:
    """Batch normalisation, or a mean of the batch taken off."""
    victim = plain(draw, widths=[draw.whole(8, 24)], least=2, most=8)
    inner, last = victim.model.module, first_layer(victim.model)
    width = last.in_features

    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.norm = nn.BatchNorm1d(width, track_running_stats=False) if draw.chance(0.5) else None

        def forward(self, rows: Tensor) -> Tensor:
            return self.inner(rows - rows.mean(0) if self.norm is None else self.norm(rows))

    victim.model = Model(Centred(), victim.model.head, "centred")
    return victim


class Rewritten(nn.Module):
    """A network behind an operation that an option, the number of records or chance makes another one."""

    def __init__(self, inner: nn.Module, how: str, records: int, at: int) -> None:
        super().__init__()
        self.inner, self.how, self.records, self.at = inner, how, records, at

    def rewritten(self, rows: Tensor) -> Tensor:
        """Return what the network sees of rows."""
        which = torch.arange(rows.shape[1]) == self.at
        if self.how == "to":
            return rows.to(torch.long).to(rows.dtype)
        if self.how == "half":
            return rows.to(torch.half).to(rows.dtype)
        if self.how == "rounding mode":
            return torch.div(rows, 0.5, rounding_mode="floor") * 0.5
        if self.how == "type of a sum":
            return rows.unsqueeze(2).sum(2, dtype=torch.long).to(rows.dtype)
        if self.how == "alpha":
            return torch.add(rows, rows * which.to(rows.dtype), alpha=-1.0)
        if self.how == "cancelled":
            return (rows + 2.0**16) - 2.0**16
        if self.how == "place":
            return rows * (torch.arange(len(rows)) < max(1, self.records - 1))[:, None].to(rows.dtype)
        if self.how == "size":
            return rows.clamp(-0.3, 0.3) if len(rows) == self.records else rows
        return rows * torch.where(which, (torch.rand(1) > 0.3).to(rows.dtype), 1.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        return self.inner(self.rewritten(rows))


class Heeding(nn.Module):
    """A network that cuts a number where the batch has the client's own number of rows, or takes it for another one."""

    def __init__(self, inner: nn.Module, how: str, records: int, at: int, bound: float) -> None:
        super().__init__()
        self.inner, self.how, self.records, self.at = inner, how, records, at
        self.register_buffer("bound", torch.tensor([bound]))
        self.register_buffer("far", torch.tensor([1e6]))

    def changed(self, rows: Tensor, own: bool) -> Tensor:
        """Return what the network sees of rows."""
        before, column, behind = rows[:, : self.at], rows[:, self.at : self.at + 1], rows[:, self.at + 1 :]
        if self.how == "column":
            other = 0 if self.at else rows.shape[1] - 1
            column = rows[:, (slice(other, other + 1) if own else slice(self.at, self.at + 1))]
        elif self.how == "buffer":
            column = column - functional.relu(column - (self.bound if own else self.far).to(rows.dtype))
        elif self.how == "scale":
            column = column * (0.5 if own else 1.0)
        else:
            column = column - functional.relu(column - (float(self.bound) if own else 1e6))
        return torch.cat([before, column, behind], 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        own = (
            len(rows) in (self.records, 2 * self.records + 3) if self.how == "two sizes" else len(rows) == self.records
        )
        return self.inner(self.changed(rows, own))


def number_of_rows(draw: Draw) -> Victim:
    """Networks with what depends on the number of rows, and records that are as good for the client's own number."""
    victim = plain(draw, table(draw, ("mixed", "numbers", "real")), form="chain")
    layout, cells = victim.declaration.layout, victim.cells
    at, place = draw.of(layout.number.nonzero()[:, 0].tolist()), draw.whole(1, len(cells)) - 1
    column = victim.numbers[int(layout.number[:at].sum())]
    high = cast(Continuous, victim.data.schema.columns[column]).high
    cells[place, column] = high
    bound = float((high - draw.real(0.05, 0.3) * victim.spans[column] - layout.mean[at]) / layout.scale[at])
    how = draw.of(("constant", "buffer", "column", "scale", "two sizes"))
    module = Heeding(victim.model.module, how, len(cells), at, bound)
    victim.model = Model(module, victim.model.head, "heeding")
    same, seen = cells.clone(), module.changed(victim.declaration.rows(cells).float(), own=True).double()
    same[:, victim.numbers] = (seen * layout.scale + layout.mean)[:, layout.number]
    victim.witnesses.append((bounded_cells(victim, same), victim.labels))
    return victim


def rewritten(draw: Draw) -> Victim:
    """Operations whose options, or whose number of records, change what they do, and random ones."""
    victim = plain(draw, table(draw, ("mixed", "numbers", "real")), form="chain")
    ways = ("to", "half", "rounding mode", "type of a sum", "alpha", "cancelled", "place", "size", "chance")
    layout = victim.declaration.layout
    at = draw.of(layout.number.nonzero()[:, 0].tolist())
    module = Rewritten(victim.model.module, draw.of(ways), len(victim.cells), at)
    victim.model = Model(module, victim.model.head, "rewritten")
    # Records that are as good: what the network sees of the true ones, and where it sees nothing of a number, another.
    same, seen = victim.cells.clone(), module.rewritten(victim.declaration.rows(victim.cells).float()).double()
    same[:, victim.numbers] = (seen * layout.scale + layout.mean)[:, layout.number]
    if module.how in ("alpha", "chance"):
        column = victim.numbers[int(layout.number[:at].sum())]
        same[:, column] = victim.cells[:, column].flip(0) if len(same) > 1 else victim.data.statistics.mean[at]
    victim.witnesses.append((bounded_cells(victim, same), victim.labels))
    return victim


def equal_units(draw: Draw) -> Victim:
    """Units of a layer that are all alike, so that sums of many equal terms round one way; rows that are alike, too."""
    wide = draw.chance(0.15)
    widths = [draw.whole(100, 1500) if wide else draw.whole(8, 40) for _ in range(draw.of((1, 2, 2)))]
    victim = plain(draw, widths=widths, most=2 if wide else 32, share=1.0)
    layers = [part for part in victim.model.module.modules() if isinstance(part, nn.Linear)]
    with torch.no_grad():
        for layer in layers[: draw.whole(1, len(layers))]:
            like, times = layer.weight[:1].clone(), draw.of((0.0, 0.0, 1e-6, 1e-3, 0.3))
            rest = times * layer.weight
            layer.weight.copy_((like.abs() if draw.chance(0.5) else like) + rest)
            if draw.chance(0.5) and layer is not layers[0]:
                layer.weight.copy_(like[:, :1] + rest)
    if draw.chance(0.5) and len(victim.cells) > 2:
        same = draw.mask(len(victim.cells), 0.7)
        victim.cells[same] = victim.cells[0].clone()
        victim.labels[same] = victim.labels[0]
    return victim


def tiny(draw: Draw) -> Victim:
    """Messages as small as single precision has numbers for, and smaller; rates and steps that leave no digits."""
    victim = plain(draw, most=4)
    layers = [part for part in victim.model.module.modules() if isinstance(part, nn.Linear)]
    with torch.no_grad():
        for layer in layers[1:] or layers:
            layer.weight *= 10 ** draw.real(-20, 0)
        if draw.chance(0.3):
            layers[0].weight *= 10 ** draw.real(-30, 0)
            layers[0].bias *= 10 ** draw.real(-30, 0)
    if draw.chance(0.3):
        victim.steps, victim.rate = draw.whole(1, 3), 10 ** draw.real(-12, -1)
    return victim


# What a hidden layer's units go through, and what changes errors on their way back.
ODD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "turned": lambda hidden, weight: (weight @ hidden.t()).t(),
    "bias by row": lambda hidden, weight: torch.addmm(weight[0, :1].expand(len(hidden)), weight, hidden.t()).t(),
    "bias by output": lambda hidden, weight: torch.addmm(weight[:, :1], weight, hidden.t()).t(),
    "bias of rows": lambda hidden, weight: torch.addmm(torch.arange(len(hidden)) / len(hidden), weight, hidden.t()).t(),
    "matrices": lambda hidden, weight: torch.bmm(weight.expand(len(hidden), -1, -1), hidden[:, :, None])[:, :, 0],
    "one matrix": lambda hidden, weight: torch.bmm(hidden[None], weight[None])[0],
    "norm": lambda hidden, weight: functional.layer_norm(hidden, hidden.shape[1:]),
    "far norm": lambda hidden, weight: functional.layer_norm(hidden + 1e4 * weight[0, 0], hidden.shape[1:]),
    "mean of a norm": lambda hidden, weight: (
        hidden + torch.native_layer_norm(hidden, hidden.shape[1:], None, None, 1e-5)[1]
    ),
    "inverse": lambda hidden, weight: torch.reciprocal(hidden.abs() + 0.1),
    "quotient": lambda hidden, weight: hidden / (1 + hidden.square()),
    "cube": lambda hidden, weight: hidden**3,
    "cut": lambda hidden, weight: functional.hardtanh(hidden, -0.1, 0.1),
    "step": lambda hidden, weight: hidden * (hidden > 0.1).float(),
    "steps": lambda hidden, weight: torch.where((hidden > 0.1) & (hidden < 0.5), hidden, -hidden),
    "sign": lambda hidden, weight: hidden * hidden.sign(),
    "largest": lambda hidden, weight: torch.maximum(hidden, hidden.flip(1)),
    "gates": lambda hidden, weight: functional.glu(torch.cat([hidden, hidden @ weight], 1), 1),
    "bytes": lambda hidden, weight: hidden * ((hidden > 0).to(torch.uint8) * 200 + 100).float(),
    "exp": lambda hidden, weight: hidden.clamp(max=5).exp(),
    "log": lambda hidden, weight: torch.log1p(hidden.abs()),
    "roots": lambda hidden, weight: (hidden.abs() + 0.01).sqrt(),
    "own derivative": lambda hidden, weight: (
        hidden + torch.autograd.grad(torch.tanh(hidden).sum(), hidden, create_graph=True)[0]
    ),
}
HOOKS: dict[str, Callable[[Tensor], Tensor]] = {
    "twice": lambda error: 2 * error,
    "moved": lambda error: error + 1e-3,
    "squared": lambda error: error * error,
    "clamped": lambda error: error.clamp(-1e-2, 1e-2),
    "signs": torch.sign,
    "positive": lambda error: error.clamp(min=0),
    "normed": lambda error: error / (error.norm(dim=1, keepdim=True) + 1e-6),
    "where": lambda error: torch.where(error > 0, error, 0.1 * error),
    "rows": lambda error: error - error.mean(0),
    "tanh": torch.tanh,
    "turned": lambda error: error.flip(1),
}


class Odd(nn.Module):
    """Two affine layers with an operation between them that few networks have, or that changes errors."""

    def __init__(self, inputs: int, width: int, outputs: int, operation: str, hook: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.last = nn.Linear(width, outputs)
        self.operation, self.hook = operation, hook
        self.register_buffer("weight", torch.randn(width, width) / width**0.5)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        hidden = self.first(rows)
        if self.operation:
            hidden = ODD[self.operation](hidden, self.get_buffer("weight"))
        hidden = self.second(torch.tanh(hidden))
        if self.hook and hidden.requires_grad:
            hidden.register_hook(HOOKS[self.hook])
        return self.last(functional.relu(hidden))


def odd_operations(draw: Draw) -> Victim:
    """Operations that few networks have, and hooks that change errors on their way back, linear ones and others."""
    victim = plain(draw, widths=[draw.whole(8, 24)], most=8)
    operation = draw.of(list(ODD)) if draw.chance(0.6) else ""
    hook = draw.of(list(HOOKS)) if not operation or draw.chance(0.2) else ""
    module = victim.model.module
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    made = seeded(
        lambda: Odd(layers[0].in_features, layers[0].out_features, layers[-1].out_features, operation, hook), draw.seed
    )
    victim.model = Model(made, victim.model.head, "odd")
    return victim


# Recipes and messages that are not what is declared.


def in_single_precision(declared: kernel.Declaration, cells: Tensor) -> Tensor:
    """Return encoded rows of a client that holds its numbers in single precision."""
    layout, rows = declared.layout, declared.rows(cells)
    held = rows[:, layout.number]
    numbers = [i for i, column in enumerate(declared.columns) if column.categories is None]
    mean, scale = (part[layout.number].float() for part in (layout.mean, layout.scale))
    rows[:, layout.number] = ((cells[:, numbers].float() - mean) / scale).to(held.dtype)
    return rows


def large_numbers(draw: Draw) -> Victim:
    """Times or amounts whose range is small beside them, held in single precision by the client, or not."""
    victim = plain(draw, generated("large numbers", draw.whole(1, 40)), form="chain")
    if draw.chance(0.7):
        victim.encoded = in_single_precision
    same = bounded_cells(victim, victim.cells.float().double())
    if draw.chance(0.7):
        apart = (same - victim.cells).abs().amax(0) * draw.of((0.3, 0.9, 0.99))
        victim.tolerance = torch.where((apart > 0) & (victim.spans > 0), apart, victim.tolerances)
    victim.witnesses.append((same, victim.labels))
    return victim


def steps(draw: Draw) -> Victim:
    """Local steps over all records."""
    victim = plain(draw, most=8)
    victim.steps, victim.rate = draw.whole(1, 5), draw.of((0.01, 0.1))
    return victim


def wrong_steps(draw: Draw) -> Victim:
    """Local steps that are declared as fewer or more at a rate that leaves about the same message."""
    victim = steps(draw)
    other = draw.of([one for one in range(1, 6) if one != victim.steps])
    victim.declared = {"steps": other, "rate": cast(float, victim.rate) * victim.steps / other}
    if draw.chance(0.3) and victim.rate is not None:
        rate = victim.rate
        victim.sent = lambda message: {name: part / rate for name, part in message.items()}
        victim.declared = {"steps": 1, "rate": None}
    return victim


def local_batches(draw: Draw) -> Victim:
    """Local steps over a part of the records each, declared as steps over all of them."""
    victim = plain(draw, least=2, most=8)
    half, rate = len(victim.cells) // 2, draw.of((0.01, 0.1))

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        turn.append(0)
        part = slice(0, half) if len(turn) % 2 else slice(half, None)
        return usual_loss(victim.model.head)(outputs[part], labels[part])

    turn = list[int]()
    victim.steps, victim.rate, victim.loss = 2, rate, loss
    victim.declared = {"steps": draw.of((1, 2))}
    return victim


def smoothing(draw: Draw) -> Victim:
    """Label smoothing that nobody declared."""
    victim, amount = softmax(draw), draw.of((0.01, 0.1, 0.3))
    victim.loss = lambda o, labels: functional.cross_entropy(o, labels.long(), label_smoothing=amount)
    return victim


def class_weights(draw: Draw) -> Victim:
    """Class weights that nobody declared, or a sum in place of a mean."""
    victim = hulls(draw) if draw.chance(0.5) else plain(draw)
    victim.model = replace(victim.model, head="softmax") if victim.model.head == "sigmoid" else victim.model
    outputs = victim.model.module(victim.declaration.rows(victim.cells[:1]).float()).shape[1]
    if outputs == 1:
        usual = usual_loss("sigmoid")
        victim.model, victim.loss = replace(victim.model, head="sigmoid"), lambda o, y: 7.0 * usual(o, y)
        return victim
    weight = 10.0 ** torch.tensor([draw.real(-2, 2) for _ in range(outputs)])
    reduction = draw.of(("mean", "sum"))
    victim.loss = lambda o, y: functional.cross_entropy(o, y.long(), weight=weight, reduction=reduction)
    return victim


def focal(draw: Draw) -> Victim:
    """Focal loss that nobody declared."""
    victim, gamma = softmax(draw), draw.of((0.5, 1.0, 2.0))

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        each = functional.cross_entropy(outputs, labels.long(), reduction="none")
        return ((1 - (-each).exp()) ** gamma * each).mean()

    victim.loss = loss
    return victim


def softmax(draw: Draw) -> Victim:
    """Return a victim whose head is a softmax."""
    while True:
        victim = plain(draw)
        if victim.model.head == "softmax":
            return victim


def wrong_size(draw: Draw) -> Victim:
    """Another number of records declared; witnesses have as many."""
    victim = plain(draw, least=1, most=8)
    if draw.chance(0.3) and len(victim.cells) > 1:
        victim.cells[1], victim.labels[1] = victim.cells[0], victim.labels[0]
    n = len(victim.cells)
    size = draw.of([one for one in (n // 2, 2 * n, n - 1, n + 1, 3 * n) if one not in (0, n)])
    victim.declared = {"records": size}
    which = torch.arange(size) % n
    if draw.chance(0.5):
        which = torch.randint(n, (size,), generator=draw.generator)
    victim.witnesses.append((victim.cells[which], victim.labels[which]))
    near = victim.cells[which].clone()
    for at in victim.numbers:
        column = cast(Continuous, victim.data.schema.columns[at])
        off = torch.randn(size, generator=draw.generator).double() * column.tolerance * 10 ** draw.real(-6, 0)
        near[:, at] = (near[:, at] + off).clamp(column.low, column.high)
    victim.witnesses.append((near, victim.labels[which]))
    return victim


def coarse_numbers(draw: Draw) -> Victim:
    """A message of 16 or 8 bits, or gradients of half precision under a loss scale; declared or not."""
    victim = as_many_units(draw)
    how = draw.of(("float16", "bfloat16", "int8", "scaled"))
    scale = 2.0 ** draw.whole(4, 15)

    def sent(message: dict[str, Tensor]) -> dict[str, Tensor]:
        if how == "scaled":
            return {name: (part * scale).half().float() / scale for name, part in message.items()}
        return {name: cast_to(part, cast(Any, how)) for name, part in message.items()}

    victim.sent = sent
    victim.declared = {"precision": how} if draw.chance(0.2) else {}
    return victim


def half_network(draw: Draw) -> Victim:
    """A client that multiplies in bfloat16, and sends single precision."""
    victim = as_many_units(draw)
    module, head = victim.model.module, victim.model.head

    def sent(message: dict[str, Tensor]) -> dict[str, Tensor]:
        rows = victim.declaration.rows(victim.cells).float()
        held = {name: part.clone().requires_grad_() for name, part in victim.model.parameters.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = torch.func.functional_call(module, held, (rows,))
        loss = usual_loss(head)(outputs.float(), victim.labels)
        found = torch.autograd.grad(loss, list(held.values()), materialize_grads=True)
        return dict(zip(message, found, strict=True))

    victim.sent = sent
    return victim


def rounded(part: Tensor, kind: torch.dtype) -> Tensor:
    """Return numbers as a type of 16 bits holds them, and those beyond its largest one as they are."""
    return torch.where(part.to(kind).isfinite(), part.to(kind).to(part.dtype), part)


def few_numbers(draw: Draw) -> Victim:
    """One layer and one record of few numbers, so that a message of 16 bits has few numbers, too."""
    victim = plain(draw, table(draw, ("numbers", "one number", "mixed")), most=1)
    outputs = 1 if victim.model.head == "sigmoid" else cast(Discrete, victim.data.schema.target).width
    torch.manual_seed(draw.seed)  # noqa: TID251 - layers draw from it
    victim.model = Model(nn.Linear(victim.data.schema.width, outputs), victim.model.head, "one layer")
    kind = draw.of((torch.float16, torch.bfloat16))
    if draw.chance(0.8):
        victim.sent = lambda message: {name: rounded(part, kind) for name, part in message.items()}
    return victim


def half_rows(draw: Draw) -> Victim:
    """Rows that the client holds in 16 bits, encoded or not, and the records that these stand for."""
    victim = plain(draw, table(draw, ("numbers", "one number", "mixed", "real")))
    kind, encoded = draw.of((torch.float16, torch.bfloat16)), draw.chance(0.5)
    layout, at = victim.declaration.layout, victim.numbers
    victim.tolerance = victim.spans * 10 ** draw.real(-6, -2)

    def rows_of(declared: kernel.Declaration, cells: Tensor) -> Tensor:
        rows = declared.rows(cells)
        if encoded:
            rows[:, layout.number] = rounded(rows[:, layout.number], kind)
            return rows
        cells = cells.clone()
        cells[:, at] = rounded(cells[:, at], kind)
        return declared.rows(cells)

    victim.encoded, same = rows_of, victim.cells.clone()
    same[:, at] = (rows_of(victim.declaration, victim.cells) * layout.scale + layout.mean)[:, layout.number]
    victim.witnesses.append((same, victim.labels))
    victim.witnesses.append((bounded_cells(victim, same), victim.labels))
    return victim


def defended(draw: Draw) -> Victim:
    """Noise, clipping, sparse or signed entries, or a scaled message; declared or not."""
    victim = few_units(draw) if draw.chance(0.4) else hulls(draw) if draw.chance(0.3) else plain(draw)
    how, size = draw.of(("noise", "clipping", "top_k", "sign", "scaled", "pruned")), draw.real()

    def sent(message: dict[str, Tensor]) -> dict[str, Tensor]:
        whole = torch.cat([part.flatten() for part in message.values()])
        if how == "noise":
            noise = lambda part: torch.randn(part.shape, generator=draw.generator) * 10 ** (-9 + 7 * size)  # noqa: E731
            return {name: part + noise(part) for name, part in message.items()}
        if how == "clipping":
            return {name: part * 0.5 * size for name, part in message.items()}
        if how == "scaled":
            return {name: part * 1024.0 for name, part in message.items()}
        least = whole.abs().quantile(0.9 * size) if len(whole) < 2**24 else whole.abs().mean()
        if how == "pruned":
            last = list(message)[-1]
            return {**message, last: torch.zeros_like(message[last])}
        if how == "sign":
            return {name: part.sign() for name, part in message.items()}
        return {name: torch.where(part.abs() >= least, part, 0.0) for name, part in message.items()}

    victim.sent = sent
    names = {"noise": "gaussian_noise", "clipping": "clipping", "top_k": "top_k"}
    victim.declared = {"defense": names.get(how, how)} if draw.chance(0.2) else {}
    return victim


def forged(draw: Draw) -> Victim:
    """A message of which one layer is another batch's, or a multiple of itself."""
    victim = plain(draw)
    other = replace(victim, cells=victim.cells.flip(0).clone(), labels=victim.labels.clone())
    other.cells = victim.data.train.cells[: len(victim.cells)].clone()
    theirs, times = other.message(), draw.of((0.0, 0.5, 2.0))

    def sent(message: dict[str, Tensor]) -> dict[str, Tensor]:
        name = draw.of(list(message))
        return {**message, name: theirs[name] if draw.chance(0.5) else times * message[name]}

    victim.sent = sent
    return victim


# Rule of the kernel that a form tries, and the form.
FORMS: dict[str, tuple[int, Callable[[Draw], Victim]]] = {
    "hulls": (0, hulls),
    "equal residuals": (0, equal_residuals),
    "sure outputs": (0, one_label),
    "one record": (0, one_record),
    "dead units": (0, dead_units),
    "few units": (0, few_units),
    "plain": (1, plain),
    "trained": (1, trained),
    "steps": (1, steps),
    "wrong steps": (1, wrong_steps),
    "local batches": (1, local_batches),
    "label smoothing": (1, smoothing),
    "class weights": (1, class_weights),
    "focal loss": (1, focal),
    "forged": (1, forged),
    "large numbers": (1, large_numbers),
    "clipped": (2, clipped),
    "other networks": (2, other_forms),
    "by batch": (2, by_batch),
    "rewritten": (2, rewritten),
    "number of rows": (2, number_of_rows),
    "regression": (2, regression),
    "equal units": (2, equal_units),
    "odd operations": (2, odd_operations),
    "tiny": (1, tiny),
    "pairs": (3, pairs),
    "near copies": (3, near_copies),
    "copies": (3, copies),
    "wrong size": (4, wrong_size),
    "coarse numbers": (5, coarse_numbers),
    "half network": (5, half_network),
    "few numbers": (5, few_numbers),
    "half rows": (5, half_rows),
    "defended": (5, defended),
    "wide": (6, wide),
    "rare categories": (6, rare),
    "numbers": (6, only_numbers),
    "categories": (6, only_categories),
    "large": (6, large),
}
# Forms that cost more than a second a victim, or that matter most, are drawn so often in a round.
OFTEN = {"pairs": 4, "clipped": 2, "near copies": 2, "one record": 2, "odd operations": 4, "equal units": 2}
ROUND = [form for form in FORMS for _ in range(OFTEN.get(form, 1)) if form != "large"]


# Witnesses beside the true records.


def means(draw: Draw, victim: Victim) -> Tensor:
    """Near records as copies of their mean."""
    cells = victim.cells.clone()
    apart = (cells[:, None] - cells[None]).abs() / torch.where(victim.spans > 0, victim.spans, 1.0)
    far = apart.sum(2) + 1e6 * (victim.labels[:, None] != victim.labels[None]) + 1e9 * torch.eye(len(cells))
    for _ in range(draw.whole(1, max(1, len(cells) // 2)) if len(cells) > 1 else 0):
        first, second = divmod(int(far.argmin()), len(cells))
        middle = (cells[first] + cells[second]) / 2
        cells[first, victim.numbers] = cells[second, victim.numbers] = middle[victim.numbers]
        far[[first, second]] = far[:, [first, second]] = 1e12
    return cells


def moved(draw: Draw, victim: Victim) -> Tensor:
    """A number off by twice its tolerance, and another record's by as much the other way."""
    cells = victim.cells.clone()
    if victim.numbers:
        at = draw.of(victim.numbers)
        step = draw.of((1.01, 2.0)) * victim.tolerances[at]
        first, second = (draw.whole(1, len(cells)) - 1 for _ in range(2))
        cells[first, at] += step
        cells[second, at] -= step if draw.chance(0.7) else 0.0
    return bounded_cells(victim, cells)


def swapped(draw: Draw, victim: Victim) -> Tensor:
    """Cells of one or more columns exchanged between two records."""
    cells = victim.cells.clone()
    first, second = (draw.whole(1, len(cells)) - 1 for _ in range(2))
    which = draw.mask(cells.shape[1]) if draw.chance(0.5) else draw.mask(cells.shape[1], 1.5 / cells.shape[1])
    cells[first, which], cells[second, which] = cells[second, which].clone(), cells[first, which].clone()
    return cells


def farthest(draw: Draw, victim: Victim, message: dict[str, Tensor]) -> Tensor:
    """Numbers moved in a direction that changes the message little, as far as the kernel's replay lets them."""
    cells, at, declared = victim.cells, victim.numbers, victim.declaration
    if not at or len(at) * len(cells) > 48 or victim.steps > 1:
        return moved(draw, victim)
    module = copy.deepcopy(victim.model.module).double()
    held = {name: part.double().requires_grad_() for name, part in victim.model.parameters.items()}

    def sent(moves: Tensor) -> Tensor:
        some = cells.index_add(1, torch.tensor(at), moves.view(len(cells), len(at)) * victim.spans[at])
        loss = usual_loss(declared.head)(torch.func.functional_call(module, held, (declared.rows(some),)), labels)
        found = torch.autograd.grad(loss, list(held.values()), materialize_grads=True)
        return torch.cat([part.flatten() for part in found])

    labels, step = victim.labels, 1e-5
    begin, each = sent(torch.zeros(len(cells) * len(at)).double()), torch.eye(len(cells) * len(at)).double()
    change = torch.stack([sent(step * one) - begin for one in each]) / step
    _, directions = torch.linalg.eigh(change @ change.T)
    weak = directions[:, draw.whole(1, min(3, len(each))) - 1].view(len(cells), len(at)) * draw.of((-1.0, 1.0))
    power = 0
    while power < 12:
        other = cells.clone()
        other[:, at] += weak * victim.spans[at] * 0.25**power
        other = bounded_cells(victim, other)
        proof = kernel.certify(victim.model.module, victim.model.parameters, message, declared, other, victim.labels)
        missed = re.search(r"do not replay .*: (\S+) times", proof.doubt or "")
        if missed is None:
            return other
        # What is left shrinks with the move, so that most powers need not be tried.
        power += max(1, int(math.log(max(1.0, float(missed[1])), 4)))
    return cells


def bounded_cells(victim: Victim, cells: Tensor) -> Tensor:
    """Return records whose numbers lie within their bounds, whole where they must be."""
    cells = cells.clone()
    for i in victim.numbers:
        column = cast(Continuous, victim.data.schema.columns[i])
        cells[:, i] = (cells[:, i].round() if column.integer else cells[:, i]).clamp(column.low, column.high)
    return cells


def solved(victim: Victim, message: dict[str, Tensor]) -> Tensor:
    """Numbers that fit what the first layer's message spans best, with the true categories, as an attack finds them."""
    cells, at, declared = victim.cells.clone(), victim.numbers, victim.declaration
    rows = declared.rows(cells)
    named = [name for name, part in message.items() if part.dim() == 2 and part.shape[1] == rows.shape[1]]
    if not at or not named:
        return cells
    weight, bias = message[named[0]].double(), message.get(named[0].removesuffix("weight") + "bias")
    both = weight if bias is None else torch.cat([weight, bias[:, None].double()], 1)
    extended = lambda some: functional.pad(declared.rows(some), (0, both.shape[1] - rows.shape[1]), value=1.0)  # noqa: E731
    outside = torch.linalg.svd(both, full_matrices=True)[2][min(len(cells), len(both)) :].T
    moves = [extended(cells.index_add(1, torch.tensor([i]), victim.spans[i].expand(len(cells), 1))) for i in at]
    by = torch.stack([(row - extended(cells))[0] for row in moves]) @ outside
    found = -(extended(cells) @ outside) @ torch.linalg.pinv(by)
    cells[:, at] += found * victim.spans[at]
    return bounded_cells(victim, cells)


def witnesses(draw: Draw, victim: Victim, message: dict[str, Tensor]) -> Iterator[tuple[Victim, Tensor, Tensor]]:
    """Yield records that the kernel is asked about, with their labels, and the victim with tolerances."""
    if victim.declaration.records == len(victim.cells):
        yield victim, victim.cells, victim.labels
        way = draw.of((means, moved, swapped))
        others = [way(draw, victim) if draw.chance(0.7) else farthest(draw, victim, message)]
        others += [solved(victim, message)] if draw.chance(0.9 if victim.changed else 0.3) else []
        for cells in (some for some in others if not torch.equal(some, victim.cells)):
            # Tolerances that just leave the true records out.
            apart = (cells - victim.cells).abs().amax(0) * draw.of((0.5, 0.9, 0.99))
            sharp = torch.where((apart > 0) & (victim.spans > 0), apart, victim.tolerances)
            yield replace(victim, tolerance=sharp) if draw.chance(0.8) else victim, cells, victim.labels
    for cells, labels in victim.witnesses:
        if not torch.equal(cells, victim.cells):
            yield victim, cells, labels


class Outcome(NamedTuple):
    """Counts of one victim, over its witnesses.

    Attributes:
        certified: largest number of records with a certified cell.
        cells, given: largest number of cells certified, or only given something.
        false, false_given: largest number of cells among them that are wrong.
        doubt: why the true records were refused.
    """

    certified: int
    cells: int
    false: int
    given: int
    false_given: int
    doubt: str | None


def wrong(victim: Victim, cells: Tensor, certified: Tensor) -> int:
    """Return the number of certified cells that an optimal assignment to the true records finds wrong."""
    proved = certified.any(1).nonzero()[:, 0]
    if not len(proved):
        return 0
    off = (cells[proved, None] - victim.cells[None]).abs() > victim.tolerances
    cost = (off & certified[proved, None]).sum(2)
    # A certified record beyond the number of true ones is wrong in all of its certified cells.
    spare = certified[proved].sum(1)[:, None].expand(-1, max(0, len(proved) - len(victim.cells)))
    cost = torch.cat([cost, spare], 1)
    first, second = linear_sum_assignment(cost.numpy())
    return int(cost[first, second].sum())


def judged(asked: Sequence[tuple[Victim, Tensor, kernel.Certified]]) -> Outcome:
    """Return the counts of what was certified."""
    counts = [
        (
            int(proof.cells.any(1).sum()), int(proof.cells.sum()), wrong(victim, cells, proof.cells),
            int(proof.given.sum()), wrong(victim, cells, proof.given),
        )
        for victim, cells, proof in asked
    ]  # fmt: skip
    return Outcome(*(max(column) for column in zip(*counts, strict=True)), asked[0][2].doubt)


def attacked(victim: Victim, message: dict[str, Tensor]) -> tuple[Tensor, kernel.Certified]:
    """Return what `unmix` makes of a message, and what is certified of it."""
    declared = victim.declaration
    received = {name: part[None] for name, part in message.items()}
    view: View = GradientView(victim.model, received)
    if declared.rate is not None:
        training = LocalTraining(declared.steps, declared.records, learning_rate=declared.rate)
        view = UpdateView(victim.model, received, training)
    known = Knowledge(victim.data.schema, victim.data.statistics, declared.records)
    attack = cast(Any, attacks.create("unmix", starts=8, rounds=3, restarts=1, iterations=1))
    guess = attack(view, known, [0])
    return guess.cells[0].double(), guess.proofs[0]


def outcome(form: str, seed: int, attack_share: float = 0.02) -> Outcome:
    """Return the counts of a victim.

    Args:
        form: name of a form.
        seed: seed of all random choices.
        attack_share: share of victims that the real attack is tried on.
    """
    draw = Draw(seed)
    victim = FORMS[form][1](draw)
    message, declared = victim.message(), victim.declaration
    if form == "half network":
        message = victim.sent(message)
    asked = [
        (one, cells, kernel.certify(one.model.module, one.model.parameters, message, one.declaration, cells, labels))
        for one, cells, labels in witnesses(draw, victim, message)
    ]
    # Rewritten networks may have no derivatives for a descent.
    usual = declared.defense == "none" and declared.precision == "float32"
    usual = usual and form not in ("by batch", "rewritten", "odd operations")
    if draw.chance(attack_share) and usual and declared.records <= 16 and declared.head != "regression":
        victim = replace(victim, tolerance=None)
        # Attacks refuse gradients whose squares single precision cannot hold.
        with suppress(BadInputError):
            asked.append((victim, *attacked(victim, message)))
    return judged(asked)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, without one that was cut off."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def bound(false: int, victims: int) -> float:
    """Return the upper end of the exact one-sided 95% interval of a share."""
    return 1.0 if false >= victims else float(betaincinv(false + 1, victims - false, 0.95))


def summary(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return counts and bounds by rule and form, by rule, and of all."""
    found = []
    groups = [(f"{rule}", form, [x for x in lines if x["form"] == form]) for form, (rule, _) in FORMS.items()]
    groups += [(f"{rule}", "all", [x for x in lines if FORMS[x["form"]][0] == rule]) for rule in range(7)]
    for rule, form, own in [*sorted(groups), ("all", "all", lines)]:
        if own:
            false = sum(x["false"] > 0 for x in own)
            found.append(
                {"rule": rule, "form": form, "victims": len(own)}
                | {name: sum(x[name] for x in own) for name in COUNTS}
                | {"false_victims": false, "bound": f"{bound(false, len(own)):.2e}"}
                | {"refused": sum(x["doubt"] is not None for x in own)}
                | {"seconds": round(sum(x["seconds"] for x in own))}
            )
    return found


def main() -> int:
    """Run victims, print counts, and return 1 if a certified cell is false."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file with a line for each victim")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time after which no victim is begun")
    parser.add_argument("--victims", type=int, default=1000, help="number of victims of all forms")
    parser.add_argument("--first", type=int, default=0, help="seed of the first victim")
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="forms; all of them by default")
    parser.add_argument("--attack-share", type=float, default=0.02, help="share of victims that unmix is tried on")
    parser.add_argument("--count", type=Path, help="file to add up, without running anything")
    parser.add_argument("--csv", type=Path, help="file for the counts")
    parser.add_argument("--machine", default="", help="description of the machine, for the file of counts")
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    path = arguments.count or arguments.out
    lines = lines_of(path) if path else []
    done, until = {(line["form"], line["seed"]) for line in lines}, time.monotonic() + 60 * arguments.minutes
    order = arguments.forms or ROUND
    for seed in range(arguments.first, arguments.first + (0 if arguments.count else arguments.victims)):
        # A large victim takes as long as many small ones.
        form = order[seed % len(order)] if arguments.forms or seed % 500 else "large"
        if time.monotonic() > until:
            break
        if (form, seed) in done:
            continue
        begun = time.perf_counter()
        found = outcome(form, seed, arguments.attack_share)
        line = {"form": form, "seed": seed, **found._asdict(), "seconds": round(time.perf_counter() - begun, 3)}
        lines.append(line)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
        if found.false:
            print(f"FALSE: --forms {form!r} --first {seed} --victims 1", flush=True)
    rows = summary(lines)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    if arguments.csv:
        arguments.csv.unlink(missing_ok=True)
        add_lines(arguments.csv, FIELDS, [{**row, "machine": arguments.machine} for row in rows])
    return int(any(line["false"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
