"""Posterior of every private cell and label given a defended gradient: the attack that knows the defense.

The learned prior with the likelihood of the known defense, see ``parts.problem``: chances are
``p(x, y | u, g) ~ p(x | u) p(y | x, u) prod_k p(g_k | x, y)`` over all cells x and labels y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seepage.attacks.split.parts.chances import Chances, Decision, Weights
from seepage.attacks.split.parts.number_target import NumberTarget
from seepage.attacks.split.parts.problem import CutProblem, Likelihood, guessed
from seepage.attacks.split.parts.replay import ReplayingNumbers
from seepage.errors import BadInputError, check_choice, check_count
from seepage.registry import Traits, attacks
from seepage.text import how_many
from seepage.wire.split import CutGuess, CutKnowledge, CutRounds, CutView, check_gradient


@attacks.register("posterior", "split", traits=Traits(needs=("weights",), rounds=True))
@dataclass(frozen=True)
class Posterior:
    """Bayes' rule over all combinations of private cells and label, under the known defense.

    Source: our own.

    The received gradient of a record is ``clip(g) + normal noise``, or that of ``max_norm`` or ``marvell``, whose shape
    is fitted on the messages, see ``parts.shaped``; its likelihood under a combination, times the prior (see
    ``parts.prior``), gives the combination's chance. Numbers as targets: see
    ``parts.number_target``. A flipped label is undone by Bayes' rule too. With several messages of a record,
    likelihoods multiply; other records may have been in other rounds, see ``of_rounds``.

    Attributes:
        decision: ``columns``: each column's likeliest value, which gets most cells right; ``joint``: the likeliest
            combination.
        observed: whether gradients are used; without them the guess is the prior's, which serves as a baseline.
        weights: ``current``: the client part that is granted is the one that answered, up to rounding. ``about``: it
            is older, newer or noisy; the mismatch is fitted on the messages, see ``parts.mismatch``.
        bins: number of bins of a continuous private column.
        most: largest number of configurations that are enumerated.
        closed_form: whether to use the faster computation.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.defenses.cut_noise import CutNoise
        >>> from seepage.models.deepfm import deepfm
        >>> from seepage.protocols.split import SplitLearning
        >>> data = telling(rows=200)
        >>> protocol = SplitLearning(epochs=2, batch_size=32, noise=CutNoise(0.01))
        >>> trained = protocol.train(deepfm(data.schema, ["noise_0"], seed=0), data.train, seed=0)
        >>> seen = protocol.observe(trained, data.train.rows(range(50)), seed=1)
        >>> knowledge = CutKnowledge(data.schema, data.statistics, protocol.known())
        >>> guess = Posterior()(seen.view, knowledge)
        >>> guess.chances[0].shape, bool((guess.labels == seen.labels).all())
        (torch.Size([50, 3]), True)
    """

    decision: Decision = "columns"
    observed: bool = True
    weights: Weights = "current"
    bins: int = 16
    most: int = 4_000_000
    closed_form: bool = True

    def __post_init__(self) -> None:
        check_choice("decision:", self.decision, Decision)
        check_choice("weights:", self.weights, Weights)
        for name in ("bins", "most"):
            check_count(name, getattr(self, name))

    def by_round(self, view: CutView, knowledge: CutKnowledge) -> bool:
        """Return whether rounds are weighed one by one, so that records need not have been in the same ones."""
        problem = CutProblem.of(CutRounds.of([view]), knowledge, self.bins, 0, self.closed_form, observed=False)
        return self._by_round(problem)

    def __call__(
        self, view: CutView | Sequence[CutView], knowledge: CutKnowledge, seeds: Sequence[int] = (0,)
    ) -> CutGuess:
        """Return the guess with the chances of all values; ``seeds`` are those of samples of numbers."""
        views = list(view.exchanges) if isinstance(view, CutView) else list(view)
        if not views or any(view.records != views[0].records for view in views):
            raise BadInputError(
                f"views of the same records are needed, got {how_many(len(views), 'view')} of "
                f"{', '.join(str(view.records) for view in views) or 'no'} records; give those of one set of records."
            )
        problem = self._problem(CutRounds.of(views), knowledge, seeds)
        current = self.weights == "current" and knowledge.defense.bare and isinstance(view, CutView)
        if current and self._by_round(problem):
            # A gradient as it is tells all categories up to rounding: another one would only take time.
            problem = replace(problem, rounds=CutRounds.of([problem.first]))
        return self._guess(problem)

    def of_rounds(self, rounds: CutRounds, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess for records that were not all in the same rounds; refused where not ``by_round``."""
        if not self.by_round(rounds.views[0], knowledge):
            raise BadInputError(
                "numbers are found from all messages of a record at once, but the records were in different rounds; "
                "give one CutView for all records that were in the same."
            )
        return self._guess(self._problem(rounds, knowledge, seeds))

    def _problem(self, rounds: CutRounds, knowledge: CutKnowledge, seeds: Sequence[int]) -> CutProblem:
        return CutProblem.of(rounds, knowledge, self.bins, seeds[0], self.closed_form, self.observed)

    def _by_round(self, problem: CutProblem) -> bool:
        # Numbers that a message gives up to a region, and numbers as targets, are found from all messages at once.
        return not any(likelihood.applies(problem) for likelihood in self._together(problem.knowledge))

    def _together(self, knowledge: CutKnowledge) -> tuple[Likelihood, ...]:
        """Return the likelihoods that are of all messages of a record at once."""
        about = self.weights == "about"
        refused = (
            "how far client weights are off (weights='about') is fitted for classes, but the target "
            f"{knowledge.schema.target.name!r} is a number; use weights='current'."
        )
        number = NumberTarget(True, self.most, self.observed, refused if about else None)
        return number, ReplayingNumbers(self.observed and not about, self.most)

    def _guess(self, problem: CutProblem) -> CutGuess:
        for view in problem.rounds.views if self.observed else ():
            check_gradient(view)
        listed = Chances(self.decision, self.observed, self.weights, self.most)
        return guessed(problem, *self._together(problem.knowledge), listed)
