"""What the leak guard does with updates in forms that its recipe does not say, and with harmless ones.

    python benchmarks/guard.py --out benchmarks/results/guard.csv
    python benchmarks/guard.py --kinds leaking --updates 1 --out guard.csv
    python benchmarks/guard.py --summary --out benchmarks/results/guard.csv

Clients hold rows of Adult and train two hidden layers of a width. The guard gets the client's rows, decoys that nobody
trains on, and the recipe of one plain SGD step, whatever the client does; in lines of kind `without rows` it gets none.
Every second update is of a network that was trained for 200 steps on other rows. The policy is the default one. A line
is one update: the decision, own rows that the attack read, own rows and decoys in the span, and seconds. Lines that are
in the file are not measured again.
`--summary` prints, for each form, the share that is blocked with its exact 95% interval, the rows and the seconds.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from scipy.stats import binomtest
from torch import Tensor, nn

from seepage import datasets
from seepage.datasets.dataset import Dataset
from seepage.guard import MessageRecipe, UpdateGuard
from seepage.learning import LocalTraining
from seepage.models.mlp import mlp
from seepage.tabular.encoder import Encoder
from seepage.tabular.statistics import Statistics

FORMS = ("plain", "smoothing", "scaled 0.9", "scaled 0.37", "top half", "two batches", "5 epochs", "momentum", "decay")
# Width and records, and the forms that are measured there.
LEAKING = {
    (128, 8): (*FORMS, "adam", "adam 5 epochs", "adam decay", "top tenth"),
    (128, 32): ("plain", "smoothing", "top half", "two batches", "momentum", "adam", "decay", "top tenth"),
    (64, 60): ("plain", "smoothing", "scaled 0.37", "top half", "decay", "adam"),
}
HARMLESS = {
    (64, 8): ("noise",),
    (128, 32): ("noise", "random"),
    (64, 400): ("aggregate",),
    (128, 400): ("aggregate",),
    (16, 256): ("plain",),
    (32, 512): ("plain",),
    (64, 512): ("plain",),
    (64, 32): ("random",),
}
# The rule of ranks, which needs no rows; there are as many records as units where noise has their rank.
WITHOUT_ROWS = {**HARMLESS, (64, 64): ("random",)}
POINTS = {"leaking": LEAKING, "harmless": HARMLESS, "without rows": WITHOUT_ROWS}
# Rate, momentum, weight decay and number of epochs; one plain step for the others.
TRAINING = {"5 epochs": (0.1, 0.0, 0.0, 5), "momentum": (0.1, 0.9, 0.0, 3), "decay": (0.1, 0.0, 0.01, 1)}
TRAINED, OWN = 200, 8
KEYS = ("kind", "width", "records", "form", "update")
COUNTS = ("read", "in_span", "decoys_in_span")
FIELDS = (*KEYS, "decision", *COUNTS, "seconds", "commit", "kernel")


def main() -> None:
    """Measure what is not in the file yet, or sum it up."""
    parser = argparse.ArgumentParser(description="Measure the leak guard on leaking and harmless updates.")
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--kinds", nargs="+", default=tuple(POINTS), choices=tuple(POINTS))
    parser.add_argument("--updates", type=int, default=8, help="number of leaking updates of each form")
    parser.add_argument("--harmless", type=int, default=34, help="number of harmless updates of each form")
    parser.add_argument("--first", type=int, default=0, help="number of the first update, which is its seed")
    parser.add_argument("--forms", nargs="+", help="forms that are measured; all if left out")
    parser.add_argument("--summary", action="store_true", help="print shares and seconds of the file, measure nothing")
    given = parser.parse_args()
    if given.summary:
        summarise(given.out)
        return
    torch.set_num_threads(1)
    data = datasets.load("adult")
    known = {tuple(line[key] for key in KEYS) for line in read_lines(given.out)}
    numbers = {"leaking": given.updates, "harmless": given.harmless, "without rows": given.harmless}
    for point in points({kind: numbers[kind] for kind in given.kinds}, given.first):
        if tuple(map(str, point)) not in known and point[3] in (given.forms or (point[3],)):
            add_lines(given.out, FIELDS, [measured(data, *point)])


def points(numbers: dict[str, int], first: int) -> Iterator[tuple[str, int, int, str, int]]:
    """Yield the keys of all lines."""
    for kind, number in numbers.items():
        for (width, records), forms in POINTS[kind].items():
            for form in forms:
                for update in range(first, first + number):
                    yield kind, width, records, form, update


def measured(data: Dataset, kind: str, width: int, records: int, form: str, update: int) -> dict[str, object]:
    """Return the line of one update."""
    # The guard standardises rows by the reference; so does the client.
    rows, labels = (
        Encoder(data.schema, Statistics.of(data.train), dtype=torch.float32).encode(data.train.cells),
        data.train.labels.long(),
    )
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(update))
    batch, decoys = order[:records], order[15_000:]
    model = mlp(data.schema, [width, width], seed=update)
    if update % 2:
        pretrain(model.module, rows, labels, order[2000:15_000])
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    after = message(copy.deepcopy(model.module), rows[batch], labels[batch], form, update)
    # Those of one client among the records of all.
    own = rows[batch[:OWN] if form == "aggregate" else batch]
    recipe = MessageRecipe(protocol="fedavg", training=LocalTraining(1, records, 0.1), batch_size=records)
    guard = UpdateGuard(model, data.schema, recipe, reference=data.train, decoys=rows[decoys], seed=update)
    found = guard(before, after, rows=None if kind == "without rows" else own).finding
    line: dict[str, object] = dict(zip(KEYS, (kind, width, records, form, update), strict=True))
    line |= {"decision": found.decision, "read": "", "in_span": "", "decoys_in_span": ""}
    if found.decision == "proved":
        line["read"] = found.proved_records
    elif found.rows_read is not None:
        line["read"] = found.rows_read.matched_rows
    if found.rows_in_span is not None:
        line |= {"in_span": found.rows_in_span.matched_rows, "decoys_in_span": found.rows_in_span.matched_decoys}
    return line | {"seconds": round(found.seconds, 2)}


def pretrain(module: nn.Module, rows: Tensor, labels: Tensor, others: Tensor) -> None:
    """Train a network on rows of other clients."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    for batch in others.split(64)[:TRAINED]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(rows[batch]), labels[batch]).backward()
        optimizer.step()


def message(module: nn.Module, rows: Tensor, labels: Tensor, form: str, seed: int) -> dict[str, Tensor]:
    """Return the state that a client sends."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    rate, momentum, decay, epochs = TRAINING.get(form, (0.1, 0.0, 0.0, 1))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        module.parameters(), lr=rate, momentum=momentum, weight_decay=decay
    )
    if form.startswith("adam"):
        decay = 1e-3 if form == "adam decay" else 0.0
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, weight_decay=decay)
        epochs = 5 if "epochs" in form else 1
    size = len(rows) // 2 if form == "two batches" else len(rows)
    smoothing = 0.1 if form == "smoothing" else 0.0
    for _ in range(epochs):
        for part, classes in zip(rows.split(size), labels.split(size), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(part), classes, label_smoothing=smoothing).backward()
            optimizer.step()
    change = {name: tensor - before[name] for name, tensor in module.state_dict().items()}
    return {name: before[name] + sent(change, form, seed)[name] for name in change}


def sent(change: dict[str, Tensor], form: str, seed: int) -> dict[str, Tensor]:
    """Return a change as it is sent: scaled, without its smaller half, with noise, or noise alone."""
    entries = torch.cat([tensor.flatten() for tensor in change.values()]).abs()
    if form.startswith("scaled"):
        factor = float(form.split()[1])
        return {name: factor * tensor for name, tensor in change.items()}
    if form.startswith("top"):
        least = entries.quantile(0.5) if form == "top half" else entries.quantile(0.9)
        return {name: tensor * (tensor.abs() >= least) for name, tensor in change.items()}
    if form in ("noise", "random"):
        # A noise multiplier of 1 at a bound of the update's own norm.
        generator = torch.Generator().manual_seed(seed)
        size, kept = float(entries.norm()), float(form == "noise")
        return {
            name: kept * tensor + size * torch.randn(tensor.shape, generator=generator)
            for name, tensor in change.items()
        }
    return change


def summarise(path: Path) -> None:
    """Print decisions, the share that is blocked, rows and seconds of each form."""
    lines = pd.DataFrame(read_lines(path))
    if lines.empty:
        print(f"{path} has no line yet")
        return
    for name in (*COUNTS, "width", "records", "seconds"):
        lines[name] = pd.to_numeric(lines[name])
    lines["blocked"] = ~lines["decision"].isin(["pass", "not tried"])
    lines["read"], lines["in_span"] = lines["read"] / lines["records"], lines["in_span"] / lines["records"]
    for keys in (["kind"], list(KEYS[:-1])):
        groups = lines.groupby(keys, sort=False)
        table = groups["blocked"].agg(["sum", "count"])
        limits = [binomtest(int(hits), int(n)).proportion_ci(method="exact") for hits, n in table.to_numpy()]
        table["low"], table["high"] = [x.low for x in limits], [x.high for x in limits]
        table = table.join(groups[["read", "in_span"]].mean()).join(groups["seconds"].agg(["median", "max"]))
        table["decisions"] = groups["decision"].agg(lambda part: dict(part.value_counts()))
        print(table.round(3).to_string())


if __name__ == "__main__":
    main()
