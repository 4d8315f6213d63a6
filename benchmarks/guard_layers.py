"""What the leak guard does where layers normalise, drop values, embed categories or are frozen, on seven tables.

    python benchmarks/guard_layers.py --out benchmarks/results/guard_layers.csv
    python benchmarks/guard_layers.py --networks 'batch norm' --tables adult --updates 2 --out guard_layers.csv
    python benchmarks/guard_layers.py --summary --out benchmarks/results/guard_layers.csv

A client trains a network of two hidden layers of 64 units; every second one was trained for 100 steps on other rows.
The guard gets the recipe of the training, the default policy, and in lines with ``rows`` the client's own rows and
decoys. A line is one update: the decision, own rows and decoys in the span, and the truth beside it, which does not use
the guard: own rows and other rows of the table of whose part outside the first layer's change, raw or less the batch's
mean, no more than a thousandth is left. ``readable`` are updates in which that is the case for more than one in twenty
of the own rows beyond the share of others, which is no chance (0.2%). For Adam, which sends signs, it says little.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from scipy.stats import binomtest, fisher_exact
from sklearn.datasets import load_breast_cancer, load_diabetes
from torch import Tensor, nn

from seepage import datasets
from seepage.datasets.synthetic import synthetic
from seepage.guard import GuardPolicy, MessageRecipe, UpdateGuard
from seepage.learning import LocalTraining
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.infer import infer_schema
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table

WIDTH, TRAINED, LARGEST = 64, 100, 6000
ROUNDING = 1e-3


def frame_table(frame: pd.DataFrame) -> Table:
    """Return a table of a frame whose class is ``target``."""
    return Table(infer_schema(frame, "target"), frame)


def cancer() -> Table:
    """Return 569 rows of 30 numbers."""
    return frame_table(cast(Any, load_breast_cancer(as_frame=True)).frame)


def diabetes() -> Table:
    """Return 442 rows of 9 numbers and a category."""
    frame = cast(Any, load_diabetes(as_frame=True, scaled=False)).frame
    return frame_table(frame.assign(target=(frame["target"] > 140).map({True: "high", False: "low"})))


TABLES: dict[str, Callable[[], Table]] = {
    "adult": lambda: datasets.load("adult").train,
    "german": lambda: datasets.load("german").train,
    "cancer": cancer,
    "diabetes": diabetes,
    "categories": lambda: synthetic(discrete=12, continuous=0, rows=4000, seed=1).train,
    "few mixed": lambda: synthetic(discrete=2, continuous=2, rows=4000, seed=2).train,
    "few numbers": lambda: synthetic(discrete=0, continuous=5, rows=4000, seed=3).train,
}


class HandMade(nn.Module):
    """Normalisation by the batch without a layer of it."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, normalised."""
        return (values - values.mean(0)) / (values.var(0, unbiased=False) + 1e-5).sqrt()


class Embedded(nn.Module):
    """A network that looks categories up in embeddings of four numbers."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.blocks = [schema.blocks[i] for i in schema.discrete]
        self.numbers = [schema.blocks[i].start for i in schema.continuous]
        sizes = [block.stop - block.start for block in self.blocks]
        self.embeddings = nn.ModuleList(nn.Embedding(size, 4) for size in sizes)
        self.rest = plain(4 * len(sizes) + len(self.numbers))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        looked = [each(rows[:, block].argmax(1)) for each, block in zip(self.embeddings, self.blocks, strict=True)]
        return self.rest(torch.cat([*looked, rows[:, self.numbers]], 1))


def plain(inputs: int, behind: Callable[[], nn.Module] | None = None, bias: bool = True) -> nn.Sequential:
    """Return two hidden layers, with a layer behind the first one if given."""
    middle = [] if behind is None else [behind()]
    second = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2)]
    return nn.Sequential(nn.Linear(inputs, WIDTH, bias=bias), *middle, nn.ReLU(), *second)


def frozen_first(schema: Schema, behind: Callable[[], nn.Module] | None = None) -> nn.Module:
    """Return a network whose first layer is not trained."""
    module = plain(schema.width, behind)
    cast(nn.Linear, module[0]).requires_grad_(False)
    return module


def twice(schema: Schema) -> nn.Module:
    """Return a network that normalises behind both hidden layers."""
    first = [nn.Linear(schema.width, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    return nn.Sequential(*first, nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))


def norm() -> nn.Module:
    """Return a batch normalisation of a hidden layer."""
    return nn.BatchNorm1d(WIDTH)


NETWORKS: dict[str, Callable[[Schema], nn.Module]] = {
    "batch norm": lambda schema: plain(schema.width, norm),
    "batch norm twice": twice,
    "batch norm, no bias": lambda schema: plain(schema.width, norm, bias=False),
    "batch norm of the rows": lambda schema: nn.Sequential(nn.BatchNorm1d(schema.width), plain(schema.width)),
    "batch norm by hand": lambda schema: plain(schema.width, HandMade),
    "batch norm, no statistics": lambda schema: plain(
        schema.width, lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False)
    ),
    "layer norm": lambda schema: plain(schema.width, lambda: nn.LayerNorm(WIDTH)),
    "group norm": lambda schema: plain(schema.width, lambda: nn.GroupNorm(8, WIDTH)),
    "dropout": lambda schema: plain(schema.width, lambda: nn.Dropout(0.2)),
    "dropout of the rows": lambda schema: nn.Sequential(nn.Dropout(0.1), plain(schema.width)),
    "embeddings": Embedded,
    "frozen first layer": frozen_first,
    "frozen first layer, batch norm": lambda schema: frozen_first(schema, norm),
    "plain": lambda schema: plain(schema.width),
    "plain, no bias": lambda schema: plain(schema.width, bias=False),
}
# Optimiser and epochs, with all records in one batch.
TRAININGS: dict[str, dict[str, Any]] = {
    "sgd": {"learning_rate": 0.1},
    "adam": {"learning_rate": 1e-3, "optimizer": "adam"},
    "sgd 5 epochs": {"learning_rate": 0.1, "epochs": 5},
    "adam 5 epochs": {"learning_rate": 1e-3, "optimizer": "adam", "epochs": 5},
    # Harmless ones.
    "noise": {"learning_rate": 0.1},
    "random": {"learning_rate": 0.1},
    "large": {"learning_rate": 0.1},
    "many epochs": {"learning_rate": 0.05, "epochs": 10, "local": 32},
}
RECORDS = {"noise": (8,), "random": (32,), "large": (400,), "many epochs": (256,)}
HARMLESS = tuple(RECORDS)
KEYS = ("table", "network", "training", "records", "rows", "update")
FIELDS = (
    *(*KEYS, "decision", "sent_strict", "in_span", "decoys_in_span", "rows_read", "true_own", "true_others", "others"),
    *("readable", "seconds", "commit"),
)


def main() -> None:
    """Measure what is not in the file yet, or sum it up."""
    parser = argparse.ArgumentParser(description="Measure the leak guard on networks that normalise, drop or embed.")
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--tables", nargs="+", default=tuple(TABLES), choices=tuple(TABLES))
    parser.add_argument("--networks", nargs="+", default=tuple(NETWORKS), choices=tuple(NETWORKS))
    parser.add_argument("--trainings", nargs="+", default=tuple(TRAININGS), choices=tuple(TRAININGS))
    parser.add_argument("--records", nargs="+", type=int, default=(8, 32), help="records of updates that may leak")
    parser.add_argument("--rows", nargs="+", default=("rows", "no rows"), choices=("rows", "no rows"))
    parser.add_argument("--updates", type=int, default=2, help="number of updates of each kind")
    parser.add_argument("--seconds", type=float, default=4.0, help="time limit of each check")
    parser.add_argument("--summary", action="store_true", help="print counts of the file, measure nothing")
    given = parser.parse_args()
    if given.summary:
        summarise(given.out)
        return
    torch.set_num_threads(1)
    known = {tuple(line[key] for key in KEYS) for line in read_lines(given.out)}
    tables = {name: TABLES[name]() for name in given.tables}
    for point in points(given):
        if tuple(map(str, point)) not in known:
            add_lines(given.out, FIELDS, [measured(tables[point[0]], given.seconds, *point)])


def points(given: argparse.Namespace) -> Iterator[tuple[str, str, str, int, str, int]]:
    """Yield the keys of all lines."""
    for update in range(given.updates):
        for training in given.trainings:
            for network in given.networks:
                for table in given.tables:
                    for records in RECORDS.get(training, given.records):
                        for rows in given.rows:
                            yield table, network, training, records, rows, update


def measured(
    table: Table, seconds: float, name: str, network: str, training: str, records: int, rows: str, update: int
) -> dict[str, object]:
    """Return the line of one update."""
    statistics = Statistics.of(table)
    encoder = Encoder(table.schema, statistics, dtype=torch.float32)
    encoded, labels = encoder.encode(table.cells), table.labels.long()
    order = torch.randperm(len(encoded), generator=torch.Generator().manual_seed(update))[:LARGEST]
    records = min(records, len(order) // 2)
    own, others = order[:records], order[records:]
    module = seeded(lambda: NETWORKS[network](table.schema), update)
    if update % 2:
        seeded(lambda: pretrain(module, encoded[others], labels[others]), update)
    settings = dict(TRAININGS[training])
    batch = settings.pop("local", records)
    recipe_of = LocalTraining(**{"epochs": 1, "batch_size": batch, **settings})
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    trained = copy.deepcopy(module)
    seeded(lambda: train(trained, encoded[own], labels[own], recipe_of), update)
    change = {key: tensor - before[key] for key, tensor in trained.state_dict().items()}
    sent = noised(change, training, update)
    after = {key: before[key] + sent[key] for key in before}
    recipe = MessageRecipe(protocol="fedavg", training=recipe_of, batch_size=records)
    guard = UpdateGuard(
        *(module, table.schema, recipe),
        **{"reference": table, "decoys": encoded[others], "seconds": seconds, "seed": update},
        policy=GuardPolicy(),
    )
    found = guard(before, after, rows=encoded[own] if rows == "rows" else None).finding
    line: dict[str, object] = dict(zip(KEYS, (name, network, training, records, rows, update), strict=True))
    line |= {"decision": found.decision, "sent_strict": int(found.decision == "pass" and not found.warnings)}
    line |= {"in_span": "", "decoys_in_span": "", "rows_read": "", "seconds": round(found.seconds, 2)}
    if found.rows_in_span is not None:
        line |= {"in_span": found.rows_in_span.matched_rows, "decoys_in_span": found.rows_in_span.matched_decoys}
    if found.rows_read is not None:
        line["rows_read"] = found.rows_read.matched_rows
    return line | truth(sent, encoded[own].double(), encoded[others].double(), records)


def pretrain(module: nn.Module, rows: Tensor, labels: Tensor) -> None:
    """Train a network on rows of other clients."""
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=1e-3)
    for step in range(TRAINED):
        part = torch.arange(64 * step, 64 * step + 64) % len(rows)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(rows[part]), labels[part]).backward()
        optimizer.step()


def train(module: nn.Module, rows: Tensor, labels: Tensor, training: LocalTraining) -> None:
    """Train as the recipe says."""
    kind = torch.optim.SGD if training.optimizer == "sgd" else torch.optim.Adam
    optimizer = kind([p for p in module.parameters() if p.requires_grad], lr=float(training.learning_rate))
    for _ in range(training.epochs):
        for part in torch.arange(len(rows)).split(training.batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(rows[part]), labels[part]).backward()
            optimizer.step()


def noised(change: dict[str, Tensor], training: str, seed: int) -> dict[str, Tensor]:
    """Return a change with normal noise as large in each entry as its whole norm, or noise alone."""
    if training not in ("noise", "random"):
        return change
    entries = torch.cat([tensor.flatten().double() for tensor in change.values() if tensor.is_floating_point()])
    size, generator = float(entries.norm()), torch.Generator().manual_seed(seed)
    kept = float(training == "noise")
    return {
        name: tensor
        if not tensor.is_floating_point() or name.rpartition(".")[2].startswith("running")
        else kept * tensor + size * torch.randn(tensor.shape, generator=generator)
        for name, tensor in change.items()
    }


def truth(change: dict[str, Tensor], own: Tensor, others: Tensor, records: int) -> dict[str, object]:
    """Return how many own rows and others lie in the first layer's change, raw or less the mean of the own rows."""
    weights = [name for name, tensor in change.items() if tensor.ndim == 2 and tensor.shape[1] == own.shape[1]]
    counts = [0, 0]
    if weights and bool(change[weights[0]].any()):
        weight = change[weights[0]].double()
        bias = change.get(weights[0].removesuffix("weight") + "bias")
        mean = own.mean(0)
        forms = [(weight, lambda rows: rows - mean, records - 1), (weight, lambda rows: rows, records)]
        if bias is not None:
            extended = torch.cat([weight, bias.double()[:, None]], 1)
            forms.append((extended, lambda rows: torch.cat([rows, torch.ones(len(rows), 1)], 1), records))
        inside = [torch.zeros(len(rows), dtype=torch.bool) for rows in (own, others)]
        for layer, form, most in forms:
            values, directions = torch.linalg.svd(layer, full_matrices=False)[1:]
            rank = min(most, int((values > 1e-4 * values[0]).sum()))
            if rank >= layer.shape[1]:
                continue
            for hits, rows in zip(inside, (own, others), strict=True):
                taken = form(rows).double()
                rest = taken - (taken @ directions[:rank].T) @ directions[:rank]
                hits |= rest.norm(dim=1) <= ROUNDING * taken.norm(dim=1)
        counts = [int(hits.sum()) for hits in inside]
    table = [[counts[0], len(own) - counts[0]], [counts[1], len(others) - counts[1]]]
    more = counts[0] / len(own) - counts[1] / len(others)
    readable = more > 0.05 and cast(Any, fisher_exact(table, alternative="greater"))[1] <= 2e-3
    return {"true_own": counts[0], "true_others": counts[1], "others": len(others), "readable": int(readable)}


def summarise(path: Path) -> None:
    """Print counts of decisions by version of the code, training, network and table."""
    lines = pd.DataFrame(read_lines(path))
    if lines.empty:
        print(f"{path} has no line yet")
        return
    for name in ("sent_strict", "readable", "seconds", "records"):
        lines[name] = pd.to_numeric(lines[name])
    lines["harmless"] = lines["training"].isin(HARMLESS)
    lines["blocked"] = ~lines["decision"].isin(["pass", "not tried"])
    for more in (["harmless"], ["training"], ["training", "network"], ["training", "table"]):
        keys = ["commit", "rows", *more]
        groups = lines.groupby(keys, sort=False)
        counts = groups["blocked"].agg(["sum", "count"]).rename(columns={"sum": "blocked", "count": "n"})
        for decision in ("pass", "not tried"):
            counts[decision] = groups["decision"].agg(lambda part, which=decision: int((part == which).sum()))
        counts["sent in strict"] = groups["sent_strict"].sum()
        counts["readable"] = groups["readable"].sum()
        missed = lines[(lines["readable"] == 1) & ~lines["blocked"]].groupby(keys).size()
        counts["readable, sent"] = missed.reindex(counts.index, fill_value=0)
        limits = [
            binomtest(int(hits), int(n)).proportion_ci(method="exact")
            for hits, n in counts[["blocked", "n"]].to_numpy()
        ]
        counts["low"], counts["high"] = [x.low for x in limits], [x.high for x in limits]
        counts["median seconds"] = groups["seconds"].median()
        print(counts.round(3).to_string(), "\n")


if __name__ == "__main__":
    main()
