"""Share of cells that are certified, by table, message and number of records.

    python benchmarks/certified.py --out benchmarks/results/certified.csv --data FOLDER

Each victim is a batch of a table that meets a network of two hidden layers of 100 units with a random initialisation,
trained on nothing or, with `trained`, for some steps on other rows. `cells` are certified, `given` are certified only
with other things held fixed, `read` are the cells that are right. What is in the file is not run again. The same file
runs with earlier versions of the package, which have no `given`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from csv_lines import add_lines, read_lines

from seepage import attacks, datasets
from seepage.assessment.matched import match_records
from seepage.models.mlp import nn3
from seepage.models.model import Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge

TABLES = ("adult", "german", "lawschool", "credit", "bank_additional")
SENT = ("gradient", "trained", "one step", "five steps")
FIELDS = ("table", "sent", "records", "victims", "cells", "given", "read", "seconds", "commit", "kernel")
STEPS = 200


def trained(model: Model, data: datasets.Dataset, encoder: Encoder) -> Model:
    """Return the network after some steps of Adam on the table's other half."""
    rows, labels = encoder.encode(data.test.cells[:2000]), data.test.labels[:2000].long()
    optimizer = torch.optim.Adam(model.module.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model.module(rows), labels).backward()
        optimizer.step()
    return model


def line(table: str, sent: str, records: int, victims: int, folder: str | None) -> dict[str, object]:
    """Attack some victims of a table."""
    options = {} if folder is None or table in ("adult", "german") else {"folder": folder}
    data = datasets.load(table, **options)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = nn3(data.schema, seed=0)
    if sent == "trained":
        model = trained(model, data, encoder)
    steps = {"one step": 1, "five steps": 5}.get(sent)
    protocol = FedSGD(records) if steps is None else FedAvg(records, epochs=steps, learning_rate=0.1)
    ran = protocol.run(model, data.train, encoder, range(victims))
    begin = time.perf_counter()
    known = Knowledge(data.schema, data.statistics, records)
    guess = attacks.create("unmix", restarts=1, iterations=2)(ran.view, known, list(range(victims)))
    seconds = (time.perf_counter() - begin) / victims
    given, certified = getattr(guess, "given", None), guess.certified
    right = match_records(data.schema, data.statistics, ran.secret, guess).right
    return {
        "table": table,
        "sent": sent,
        "records": records,
        "victims": victims,
        "cells": 0.0 if certified is None else round(float(certified.double().mean()), 4),
        "given": "" if given is None else round(float(given.double().mean()), 4),
        "read": round(float(right.double().mean()), 4),
        "seconds": round(seconds, 2),
    }


def main() -> None:
    """Measure what is not in the file yet."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--data", help="folder of tables that are not bundled")
    asked.add_argument("--victims", type=int, default=10)
    asked.add_argument("--records", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    options = asked.parse_args()
    done = {(one["table"], one["sent"], one["records"]) for one in read_lines(options.out)}
    for records in options.records:
        for sent in SENT:
            for table in TABLES if options.data else TABLES[:2]:
                if (table, sent, str(records)) not in done:
                    found = line(table, sent, records, options.victims, options.data)
                    add_lines(options.out, FIELDS, [found])
                    print(found, flush=True)


if __name__ == "__main__":
    main()
