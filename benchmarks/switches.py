"""What each switch between TabLeak's profiles is worth: the default profile against itself with one part as published.

    python benchmarks/switches.py --batch-size 32 --victims 20 --out benchmarks/results/tableak_switches.csv

The victims are those of ``seepage reproduce tableak/table17`` (Adult, NN3, true labels), or of the same table of
another dataset (``--dataset health_heritage``: table 20). Variants that differ only in what follows the search share
its candidates, so that their difference is that part's alone.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from csv_lines import signed
from torch import Tensor

from seepage import datasets
from seepage.assessment import measure, paired
from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.devices import keep_freed_memory
from seepage.models.mlp import nn3
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge

# The default profile with one part as the official code has it, and with all of them.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "decoding": {"decoding": "nearest"},
    "pooling": {"pooling": "lower_median"},
    "start": {"start": "symmetric"},
    # Which leave nothing of the start among the marginals.
    "logits": {"logits": "standardised", "start": "symmetric"},
    "all": {"logits": "standardised", "start": "symmetric", "pooling": "lower_median", "decoding": "nearest"},
}
FIELDS = ["part", "as_published", "batch_size", "n", "default", "switched", "gain", "low", "high"]


@dataclass(frozen=True)
class Remembered(Descent):
    """A descent that answers the same start from memory."""

    ends: dict[bytes, Tensor] = field(default_factory=dict, compare=False)

    def run(self, engine: Any, relaxation: Any, start: Tensor, labels: Tensor, progress: Any = None) -> Tensor:
        """Return the free variables after the last step, computed once for each start."""
        key = start.numpy().tobytes()
        if key not in self.ends:
            self.ends[key] = super().run(engine, relaxation, start, labels, progress)
        return self.ends[key]


def main() -> None:
    """Add one line a variant for a batch size to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--victims", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    lines = switches(
        arguments.dataset, arguments.batch_size, arguments.victims, arguments.restarts, arguments.iterations
    )
    begun = arguments.out.exists()
    with arguments.out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*FIELDS, "commit"], lineterminator="\n")
        if not begun:
            writer.writeheader()
        writer.writerows(map(signed, lines))


def switches(dataset: str, batch_size: int, victims: int, restarts: int, iterations: int) -> list[dict[str, object]]:
    """Return the paired gain of the default profile over each variant, shares of all cells."""
    keep_freed_memory()
    data = datasets.load(dataset)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = nn3(data.schema, seed=0)
    protocol = FedSGD(batch_size, replacement=True)
    scores: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for victim in range(victims):
        transcript = protocol.run(model, data.train, encoder, [stream(0, victim, "batch")])
        knowledge = Knowledge(data.schema, data.statistics, batch_size, transcript.secret.labels)
        searches: dict[str, Remembered] = {}
        for variant, options in VARIANTS.items():
            attack = attacks.create("tableak", restarts=restarts, iterations=iterations, **options)
            assert isinstance(attack, Reconstruction)
            search = searches.setdefault(attack.logits, Remembered(iterations=iterations))
            guess = replace(attack, descent=search)(transcript.view, knowledge, [stream(0, victim, "starts")])
            measured = measure(data.schema, data.statistics, transcript.secret, guess)
            scores[variant].append(
                next(float(m.values[0]) for m in measured if (m.metric, m.column) == ("accuracy", None))
            )
    own = torch.tensor(scores["default"], dtype=torch.float64)
    lines = []
    for variant, options in VARIANTS.items():
        if variant == "default":
            continue
        other = torch.tensor(scores[variant], dtype=torch.float64)
        gain = paired(own, other)
        figures = (own.mean().item(), other.mean().item(), gain.mean, gain.low, gain.high)
        given = " ".join(f"{name}={value}" for name, value in options.items())
        rounded = ("" if figure is None else f"{figure:.6g}" for figure in figures)
        lines.append(dict(zip(FIELDS, [variant, given, batch_size, gain.n, *rounded], strict=True)))
    return lines


if __name__ == "__main__":
    main()
