"""The learned prior of the private columns and of the label, before any gradient.

Of n auxiliary rows, n_x have the combination x, and P are smoothed shares of single values. Then

    p(x | u)  ~  (n_x + w prod_k P(x_k)) / (n + w)  prod_k P(x_k | u) / P(x_k),

where P(x_k | u) is a multinomial logistic regression on the public columns u. The weight w, and by how much shares and
regressions depart from the marginals, are those under which auxiliary rows are likeliest, each without the others of
its fold. The label's p(y | x, u) is the network's own prediction, or a logistic regression on it, the public columns, a
random forest's prediction and the private columns, where that makes labels of rows that are left out likelier.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from seepage.attacks.split.parts.space import Space
from seepage.models.predictors import Floats, Shrunk, folds, forest, gains, shrunk
from seepage.models.split import SplitModel, label_chances
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.split import CutKnowledge

# Number of rows that a column's marginal may count for beside auxiliary rows, and that the product of the columns'
# shares may count for beside counted combinations.
_WEIGHTS = tuple(10.0**k for k in range(6))
_JOINT_WEIGHTS = (50.0, 200.0, 1000.0, 5000.0)
_MOST_JOINT = 2_000_000  # number of combinations above which columns are assumed independent given the public ones
_AT_ONCE = 2**22  # pairs of rows in memory at once


@dataclass(frozen=True)
class CellPrior:
    """Log-probabilities of combinations of private cells, given each record's public columns, up to a constant.

    They are ``joint``, the log of a combination's share (None where columns are independent), plus the sum of
    ``columns`` over its cells: the log of the chances of each value, relative to its share with a joint distribution.
    """

    columns: tuple[Float[Tensor, "record _value"], ...]
    joint: Float[Tensor, " combination"] | None

    @classmethod
    def of(
        cls, model: SplitModel, knowledge: CutKnowledge, space: Space, features: Float[Tensor, "record public"]
    ) -> CellPrior:
        """Return the prior, from unscaled public columns: without auxiliary rows, columns follow their marginals."""
        marginals = [_marginal(model, knowledge, space, k) for k in range(len(model.private))]
        auxiliary = knowledge.auxiliary
        if auxiliary is None or len(auxiliary) == 0:
            return cls(tuple(share.log().expand(len(features), -1) for share in marginals), None)
        codes = torch.stack(
            [_candidates(model, space, k, auxiliary.cells[:, i]) for k, i in enumerate(model.private)], dim=1
        )
        train_inputs = encoded(knowledge.schema, model.public, auxiliary.cells[:, list(model.public)])
        inputs = encoded(knowledge.schema, model.public, features)
        shares, relative, left_out = [], [], []
        for k, marginal in enumerate(marginals):
            share = blended(torch.bincount(codes[:, k], minlength=len(marginal)).double(), marginal).log()
            regression = shrunk(train_inputs, codes[:, k], share.expand(len(train_inputs), -1))
            shares.append(share)
            relative.append(regression.logistic.log_chances(inputs, share) - share)
            left_out.append(regression.left_out - share)
        weight = None if space.size > _MOST_JOINT else _joint_weight(codes, shares, left_out)
        if weight is None:
            return cls(tuple(log_ratio + share for log_ratio, share in zip(relative, shares, strict=True)), None)
        product = torch.ones(1, dtype=torch.float64)
        for share in shares:
            product = (product[:, None] * share.exp()).flatten()
        joint = torch.bincount(space.places(codes), minlength=space.size).double() + weight * product
        return cls(tuple(relative), (joint / joint.sum()).log())

    def of_places(self, space: Space, places: Tensor) -> Float[Tensor, "record place"]:
        """Return the log-probabilities of some combinations, for every record."""
        codes = space.codes(places)
        total = sum(column[:, codes[:, k]] for k, column in enumerate(self.columns))
        assert isinstance(total, Tensor)
        return total if self.joint is None else total + self.joint[places]

    def rows(self, records: slice | Tensor) -> CellPrior:
        """Return the prior of some of the records."""
        return CellPrior(tuple(column[records] for column in self.columns), self.joint)


def _marginal(model: SplitModel, knowledge: CutKnowledge, space: Space, k: int) -> Float[Tensor, " value"]:
    marginal = knowledge.statistics.marginals[model.private[k]]
    if isinstance(knowledge.schema.columns[model.private[k]], Discrete):
        # A value that never occurs in the statistics may still occur.
        return (marginal.probabilities + 1e-6) / (1 + 1e-6 * len(marginal.probabilities))
    if k in space.binned:
        bins = _candidates(model, space, k, marginal.values)
        share = torch.zeros(space.widths[k], dtype=torch.float64).index_add(0, bins, marginal.probabilities) + 1e-6
        return share / share.sum()
    # Each whole number has an equal part of its bin of the marginal.
    values = model.unscaled(space.values[k][:, None], [model.private[k]])[:, 0]
    bins = (torch.searchsorted(marginal.values, values.contiguous(), right=True) - 1).clamp(min=0)
    share = (marginal.probabilities / torch.bincount(bins, minlength=len(marginal.values)).clamp(min=1))[bins] + 1e-6
    return share / share.sum()


def blended(counts: Float[Tensor, " value"], shares: Float[Tensor, " value"]) -> Float[Tensor, " value"]:
    """Return shares of counted rows, smoothed towards prior shares."""
    # The prior shares weigh as many rows as make each counted row likeliest given the others.
    rows, counted = float(counts.sum()), counts > 0

    def likelihood(weight: float) -> float:
        others = (counts[counted] - 1 + weight * shares[counted]).clamp(min=1e-300) / (rows - 1 + weight)
        return float((counts[counted] * others.log()).sum())

    weight = max(_WEIGHTS, key=likelihood)
    return (counts + weight * shares) / (rows + weight)


def _joint_weight(
    codes: Int[Tensor, "row column"],
    shares: Sequence[Float[Tensor, " _value"]],
    left_out: Sequence[Float[Tensor, "row _value"]],
) -> float | None:
    """Return the number of rows that the product of shares counts for beside counted combinations."""
    # It is the one under which rows, each without the others of its fold, are likeliest; None where counted
    # combinations add nothing. Shares are logarithms, and ``left_out`` those of chances relative to them without it.
    rows, columns = codes.shape
    if columns == 1:
        return None
    fold = folds(rows)
    alone = torch.stack([share[codes[:, k]] for k, share in enumerate(shares)]).sum(0)
    gained = {weight: torch.empty(rows, dtype=torch.float64) for weight in _JOINT_WEIGHTS}
    for block in torch.arange(rows).split(max(1, _AT_ONCE // rows)):
        ratio = torch.stack([log_ratios[block][:, codes[:, k]] for k, log_ratios in enumerate(left_out)]).sum(0).exp()
        others = fold[block, None] != fold
        same = (codes[block, None] == codes).all(2) & others
        total, equal = (ratio * others).sum(1), same.sum(1)
        for weight, gain in gained.items():
            gain[block] = (equal / alone[block].exp() + weight).log() - (total + weight).log()
    weight = max(gained, key=lambda candidate: float(gained[candidate].mean()))
    return weight if gains(gained[weight]) else None


def _candidates(model: SplitModel, space: Space, k: int, values: Float[Tensor, " some"]) -> Int[Tensor, " some"]:
    """Return the candidate of a private column that is nearest to each of some values, unscaled."""
    row = torch.zeros(len(values), len(model.schema.columns), dtype=torch.float64)
    row[:, model.private[k]] = values
    cells = model.scaled(row, [model.private[k]])[:, 0].cpu()
    return (cells[:, None] - space.values[k].to(cells)).abs().argmin(1)


def encoded(schema: Schema, columns: tuple[int, ...], cells: Float[Tensor, "row column"]) -> Float[Tensor, "row input"]:
    """Return columns as a classifier takes them: categories one-hot, numbers scaled to [-1, 1]."""
    parts = []
    for k, i in enumerate(columns):
        column = schema.columns[i]
        if isinstance(column, Discrete):
            parts.append(functional.one_hot(cells[:, k].long(), column.width).float())
        else:
            middle, half = (column.high + column.low) / 2, max((column.high - column.low) / 2, 1e-12)
            parts.append(((cells[:, k : k + 1] - middle) / half).float())
    return torch.cat(parts, dim=1)


def decided(
    model: SplitModel, knowledge: CutKnowledge, space: Space, chances: Sequence[Float[Tensor, "record _value"]]
) -> Float[Tensor, "record private"]:
    """Return the cells that are most often right, unscaled: numbers are within the column's tolerance."""
    cells = []
    for k, chance in enumerate(chances):
        i = model.private[k]
        column, marginal = knowledge.schema.columns[i], knowledge.statistics.marginals[i]
        if isinstance(column, Discrete):
            cells.append(chance.argmax(1).double())
            continue
        if k in space.binned:
            # Within a bin, numbers have the shares of the column's marginal.
            values, bins = marginal.values, _candidates(model, space, k, marginal.values)
            share = torch.zeros(space.widths[k], dtype=torch.float64).index_add(0, bins, marginal.probabilities)
            chance = chance[:, bins] * (marginal.probabilities / share[bins])
        else:
            values = model.unscaled(space.values[k][:, None], [i])[:, 0]
        near = ((values[:, None] - values).abs() <= column.tolerance).to(chance.dtype)
        # Among equally good ones the likeliest itself.
        cells.append(values[(chance @ near + 1e-9 * chance).argmax(1)])
    return torch.stack(cells, dim=1)


# Least chance, and the same for what a forest says.
_LEAST, _LEAST_OF_FOREST = 1e-12, 0.01


@dataclass(frozen=True)
class LabelPrior:
    """Chances of the classes of records, given outputs of the network for combinations of private cells."""

    model: SplitModel
    flip: float  # probability that a label is flipped before clients train with it
    regression: Shrunk | None = None  # on the prediction and columns; None where it stands as it is
    before: Float[Tensor, " label"] | None = None  # log-chances to which scores are added; None: the prediction's
    records: Float[Tensor, "record label"] | None = None  # scores of each record's own columns
    columns: tuple[Float[Tensor, "_value label"], ...] = ()  # scores of each private column's values; may be empty

    @classmethod
    def of(
        cls,
        model: SplitModel,
        knowledge: CutKnowledge,
        space: Space,
        features: Float[Tensor, "record public"],
        seed: int,
    ) -> LabelPrior:
        """Return the prior, from unscaled public columns: without auxiliary rows, the network's own prediction.

        With them, it is what makes the labels of rows that are left out likeliest: the prediction, the shares of the
        classes, or a logistic regression from the better of the two on the prediction, the server's own columns, a
        random forest's prediction from these, and the private columns, each beside those before. The shares, and then
        the regression, are taken where they add to that likelihood by more than its standard error.
        """
        as_it_is, rows = cls(model, knowledge.defense.flip), knowledge.auxiliary
        if rows is None or len(rows) == 0:
            return as_it_is
        schema, classes, labels = knowledge.schema, space.labels, rows.labels.long()
        network = honest(label_chances(model.head, model.answers(rows.cells)).cpu().double(), as_it_is.flip).log()
        share = blended(functional.one_hot(labels, classes).sum(0).double(), shares_of(knowledge)).log()
        train_inputs = encoded(schema, model.public, rows.cells[:, list(model.public)])
        inputs = encoded(schema, model.public, features)
        out_of_bag, predicted = _forest_log_chances(train_inputs, labels, inputs, classes, seed)
        private = [encoded(schema, (i,), rows.cells[:, [i]]) for i in model.private]
        groups = [network, train_inputs, out_of_bag, torch.cat(private, dim=1)]

        def reached(log_chances: Tensor) -> Float[Tensor, " row"]:
            return log_chances.gather(1, labels[:, None])[:, 0]

        everyone = share.expand(len(labels), -1)
        plain = gains(reached(everyone) - reached(network))
        nothing = shrunk(network[:, :0], labels, everyone)
        best, likelihood = (cls(model, as_it_is.flip, nothing, share), everyone) if plain else (as_it_is, network)
        default, read = likelihood, 0
        for number in range(1, len(groups) + 1):
            candidate = shrunk(torch.cat(groups[:number], dim=1).double(), labels, default)
            if reached(candidate.left_out).mean() > reached(likelihood).mean():
                best = cls(model, as_it_is.flip, candidate, best.before)
                likelihood, read = candidate.left_out, number
        if best.regression is None or not read:
            return best
        regression, first = best.regression.logistic, classes
        records = torch.zeros(len(features), classes, dtype=torch.float64)
        for group in (inputs, predicted)[: read - 1]:
            records = records + regression.scores(group, first)
            first += group.shape[1]
        columns = []
        for k, i in enumerate(model.private if read == len(groups) else ()):
            values = encoded(schema, (i,), model.unscaled(space.values[k][:, None], [i]))
            columns.append(regression.scores(values, first))
            first += values.shape[1]
        return cls(model, best.flip, best.regression, best.before, records, tuple(columns))

    def rows(self, which: slice | Int[Tensor, " row"]) -> LabelPrior:
        """Return the prior of some of the records."""
        return self if self.records is None else replace(self, records=self.records[which])

    def trained(
        self, outputs: Float[Tensor, "record place output"], codes: Int[Tensor, "place column"]
    ) -> Float[Tensor, "record place label"]:
        """Return the chance of each label that clients train with, flipped ones included."""
        predicted = label_chances(self.model.head, outputs).cpu().double()
        if self.regression is None:
            return predicted.clamp(min=_LEAST)
        network = honest(predicted, self.flip).log()
        scores = (network if self.before is None else self.before) + self.regression.logistic.bias
        if self.records is not None:
            scores = scores + self.regression.logistic.scores(network) + self.records[:, None]
        for k, column in enumerate(self.columns):
            scores = scores + column[codes[:, k]]
        chances = scores.softmax(-1).expand_as(predicted)
        other = self.flip / (chances.shape[-1] - 1)
        return (chances * (1 - self.flip) + (1 - chances) * other).clamp(min=_LEAST)


def honest(predicted: Float[Tensor, "*some label"], flip: float) -> Float[Tensor, "*some label"]:
    """Return the chance of each true label, given that of each label that clients train with."""
    other = flip / (predicted.shape[-1] - 1)
    return ((predicted - other) / (1 - flip - other)).clamp(min=_LEAST)


def shares_of(knowledge: CutKnowledge) -> Float[Tensor, " label"]:
    """Return the share of each label, none of which is zero."""
    share = knowledge.statistics.target.probabilities + 1e-6
    return share / share.sum()


def _forest_log_chances(
    train_inputs: Tensor, labels: Int[Tensor, " row"], inputs: Tensor, classes: int, seed: int
) -> tuple[Float[Tensor, "row label"], Float[Tensor, "record label"]]:
    """Return the log-chances of a random forest: for rows out of bag, and for records."""
    values = functional.one_hot(labels, classes)
    rows = tuple(np.ascontiguousarray(array.double()) for array in (train_inputs, values, inputs))
    digest = b"".join(hashlib.blake2b(row.tobytes()).digest() + str(row.shape).encode() for row in rows)
    chances = _grown_forest(_Fitted(digest, rows, seed % 2**32))
    first, second = ((torch.from_numpy(chance) + _LEAST_OF_FOREST / classes).log() for chance in chances)
    return first, second


@dataclass(frozen=True)
class _Fitted:
    """Training and query rows of a forest, compared by their digest."""

    digest: bytes
    rows: tuple[Floats, ...] = field(compare=False)
    seed: int


# An attack and the baseline of the same knowledge ask for the same forest.
@functools.lru_cache(maxsize=2)
def _grown_forest(given: _Fitted) -> tuple[Floats, Floats]:
    train_inputs, values, inputs = given.rows
    return forest(train_inputs, values, inputs, given.seed, True)
