"""Which architecture is hardest to invert, by the exact-match rate: the question of arXiv:2606.00986, put to `unmix`.

    python benchmarks/architectures.py --victims 10 --out benchmarks/results/architectures.csv

The networks are those of the benchmark's published code (github.com/scaleoutsystems/tabular-GIA), without dropout: an
MLP of two layers of 32 units with layer normalisation and GELU, the ResNet and the FT-Transformer of the package
`rtdl_revisiting_models` with two blocks, and beside them TabM with two layers of 64 and 8 members. Our FT-Transformer
has tokens of 64 and 8 heads where theirs has 128 and 4. Each is attacked untrained and after 500 steps of SGD at rate
0.1 on 128 records. Where a network normalises by the batch, clients send their running statistics. The exact-match rate
is the share of records with every cell right: the category, or the number within 0.319 standard deviations, after the
assignment of guesses to records with the least total error.

`unmix` falls back on TabLeak where it cannot read; TabLeak stands beside it. Both have 2 restarts of 300 steps, since
these networks need double backpropagation. A line that is in the file is not measured again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from csv_lines import add_lines, read_lines
from torch import nn

from seepage import datasets, registry
from seepage.assessment.measurement import Measurement
from seepage.datasets.dataset import Dataset
from seepage.devices import keep_freed_memory
from seepage.learning import batch_statistics, mean_loss
from seepage.models.embedding import adapted
from seepage.models.model import Model, output_width, usual_head
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded, stream
from seepage.tabular.align import match, pairwise_error, reorder, tolerances
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge


class Cell(NamedTuple):
    """What is measured: a network, how long it was trained, a batch size, and an attack."""

    network: str
    steps: int
    batch_size: int
    attack: str


NETWORKS: dict[str, dict[str, int]] = {
    "mlp": {},
    "rtdl_resnet": {"blocks": 2, "width": 192},
    "tabm": {"blocks": 2, "width": 64, "members": 8},
    "ft_transformer": {"blocks": 2, "width": 64},
}
FIGURES = ("read", "exact_match")
FIELDS = [*Cell._fields, "n", *(f"{name}{end}" for name in FIGURES for end in ("", "_low", "_high"))]
FIELDS += ["seconds", "commit"]


def main() -> None:
    """Add one line a cell to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=10)
    parser.add_argument("--only", choices=[*NETWORKS], help="only cells of this network")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in Cell._fields) for line in read_lines(arguments.out)}
    for cell in cells():
        if tuple(map(str, cell)) not in done and arguments.only in (None, cell.network):
            add_lines(arguments.out, FIELDS, [measured(cell, arguments.victims)])


def cells() -> Iterator[Cell]:
    """Return all cells, quick ones first."""
    for attack in ("unmix", "tableak"):
        for batch_size in (8, 32):
            for network in NETWORKS:
                for steps in (500, 0):
                    yield Cell(network, steps, batch_size, attack)


@cache
def table() -> Dataset:
    """Return Adult."""
    return datasets.load("adult")


def untrained(network: str) -> Model:
    """Return a network at its initialisation."""
    schema = table().schema
    if network != "mlp":
        model = registry.models.create(network, schema=schema, **NETWORKS[network])
        return replace(model, module=adapted(model.module, schema, table().statistics))
    head = usual_head(schema)

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for inputs in (schema.width, 32):
            layers += [nn.Linear(inputs, 32), nn.LayerNorm(32), nn.GELU()]
        return nn.Sequential(*layers, nn.Linear(32, output_width(schema, head)))

    return Model(seeded(build, 0), head, network)


@cache
def trained(network: str, steps: int) -> Model:
    """Return a network after its training."""
    data, model = table(), untrained(network)
    rows = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(data.train.cells)
    labels = data.train.labels
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.SGD(model.module.parameters(), lr=0.1)
    for _ in range(steps):
        some = torch.randint(len(rows), (128,), generator=generator)
        optimiser.zero_grad()
        mean_loss(model.head, model.module(rows[some]), labels[some]).backward()
        optimiser.step()
    return model


def measured(cell: Cell, victims: int) -> dict[str, object]:
    """Attack the victims of a cell one after the other and return its line."""
    data, model = table(), trained(cell.network, cell.steps)
    schema, records = data.schema, cell.batch_size
    encoder = Encoder(schema, data.statistics, dtype=torch.float32)
    seeds = [stream(0, victim, "batch") for victim in range(victims)]
    ran = FedSGD(records, replacement=False).run(model, data.train, encoder, seeds)
    # What the client's running statistics say of its batch.
    statistics = batch_statistics(model, encoder.encode(ran.secret.cells)) or None
    known = Knowledge(schema, data.statistics, records, batch_statistics=statistics)
    attack = registry.attacks.create(cell.attack, restarts=2, iterations=300)
    shares: dict[str, list[float]] = {name: [] for name in FIGURES}
    begun = time.process_time()
    for victim in range(victims):
        own = slice(victim, victim + 1)
        guess = attack(ran.view.of(own), known.of(own), [stream(0, victim, "starts")])
        true = ran.secret.cells[victim]
        order = match(pairwise_error(schema, guess.cells, true[None]))
        right = (reorder(guess.cells, order)[0] - true).abs() <= tolerances(schema)
        for name, share in zip(FIGURES, (right, right.all(1)), strict=True):
            shares[name].append(float(share.double().mean()))
    seconds = (time.process_time() - begun) / victims
    line: dict[str, object] = cell._asdict() | {"n": victims, "seconds": round(seconds, 2)}
    for name, values in shares.items():
        found = Measurement(name, None, torch.tensor(values, dtype=torch.float64), True, (0.0, 1.0)).estimate()
        for end, value in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            line[f"{name}{end}"] = None if value is None else round(value, 4)
    return line


if __name__ == "__main__":
    main()
