"""EXACT: the private cells and label whose gradient is the received one (Qiu et al. 2024).

The flat prior with the sharp likelihood, see ``parts.problem``: the answer is ``argmin |s(f(x), y) J(x) - g|`` over all
cells x and labels y, by one of three searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seepage.attacks.split.parts.descent import ColumnDescent
from seepage.attacks.split.parts.meet import Meet
from seepage.attacks.split.parts.nearest import Exhaustive
from seepage.attacks.split.parts.number_target import NumberTarget
from seepage.attacks.split.parts.problem import CutProblem, guessed
from seepage.attacks.split.parts.proof import proof_of
from seepage.attacks.split.parts.replay import ReplayingNumbers
from seepage.attacks.split.parts.sharp import Sharp
from seepage.attacks.split.parts.training import TrainingMode
from seepage.errors import check_choice, check_count, non_negative
from seepage.registry import attacks
from seepage.tabular.schema import Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutRounds, CutView, check_gradient

Search = Literal["exhaustive", "descent", "meet"]


@attacks.register("exact", "split", needs=("weights",))
@dataclass(frozen=True)
class Exact:
    """Compares the received gradient with that of every combination of private cells and label.

    Source: Qiu et al., EXACT (2024).

    The nearest combination is the guess. With ``votes`` above 1 the nearest ones vote on each column and the label,
    and the nearest among the most frequent values wins (the paper leaves ties open). Continuous private columns are
    put into bins, and the winning bin is refined.

    Numbers that cannot be listed are not determined by one message: many values replay it. Where a DeepFM client sends
    gradients as they are, the answer is the likeliest of all that do, see ``parts.replay``.

    Deviations from the paper, none of which changes an answer: derivatives of the logits are computed once for all
    labels, in closed form for DeepFM, and combinations that the logit excludes are skipped.

    Attributes:
        votes: number of combinations in the paper's majority vote (k).
        aware: whether candidates' gradients are clipped like the client's, where the clipping is known. The paper's
            attacker does not clip them, which makes clipping look like a defense there.
        undo_mean: whether the division of the client's gradient by the batch's number of records is undone.
        scale: factor of received gradients before they are compared. 1 is right; other values show the effect of a
            wrong scale, such as 1/16 for a mean over 16 records that is left in. At 0 the gradients are ignored, and
            the answer is the combination whose gradient is smallest.
        bins: number of bins of a continuous private column.
        search: ``exhaustive``; for spaces too large to enumerate, ``meet`` in the middle, for undefended DeepFM
            clients, see ``parts.meet``, or ``descent`` by columns from many starts.
        most: largest number of configurations that are enumerated.
        starts, sweeps: settings of the descent.
        rounds: largest number of rounds of meeting in the middle; a record that fits exactly needs no further one.
        keep: number of configurations among which ties are counted.
        closed_form, prune: whether to use the faster computations.

    Raises:
        BadInputError: an argument is out of range.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.models.deepfm import deepfm
        >>> from seepage.protocols.split import SplitLearning
        >>> data = telling(rows=200)
        >>> protocol = SplitLearning(epochs=2, batch_size=32)
        >>> trained = protocol.train(deepfm(data.schema, ["cause", "noise_0"], seed=0), data.train, seed=0)
        >>> seen = protocol.observe(trained, data.train.rows(range(50)), seed=1)
        >>> guess = Exact()(seen.view, CutKnowledge(data.schema, data.statistics))
        >>> bool((guess.cells == seen.cells).all()), bool((guess.labels == seen.labels).all())
        (True, True)
    """

    votes: int = 1
    aware: bool = False
    undo_mean: bool = True
    scale: float | int = 1.0
    bins: int = 16
    search: Search = "exhaustive"
    most: int = 4_000_000
    starts: int = 16
    sweeps: int = 64
    rounds: int = 40
    keep: int = 2
    closed_form: bool = True
    prune: bool = True

    def __post_init__(self) -> None:
        for name in ("votes", "bins", "most", "starts", "sweeps", "rounds", "keep"):
            check_count(name, getattr(self, name))
        check_choice("search:", self.search, Search)
        non_negative("scale", self.scale)

    def __call__(self, view: CutView, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess; ``seeds`` are those of the descent's starts."""
        check_gradient(view)
        usual = self.votes == 1 and self.scale == 1 and self.undo_mean
        exhaustive, target = self.search == "exhaustive", knowledge.schema.target
        number = isinstance(target, Continuous)
        refused = (
            f"search={self.search!r}, votes={self.votes}, scale={self.scale}, undo_mean={self.undo_mean} are for "
            f"classes, but the target {target.name!r} is a number; leave them out."
        )
        # Of a number as target, other exchanges of the same records tell what one leaves open.
        rounds = CutRounds.of(view.exchanges if number else [view])
        problem = CutProblem.of(rounds, knowledge, self.bins, seeds[0], self.closed_form)
        searches = {
            "exhaustive": Exhaustive(self.most, self.prune),
            "descent": ColumnDescent(self.starts, self.sweeps, seeds[0]),
            "meet": Meet(self.rounds, seeds[0]),
        }
        guess = guessed(
            problem,
            NumberTarget(False, self.most, refused=None if usual and exhaustive else refused),
            ReplayingNumbers(usual, self.most if exhaustive else None),
            TrainingMode(),
            Sharp(searches[self.search], self.votes, self.keep, float(self.scale), self.undo_mean, self.aware),
        )
        if problem.first.model.form.training and not number:
            return guess
        received = replace(view, model=problem.first.model)
        return replace(guess, proof=proof_of(received, knowledge, guess.cells))
