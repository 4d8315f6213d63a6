"""Certificates of split learning under messages that are not what was declared, each held against the truth.

    python benchmarks/falsify_split.py --out runs/split.jsonl --minutes 60
    python benchmarks/falsify_split.py --out runs/split.jsonl --minutes 0 --table benchmarks/results/falsify_split.csv

A draw is a client that was trained for a moment (a cut of 1, 2, 4 or 8 activations, layers and activations of several
kinds), a planted table with rare categories, and a form of message. The declaration says cross-entropy, or squared
error, of a mean over the batch in float32 with no defense, unless the form is one that is declared; in every other draw
loss and scale are not declared, but estimated. The file gets a
line for each draw; a run that finds it goes on behind its last line. The table has a row for each form: records,
certified cells, how many are wrong, and the upper end of the exact 95% interval of that share.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from csv_lines import signed
from scipy.stats import beta
from torch import Tensor, nn
from torch.nn import functional

from seepage.attacks.split import Exact
from seepage.models.message import PLAIN
from seepage.models.split import SplitModel, for_loss, record_losses
from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.split import CutGuess, CutKnowledge, CutView, KnownCut

CUTS = (1, 2, 4, 8)
Loss = Callable[[Tensor, Tensor], Tensor]


class Server(nn.Module):
    """Maps the server's cells to activations."""

    def __init__(self, columns: int, cut: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(columns, 16), nn.ReLU(), nn.Linear(16, cut))

    def forward(self, cells: Tensor) -> Tensor:
        """Return the activations."""
        return self.layers(cells)


class Client(nn.Module):
    """Maps activations and private cells to outputs: embeddings or one-hot entries, then layers."""

    def __init__(
        self, widths: list[int | None], cut: int, outputs: int, hidden: list[int], bend: nn.Module, dim: int | None,
        dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.widths = widths
        self.tables = nn.ModuleList(nn.Embedding(w, w if dim is None else dim) for w in widths if w is not None)
        for table in self.tables:
            if dim is None and isinstance(table, nn.Embedding):
                table.weight.data = torch.eye(len(table.weight))
                table.requires_grad_(False)
        size, layers = cut + sum((w or 1) if dim is None or w is None else dim for w in widths), []
        for width in hidden:
            layers += [nn.Linear(size, width), bend, *([nn.Dropout(dropout)] if dropout else [])]
            size = width
        self.layers = nn.Sequential(*layers, nn.Linear(size, outputs))

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the outputs."""
        parts, tables = [cut], iter(self.tables)
        for k, width in enumerate(self.widths):
            parts.append(cells[:, k : k + 1].to(cut) if width is None else next(tables)(cells[:, k].long()).to(cut))
        return self.layers(torch.cat(parts, 1))


class Counting(nn.Module):
    """A client part that multiplies its activations by what depends on the number of rows, or changes errors."""

    def __init__(self, inner: nn.Module, how: str) -> None:
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the outputs."""
        size, how = len(cut), self.how
        if how == "filled":
            cut = cut * cut.new_full((1, 1), 1 + size / 16)
        elif how == "added up":
            cut = cut * (1 + torch.ones(size).sum() / 16)
        elif how == "a product":
            cut = cut * (cut.new_ones(1, size) @ cut.new_ones(size, 1)) / 16
        elif how == "full batch":
            cut = cut * (2.0 if size in (16, 32, 50) else 1.0)
        elif how == "place":
            cut = cut * (1 + torch.arange(size)[:, None] / size)
        elif cut.requires_grad:
            cut = cut * 1.0
            change = {"squared": lambda e: e * e.abs(), "twice": lambda e: 2 * e, "signs": torch.sign}[how]
            cut.register_hook(change)
        return self.inner(cut, cells)


def drawn(draw: np.random.Generator, form: str) -> tuple[SplitModel, Table]:
    """Return a table with rare categories and a network of two parts that was trained on it for a moment."""
    regression = form in ("huber", "scaled_error", "one_output") or (
        form in ("mean", "sum", "fp16", "noise") and draw.random() < 0.2
    )
    two = form == "pos_weight" or (not regression and draw.random() < 0.5)
    rows, private = int(draw.choice([100, 200, 400])), int(draw.integers(2, 5))
    columns: list[Column] = []
    frame: dict[str, np.ndarray] = {}
    hidden = draw.normal(size=rows)
    for k in range(private + 3):
        if k >= 1 and (draw.random() < 0.15 or (form == "half_rows" and k == 3)):
            high = int(draw.choice([300, 1000, 3000] if form == "half_rows" else [6, 12]))
            frame[f"c{k}"] = np.clip(np.round((hidden + draw.normal(size=rows) + 3) / 6 * high), 0, high)
            columns.append(
                Continuous(name=f"c{k}", low=0, high=high, tolerance=float(draw.integers(0, 3)), integer=True)
            )
            continue
        width = int(draw.integers(2, 6))
        share = draw.dirichlet(np.full(width, draw.choice([0.2, 1.0, 5.0])))
        code = draw.choice(width, rows, p=share)
        code[: rows // 50 + 1] = draw.integers(0, width, rows // 50 + 1)
        frame[f"c{k}"] = code
        columns.append(Discrete(name=f"c{k}", categories=tuple(range(width))))
    score = hidden + sum(draw.normal() * (values - values.mean()) for values in frame.values())
    if regression:
        values = np.clip(score + draw.normal(size=rows), -20, 20)
        target: Column = Continuous(name="t", low=-20, high=20, tolerance=0.1)
    else:
        classes = 2 if two else int(draw.integers(2, 6))
        rare = draw.dirichlet(np.full(classes, 1.0)) * 0.9 + 0.1 / classes
        values = np.digitize(score + draw.normal(size=rows), np.quantile(score, np.cumsum(rare)[:-1]))
        values[:classes] = np.arange(classes)
        target = Discrete(name="t", categories=tuple(range(classes)))
    schema = Schema(columns=tuple(columns), target=target)
    table = Table(schema, pd.DataFrame({**frame, "t": values}))
    own = [3 + k for k in range(private)]
    seed, cut = int(draw.integers(2**31)), int(draw.choice(CUTS))
    torch.manual_seed(seed)  # noqa: TID251 - layers draw from it
    widths = [columns[i].width if isinstance(columns[i], Discrete) else None for i in own]
    bend: nn.Module = draw.choice(np.array([nn.ReLU(), nn.ReLU(), nn.Tanh(), nn.GELU(), nn.SiLU()], dtype=object))
    head = "regression" if regression else "sigmoid" if two else "softmax"
    client = Client(
        widths,
        cut,
        1 if head != "softmax" else target.width,  # pyright: ignore[reportAttributeAccessIssue]
        [int(draw.choice([8, 32, 64])) for _ in range(draw.integers(form == "dropout", 3))],
        bend,
        int(draw.choice([2, 4])) if draw.random() < 0.5 else None,
        0.2 if form == "dropout" else 0.0,
    )
    ways = ("filled", "added up", "a product", "full batch", "place", "squared", "twice", "signs")
    part = Counting(client, str(draw.choice(ways))) if form == "counting" else client
    model = SplitModel(Server(3, cut), part, schema, tuple(own), head, "drawn")
    theirs, mine = model.scaled(table.cells, model.public), model.scaled(table.cells, model.private)
    labels = for_loss(target, table.labels)
    parts = [p for p in [*model.server.parameters(), *client.parameters()] if p.requires_grad]
    optimiser = torch.optim.Adam(parts, 0.02)
    for _ in range(int(draw.integers(0, 40))):
        optimiser.zero_grad()
        record_losses(head, client(model.server(theirs), mine), labels).mean().backward()
        optimiser.step()
    return model, table


def loss_of(form: str, model: SplitModel, labels: Tensor, draw: np.random.Generator) -> Loss:
    """Return the client's loss of each record, of outputs and labels."""
    head, target = model.head, model.schema.target
    weights = torch.ones(model.classes)
    weights[int(labels.long().bincount().argmin()) if model.classes > 1 else 0] = float(draw.choice([0.5, 2.0, 10.0]))
    strength = float(draw.choice([0.01, 0.1, 0.3]))

    def plain(outputs: Tensor, labels: Tensor) -> Tensor:
        return record_losses(head, outputs, for_loss(target, labels).to(outputs) if model.classes < 2 else labels)

    def smoothed(outputs: Tensor, labels: Tensor) -> Tensor:
        if head == "sigmoid":
            soft = labels.to(outputs) * (1 - strength) + strength / 2
            return functional.binary_cross_entropy_with_logits(outputs[:, 0], soft, reduction="none")
        return functional.cross_entropy(outputs, labels.long(), label_smoothing=strength, reduction="none")

    def focal(outputs: Tensor, labels: Tensor) -> Tensor:
        losses = plain(outputs, labels)
        return losses * (1 - (-losses).exp()) ** (2.0 if strength > 0.05 else 0.5)

    def weighed(outputs: Tensor, labels: Tensor) -> Tensor:
        return plain(outputs, labels) * weights.to(outputs)[labels.long()]

    def huber(outputs: Tensor, labels: Tensor) -> Tensor:
        return functional.huber_loss(outputs[:, 0], for_loss(target, labels).to(outputs), reduction="none", delta=0.3)

    def scaled(outputs: Tensor, labels: Tensor) -> Tensor:
        return plain(outputs, labels) * 3.7

    losses = {"label_smoothing": smoothed, "focal": focal, "class_weights": weighed, "pos_weight": weighed}
    return ({**losses, "huber": huber, "scaled_error": scaled}).get(form, plain)


def answered(model: SplitModel, table: Table, form: str, draw: np.random.Generator) -> tuple[CutView, KnownCut]:
    """Return what the server received, with the declared number of records, and the declared defense."""
    batch, known = int(draw.choice([16, 32, 50])), KnownCut()
    theirs, cells = model.scaled(table.cells, model.public), table.cells
    if form == "half_rows":
        # The client holds its numbers in 16 bits, before they are scaled.
        kind = torch.bfloat16 if draw.random() < 0.5 else torch.float16
        numbers = torch.tensor([isinstance(column, Continuous) for column in table.schema.columns])
        cells = torch.where(numbers, cells.to(kind).to(cells.dtype), cells)
    mine = model.scaled(cells, model.private)
    with torch.no_grad():
        cut = model.server(theirs)
    client = model.client.train(form == "dropout")
    loss = loss_of(form, model, table.labels, draw)
    half = {"fp16": torch.float16, "bf16": torch.bfloat16, "double": torch.float64}.get(form)
    mixed = torch.bfloat16 if draw.random() < 0.5 else torch.float16
    held, scale = [], 2.0 ** int(draw.integers(0, 14)) if form in ("amp", "fp16") else 1.0
    for some in torch.arange(len(table)).split(batch):
        received = cut[some].to(half).requires_grad_() if half else cut[some].clone().requires_grad_()
        running = client.to(half) if half else client
        with torch.autocast("cpu", mixed, enabled=form == "amp"):
            losses = loss(running(received, mine[some]), table.labels[some])
        total = losses.sum() if form == "sum" else losses.mean()
        held.append(torch.autograd.grad(total * scale, received)[0].float() / scale)
    client.to(torch.float32)
    gradient = torch.cat(held)
    behind = torch.cat([torch.full((len(some),), float(len(some))) for some in torch.arange(len(table)).split(batch)])
    norms = gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)
    noise = torch.from_numpy(draw.normal(size=tuple(gradient.shape))).float()
    if form == "sum":
        behind = torch.ones_like(behind)
    elif form == "wrong_batch":
        behind = behind * float(draw.choice([0.5, 2.0])) if draw.random() < 0.5 else behind + 1
    elif form == "int8":
        step = gradient.abs().max() / 127
        gradient = (gradient / step).round() * step
    elif form == "clipping":
        share = float(draw.choice([0.5, 0.9, 0.97]))
        if draw.random() < 0.5:
            gradient = gradient * (norms.quantile(share) / norms).clamp(max=1)
        else:
            bound = float(gradient.abs().amax(1).quantile(share))
            gradient = gradient.clamp(-bound, bound)
    elif form in ("noise", "declared_noise", "one_output"):
        bound = float(norms.median())
        sizes = {"declared_noise": [1e-2, 0.1], "one_output": [0.2, 0.05, 1e-2, 1e-3]}
        strength = float(draw.choice(sizes.get(form, [1e-2, 1e-3, 1e-4])))
        gradient = gradient + strength * bound * noise
        known = KnownCut(strength, clips=True) if form == "declared_noise" else known
    elif form == "adam":
        gradient = gradient / (gradient.square().mean(0, keepdim=True).sqrt() + 1e-8)
    elif form == "sparsified":
        gradient = torch.where(gradient.abs() >= gradient.abs().quantile(0.3), gradient, 0.0)
    elif form == "other_weights":
        with torch.no_grad():
            for part in model.client.parameters():
                part.add_(1e-4 * torch.randn(part.shape))
    model.client.eval()
    clip = float(norms.median()) * 32 if known.clips else None
    return CutView(model, table.cells[:, list(model.public)], cut, gradient, behind, clip), known


FORMS = (
    *("mean", "sum", "wrong_batch", "fp16", "bf16", "amp", "int8", "label_smoothing", "focal", "pos_weight"),
    *("class_weights", "noise", "declared_noise", "dropout", "clipping", "adam", "sparsified", "other_weights"),
    *("huber", "scaled_error", "one_output", "counting", "double", "half_rows"),
)


def judged(number: int, form: str) -> dict[str, object]:
    """Return what a draw of a form certifies, and how much of it is wrong."""
    draw = np.random.default_rng([number, FORMS.index(form)])
    torch.manual_seed(int(draw.integers(2**31)))  # noqa: TID251 - dropout draws from it
    model, table = drawn(draw, form)
    view, known = answered(model, table, form, draw)
    if not bool(view.gradient.any()):
        # A client whose units are all dead answers nothing.
        return judged(number + 1_000_000, form)
    # Every other draw declares no form of messages, so that one is estimated where cross-entropy replays too few.
    declared = PLAIN if number % 2 else None
    guess: CutGuess = Exact()(view, CutKnowledge(table.schema, Statistics.of(table), known, form=declared))
    truth = table.cells[:, list(model.private)]
    columns = [table.schema.columns[i] for i in model.private]
    tolerance = torch.tensor([0.0 if isinstance(c, Discrete) else c.tolerance for c in columns])
    wrong = (guess.cells - truth).abs() > tolerance
    certified = torch.zeros_like(wrong) if guess.certified is None else guess.certified
    found = {"number": number, "form": form, "cut": view.cut.shape[1], "records": view.records}
    counts = {"cells": int(certified.sum()), "false": int((certified & wrong).sum()), "all": certified.numel()}
    doubt = None if guess.proof is None else guess.proof.doubt
    return {**found, **counts, "right": int((~wrong).sum()), "doubt": doubt}


def upper(false: int, cells: int) -> float:
    """Return the upper end of the exact 95% interval of a share (Clopper and Pearson, one-sided)."""
    return 1.0 if cells == false else float(beta.ppf(0.95, false + 1, cells - false))


def summed(lines: list[dict[str, object]]) -> pd.DataFrame:
    """Return a row for each form, and for all together."""
    every = pd.DataFrame(lines)
    groups = [(form, every[every.form == form]) for form in FORMS] + [("all", every)]
    rows = []
    for form, some in groups:
        cells, false = int(some.cells.sum()), int(some.false.sum())
        rows.append(
            {
                "form": form,
                "draws": len(some),
                "records": int(some.records.sum()),
                "cells": int(some["all"].sum()),
                "certified": cells,
                "false": false,
                "upper_bound": f"{upper(false, cells):.2g}",
                "draws_with_certificates": int((some.cells > 0).sum()),
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Draw until the time is up, and print what was certified by form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="File with a line for each draw.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--table", type=Path, help="CSV file with a row for each form.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes
    with arguments.out.open("a") as file:
        while time.monotonic() < end:
            number, at = divmod(len(lines), len(FORMS))
            lines.append(judged(number, FORMS[at]))
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
    table = summed(lines)
    print(table.to_string(index=False))
    if arguments.table is not None:
        table.assign(**signed({}, ("commit", "kernel"))).to_csv(
            arguments.table, index=False, quoting=csv.QUOTE_MINIMAL, lineterminator="\n"
        )


if __name__ == "__main__":
    main()
