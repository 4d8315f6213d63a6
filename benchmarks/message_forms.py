"""Split learning whose messages have another form than cross-entropy as it is: what is read, and what is said of it.

    python benchmarks/message_forms.py --out runs/forms.csv --minutes 10 --summary FILE

A client and a server train in plain PyTorch for a moment, by the loss of the form, as a deployment outside seepage
would. Then 100 records go through the cut in two batches, and their messages are written as a transcript with the
client's weights. Each line is a table, a cut (1 or 4 activations), a form, whether the transcript declares it, a
training and an attack: the share of private cells and of labels that are read, beside the best baseline, and whether
the headline shows a doubt. A line that is in the file is not measured again. ``--summary`` writes means over tables.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch
from csv_lines import add_lines, read_lines, signed
from torch import Tensor, nn
from torch.nn import functional

from seepage import TranscriptWriter, write_weights
from seepage.assessment.intervals import interval
from seepage.attacking.sources import attack_capture
from seepage.datasets import Dataset, load
from seepage.models.split import SplitModel, usual_split_head
from seepage.settings.captured import RECONSTRUCTION
from seepage.tabular.table import Table

TABLES = {
    "german": ("checking_account", "savings", "employment", "other_debtors"),
    "adult": ("workclass", "relationship", "race", "sex"),
    "lawschool": ("race", "resident", "year", "gender"),
}
CUTS = (4, 1)
RECORDS, BATCH, PUBLIC = 100, 50, 150
WEIGHT, SMOOTHING, GAMMA, RATE = 3.0, 0.1, 2.0, 0.1
# Forms that a transcript can declare, and how.
DECLARED: dict[str, dict[str, object]] = {
    "plain": {},
    "sum": {},
    "pos_weight": {"weights": (1.0, WEIGHT)},
    "class_weights": {"weights": (1.0, WEIGHT), "scale_of": "round"},
    "sample_weights": {"scale_of": "record"},
    "smoothing": {"smoothing": SMOOTHING},
    "pos_weight_smoothing": {"weights": (1.0, WEIGHT), "smoothing": SMOOTHING},
    "focal": {"loss": "focal", "gamma": GAMMA},
    "squared": {"loss": "squared"},
    "squared_chance": {"loss": "squared_chance"},
    "loss_scale": {"scale": 1024.0},
    "accumulation": {"scale": 0.25},
    "fp16": {"format": "float16"},
    "bf16": {"format": "bfloat16"},
    "int8": {"format": "int8"},
    "autocast": {"format": "bfloat16"},
    "dropout": {"training": True},
    "batch_norm": {},
    "noise": {},
    "clipped": {},
}


class Server(nn.Module):
    """Maps the server's cells to activations."""

    def __init__(self, columns: int, cut: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(columns, 16), nn.ReLU(), nn.Linear(16, cut))

    def forward(self, cells: Tensor) -> Tensor:
        """Return the activations."""
        return self.layers(cells)


class Client(nn.Module):
    """Maps activations and private codes to outputs."""

    def __init__(self, widths: list[int], cut: int, outputs: int, rate: float, normalised: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(width, 4) for width in widths)
        layers: list[nn.Module] = [nn.Linear(cut + 4 * len(widths), 32)]
        layers += [nn.BatchNorm1d(32)] if normalised else []
        layers += [nn.ReLU(), *([nn.Dropout(rate)] if rate else [])]
        self.layers = nn.Sequential(*layers, nn.Linear(32, outputs))

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the logits."""
        embedded = [table(cells[:, k].long()) for k, table in enumerate(self.tables)]
        return self.layers(torch.cat([cut, *(one.to(cut) for one in embedded)], 1))


class Network(nn.Module):
    """Both parts, as ``--model message_forms.py:Network`` makes them."""

    def __init__(
        self, server_columns: list[int | None], client_columns: list[int], outputs: int, seed: int, cut: int,
        rate: float = 0.0, normalised: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        torch.manual_seed(seed)  # noqa: TID251 - layers draw from it
        self.server = Server(len(server_columns), cut)
        self.client = Client(list(client_columns), cut, outputs, rate, normalised)


def losses(form: str, outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of a batch by PyTorch's own functions, as a client of the form takes it."""
    logits, soft = outputs[:, 0], labels.to(outputs)
    if "smoothing" in form:
        soft = soft * (1 - SMOOTHING) + SMOOTHING / 2
    weight = outputs.new_tensor(WEIGHT) if form.startswith("pos_weight") else None
    if form == "squared":
        return functional.mse_loss(logits, soft)
    if form == "squared_chance":
        return functional.mse_loss(logits.sigmoid(), soft)
    each = functional.binary_cross_entropy_with_logits(logits, soft, pos_weight=weight, reduction="none")
    if form == "focal":
        each = each * (1 - (-each).exp()) ** GAMMA
    if form == "class_weights":
        classes = torch.where(labels > 0, WEIGHT, 1.0)
        return (each * classes).sum() / classes.sum()
    if form == "sample_weights":
        each = each * (0.2 + 3 * torch.rand(len(each), generator=torch.Generator().manual_seed(len(each))))
    return each.sum() if form == "sum" else each.mean()


def answer(form: str, client: nn.Module, cut: Tensor, cells: Tensor, labels: Tensor, noise: torch.Generator) -> Tensor:
    """Return the message of a batch."""
    kind = torch.bfloat16 if form == "autocast" else torch.float32
    received = cut.detach().clone().requires_grad_()
    with torch.autocast("cpu", kind, enabled=form == "autocast"):
        loss = losses(form, client(received, cells), labels)
    factor = {"loss_scale": 1024.0, "accumulation": 0.25}.get(form, 1.0)
    message = torch.autograd.grad(loss.float() * factor, received)[0]
    if form in ("fp16", "bf16"):
        # As mixed precision sends it: scaled, so that nothing is too small for the format.
        return message.mul(1024).to(torch.float16 if form == "fp16" else torch.bfloat16).float() / 1024
    if form == "int8":
        step = message.abs().max() / 127
        return (message / step).round() * step
    if form == "noise":
        return message + 0.01 * message.norm(dim=1).median() * torch.randn(message.shape, generator=noise)
    if form == "clipped":
        norms = message.norm(dim=1, keepdim=True)
        return message * (norms.median() / norms).clamp(max=1)
    return message


@functools.cache
def loaded(name: str) -> Dataset:
    """Return a table by name."""
    return load(name)


def trained(form: str, name: str, cut: int, seed: int) -> tuple[SplitModel, Table, dict[str, object]]:
    """Return a trained network, the table's rows in random order, and the options of the network."""
    data, options = loaded(name), dict[str, object]({"cut": cut})
    options |= {"rate": RATE} if form == "dropout" else {"normalised": True} if form == "batch_norm" else {}
    schema = data.schema
    private = tuple(schema.names.index(column) for column in TABLES[name])
    draw = torch.Generator().manual_seed(seed)
    rows = data.all.rows(torch.randperm(len(data.all), generator=draw)[: RECORDS + PUBLIC + 1000].tolist())
    server = [None] * (len(schema.columns) - len(private))
    widths = [schema.columns[i].width for i in private]
    network = Network(server, widths, 1, seed, **options)  # pyright: ignore[reportArgumentType]
    model = SplitModel(network.server, network.client, schema, private, usual_split_head(schema.target), name)
    theirs, mine = model.scaled(rows.cells, model.public), model.scaled(rows.cells, model.private)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    network.train()
    fit = torch.arange(RECORDS + PUBLIC, len(rows)) if len(rows) > RECORDS + PUBLIC + 200 else torch.arange(len(rows))
    for _ in range(5):
        for batch in fit[torch.randperm(len(fit), generator=draw)].split(BATCH):
            optimiser.zero_grad()
            losses(form, network.client(network.server(theirs[batch]), mine[batch]), rows.labels[batch]).backward()
            optimiser.step()
    return model, rows, options


def written(form: str, name: str, cut: int, seed: int, declared: bool, folder: Path) -> None:
    """Write transcript, public rows and the truth of a deployment."""
    model, rows, options = trained(form, name, cut, seed)
    attacked = rows.rows(range(RECORDS))
    ids = [f"r{k}" for k in range(RECORDS)]
    own = attacked.frame[[model.schema.names[i] for i in model.public]].assign(id=ids)
    message: Mapping[str, object] | None = DECLARED[form] if declared else None
    writer = TranscriptWriter(
        folder / "transcript", model.schema, TABLES[name], own=own, model=f"{__file__}:Network",
        loss="sum" if declared and form == "sum" else "mean", options=options,
        **({} if message is None else {"message": message}),
    )  # fmt: skip
    writer.own_weights(model.server)
    theirs, mine = model.scaled(attacked.cells, model.public), model.scaled(attacked.cells, model.private)
    cuts = model.cut(attacked.cells)
    model.client.train(form in ("dropout", "batch_norm"))
    noise = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # noqa: TID251 - dropout draws from it
    for number, some in enumerate(torch.arange(RECORDS).split(BATCH)):
        write_weights(model.client, folder / "transcript", number)
        message = answer(form, model.client, cuts[some], mine[some], attacked.labels[some], noise)
        writer.exchange([ids[k] for k in some.tolist()], cuts[some], message, number=number)
    if form == "batch_norm":
        # Weights after a round hold what its batch did to running statistics.
        write_weights(model.client, folder / "transcript", RECORDS // BATCH)
    del theirs
    attacked.frame.assign(id=ids).to_csv(folder / "truth.csv", index=False)
    rows.rows(range(RECORDS, RECORDS + min(PUBLIC, len(rows) - RECORDS))).frame.to_csv(
        folder / "public.csv", index=False
    )


def measured(form: str, name: str, cut: int, seed: int, declared: bool) -> list[dict[str, object]]:
    """Return a line for each attack."""
    lines = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        written(form, name, cut, seed, declared, folder)
        begun = time.perf_counter()
        found = attack_capture(
            folder / "transcript",
            model=f"{__file__}:Network",
            attacks=["exact", "posterior"],
            data=folder / "public.csv",
            truth=folder / "truth.csv",
        )
        seconds = time.perf_counter() - begun
        assert found.attacked is not None
        every, whole = found.findings.files[RECONSTRUCTION], found.attacked.rows
        doubts = [words for words in found.findings.sections[0].words if words.endswith(("read.", "leaked."))]
        for attack in dict.fromkeys(every["attack"]):
            rows = {(row.metric, row.column): row for row in whole if row.attack == attack}
            answers = every[every["attack"] == attack].dropna(axis=1, how="all")
            label = next(
                column for (metric, column) in rows if metric == "accuracy" and column not in (None, *TABLES[name])
            )
            cells = rows.get(("accuracy", None))
            of_label = rows["accuracy", label]
            certified = [column for column in answers.columns if str(column).endswith(" certified")]
            wrong = rows.get(("certified_wrong", None))
            lines.append(
                {
                    "table": name, "cut": cut, "form": form, "declared": declared, "training": seed,
                    "attack": attack,
                    "cells": "" if cells is None else round(100 * float(cells.mean or 0), 1),
                    "baseline": "" if cells is None else round(100 * float(cells.baseline or 0), 1),
                    "label": round(100 * float(of_label.mean or 0), 1),
                    "certified": int(answers[certified].to_numpy().sum()) if certified else 0,
                    "false": 0 if wrong is None else round(float(wrong.mean or 0) * RECORDS),
                    "doubt": bool(doubts),
                    "said": next((note for note in found.findings.sections[0].points if "estimated" in note), ""),
                    "seconds": round(seconds, 1),
                }
            )  # fmt: skip
    return lines


FIELDS = (
    *("table", "cut", "form", "declared", "training", "attack", "cells", "baseline", "label", "certified", "false"),
    *("doubt", "said", "seconds", "commit"),
)
KEY = ("table", "cut", "form", "declared", "training")


def summed(lines: list[dict[str, str]]) -> pd.DataFrame:
    """Return a row for each cut, form and attack: the mean over deployments with its 95% interval, and the least.

    A deployment is a table and a training. ``of_bare`` is the mean reading over that of ``plain``.
    """
    every = pd.DataFrame(lines)
    numbers = ["cells", "baseline", "label", "certified", "false"]
    every[numbers] = every[numbers].apply(pd.to_numeric)
    every["doubt"] = every["doubt"] == "True"
    every["order"] = every["form"].map(list(DECLARED).index)
    places = ["order", "cut", "form", "declared", "attack"]
    groups = every.groupby(places, sort=True)
    rows = groups.agg(
        deployments=("cells", "size"), baseline=("baseline", "mean"), cells=("cells", "mean"), least=("cells", "min"),
        label=("label", "mean"), certified=("certified", "sum"), false=("false", "sum"), doubts=("doubt", "sum"),
    )  # fmt: skip
    ends = {key: interval(torch.tensor(some.to_numpy()) / 100, bounds=(0.0, 1.0)) for key, some in groups["cells"]}
    rows.insert(3, "low", [float("nan") if ends[key].low is None else 100 * float(ends[key].low) for key in rows.index])
    rows.insert(
        4, "high", [float("nan") if ends[key].low is None else 100 * float(ends[key].high) for key in rows.index]
    )
    rows = rows.reset_index()
    bare = rows[rows["form"] == "plain"].set_index(["cut", "attack"])["cells"]
    rows["of_bare"] = [100 * row.cells / bare[row.cut, row.attack] for row in rows.itertuples()]
    return rows.round(1).drop(columns="order")


def main() -> None:
    """Measure what is not in the file yet, until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--trainings", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first training.")
    parser.add_argument("--form", action="append", choices=[*DECLARED])
    parser.add_argument("--cut", action="append", type=int, choices=CUTS)
    parser.add_argument("--table", action="append", choices=[*TABLES])
    parser.add_argument("--declared", action="store_true", help="Measure declared forms too.")
    parser.add_argument("--summary", type=Path, help="CSV file with a row for each cut, form and attack.")
    parser.add_argument("--show", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * chosen.minutes
    plan = [
        (name, cut, form, declared, seed)
        for seed in range(chosen.first, chosen.first + chosen.trainings)
        for form in chosen.form or DECLARED
        for cut in chosen.cut or CUTS
        for name in chosen.table or TABLES
        for declared in ((False, True) if chosen.declared else (False,))
    ]
    there = {tuple(line[field] for field in KEY) for line in read_lines(chosen.out)}
    for name, cut, form, declared, seed in plan:
        if time.monotonic() > end:
            break
        if tuple(map(str, (name, cut, form, declared, seed))) in there or (
            declared and form in ("noise", "clipped", "batch_norm")
        ):
            continue
        lines = measured(form, name, cut, seed, declared)
        add_lines(chosen.out, FIELDS, lines)
        if chosen.show:
            print(json.dumps(lines), flush=True)
    if chosen.summary is not None:
        sums = summed(read_lines(chosen.out)).assign(**signed({}, ("commit", "kernel")))
        sums.to_csv(chosen.summary, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
