"""Epsilon of a whole training from one run: canaries of the table, each trained on by the toss of a coin.

Source: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS 2023). The canaries are rows
of the client's own table. Whether each takes part is drawn independently, one network is trained, and its losses tell
which did. The number of right guesses bounds epsilon from below, whatever the mechanism is.

Deviations: the score of a canary is its loss in the trained network, while the paper's white-box attack sums up
products of gradients over all steps. So the bound is one for whoever gets the network, lower than one for whoever sees
every message. The learning rate is chosen in trainings without any canary.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from seepage.assessment.columns import auc
from seepage.assessment.empirical_epsilon import EmpiricalEpsilon, one_run_bound
from seepage.assessment.utility import Recipe, SimulatedTraining, best_rate, network_outputs
from seepage.datasets import Dataset
from seepage.defenses import AnyDefense
from seepage.defenses.accounting import Guarantee, Private
from seepage.errors import BadInputError, NotFiniteError, check_choice, check_count
from seepage.learning import LocalTraining
from seepage.models.model import Model
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.tabular.table import Table

CanaryKind = Literal["mislabelled", "rows"]
FEWEST_CANARIES = 10
# Largest share of the rows that are canaries.
_LARGEST_SHARE = 0.9
_DELTA = 1e-5


@dataclass(frozen=True)
class TrainingAudit:
    """What one training with canaries shows of its epsilon, beside what is accounted for.

    Attributes:
        measured: lower bound from the canaries.
        guarantee: epsilon by the accountant at the same delta; None where the defense gives none.
        included: number of canaries that were trained on.
        auc: probability that an included canary scores above one that was left out; 0.5 is chance.
        rows: number of rows trained on.
    """

    measured: EmpiricalEpsilon
    guarantee: Guarantee | None
    included: int
    auc: float | None
    learning_rate: float
    steps: int
    rows: int
    seconds: float

    @property
    def refuted(self) -> bool:
        """Whether the lower bound is above the epsilon that is accounted for."""
        return self.guarantee is not None and self.measured.low > self.guarantee.epsilon


def audit_training(
    dataset: Dataset,
    model: Model,
    encoder: Encoder,
    batch_size: int,
    canaries: int,
    *,
    defense: AnyDefense | None = None,
    recipe: Recipe | None = None,
    kind: CanaryKind = "mislabelled",
    seed: int = 0,
    local: LocalTraining | None = None,
    shuffle: bool = True,
    clients: int = 1,
) -> TrainingAudit:
    """Train once with each canary in or out by a fair coin, and bound epsilon by how well the losses tell which.

    Args:
        dataset: dataset whose training rows are the client's; canaries are drawn from them, the others always take
            part.
        model, encoder, batch_size, defense, local, shuffle, clients: those of ``measure_utility``.
        canaries: number of canaries, which limits the bound: about 3 of 100 and 5 of 1,000 where each is told.
        recipe: recipe of the training. Its ``delta`` is 1e-5, or a tenth of one over the number of rows if that is
            less, if None.
        kind: ``mislabelled`` canaries have the label of another row, so that a network learns them only by heart;
            ``rows`` are the rows as they are.
        seed: seed of canaries, coins and training.

    Raises:
        BadInputError: there are fewer than ten canaries, or too few rows beside them.
        NotFiniteError: the training diverged.
    """
    begun, recipe = time.perf_counter(), recipe or Recipe()
    check_count("canaries", canaries)
    check_choice("kind of canaries", kind, CanaryKind)
    model.check(dataset.schema)
    count, records = len(dataset.train), batch_size * clients
    most = min(int(_LARGEST_SHARE * count), count - records)
    if not FEWEST_CANARIES <= canaries <= most:
        raise BadInputError(
            f"canaries are {FEWEST_CANARIES} at least, and {most} at most where messages are of {records} of {count} "
            f"rows; got {canaries}."
        )
    generator = torch.Generator().manual_seed(stream(seed, 0, "canaries of a table") % 2**62)
    order = torch.randperm(count, generator=generator)
    chosen, others = order[:canaries], order[canaries:]
    coins = torch.rand(canaries, generator=generator) < 0.5
    table = dataset.train if kind == "rows" else _mislabelled(dataset.train, chosen, generator)
    how = (batch_size, defense, seed, recipe.optimiser, local, shuffle, clients)
    without = SimulatedTraining(model, encoder, table, others, *how)
    rate = best_rate(without, recipe, recipe.steps(model, len(others), records, local))
    rows = torch.cat([others, chosen[coins]])
    steps = recipe.steps(model, len(rows), records, local)
    learnt = SimulatedTraining(model, encoder, table, rows, *how).run([rate], [0], steps)
    scores = -_losses(model, learnt, encoder, *table.take(chosen))
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(f"the training diverged at a learning rate of {rate:g}; give smaller ones.")
    delta = recipe.delta or min(_DELTA, 0.1 / count)
    guarantee = None
    if isinstance(defense, Private):
        guarantee = defense.guarantee(records / len(rows), steps, delta, 1 if local is None else local.epochs)
    measured = one_run_bound(coins.numpy(), scores.numpy(), delta)
    area, seconds = auc(scores, coins), time.perf_counter() - begun
    return TrainingAudit(measured, guarantee, int(coins.sum()), area, rate, steps, len(rows), seconds)


def _mislabelled(table: Table, chosen: Int[Tensor, " canary"], generator: torch.Generator) -> Table:
    """Return a table in which each chosen row has a label that another row has and it has not."""
    labels = table.labels.clone()
    values = labels.unique()
    if len(values) < 2:
        raise BadInputError(
            "all rows have the same label, so that no canary can have another; use canaries of kind 'rows'."
        )
    # A step of one or more through the other labels ends at another one.
    code = torch.searchsorted(values, labels[chosen])
    step = torch.randint(1, len(values), (len(chosen),), generator=generator)
    labels[chosen] = values[(code + step) % len(values)]
    return table.of_cells(table.cells, labels)


def _losses(
    model: Model,
    learnt: dict[str, Tensor],
    encoder: Encoder,
    cells: Float[Tensor, "record column"],
    labels: Float[Tensor, " record"],
) -> Float[Tensor, " record"]:
    """Return the loss of each record in a trained network."""
    [outputs] = network_outputs(model, learnt, encoder.encode(cells.to(encoder.mean.device)))
    outputs, truth = outputs.double().cpu(), labels.cpu()
    if model.head == "softmax":
        return functional.cross_entropy(outputs, truth.long(), reduction="none")
    if model.head == "sigmoid":
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], truth.double(), reduction="none")
    return (outputs[:, 0] - truth.double()).square()
