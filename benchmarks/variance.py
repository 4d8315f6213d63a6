"""How much chance there is in one run of TabLeak, and how much pooling takes of it, by kind of column.

    python benchmarks/variance.py --victims 10 --out benchmarks/results/tableak_figure13.csv

TabLeak (Vero et al., ICML 2023), appendix E.1 and figure 13: synthetic tables of ten columns, more and more of them
discrete; each batch is attacked 30 times, and the standard deviation of its accuracy over the 30 runs stands beside
that over 6 pooled groups of 5 runs each, with 90% intervals over batches by Student's t. The attack leaves the sigmoid
out, as there. The network is not named; it is NN3 here. The paper shows curves and prints no values. A line that is in
the file already is not measured again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from csv_lines import add_lines, read_lines
from torch import Tensor

from seepage import datasets
from seepage.assessment import measure
from seepage.assessment.intervals import interval
from seepage.datasets.dataset import Dataset
from seepage.devices import keep_freed_memory
from seepage.models.mlp import nn3
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge
from seepage.wire.secret import RecordsSecret

COLUMNS, RUNS, GROUPS = 10, 30, 6
LEVEL = 0.9
FIGURES = ("accuracy", "std_single", "std_pooled", "accuracy_pooled")
FIELDS = ["discrete", "continuous", "batch_size", "n", *(f"{f}{end}" for f in FIGURES for end in ("", "_low", "_high"))]
FIELDS += ["commit"]


def main() -> None:
    """Add one line a table to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--victims", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    keep_freed_memory()
    done = {int(line["discrete"]) for line in read_lines(arguments.out)}
    for discrete in range(0, COLUMNS + 1, 2):
        if discrete in done:
            continue
        line = study(discrete, arguments.batch_size, arguments.victims, arguments.iterations)
        add_lines(arguments.out, FIELDS, [line])


def study(discrete: int, batch_size: int, victims: int, iterations: int) -> dict[str, object]:
    """Return the accuracy of single and pooled runs, and their standard deviations within a batch."""
    data = datasets.load("synthetic", discrete=discrete, continuous=COLUMNS - discrete)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    transcript = FedSGD(batch_size, replacement=True).run(
        nn3(data.schema, seed=0), data.train, encoder, [stream(0, victim, "batch") for victim in range(victims)]
    )
    assert isinstance(transcript.view, GradientView)
    single = accuracies(data, transcript.view, transcript.secret, RUNS, 1, iterations)
    pooled = accuracies(data, transcript.view, transcript.secret, GROUPS, RUNS // GROUPS, iterations)
    figures = dict(zip(FIGURES, (single.mean(1), single.std(1), pooled.std(1), pooled.mean(1)), strict=True))
    line: dict[str, object] = {"discrete": discrete, "continuous": COLUMNS - discrete, "batch_size": batch_size}
    line["n"] = victims
    for name, values in figures.items():
        found = interval(values, LEVEL)
        for end, figure in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            line[f"{name}{end}"] = "" if figure is None else f"{figure:.6g}"
    return line


def accuracies(
    data: Dataset, view: GradientView, secret: RecordsSecret, repeats: int, restarts: int, iterations: int
) -> Tensor:
    """Return the accuracy of each repeat on each batch, shape (victim, repeat)."""
    attack = attacks.create("tableak", profile="faithful", sigmoid=False, restarts=restarts, iterations=iterations)

    def again(tensor: Tensor) -> Tensor:
        return tensor.repeat_interleave(repeats, dim=0)

    repeated = GradientView(view.model, {name: again(g) for name, g in view.gradient.items()})
    truth = RecordsSecret(again(secret.cells), again(secret.labels))
    seeds = [
        stream(0, victim, f"repeat {repeat} of {restarts}")
        for victim in range(view.victims)
        for repeat in range(repeats)
    ]
    guess = attack(repeated, Knowledge(data.schema, data.statistics, secret.cells.shape[1], truth.labels), seeds)
    measured = measure(data.schema, data.statistics, truth, guess)
    values = next(m.values for m in measured if (m.metric, m.column) == ("accuracy", None))
    return values.view(view.victims, repeats)


if __name__ == "__main__":
    main()
