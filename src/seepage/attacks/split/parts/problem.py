"""Prior x likelihood x search: the one path from view and knowledge to a guess.

Of a record with private cells x, label y, public columns u and messages g_1, ..., g_n, Bayes' rule says

    p(x, y | u, g)  ~  p(x | u) p(y | x, u)  prod_k p(g_k | x, y).

The first two factors are the prior, which is flat or learned (``prior``). The last one is the likelihood: sharp where a
message is a gradient up to rounding (``sharp``), noisy where it was clipped and blurred (``noise``, ``shaped``,
``mismatch``), averaged over what is random in training (``masked``, ``training``). The search goes through the
space of all (x, y) (``nearest``), descends in it (``descent``), meets in its middle (``meet``) or adds up all chances
(``chances``). Two parts of a space are no list: a number as target, over which its likelihood integrates in closed form
(``number_target``), and numbers among the private cells, over which chains walk (``replay``).

A likelihood says itself whether messages have it, and has the search that its space needs. ``guessed`` takes the first
one that applies. An attack is a list of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch

from seepage.attacks.split.parts.message_fit import in_form
from seepage.attacks.split.parts.responder import Responder, responder
from seepage.attacks.split.parts.space import Space
from seepage.tabular.schema import Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutRounds, CutView


@dataclass(frozen=True)
class CutProblem:
    """Messages in the form of the client's loss, with what is known and which combinations are possible.

    Attributes:
        rounds: messages; records need not have been in the same rounds.
        closed_form: whether responses are computed in closed form where one is known.
    """

    rounds: CutRounds
    knowledge: CutKnowledge
    space: Space
    seed: int
    closed_form: bool

    @classmethod
    def of(
        cls, rounds: CutRounds, knowledge: CutKnowledge, bins: int, seed: int, closed_form: bool, observed: bool = True
    ) -> CutProblem:
        """Return the problem; where messages are not ``observed``, their form is not fitted."""
        space = Space.of(rounds.views[0].model, knowledge, bins)
        if observed:
            rounds = replace(rounds, views=tuple(in_form(rounds.views, knowledge, space)))
        return cls(rounds, knowledge, space, seed, closed_form)

    @property
    def first(self) -> CutView:
        """The newest messages."""
        return self.rounds.views[0]

    @property
    def numeric(self) -> bool:
        """Whether the target is a number."""
        return isinstance(self.knowledge.schema.target, Continuous)

    def generator(self) -> torch.Generator:
        """Return a new source of random numbers."""
        return torch.Generator().manual_seed(self.seed)

    def responder(self, view: CutView) -> Responder:
        """Return the responder of a round's client part."""
        return responder(view.model, self.closed_form)


class Likelihood(ABC):
    """What messages say of cells and labels, with the search that goes through these."""

    @abstractmethod
    def applies(self, problem: CutProblem) -> bool:
        """Return whether messages have this likelihood."""

    @abstractmethod
    def guess(self, problem: CutProblem) -> CutGuess:
        """Return what is likeliest under the messages, or likeliest together with a prior."""


def guessed(problem: CutProblem, *likelihoods: Likelihood) -> CutGuess:
    """Return the guess under the first likelihood that the messages have."""
    return next(likelihood for likelihood in likelihoods if likelihood.applies(problem)).guess(problem)
