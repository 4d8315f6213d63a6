"""How often records are right that an attack on a captured update calls estimated.

    python benchmarks/estimates.py --out benchmarks/results/estimates.csv
    python benchmarks/estimates.py --summary --out benchmarks/results/estimates.csv

Clients hold rows of a table and send FedAvg updates of several local batches, undefended, which can be estimated but
not proved. An attack with its defaults reads them as ``seepage attack`` does. A line is one guessed record: its
certainty, the mean over its cells, and the share of its cells that are right in the best matching with the true
records. `--summary` prints, by certainty, how many records there are and how many of their cells are right, with a 95%
interval over updates.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import pandas as pd
import torch
from csv_lines import add_lines, read_lines

from seepage import datasets
from seepage.assessment.intervals import ratio
from seepage.attacking.updates import doubts
from seepage.attacks import create
from seepage.models.mlp import nn3
from seepage.protocols.fedavg import FedAvg
from seepage.seeds import stream
from seepage.tabular.align import match, pairwise_error
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge

# Records of a client; they train in local batches of a quarter of them.
BATCHES = (8, 32)
# Limits of the groups of certainty; the last one holds 1.
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.001)
KEYS = ("attack", "dataset", "batch", "update")
FIELDS = (*KEYS, "certainty", "right", "proved", "commit", "kernel")


def main() -> None:
    """Measure what is not in the file yet, or sum it up."""
    parser = argparse.ArgumentParser(description="Measure how often estimated records are right.")
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--attacks", nargs="+", default=("unmix", "tableak"))
    parser.add_argument("--datasets", nargs="+", default=("german", "adult"))
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="numbers of records of a client")
    parser.add_argument("--updates", type=int, default=20, help="number of clients of each kind")
    parser.add_argument("--summary", action="store_true", help="print shares by certainty, measure nothing")
    given = parser.parse_args()
    if given.summary:
        summarise(given.out)
        return
    torch.set_num_threads(1)
    known = {tuple(line[key] for key in KEYS) for line in read_lines(given.out)}
    for point in itertools.product(given.attacks, given.datasets, given.batches, range(given.updates)):
        if tuple(map(str, point)) not in known:
            add_lines(given.out, FIELDS, measured(*point))


def measured(attack: str, dataset: str, batch: int, update: int) -> list[dict[str, object]]:
    """Return a line for each guessed record of one client's update."""
    data = datasets.load(dataset)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    client = FedAvg(batch, epochs=2, local_batch_size=batch // 4, learning_rate=0.01)
    ran = client.run(nn3(data.schema, seed=update), data.train, encoder, seeds=[stream(update, 0, "victims")])
    guess = create(attack)(ran.view, Knowledge(data.schema, data.statistics, batch), [stream(update, 0, "starts")])
    certainty, _ = doubts(data.schema, data.statistics, guess)
    wrong = pairwise_error(data.schema, guess.cells[0], ran.secret.cells[0])
    order = match(wrong)
    place = dict(zip(KEYS, (attack, dataset, batch, update), strict=True))
    return [
        {
            **place,
            "certainty": round(float(certainty[i].mean()), 4),
            "right": round(1 - float(wrong[i, true]), 4),
            "proved": int(guess.certified is not None and bool(guess.certified[0, i].any())),
        }
        for true, i in enumerate(order.tolist())
    ]


def summarise(path: Path) -> None:
    """Print by attack, data set, number of records and certainty how many cells are right."""
    lines = pd.DataFrame(read_lines(path)).astype({"certainty": float, "right": float, "proved": int})
    lines["certainty"] = pd.cut(lines["certainty"], BINS, right=False).astype(str)
    lines.loc[lines["proved"] == 1, "certainty"] = "proved"
    for place, some in lines.groupby(["attack", "dataset", "batch", "certainty"]):
        of = some.groupby("update")["right"].agg(["sum", "count"]).to_numpy()
        share = ratio(torch.tensor(of[:, 0].copy()), torch.tensor(of[:, 1].copy()).double(), float(place[2]))
        whole = (some["right"] == 1).mean()
        limits = "" if share.low is None or share.high is None else f" [{share.low:.3f}, {share.high:.3f}]"
        print(*place, f"{len(some)} records, {share.mean:.3f}{limits} of cells right, {whole:.3f} whole")


if __name__ == "__main__":
    main()
