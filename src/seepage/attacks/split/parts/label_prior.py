"""The attacker's prior of a record's class given all of its columns, before any gradient."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from seepage.attacks.split.parts.prior import blended, encoded
from seepage.attacks.split.parts.space import Space
from seepage.models.label_heads import Floats, forest
from seepage.models.logistic import Shrunk, gains, shrunk
from seepage.models.split import SplitModel, label_chances
from seepage.wire.split import CutKnowledge

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
        share = blended(functional.one_hot(labels, classes).sum(0).double(), _shares(knowledge)).log()
        train_inputs = encoded(schema, model.public, rows.cells[:, list(model.public)])
        inputs = encoded(schema, model.public, features)
        seen, predicted = _by_forest(train_inputs, labels, inputs, classes, seed)
        private = [encoded(schema, (i,), rows.cells[:, [i]]) for i in model.private]
        groups = [network, train_inputs, seen, torch.cat(private, dim=1)]

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


def _shares(knowledge: CutKnowledge) -> Float[Tensor, " label"]:
    share = knowledge.statistics.target.probabilities + 1e-6
    return share / share.sum()


def _by_forest(
    train_inputs: Tensor, labels: Int[Tensor, " row"], inputs: Tensor, classes: int, seed: int
) -> tuple[Float[Tensor, "row label"], Float[Tensor, "record label"]]:
    """Return the log-chances of a random forest: for rows out of bag, and for records."""
    values = functional.one_hot(labels, classes)
    rows = tuple(np.ascontiguousarray(array.double()) for array in (train_inputs, values, inputs))
    digest = b"".join(hashlib.blake2b(row.tobytes()).digest() + str(row.shape).encode() for row in rows)
    chances = _grown(_Fitted(digest, rows, seed % 2**32))
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
def _grown(given: _Fitted) -> tuple[Floats, Floats]:
    train_inputs, values, inputs = given.rows
    return forest(train_inputs, values, inputs, given.seed, True)
