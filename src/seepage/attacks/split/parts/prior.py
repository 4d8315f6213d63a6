"""The attacker's prior of the private columns, before any gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from seepage.attacks.split.parts.space import Space
from seepage.models.split import SplitModel
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.split import Auxiliary, CutKnowledge

# Weight of the product of the columns' shares in the joint distribution, in rows.
_WEIGHT = 50.0
# Weight of the squared coefficients in a classifier's loss, per row.
_RIDGE = 1e-3
# Number of combinations above which columns are assumed independent given the public ones.
_MOST_JOINT = 2_000_000


@dataclass(frozen=True)
class CellPrior:
    """Log-probabilities of combinations of private cells, given each record's public columns.

    A combination's log-probability is ``joint`` plus the sum of ``columns`` over its cells, up to a constant a record.

    Attributes:
        columns: log of the chances of each private column's values, relative to the column's shares with a joint
            distribution.
        joint: log of the share of each combination; None where columns are independent.
    """

    columns: tuple[Float[Tensor, "record _value"], ...]
    joint: Float[Tensor, " combination"] | None

    @classmethod
    def of(
        cls, model: SplitModel, knowledge: CutKnowledge, space: Space, features: Float[Tensor, "record public"]
    ) -> CellPrior:
        """Return the prior.

        Without auxiliary rows, columns follow their marginals independently. With them, the prior is the joint
        share of each combination among these rows (smoothed towards the product of the shares) times, for each
        column, ``P(value | public columns) / P(value)`` by a multinomial logistic regression on the public columns.

        Args:
            model: model with the private columns.
            knowledge: side information with marginals and auxiliary rows.
            space: space of the combinations.
            features: public columns of the records, unscaled.
        """
        auxiliary = knowledge.auxiliary
        if auxiliary is None or len(auxiliary) == 0:
            shares = [_marginal(model, knowledge, space, k) for k in range(len(model.private))]
            return cls(tuple(share.log().expand(len(features), -1) for share in shares), None)
        codes = torch.stack([_nearest(model, space, k, auxiliary) for k in range(len(model.private))], dim=1)
        counts = [torch.bincount(codes[:, k], minlength=w).double() for k, w in enumerate(space.widths)]
        shares = [(count + 1) / (count.sum() + len(count)) for count in counts]
        known = encoded(knowledge.schema, model.public, auxiliary.cells[:, list(model.public)])
        asked = encoded(knowledge.schema, model.public, features)
        columns = []
        for k, share in enumerate(shares):
            columns.append(classified(known, codes[:, k], asked, share))
        if space.size > _MOST_JOINT:
            return cls(tuple(columns), None)
        product = torch.ones(1, dtype=torch.float64)
        for share in shares:
            product = (product[:, None] * share).flatten()
        joint = torch.bincount(space.places(codes), minlength=space.size).double() + _WEIGHT * product
        relative = tuple(column - share.log() for column, share in zip(columns, shares, strict=True))
        return cls(relative, (joint / joint.sum()).log())

    def of_places(self, space: Space, places: Tensor) -> Float[Tensor, "record place"]:
        """Return the log-probabilities of some combinations, for every record."""
        codes = space.codes(places)
        total = sum(column[:, codes[:, k]] for k, column in enumerate(self.columns))
        assert isinstance(total, Tensor)
        return total if self.joint is None else total + self.joint[places]

    def rows(self, some: slice | Tensor) -> CellPrior:
        """Return the prior of some of the records."""
        return CellPrior(tuple(column[some] for column in self.columns), self.joint)


def _marginal(model: SplitModel, knowledge: CutKnowledge, space: Space, k: int) -> Float[Tensor, " value"]:
    marginal = knowledge.statistics.marginals[model.private[k]]
    if isinstance(knowledge.schema.columns[model.private[k]], Discrete):
        # A value that never occurs in the statistics may still occur.
        return (marginal.probabilities + 1e-6) / (1 + 1e-6 * len(marginal.probabilities))
    if k in space.binned:
        return torch.full((len(space.values[k]),), 1 / len(space.values[k]), dtype=torch.float64)
    # Each whole number has an equal part of its bin of the marginal.
    values = model.unscaled(space.values[k][:, None], [model.private[k]])[:, 0]
    at = (torch.searchsorted(marginal.values, values.contiguous(), right=True) - 1).clamp(min=0)
    share = (marginal.probabilities / torch.bincount(at, minlength=len(marginal.values)).clamp(min=1))[at] + 1e-6
    return share / share.sum()


def _nearest(model: SplitModel, space: Space, k: int, auxiliary: Auxiliary) -> Tensor:
    """Return the candidate of a private column that is nearest to each auxiliary row's cell."""
    cells = model.scaled(auxiliary.cells, [model.private[k]])[:, 0].cpu()
    values = space.values[k].to(cells)
    return (cells[:, None] - values).abs().argmin(1)


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


def classified(
    known: Tensor, codes: Tensor, asked: Tensor, share: Float[Tensor, " value"]
) -> Float[Tensor, "record value"]:
    """Return the log of a column's chances given public columns, by multinomial logistic regression."""
    center, spread = known.mean(0), known.std(0).clamp(min=1e-3)
    known, asked = (known - center) / spread, ((asked - center) / spread).clamp(-5, 5)
    weight = torch.zeros(known.shape[1], len(share), requires_grad=True)
    bias = share.log().float().requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(known @ weight + bias, codes) + _RIDGE * weight.square().sum()
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    with torch.no_grad():
        return (asked @ weight + bias).double().log_softmax(1)


def decided(model: SplitModel, space: Space, k: int, chances: Float[Tensor, "record value"]) -> Int[Tensor, " record"]:
    """Return the value of a column that is most often right: numbers are within the column's tolerance.

    Args:
        model: model with the private columns.
        space: space of their values.
        k: position of the column among the private ones.
        chances: chance of each value.
    """
    column = model.schema.columns[model.private[k]]
    if isinstance(column, Discrete):
        return chances.argmax(1)
    values, within = space.values[k].double(), column.tolerance / (column.high - column.low or 1.0)
    near = ((values[:, None] - values).abs() <= within).to(chances.dtype)
    # Among equally good ones the likeliest itself.
    return (chances @ near + 1e-9 * chances).argmax(1)
