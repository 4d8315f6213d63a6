"""The likelihood of a client in training mode: the mean over what is random there, dropout masks or the batch.

``p(g | x, y) = mean over m of p(g | x, y, m)``: m are masks of dropout (``masked``), or the statistics of a batch,
which follow from the cells of all its records (``batch_statistics``). With a flat prior the likeliest combination is
taken, and nothing is certified; with a learned one the likelihood stands beside it like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.batch_statistics import batch_log_likelihood, why_not_followed
from seepage.attacks.split.parts.masked import masked_log_likelihood
from seepage.attacks.split.parts.noise import Answer, Noise, RoundWithPriors
from seepage.attacks.split.parts.prior import CellPrior, shares_of
from seepage.attacks.split.parts.problem import CutProblem, Likelihood
from seepage.attacks.split.parts.space import Space
from seepage.errors import BadInputError
from seepage.models.batch_norm import normalising
from seepage.models.dropout import dropping
from seepage.wire.split import CutGuess, CutKnowledge, CutView


def training_log_likelihood(
    view: CutView, knowledge: CutKnowledge, space: Space, seed: int
) -> tuple[Float[Tensor, "record place label"], Float[Tensor, " record"]]:
    """Return the log-likelihood of messages, and the distance of a replay.

    Raises:
        BadInputError: nothing of the client's part is known to differ in training, or there are too many combinations.
    """
    if not normalising(view.model.client) or dropping(view.model.client):
        return masked_log_likelihood(view, space, torch.Generator().manual_seed(seed))[:2]
    why = why_not_followed(view, space)
    if why is not None:
        raise BadInputError(
            f"messages are said to be of a client in training mode that normalises by the batch, but {why}; leave out "
            "training from the form of the messages, or name fewer private columns."
        )
    cells = CellPrior.of(view.model, knowledge, space, view.features).of_places(space, torch.arange(space.size))
    return batch_log_likelihood(view, space, cells[..., None] + shares_of(knowledge).log())


@dataclass(frozen=True)
class TrainingMode(Likelihood):
    """The likeliest combination of a client in training mode."""

    def applies(self, problem: CutProblem) -> bool:
        """Return whether the client's part ran in training mode."""
        return problem.first.model.form.training

    def guess(self, problem: CutProblem) -> CutGuess:
        """Return the combinations that are likeliest."""
        view, space = problem.first, problem.space
        scores, distances = training_log_likelihood(view, problem.knowledge, space, problem.seed)
        best = scores.flatten(1).argmax(1)
        cells = view.model.unscaled(space.cells(best // space.labels), view.model.private)
        return CutGuess(cells, (best % space.labels).double(), residual=distances)


@dataclass(frozen=True)
class TrainingNoise(Noise):
    """The log-likelihood of every combination, computed at once."""

    table: Float[Tensor, "record place label"]

    @classmethod
    def fit(cls, messages: RoundWithPriors) -> TrainingNoise:
        """Return the log-likelihood."""
        return cls(training_log_likelihood(messages.view, messages.knowledge, messages.space, messages.seed)[0])

    def log_density(self, answer: Answer, records: Tensor, places: Tensor) -> Float[Tensor, "record place label"]:
        """Return that of some records and combinations."""
        return self.table[records][:, places]
