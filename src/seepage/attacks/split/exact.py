"""EXACT: the private cells and label whose gradient is the received one (Qiu et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from seepage.attacks.split.parts.batch_statistics import training_log_likelihood
from seepage.attacks.split.parts.descent import descend
from seepage.attacks.split.parts.meet import meet
from seepage.attacks.split.parts.message_fit import in_form
from seepage.attacks.split.parts.messages import check_bare, message_of
from seepage.attacks.split.parts.nearest import Messages, NearestConfigurations, nearest, rounding
from seepage.attacks.split.parts.number_target import number_target_guess
from seepage.attacks.split.parts.proof import fits_alone, likely_fit, proof_of
from seepage.attacks.split.parts.refine import refined
from seepage.attacks.split.parts.replay import replayed_guess
from seepage.attacks.split.parts.space import Space, check_enumerable, responder
from seepage.errors import BadInputError, check_choice, check_count, non_negative
from seepage.models.deepfm import DeepFMClient
from seepage.registry import attacks
from seepage.tabular.schema import Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutView, check_gradient

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
        space = Space.of(view.model, knowledge, self.bins)
        # Of a number as target, other exchanges of the same records tell what one leaves open.
        number = isinstance(knowledge.schema.target, Continuous)
        received, views = view, in_form(list(view.exchanges) if number else [view], knowledge, space)
        view = views[0]
        received = replace(received, model=view.model)
        gradient = (view.own_gradient if self.undo_mean else view.gradient) * self.scale
        if number:
            if self.search != "exhaustive" or self.votes > 1 or self.scale != 1 or not self.undo_mean:
                raise BadInputError(
                    f"search={self.search!r}, votes={self.votes}, scale={self.scale}, undo_mean={self.undo_mean} are "
                    f"for classes, but the target {knowledge.schema.target.name!r} is a number; leave them out."
                )
            check_enumerable(space, self.most)
            return number_target_guess(views, knowledge, space, weigh=False)
        respond = responder(view.model, self.closed_form)
        if space.binned and replayable(view, knowledge) and self.votes == 1 and self.scale == 1 and self.undo_mean:
            if self.search == "exhaustive":
                check_enumerable(space, self.most)
            guess = replayed_guess([view], knowledge, respond, space, torch.Generator().manual_seed(seeds[0]))
            return replace(guess, proof=proof_of(received, knowledge, guess.cells))
        if view.model.form.training:
            return _training_guess(view, knowledge, space, seeds[0])
        sent = message_of(knowledge.defense, view.clip) if self.aware else None
        keep = max(self.votes, self.keep, 2)
        messages = Messages(view.model, respond, view.cut, gradient, space, sent)
        if self.search == "exhaustive":
            check_enumerable(space, self.most)
            configurations = nearest(messages, keep, self.prune)
        else:
            if space.configurations > 2**62:
                raise BadInputError(
                    f"the private columns {space.sizes} make more configurations than can be numbered (2^62); name "
                    "fewer private columns, or use fewer bins."
                )
            generator = torch.Generator().manual_seed(seeds[0])
            if self.search == "meet":
                what = "search='meet' reads sums of embeddings from gradients as they are"
                check_bare(knowledge.defense, what, "search='descent'", self.aware)
                configurations = meet(messages, keep, generator, self.rounds)
            else:
                configurations = descend(messages, keep, generator, self.starts, self.sweeps)
        codes = space.codes(configurations.places)
        chosen = torch.stack([vote(votes) for votes in codes[:, : self.votes].unbind(-1)], dim=-1)
        cells = space.of_codes(chosen)
        labels = vote(configurations.labels[:, : self.votes])
        distances = configurations.distances.double().cpu()
        if space.binned and self.votes == 1:
            cells, distance = refined(messages, cells, labels)
            distances[:, 0] = distance.double().cpu()
        same = rounding(gradient, view.model.form).double().cpu()[:, None]
        alone = torch.full((len(labels),), torch.nan, dtype=torch.float64)
        cells = view.model.unscaled(cells, view.model.private)
        return CutGuess(
            cells=cells,
            labels=labels.cpu().double(),
            residual=distances[:, 0],
            runner_up=distances[:, 1] if distances.shape[1] > 1 else alone,
            ties=(distances <= distances[:, :1] + same).sum(1),
            likely=self._likely(messages, configurations, codes[:, 0], seeds),
            proof=proof_of(received, knowledge, cells),
        )

    def _likely(
        self, messages: Messages, configurations: NearestConfigurations, codes: Tensor, seeds: Sequence[int]
    ) -> Tensor | None:
        if self.votes > 1 or self.scale != 1 or messages.space.binned:
            return None
        if self.search == "exhaustive":
            return fits_alone(configurations.distances, messages.gradient, messages.model.form)
        generator = torch.Generator().manual_seed(seeds[0])
        return likely_fit(messages, configurations.distances, codes, generator)


def _training_guess(view: CutView, knowledge: CutKnowledge, space: Space, seed: int) -> CutGuess:
    """Return the combinations that are likeliest of a client in training mode; nothing is certified."""
    scores, distances = training_log_likelihood(view, knowledge, space, torch.Generator().manual_seed(seed))
    best = scores.flatten(1).argmax(1)
    places, labels = best // space.labels, best % space.labels
    cells = view.model.unscaled(space.cells(places), view.model.private)
    return CutGuess(cells, labels.double(), residual=distances)


def replayable(view: CutView, knowledge: CutKnowledge) -> bool:
    """Return whether the set of all numbers that replay a message can be computed."""
    known = view.model.form.scale_of != "record" and not view.model.form.training
    return isinstance(view.model.client, DeepFMClient) and knowledge.defense.bare and known


def vote(values: Int[Tensor, "record vote"]) -> Int[Tensor, " record"]:
    """Return each record's most frequent value; among equally frequent ones, that of the earliest vote."""
    votes = values.shape[1]
    counts = (values[:, :, None] == values[:, None, :]).sum(2)
    first = (counts * (votes + 1) + torch.arange(votes, 0, -1, device=counts.device)).argmax(1)
    return values.gather(1, first[:, None])[:, 0]
