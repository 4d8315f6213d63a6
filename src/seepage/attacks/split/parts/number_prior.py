"""The learned prior of private numbers: densities given each record's public columns, constant within bins.

A number falls into bins with about equally many auxiliary rows; values that occur often have bins of their own. Its
chance of a bin is that of ``prior.CellPrior``: counted shares, smoothed towards the marginal, times what a regression
on the public columns says. Columns are independent of each other given these. Within a bin [e, e'] with chance c the
density is ``c / (e' - e)``, so that draws from any interval follow from uniform ones by the inverse of the cumulative
chance, which is a straight line within each bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.split.parts.prior import blended, encoded
from seepage.models.predictors import shrunk
from seepage.models.split import SplitModel
from seepage.tabular.schema import Continuous
from seepage.tabular.statistics import Marginal
from seepage.wire.split import CutKnowledge

CHAINS = 16  # chains of samples of a record
# Bins of a number's prior, and share of rows from which a value gets a bin of its own.
_BINS, _HEAP = 32, 1 / 64
_NARROW = 1e-6  # width of the bin of one value, where values are not whole numbers, relative to the column's range


@dataclass(frozen=True)
class NumberPrior:
    """Densities of private numbers given each record's public columns: constant within bins, columns independent."""

    edges: tuple[Float[Tensor, " _edge"], ...]  # edges of each column's bins, scaled
    chances: tuple[Float[Tensor, "record _bin"], ...]

    @classmethod
    def of(cls, model: SplitModel, knowledge: CutKnowledge, features: Float[Tensor, "record public"]) -> NumberPrior:
        """Return the prior: from auxiliary rows where there are some, otherwise from the marginals."""
        auxiliary, columns = knowledge.auxiliary, knowledge.schema.columns
        edges, chances = [], []
        train_inputs = inputs = torch.empty(0)
        if auxiliary is not None and len(auxiliary):
            train_inputs = encoded(knowledge.schema, model.public, auxiliary.cells[:, list(model.public)])
            inputs = encoded(knowledge.schema, model.public, features)
        for i in model.private:
            column = columns[i]
            if not isinstance(column, Continuous):
                continue
            if auxiliary is None or len(auxiliary) == 0:
                marginal = knowledge.statistics.marginals[i]
                whole = 1.0 if column.integer else _NARROW * (column.high - column.low)
                ends = torch.cat(
                    [marginal.values, torch.tensor([max(column.high, float(marginal.values[-1])) + whole])]
                )
                ends = ends - 0.5 if column.integer else ends
                chance = marginal.probabilities.expand(len(features), -1)
            else:
                values = auxiliary.cells[:, i]
                ends = bin_edges(values, column)
                codes = (torch.searchsorted(ends, values.contiguous(), right=True) - 1).clamp(0, len(ends) - 2)
                counts = torch.bincount(codes, minlength=len(ends) - 1).double()
                share = blended(counts, _shares_between(knowledge.statistics.marginals[i], ends)).log()
                regression = shrunk(train_inputs, codes, share.expand(len(train_inputs), -1))
                chance = regression.logistic.log_chances(inputs, share).exp()
            span = column.high - column.low or 1.0
            edges.append((ends - column.low) / span)
            chances.append(chance)
        return cls(tuple(edges), tuple(chances))

    def rows(self, records: Tensor) -> NumberPrior:
        """Return the prior of some of the records."""
        return NumberPrior(self.edges, tuple(chance[records] for chance in self.chances))

    def log_density(
        self, column: int, values: Float[Tensor, "record *chain draw"]
    ) -> Float[Tensor, "record *chain draw"]:
        """Return the log-density of values of a column; outside of all bins it is about zero."""
        edges, chances = self.edges[column], self.chances[column]
        bins = torch.searchsorted(edges, values.contiguous(), right=True) - 1
        inside = (bins >= 0) & (bins < len(edges) - 1)
        log = (chances / edges.diff()).log()
        density = log.gather(1, bins.clamp(0, len(edges) - 2).flatten(1)).view(values.shape)
        # Any value within the bounds of the column stays possible.
        return torch.where(inside, density, torch.full_like(density, -30.0))

    def between(
        self,
        column: int,
        low: Float[Tensor, "record some"],
        high: Float[Tensor, "record some"],
        uniform: Float[Tensor, "record some draw"],
    ) -> Float[Tensor, "record some draw"]:
        """Return draws of a column restricted to intervals, by quantiles of numbers in [0, 1)."""
        edges, chances = self.edges[column], self.chances[column]
        below = torch.cat([torch.zeros(len(chances), 1, dtype=chances.dtype), chances.cumsum(1)], 1)

        def cumulative(values: Tensor) -> Tensor:
            bins = (torch.searchsorted(edges, values.contiguous(), right=True) - 1).clamp(0, len(edges) - 2)
            within = ((values - edges[bins]) / edges.diff()[bins]).clamp(0, 1)
            return below.gather(1, bins) + within * chances.gather(1, bins)

        first, last = cumulative(low)[..., None], cumulative(high)[..., None]
        wanted = (first + uniform * (last - first)).flatten(1)
        bins = (torch.searchsorted(below, wanted.contiguous(), right=True) - 1).clamp(0, len(edges) - 2)
        within = ((wanted - below.gather(1, bins)) / chances.gather(1, bins).clamp(min=1e-300)).clamp(0, 1)
        draws = (edges[bins] + within * edges.diff()[bins]).view(uniform.shape)
        # Where the interval holds no chance, it is uniform.
        empty = (last - first) <= 1e-15
        draws = torch.where(empty, low[..., None] + uniform * (high - low)[..., None], draws)
        return torch.minimum(torch.maximum(draws, low[..., None]), high[..., None])

    def samples(self, records: int, generator: torch.Generator) -> Float[Tensor, "record sample number"]:
        """Return samples of the prior alone."""
        drawn = []
        for k, edges in enumerate(self.edges):
            uniform = torch.rand(records, 1, 32 * CHAINS, generator=generator, dtype=torch.float64)
            low, high = (edges[end].expand(records, 1) for end in (0, -1))
            drawn.append(self.between(k, low, high, uniform)[:, 0].clamp(0, 1))
        return torch.stack(drawn, 2)


def _shares_between(marginal: Marginal, edges: Float[Tensor, " edge"]) -> Float[Tensor, " bin"]:
    """Return the share of each bin by a column's marginal, whose values are spread evenly up to the next."""
    ends = torch.cat([marginal.values, edges[-1:].clamp(min=float(marginal.values[-1]))])
    below = torch.cat([torch.zeros(1, dtype=torch.float64), marginal.probabilities.cumsum(0)])
    intervals = (torch.searchsorted(ends, edges.contiguous(), right=True) - 1).clamp(0, len(marginal.values) - 1)
    within = ((edges - ends[intervals]) / ends.diff()[intervals].clamp(min=1e-300)).clamp(0, 1)
    share = (below[intervals] + within * marginal.probabilities[intervals]).diff() + 1e-6
    return share / share.sum()


def bin_edges(values: Float[Tensor, " row"], column: Continuous) -> Float[Tensor, " edge"]:
    """Return edges of bins with about equally many values each; values that occur often have one of their own."""
    distinct, counts = values.unique(return_counts=True)
    half = 0.5 if column.integer else _NARROW * (column.high - column.low) / 2
    heaps = distinct[counts >= _HEAP * len(values)]
    rest = values[~torch.isin(values, heaps)]
    ends = [torch.tensor([column.low - half, column.high + half], dtype=torch.float64), heaps - half, heaps + half]
    if len(rest):
        share = torch.linspace(0, 1, _BINS + 1, dtype=torch.float64)[1:-1]
        cuts = rest.quantile(share)
        ends.append(cuts.round() + 0.5 if column.integer else cuts)
    edges = torch.cat(ends).clamp(column.low - half, column.high + half).unique()
    # Edges that nearly coincide would make bins without any width.
    return edges[torch.cat([torch.tensor([True]), edges.diff() > half * 1e-3])]
