"""How long the leak guard takes for an update, and what share of real client updates it proves.

    python benchmarks/guard.py --out benchmarks/results/guard.csv
    python benchmarks/guard.py --widths 64 --batches 8 --updates 1 --out guard.csv
    python benchmarks/guard.py --summary --out benchmarks/results/guard.csv

Clients hold rows of Adult and train two hidden layers of a width on them with SGD, momentum or Adam, for one to five
steps, each over all of their records. The guard knows how rows are standardised and gets the states before and after.
A line is one update: the guard's decision, the records that it proves and its seconds. Lines that are in the file are
not measured again. `--summary` prints, for each width and batch, the median and the longest seconds, and for each
training the share of updates with a proof, with its exact 95% interval, the share of records that are proved and the
share that was not tried.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from pathlib import Path

import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from scipy.stats import binomtest
from torch import Tensor, nn

from seepage import datasets
from seepage.guard import GuardPolicy, MessageRecipe, UpdateGuard
from seepage.learning import LocalTraining
from seepage.models.mlp import mlp
from seepage.tabular.encoder import Encoder

WIDTHS = (64, 128, 256, 512)
BATCHES = (8, 16, 32, 64, 128)
STEPS = (1, 2, 3, 4, 5)
# Rate and momentum of each optimiser.
OPTIMIZERS = {"sgd": (0.1, 0.0), "momentum": (0.1, 0.9), "adam": (0.001, 0.0)}
KEYS = ("width", "batch", "optimizer", "steps", "update")
FIELDS = (*KEYS, "decision", "proved_records", "seconds", "limit", "why", "commit")


def main() -> None:
    """Measure what is not in the file yet, or sum it up."""
    parser = argparse.ArgumentParser(description="Measure the leak guard on real client updates.")
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="widths of both hidden layers")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="numbers of records of a client")
    parser.add_argument("--optimizers", nargs="+", default=tuple(OPTIMIZERS), choices=tuple(OPTIMIZERS))
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="numbers of local steps")
    parser.add_argument("--updates", type=int, default=5, help="number of clients of each kind")
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of one check")
    parser.add_argument("--summary", action="store_true", help="print shares and seconds of the file, measure nothing")
    given = parser.parse_args()
    if given.summary:
        summarise(given.out)
        return
    torch.set_num_threads(1)
    known = {tuple(line[key] for key in KEYS) for line in read_lines(given.out)}
    for point in itertools.product(given.widths, given.batches, given.optimizers, given.steps, range(given.updates)):
        if tuple(map(str, point)) not in known:
            add_lines(given.out, FIELDS, [measured(*point, given.seconds)])


def measured(width: int, batch: int, optimizer: str, steps: int, update: int, seconds: float) -> dict[str, object]:
    """Return the line of one client's update."""
    data = datasets.load("adult")
    model = mlp(data.schema, [width, width], seed=update)
    rate, momentum = OPTIMIZERS[optimizer]
    training = LocalTraining(
        epochs=steps,
        batch_size=batch,
        learning_rate=rate,
        optimizer="adam" if optimizer == "adam" else "sgd",
        momentum=momentum,
    )
    recipe = MessageRecipe(protocol="fedavg", training=training, batch_size=batch)
    drawn = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(update))[:batch]
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    guard = UpdateGuard(
        model, data.schema, recipe, reference=data.train, policy=GuardPolicy("report"), seconds=seconds, seed=update
    )
    # Other means and deviations than the guard's would hide what an attacker who knows them reads.
    encoder = Encoder(data.schema, guard.statistics, dtype=torch.float32)
    rows, labels = encoder.encode(data.train.cells[drawn]), data.train.labels[drawn].long()
    after = trained(copy.deepcopy(model.module), rows, labels, training)
    found = guard(before, after).finding
    line = dict(zip(KEYS, (width, batch, optimizer, steps, update), strict=True))
    line |= {"decision": found.decision, "proved_records": found.proved_records, "why": found.why}
    return line | {"seconds": round(found.seconds, 3), "limit": seconds}


def trained(module: nn.Module, rows: Tensor, labels: Tensor, training: LocalTraining) -> dict[str, Tensor]:
    """Return the state after a client's own training with torch's optimisers."""
    if training.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), lr=training.learning_rate)
    else:
        optimizer = torch.optim.SGD(module.parameters(), lr=training.learning_rate, momentum=training.momentum)
    for _ in range(training.epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(rows), labels).backward()
        optimizer.step()
    return module.state_dict()


def summarise(path: Path) -> None:
    """Print seconds by width and batch, and shares by training."""
    lines = pd.DataFrame(read_lines(path))
    if lines.empty:
        print(f"{path} has no line yet")
        return
    whole = ("width", "batch", "steps")
    lines = lines.astype(dict.fromkeys(whole, int) | dict.fromkeys(("proved_records", "seconds"), float))
    print(lines.groupby(["width", "batch"])["seconds"].agg(["median", "max", "count"]).round(2).to_string())
    lines["proof"] = lines["decision"].isin(["proved", "matched whole"])
    lines["records"] = lines["proved_records"] / lines["batch"]
    lines["not tried"] = lines["decision"] == "not tried"
    cells = lines.groupby(["width", "batch", "optimizer", "steps"])
    shares = cells[["proof", "records", "not tried"]].mean()
    counts = cells["proof"].agg(["sum", "count"])
    limits = [binomtest(int(hits), int(n)).proportion_ci(method="exact") for hits, n in counts.to_numpy()]
    shares["low"], shares["high"], shares["n"] = [x.low for x in limits], [x.high for x in limits], counts["count"]
    print(shares.round(3).to_string())


if __name__ == "__main__":
    main()
