"""The sharp likelihood: messages are gradients up to rounding, and the nearest configuration is the likeliest.

With a flat prior and errors of any one scale, the likeliest (x, y) is ``argmin |s(f(x), y) J(x) - g|``. The paper's k
nearest vote on each column and on the label; the nearest among the most frequent values wins, which the paper leaves
open. Numbers in bins are refined within the bin that wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from seepage.attacks.split.parts.messages import Messages, message_of
from seepage.attacks.split.parts.nearest import Search
from seepage.attacks.split.parts.problem import CutProblem, Likelihood
from seepage.attacks.split.parts.refine import refined
from seepage.wire.split import CutGuess


@dataclass(frozen=True)
class Sharp(Likelihood):
    """The nearest gradient; see ``Exact`` for the arguments."""

    search: Search
    votes: int
    keep: int
    scale: float
    undo_mean: bool
    aware: bool

    def applies(self, problem: CutProblem) -> bool:
        """Return that any messages may be taken for gradients as they are."""
        return True

    def guess(self, problem: CutProblem) -> CutGuess:
        """Return the values that most of the nearest configurations have."""
        view, space, defense = problem.first, problem.space, problem.knowledge.defense
        gradient = (view.own_gradient if self.undo_mean else view.gradient) * self.scale
        sent = message_of(defense, view.clip) if self.aware else None
        messages = Messages(view.model, problem.responder(view), view.cut, gradient, space, sent, defense)
        best = self.search.nearest(messages, max(self.votes, self.keep, 2))
        codes = space.codes(best.places[:, : self.votes])
        cells = space.of_codes(torch.stack([vote(votes) for votes in codes.unbind(-1)], dim=-1))
        labels = vote(best.labels[:, : self.votes])
        distances = best.distances.double().cpu()
        if space.binned and self.votes == 1:
            cells, distance = refined(messages, cells, labels)
            distances[:, 0] = distance.double().cpu()
        listed = self.votes == 1 and self.scale == 1 and not space.binned
        alone = torch.full((len(labels),), torch.nan, dtype=torch.float64)
        return CutGuess(
            cells=view.model.unscaled(cells, view.model.private),
            labels=labels.cpu().double(),
            residual=distances[:, 0],
            runner_up=distances[:, 1] if distances.shape[1] > 1 else alone,
            ties=(distances <= distances[:, :1] + messages.rounding.double().cpu()[:, None]).sum(1),
            likely=self.search.likely(messages, best) if listed else None,
        )


def vote(values: Int[Tensor, "record vote"]) -> Int[Tensor, " record"]:
    """Return each record's most frequent value; among equally frequent ones, that of the earliest vote."""
    votes = values.shape[1]
    counts = (values[:, :, None] == values[:, None, :]).sum(2)
    first = (counts * (votes + 1) + torch.arange(votes, 0, -1, device=counts.device)).argmax(1)
    return values.gather(1, first[:, None])[:, 0]
