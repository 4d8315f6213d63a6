"""How many records are read of updates that leave parameters with the client, and how many wrongly at full certainty.

    python benchmarks/partial_updates.py --out benchmarks/results/partial_updates.csv
    python benchmarks/partial_updates.py --summary --out benchmarks/results/partial_updates.csv

A client computes the gradient of one batch with PyTorch and captures what leaves it. What stays has the model's values
(``same``), or the client's own (``own``), which the attacker does not know. ``seepage attack`` reads the file with its
defaults, or with `--iterations`. A line is one update.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from csv_lines import add_lines, read_lines
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from seepage import capture, datasets
from seepage.assessment.intervals import ratio
from seepage.attacking.federation import FederationAttack
from seepage.attacking.updates import Recovered
from seepage.datasets.dataset import Dataset
from seepage.seeds import seeded, stream
from seepage.tabular.align import match, pairwise_error
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

KEYS = ("dataset", "federation", "stays", "records", "update")
FIELDS = (*KEYS, "whole", "sure", "sure_wrong", "proved", "given", "regime", "commit")
SURE = 0.995  # certainty of every cell of a record that a page prints as 100%


class Normalised(nn.Module):
    """Two hidden layers, batch normalisation behind the first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.a, self.bn, self.b = nn.Linear(inputs, 100), nn.BatchNorm1d(100), nn.Linear(100, 100)
        self.out = nn.Linear(100, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        return self.out(self.b(self.bn(self.a(rows)).relu()).relu())


class Plain(nn.Module):
    """Two hidden layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(inputs, 100), nn.Linear(100, 100), nn.Linear(100, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        return self.out(self.b(self.a(rows).relu()).relu())


class Single(nn.Module):
    """One hidden layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.a, self.out = nn.Linear(inputs, 100), nn.Linear(100, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        return self.out(self.a(rows).relu())


class Adapted(nn.Module):
    """Two hidden layers, with adapters of rank 4 beside each layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = Plain(inputs, outputs)
        sizes = [(part.in_features, part.out_features) for part in (self.base.a, self.base.b, self.base.out)]
        self.down = nn.ParameterList(torch.randn(4, i) / i**0.5 for i, _ in sizes)
        self.up = nn.ParameterList(torch.randn(o, 4) / 10 for _, o in sizes)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs."""
        layers = (self.base.a, self.base.b, self.base.out)
        for i, layer in enumerate(layers):
            rows = layer(rows) + rows @ self.down[i].T @ self.up[i].T
            rows = rows if i == 2 else rows.relu()
        return rows


class Logistic(nn.Module):
    """A logistic regression."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(inputs, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits."""
        return self.out(rows)


# Network, and the beginnings of names that stay with the client.
FEDERATIONS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "all sent": (Plain, ()),
    "FedPer": (Plain, ("out",)),
    "FedPer, one layer sent": (Single, ("out",)),
    "LG-FedAvg": (Plain, ("a",)),
    "all sent, BN": (Normalised, ()),
    "FedBN": (Normalised, ("bn",)),
    "LoRA": (Adapted, ("base",)),
    "logistic": (Logistic, ()),
}


def main() -> None:
    """Measure what is not in the file yet, or sum it up."""
    parser = argparse.ArgumentParser(description="Measure what updates give away that leave parameters out.")
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--datasets", nargs="+", default=("german", "visits"))
    parser.add_argument("--federations", nargs="+", default=tuple(FEDERATIONS))
    parser.add_argument("--records", type=int, nargs="+", default=(1, 4, 8), help="numbers of records of a batch")
    parser.add_argument("--updates", type=int, default=5, help="number of updates of each kind")
    parser.add_argument("--iterations", type=int, default=100, help="steps of the descent for what is not read exactly")
    parser.add_argument("--summary", action="store_true", help="print counts, measure nothing")
    given = parser.parse_args()
    if given.summary:
        summarise(given.out)
        return
    torch.set_num_threads(1)
    known = {tuple(line[key] for key in KEYS) for line in read_lines(given.out)}
    places = itertools.product(given.datasets, given.federations, ("same", "own"), given.records, range(given.updates))
    for place in places:
        _, federation, stays, records, _ = place
        _, local = FEDERATIONS[federation]
        # What is sent whole has nothing of its own, a base is the same for all, one record has no batch statistics.
        odd = (stays == "own" and (not local or federation == "LoRA")) or (records == 1 and "BN" in federation)
        if not odd and tuple(map(str, place)) not in known:
            add_lines(given.out, FIELDS, [measured(*place, iterations=given.iterations)])


def visits(rows: int = 600) -> Dataset:
    """Return an invented table of visits to a clinic: numbers with decimals, and few categories."""
    generator = np.random.default_rng(7)
    age, dose = generator.integers(18, 91, rows), generator.gamma(3.0, 20.0, rows).round(1)
    frame = pd.DataFrame(
        {
            "age": age,
            "pulse": generator.normal(74, 11, rows).round().clip(40, 130).astype(int),
            "dose": dose.clip(0, 300),
            "sex": generator.choice(["f", "m"], rows),
            "ward": generator.choice(["er", "gyn", "icu", "ortho", "neuro"], rows, p=[0.4, 0.2, 0.1, 0.2, 0.1]),
            "insurer": generator.choice([f"i{k}" for k in range(9)], rows),
            "back": np.where(age + dose / 4 + generator.normal(0, 20, rows) > 75, "yes", "no"),
        }
    )
    columns = (
        Continuous(name="age", low=18, high=90, tolerance=3.0, integer=True),
        Continuous(name="pulse", low=40, high=130, tolerance=2.0, integer=True),
        Continuous(name="dose", low=0, high=300, tolerance=5.0),
        Discrete(name="sex", categories=("f", "m")),
        Discrete(name="ward", categories=("er", "gyn", "icu", "ortho", "neuro")),
        Discrete(name="insurer", categories=tuple(f"i{k}" for k in range(9))),
    )
    schema = Schema(columns=columns, target=Discrete(name="back", categories=("no", "yes")))
    return Dataset("visits", Table(schema, frame), None, (), "generated", "none needed")


def measured(
    dataset: str, federation: str, stays: str, records: int, update: int, iterations: int = 100
) -> dict[str, object]:
    """Return the line of one update."""
    data = visits() if dataset == "visits" else datasets.load(dataset)
    kind, local = FEDERATIONS[federation]
    generator = torch.Generator().manual_seed(stream(update, 0, "victims"))
    rows = torch.randperm(len(data.train), generator=generator)[:records]
    truth, labels = data.train.cells[rows], data.train.labels[rows]
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    outputs = () if kind is Logistic else (2,)
    network = seeded(lambda: kind(data.schema.width, *outputs), update)
    sent = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    if stays == "own":
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if name.startswith(local):
                    parameter += 0.3 * torch.randn(parameter.shape, generator=generator) * (parameter.std() + 0.1)
    predicted = network(encoder.encode(truth))
    if kind is Logistic:
        nn.functional.binary_cross_entropy_with_logits(predicted[:, 0], labels.float()).backward()
    else:
        nn.functional.cross_entropy(predicted, labels.long()).backward()
    named = [(name, p) for name, p in network.named_parameters() if not (local and name.startswith(local))]
    with tempfile.TemporaryDirectory() as folder:
        path, weights = Path(folder) / "u.safetensors", Path(folder) / "model.safetensors"
        # Of a base all know that it is frozen.
        frozen = "frozen" if federation == "LoRA" else None
        capture(named, path, batch_size=records, statistics=data.statistics, local=frozen)
        if "BN" in federation and not local:
            # Running statistics are sent, too.
            capture_running(path, network)
        save_file(sent, weights)
        attack = FederationAttack.of(network, data.schema, data.all, iterations=iterations, seed=update)
        recovered = attack.update(path, weights)
    return dict(zip(KEYS, (dataset, federation, stays, records, update), strict=True)) | scored(recovered, truth, data)


def capture_running(path: Path, network: nn.Module) -> None:
    """Add the running statistics to a captured gradient."""
    with safe_open(str(path), framework="pt") as file:
        tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file(tensors | {name: buffer.clone() for name, buffer in network.named_buffers()}, path, metadata=about)


def scored(recovered: Recovered, truth: Tensor, data: Dataset) -> dict[str, object]:
    """Return how many records are whole, surely read, and surely read and wrong."""
    guess = recovered.guess
    wrong = pairwise_error(data.schema, guess.cells[0], truth)
    right = [float(wrong[i, true]) == 0 for true, i in enumerate(match(wrong).tolist())]
    order = match(wrong).tolist()
    sure = (recovered.certainty >= SURE).all(1)
    proof = None if guess.proofs is None else guess.proofs[0]
    return {
        "whole": sum(right),
        "sure": int(sure.sum()),
        "sure_wrong": sum(bool(sure[i]) and not fits for i, fits in zip(order, right, strict=True)),
        "proved": 0 if proof is None else int(proof.cells.any(1).sum()),
        "given": 0 if proof is None else int(proof.given.any(1).sum()),
        "regime": "" if guess.regime is None else guess.regime[0],
    }


def summarise(path: Path) -> None:
    """Print a line for each kind of update."""
    frame = pd.DataFrame(read_lines(path))
    counts = ["records", "whole", "sure", "sure_wrong", "proved", "given"]
    frame[counts] = frame[counts].astype(int)
    for place, some in frame.groupby(["dataset", "federation", "stays", "records"], sort=False):
        whole, records = (torch.tensor(some[name].to_numpy()) for name in ("whole", "records"))
        share = ratio(whole, records, int(records.max()))
        figures = ", ".join(f"{name} {some[name].sum()}" for name in counts[1:])
        print(*place, f"n={len(some)}", figures, f"{100 * (share.mean or 0):.0f}%", some["regime"].iloc[0][:90])


if __name__ == "__main__":
    main()
