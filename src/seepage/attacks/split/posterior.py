"""Posterior of every private cell and label given a defended gradient: the attack that knows the defense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.exact import replayable
from seepage.attacks.split.parts.batch_statistics import training_log_likelihood
from seepage.attacks.split.parts.message_fit import in_form
from seepage.attacks.split.parts.messages import bound_of, message_of
from seepage.attacks.split.parts.mismatch import Mismatch
from seepage.attacks.split.parts.nearest import candidate_gradients, factors, spread
from seepage.attacks.split.parts.number_target import number_target_guess
from seepage.attacks.split.parts.numbers import NumberPrior, prior_samples
from seepage.attacks.split.parts.prior import CellPrior, LabelPrior, decided, honest
from seepage.attacks.split.parts.replay import likeliest_numbers, numbers_of, replayed_guess
from seepage.attacks.split.parts.shaped import AlongDifference, AlongGradient
from seepage.attacks.split.parts.space import Responder, Space, check_enumerable, responder, width_of
from seepage.errors import BadInputError, check_choice, check_count
from seepage.registry import Traits, attacks
from seepage.tabular.schema import Continuous
from seepage.text import how_many
from seepage.wire.split import CutGuess, CutKnowledge, CutRounds, CutView, KnownCut, check_gradient

Decision = Literal["columns", "joint"]
Weights = Literal["current", "about"]
Fitted = Mismatch | AlongGradient | AlongDifference

_SAMPLES = 1024  # samples of a record where a space is too large to go through
_AT_ONCE = 2**21  # numbers in memory at once


@attacks.register("posterior", "split", traits=Traits(needs=("weights",), rounds=True))
@dataclass(frozen=True)
class Posterior:
    """Bayes' rule over all combinations of private cells and label, under the known defense.

    Source: our own.

    The received gradient of a record is ``clip(g) + normal noise``, or that of ``max_norm`` or ``marvell``, whose shape
    is fitted on the messages, see ``parts.shaped``; its likelihood under a combination, times the prior (see
    ``parts.prior`` and ``parts.label_prior``), gives the combination's chance. Numbers as targets: see
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
        # Numbers that a message gives up to a region, and numbers as targets, are found from all messages at once.
        if isinstance(knowledge.schema.target, Continuous):
            return False
        binned = bool(Space.of(view.model, knowledge, self.bins).binned)
        return not (binned and self.observed and self.weights == "current" and replayable(view, knowledge))

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
        if self.observed:
            views = in_form(views, knowledge, Space.of(views[0].model, knowledge, self.bins))
            knowledge = replace(knowledge, form=views[0].model.form)
        first = views[0]
        if self.by_round(first, knowledge):
            if self.weights == "current" and knowledge.defense.bare and isinstance(view, CutView):
                # A gradient as it is tells all categories up to rounding: another one would only take time.
                views = views[:1]
            return self.of_rounds(CutRounds.of(views), knowledge, seeds)
        self._check_gradients(views)
        space = Space.of(first.model, knowledge, self.bins)
        if isinstance(knowledge.schema.target, Continuous):
            if self.weights == "about":
                raise BadInputError(
                    "how far client weights are off (weights='about') is fitted for classes, but the target "
                    f"{knowledge.schema.target.name!r} is a number; use weights='current'."
                )
            check_enumerable(space, self.most)
            return number_target_guess(views, knowledge, space, weigh=True, observed=self.observed)
        check_enumerable(space, self.most)
        generator = torch.Generator().manual_seed(seeds[0])
        return replayed_guess(views, knowledge, responder(first.model, self.closed_form), space, generator)

    def of_rounds(self, rounds: CutRounds, knowledge: CutKnowledge, seeds: Sequence[int] = (0,)) -> CutGuess:
        """Return the guess for records that were not all in the same rounds; refused where not ``by_round``."""
        first = rounds.views[0]
        if not self.by_round(first, knowledge):
            raise BadInputError(
                "numbers are found from all messages of a record at once, but the records were in different rounds; "
                "give one CutView for all records that were in the same."
            )
        self._check_gradients(rounds.views)
        space = Space.of(first.model, knowledge, self.bins)
        if self.observed:
            rounds = replace(rounds, views=tuple(in_form(rounds.views, knowledge, space)))
            first = rounds.views[0]
        generator = torch.Generator().manual_seed(seeds[0])
        if not self.observed and space.configurations > self.most:
            return self._sampled(rounds, knowledge, space, generator, seeds[0])
        check_enumerable(space, self.most)
        guess = self._guess(first, knowledge, space, self._gathered(rounds, knowledge, space, seeds[0]))
        if self.observed or not space.binned:
            return guess
        # Bins are coarser than what is believed beforehand.
        return replace(guess, cells=_with_numbers(rounds, knowledge, guess.cells, generator))

    def _check_gradients(self, views: Sequence[CutView]) -> None:
        for view in views if self.observed else ():
            check_gradient(view)

    def _gathered(self, rounds: CutRounds, knowledge: CutKnowledge, space: Space, seed: int) -> _Gathered:
        """Return the chances of all combinations, a block of records after the other."""
        first, defense = rounds.views[0], knowledge.defense
        prior = CellPrior.of(first.model, knowledge, space, rounds.features)
        classes = LabelPrior.of(first.model, knowledge, space, rounds.features, seed)
        gathered = _Gathered(space, rounds.records)
        width = width_of(first.model)
        candidates = max(1, min(space.size, _AT_ONCE // width))
        together = max(1, _AT_ONCE // (width * candidates))
        block = max(together, _AT_ONCE // (candidates * space.labels))
        masked = [
            training_log_likelihood(view, knowledge, space, torch.Generator().manual_seed(seed))[0]
            if self.observed and view.model.form.training
            else None
            for view in rounds.views
        ]
        responders = [responder(view.model, self.closed_form) for view in rounds.views]
        fitted = [
            self._fitted(view, respond, space, prior.rows(rows), classes.rows(rows), defense) if self.observed else None
            for view, respond, rows in zip(rounds.views, responders, rounds.rows, strict=True)
        ]
        for start in range(0, rounds.records, block):
            some = slice(start, min(start + block, rounds.records))
            # Places, in each round, of the records of the block.
            inside = [((rows >= some.start) & (rows < some.stop)).nonzero()[:, 0] for rows in rounds.rows]
            believed = prior.rows(some)
            for chunk in space.chunks(candidates):
                codes = space.codes(chunk)
                cells = space.of_codes(codes).to(first.cut)
                total = believed.of_places(space, chunk)[..., None].repeat(1, 1, space.labels)
                predicted = torch.zeros_like(total)
                for k, view in enumerate(rounds.views):
                    if not len(inside[k]):
                        continue
                    respond = responders[k]
                    table = respond.of_cells(cells)
                    for at in inside[k].split(together):
                        records, newest = respond.of_cut(view.cut[at]), rounds.newest[k][at]
                        row = rounds.rows[k][at] - start
                        if bool(newest.any()):
                            outputs = respond.outputs(records.at(newest).across(), table)
                            chances = classes.rows(rounds.rows[k][at][newest]).trained(outputs, codes)
                            predicted[row[newest]] = chances
                            total[row[newest]] += chances.log()
                        averaged = masked[k]
                        if averaged is not None:
                            total[row] += averaged[at][:, chunk]
                        elif self.observed:
                            answer = respond.responses(records.across(), table)
                            total[row] += _weighed(fitted[k], answer, view, at, defense)
                gathered.add(some, chunk, total, _unflipped(predicted, defense.flip))
        return gathered

    def _fitted(
        self, view: CutView, respond: Responder, space: Space, prior: CellPrior, classes: LabelPrior, defense: KnownCut
    ) -> Fitted | None:
        """Return the noise or the mismatch that is fitted on the messages; None where nothing is fitted."""
        if self.weights == "about":
            return Mismatch.fit(view, respond, space, prior, defense)
        if defense.shaped == "max_norm":
            return AlongGradient.fit(view)
        return None if defense.shaped is None else AlongDifference.fit(view, respond, space, prior, classes)

    def _sampled(
        self, rounds: CutRounds, knowledge: CutKnowledge, space: Space, generator: torch.Generator, seed: int
    ) -> CutGuess:
        """Return the prior's guess in a space too large to enumerate; label chances are from samples."""
        # The standard error of a label's chance is at most 0.5 / sqrt(1,024), about 1.6 percentage points.
        model = rounds.views[0].model
        prior = CellPrior.of(model, knowledge, space, rounds.features)
        classes = LabelPrior.of(model, knowledge, space, rounds.features, seed)
        chances = tuple(column.softmax(1) for column in prior.columns)
        codes = torch.stack(
            [chance.multinomial(_SAMPLES, replacement=True, generator=generator) for chance in chances], dim=2
        )
        true = torch.zeros(rounds.records, space.labels, dtype=torch.float64)
        for view, rows, newest in zip(rounds.views, rounds.rows, rounds.newest, strict=True):
            respond = responder(view.model)
            for at in newest.nonzero()[:, 0].tolist():
                r = int(rows[at])
                table = respond.of_cells(space.of_codes(codes[r]).to(view.cut))
                outputs = respond.outputs(respond.of_cut(view.cut[at : at + 1]).across(), table)
                predicted = classes.rows(slice(r, r + 1)).trained(outputs, codes[r])
                unflipped = _unflipped(predicted, knowledge.defense.flip)
                true[r] = (predicted[..., None] * unflipped).sum(2).mean(1)[0]
        cells = _with_numbers(rounds, knowledge, decided(model, knowledge, space, chances), generator)
        return CutGuess(cells, true.argmax(1).double(), chances=chances, label_chances=true)

    def _guess(self, view: CutView, knowledge: CutKnowledge, space: Space, gathered: _Gathered) -> CutGuess:
        chances = tuple(column / column.sum(1, keepdim=True) for column in gathered.columns)
        true = gathered.labels / gathered.labels.sum(1, keepdim=True)
        if self.decision == "joint":
            cells = view.model.unscaled(space.of_codes(space.codes(gathered.place)), view.model.private)
        else:
            cells = decided(view.model, knowledge, space, chances)
        return CutGuess(cells, true.argmax(1).double(), chances=chances, label_chances=true)


def _weighed(
    noise: Fitted | None, answer: tuple[Tensor, Tensor], view: CutView, at: Int[Tensor, " record"], defense: KnownCut
) -> Float[Tensor, "record place label"]:
    """Return the log-likelihood of some of a round's messages under each combination, up to a constant a record."""
    if isinstance(noise, Mismatch):
        return noise.log_likelihood(*answer, view.of(at))
    candidates, received = candidate_gradients(view.model, *answer), view.own_gradient[at]
    if noise is None:
        form = view.model.form
        if form.scale_of == "record":
            candidates = candidates * factors(candidates, received[:, None, None])[..., None]
        return _log_likelihood(candidates, received, defense, view.clip, spread(view)[at])
    return noise.log_likelihood(candidates, received, at)


def _with_numbers(
    rounds: CutRounds, knowledge: CutKnowledge, cells: Float[Tensor, "record private"], generator: torch.Generator
) -> Float[Tensor, "record private"]:
    """Return cells whose numbers are the prior's likeliest."""
    model, cells = rounds.views[0].model, cells.clone()
    numbers = numbers_of(model)
    if numbers:
        drawn = prior_samples(NumberPrior.of(model, knowledge, rounds.features), rounds.records, generator)
        cells[:, numbers] = model.unscaled(likeliest_numbers(model, drawn), [model.private[i] for i in numbers])
    return cells


class _Gathered:
    """Sums of chances over all combinations that were added, up to a factor for each record."""

    def __init__(self, space: Space, records: int) -> None:
        self._space = space
        self._largest = torch.full((records,), -torch.inf, dtype=torch.float64)
        self.columns = [torch.zeros(records, width, dtype=torch.float64) for width in space.widths]
        self.labels = torch.zeros(records, space.labels, dtype=torch.float64)
        self.place = torch.zeros(records, dtype=torch.long)

    def add(
        self,
        some: slice,
        places: Int[Tensor, " place"],
        chances: Float[Tensor, "record place label"],
        unflipped: Float[Tensor, "record place label true"],
    ) -> None:
        """Add combinations, with the log of their chance for each label that clients train with."""
        flat = chances.flatten(1)
        highest, at = flat.max(1)
        # A copy: the view would change with the update below.
        before = self._largest[some].clone()
        largest = torch.maximum(before, highest)
        self.place[some] = torch.where(highest > before, places[at // self._space.labels], self.place[some])
        self._largest[some] = largest
        keep = torch.exp(before - largest)[:, None]
        weights = torch.exp(chances - largest[:, None, None])
        self.labels[some] = self.labels[some] * keep + (weights[..., None] * unflipped).sum((1, 2))
        combined, codes = weights.sum(2), self._space.codes(places)
        for k, column in enumerate(self.columns):
            column[some] = (column[some] * keep).index_add(1, codes[:, k], combined)


def _unflipped(predicted: Float[Tensor, "record place label"], flip: float) -> Float[Tensor, "record place label true"]:
    """Return the chance of each true label given the one that a client trains with."""
    classes = predicted.shape[-1]
    same = torch.eye(classes, dtype=predicted.dtype)
    if flip == 0:
        return same.expand(*predicted.shape, classes)
    channel = same * (1 - flip) + (1 - same) * flip / (classes - 1)
    joint = channel * honest(predicted, flip)[..., None, :]
    return joint / joint.sum(-1, keepdim=True)


def _log_likelihood(
    candidates: Float[Tensor, "record place label cut"],
    received: Float[Tensor, "record cut"],
    defense: KnownCut,
    clip: float | None,
    rounded: Float[Tensor, " record"],
) -> Float[Tensor, "record place label"]:
    """Return the log-density of the received gradients under each combination, up to a constant a record."""
    sent = message_of(defense, clip)
    means = candidates if sent is None else sent(candidates)
    size = torch.linalg.vector_norm(received, dim=1)[:, None, None]
    squared = (means - received[:, None, None]).square().sum(-1).double()
    if defense.own_norm:
        # The bound is half of the record's norm, and noise is in units of it.
        deviation = defense.noise_multiplier * torch.linalg.vector_norm(means, dim=-1)
    elif defense.clips:
        deviation = torch.full_like(size, defense.noise_multiplier * bound_of(defense, clip))
    else:
        deviation = torch.zeros_like(size)
    variance = deviation.square().double() + rounded.square().double()[:, None, None]
    return (-squared / (2 * variance) - candidates.shape[-1] / 2 * variance.log()).cpu()
