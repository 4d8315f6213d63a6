"""The learned prior with any likelihood over listed combinations: the chance of every cell and label.

All chances ``p(x | u) p(y | x, u) prod_k p(g_k | x, y)`` are added up for each value of each column, a block of records
and a chunk of combinations at a time; sums are kept relative to the largest chance so far, exp(chance - largest). The
label y is the one that clients train with. Of a label t that was flipped to another one with probability q,
``p(t | y) ~ p(y | t) p(t)``, where p(t) is what the prior says of y with the flips undone.

Without messages a space may be too large to go through. Then chances of columns are the prior's, and those of labels
are means over 1,024 samples of a record: their standard error is at most 0.5 / sqrt(1,024), about 1.6 points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.split.parts.mismatch import Mismatch
from seepage.attacks.split.parts.noise import Noise, NormalNoise, RoundWithPriors
from seepage.attacks.split.parts.number_prior import NumberPrior
from seepage.attacks.split.parts.numbers import likeliest_numbers, number_places
from seepage.attacks.split.parts.prior import CellPrior, LabelPrior, decided, honest
from seepage.attacks.split.parts.problem import CutProblem, Likelihood
from seepage.attacks.split.parts.responder import width_of
from seepage.attacks.split.parts.shaped import AlongDifference, AlongGradient
from seepage.attacks.split.parts.space import Space, check_enumerable
from seepage.attacks.split.parts.training import TrainingNoise
from seepage.wire.split import CutGuess

Decision = Literal["columns", "joint"]
Weights = Literal["current", "about"]

_SAMPLES = 1024  # samples of a record where a space is too large to go through
_AT_ONCE = 2**21  # numbers in memory at once
# By the name of the defense whose noise follows from the gradients of a batch.
_SHAPED: dict[str | None, type[Noise]] = {None: NormalNoise, "max_norm": AlongGradient, "marvell": AlongDifference}


@dataclass(frozen=True)
class Chances(Likelihood):
    """Bayes' rule over all combinations; see ``Posterior`` for the arguments."""

    decision: Decision
    observed: bool
    weights: Weights
    most: int

    def applies(self, problem: CutProblem) -> bool:
        """Return that any messages tell of the chances of combinations."""
        return True

    def guess(self, problem: CutProblem) -> CutGuess:
        """Return the likeliest values with the chances of all."""
        rounds, knowledge, space, model = problem.rounds, problem.knowledge, problem.space, problem.first.model
        generator, listed = problem.generator(), self.observed or space.configurations <= self.most
        if listed:
            check_enumerable(space, self.most)
        cell_prior = CellPrior.of(model, knowledge, space, rounds.features)
        label_prior = LabelPrior.of(model, knowledge, space, rounds.features, problem.seed)
        place = None
        if listed:
            sums = self._sums_of_chances(problem, cell_prior, label_prior)
            chances = tuple(column / column.sum(1, keepdim=True) for column in sums.columns)
            labels, place = sums.labels / sums.labels.sum(1, keepdim=True), sums.place
        else:
            chances = tuple(column.softmax(1) for column in cell_prior.columns)
            labels = _sampled_label_chances(problem, chances, label_prior, generator)
        cells = decided(model, knowledge, space, chances)
        if place is not None and self.decision == "joint":
            cells = model.unscaled(space.cells(place), model.private)
        # Bins are coarser than what is believed beforehand.
        numbers = number_places(model) if not self.observed and (space.binned or not listed) else []
        if numbers:
            drawn = NumberPrior.of(model, knowledge, rounds.features).samples(rounds.records, generator)
            cells[:, numbers] = model.unscaled(likeliest_numbers(model, drawn), [model.private[i] for i in numbers])
        return CutGuess(cells, labels.argmax(1).double(), chances=chances, label_chances=labels)

    def _sums_of_chances(self, problem: CutProblem, cell_prior: CellPrior, label_prior: LabelPrior) -> _Sums:
        """Return the sums of the chances of all combinations, a block of records after the other."""
        rounds, knowledge, space = problem.rounds, problem.knowledge, problem.space
        sums, width = _Sums(space, rounds.records), width_of(problem.first.model)
        candidates = max(1, min(space.size, _AT_ONCE // width))
        together = max(1, _AT_ONCE // (width * candidates))
        block = max(together, _AT_ONCE // (candidates * space.labels))
        responders = [problem.responder(view) for view in rounds.views]
        noises: list[Noise] = []
        for view, respond, rows in zip(rounds.views, responders, rounds.rows, strict=True):
            prior = cell_prior.rows(rows), label_prior.rows(rows)
            if self.observed:
                messages = RoundWithPriors(view, respond, space, knowledge, *prior, problem.seed)
                noises.append(self._noise(messages).fit(messages))
        for start in range(0, rounds.records, block):
            span = slice(start, min(start + block, rounds.records))
            # Places, in each round, of the records of the block.
            inside = [((rows >= span.start) & (rows < span.stop)).nonzero()[:, 0] for rows in rounds.rows]
            believed = cell_prior.rows(span)
            for chunk in space.chunks(candidates):
                codes = space.codes(chunk)
                cells = space.of_codes(codes).to(problem.first.cut)
                total = believed.of_places(space, chunk)[..., None].repeat(1, 1, space.labels)
                predicted = torch.zeros_like(total)
                for k in (k for k, among in enumerate(inside) if len(among)):
                    respond, rows = responders[k], rounds.rows[k]
                    table = respond.of_cells(cells)
                    for positions in inside[k].split(together):
                        records, newest = respond.of_cut(rounds.views[k].cut[positions]), rounds.newest[k][positions]
                        row = rows[positions] - start
                        if bool(newest.any()):
                            outputs = respond.outputs(records.rows(newest).across(), table)
                            chances = label_prior.rows(rows[positions][newest]).trained(outputs, codes)
                            predicted[row[newest]] = chances
                            total[row[newest]] += chances.log()
                        if self.observed:
                            answer = partial(respond.responses, records.across(), table)
                            total[row] += noises[k].log_density(answer, positions, chunk)
                sums.add(span, chunk, total, _unflipped(predicted, knowledge.defense.flip))
        return sums

    def _noise(self, messages: RoundWithPriors) -> type[Noise]:
        if self.weights == "about":
            return Mismatch
        return TrainingNoise if messages.view.model.form.training else _SHAPED[messages.knowledge.defense.shaped]


def _sampled_label_chances(
    problem: CutProblem, chances: tuple[Tensor, ...], label_prior: LabelPrior, generator: torch.Generator
) -> Float[Tensor, "record label"]:
    """Return the chances of labels, from samples of the private columns."""
    rounds, space = problem.rounds, problem.space
    codes = torch.stack(
        [chance.multinomial(_SAMPLES, replacement=True, generator=generator) for chance in chances], dim=2
    )
    labels = torch.zeros(rounds.records, space.labels, dtype=torch.float64)
    for view, rows, newest in zip(rounds.views, rounds.rows, rounds.newest, strict=True):
        respond = problem.responder(view)
        for position in newest.nonzero()[:, 0].tolist():
            r = int(rows[position])
            table = respond.of_cells(space.of_codes(codes[r]).to(view.cut))
            outputs = respond.outputs(respond.of_cut(view.cut[position : position + 1]).across(), table)
            predicted = label_prior.rows(slice(r, r + 1)).trained(outputs, codes[r])
            unflipped = _unflipped(predicted, problem.knowledge.defense.flip)
            labels[r] = (predicted[..., None] * unflipped).sum(2).mean(1)[0]
    return labels


class _Sums:
    """Sums of chances over all combinations that were added, up to a factor for each record."""

    def __init__(self, space: Space, records: int) -> None:
        self._space = space
        self._largest = torch.full((records,), -torch.inf, dtype=torch.float64)
        self.columns = [torch.zeros(records, width, dtype=torch.float64) for width in space.widths]
        self.labels = torch.zeros(records, space.labels, dtype=torch.float64)
        self.place = torch.zeros(records, dtype=torch.long)  # likeliest combination

    def add(
        self,
        records: slice,
        places: Int[Tensor, " place"],
        chances: Float[Tensor, "record place label"],
        unflipped: Float[Tensor, "record place label true"],
    ) -> None:
        """Add combinations, with the log of their chance for each label that clients train with."""
        highest, index = chances.flatten(1).max(1)
        # A copy: the view would change with the update below.
        before = self._largest[records].clone()
        largest = torch.maximum(before, highest)
        self.place[records] = torch.where(highest > before, places[index // self._space.labels], self.place[records])
        self._largest[records] = largest
        keep = torch.exp(before - largest)[:, None]
        weights = torch.exp(chances - largest[:, None, None])
        self.labels[records] = self.labels[records] * keep + (weights[..., None] * unflipped).sum((1, 2))
        combined, codes = weights.sum(2), self._space.codes(places)
        for k, column in enumerate(self.columns):
            column[records] = (column[records] * keep).index_add(1, codes[:, k], combined)


def _unflipped(predicted: Float[Tensor, "record place label"], flip: float) -> Float[Tensor, "record place label true"]:
    """Return the chance of each true label given the one that a client trains with."""
    classes = predicted.shape[-1]
    same = torch.eye(classes, dtype=predicted.dtype)
    if flip == 0:
        return same.expand(*predicted.shape, classes)
    channel = same * (1 - flip) + (1 - same) * flip / (classes - 1)
    joint = channel * honest(predicted, flip)[..., None, :]
    return joint / joint.sum(-1, keepdim=True)
