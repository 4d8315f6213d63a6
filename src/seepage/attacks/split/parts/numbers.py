"""Posterior of private numbers over all values that replay a message, given one point that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.attacks.split.parts.nearest import rounding
from seepage.attacks.split.parts.prior import blended, encoded
from seepage.models.deepfm import DeepFMClient
from seepage.models.predictors import shrunk
from seepage.models.split import SplitModel, label_chances
from seepage.tabular.schema import Continuous
from seepage.tabular.statistics import Marginal
from seepage.wire.split import CutKnowledge

# Chains of a record, proposals of a step, and steps for each column.
_CHAINS, _PROPOSALS, _STEPS = 16, 8, 48
_BURNED = 0.3  # share of steps before the first sample is kept
# Bins of a number's prior, and share of rows from which a value gets a bin of its own.
_BINS, _HEAP = 32, 1 / 64
_NARROW = 1e-6  # width of the bin of one value, where values are not whole numbers, relative to the column's range
_SLOPE = 4  # roundings of a probability's absolute value in the loss's slope
_STEP = 1e-4  # difference of a logit over which a slope is taken to be straight


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

    def rows(self, some: Tensor) -> NumberPrior:
        """Return the prior of some of the records."""
        return NumberPrior(self.edges, tuple(chance[some] for chance in self.chances))

    def log_density(
        self, column: int, values: Float[Tensor, "record *chain draw"]
    ) -> Float[Tensor, "record *chain draw"]:
        """Return the log-density of values of a column; outside of all bins it is about zero."""
        edges, chances = self.edges[column], self.chances[column]
        at = torch.searchsorted(edges, values.contiguous(), right=True) - 1
        inside = (at >= 0) & (at < len(edges) - 1)
        log = (chances / edges.diff()).log()
        density = log.gather(1, at.clamp(0, len(edges) - 2).flatten(1)).view(values.shape)
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
            at = (torch.searchsorted(edges, values.contiguous(), right=True) - 1).clamp(0, len(edges) - 2)
            within = ((values - edges[at]) / edges.diff()[at]).clamp(0, 1)
            return below.gather(1, at) + within * chances.gather(1, at)

        first, last = cumulative(low)[..., None], cumulative(high)[..., None]
        wanted = (first + uniform * (last - first)).flatten(1)
        at = (torch.searchsorted(below, wanted.contiguous(), right=True) - 1).clamp(0, len(edges) - 2)
        within = ((wanted - below.gather(1, at)) / chances.gather(1, at).clamp(min=1e-300)).clamp(0, 1)
        draws = (edges[at] + within * edges.diff()[at]).view(uniform.shape)
        # Where the interval holds no chance, it is uniform.
        empty = (last - first) <= 1e-15
        draws = torch.where(empty, low[..., None] + uniform * (high - low)[..., None], draws)
        return torch.minimum(torch.maximum(draws, low[..., None]), high[..., None])


def _shares_between(marginal: Marginal, edges: Float[Tensor, " edge"]) -> Float[Tensor, " bin"]:
    """Return the share of each bin by a column's marginal, whose values are spread evenly up to the next."""
    ends = torch.cat([marginal.values, edges[-1:].clamp(min=float(marginal.values[-1]))])
    below = torch.cat([torch.zeros(1, dtype=torch.float64), marginal.probabilities.cumsum(0)])
    at = (torch.searchsorted(ends, edges.contiguous(), right=True) - 1).clamp(0, len(marginal.values) - 1)
    within = ((edges - ends[at]) / ends.diff()[at].clamp(min=1e-300)).clamp(0, 1)
    share = (below[at] + within * marginal.probabilities[at]).diff() + 1e-6
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


@dataclass(frozen=True)
class Region:
    """All numbers of a record with the same active units and logits as a point: where the message is the same.

    ``margins + normals (numbers - point) >= 0`` for every constraint: units keep their signs, logits keep their values
    up to rounding, numbers stay within their bounds. Constraints that bind nowhere have a zero normal. Weights are
    derivatives of the logits by numbers, up to a common shift.
    """

    point: Float[Tensor, "record number"]
    normals: Float[Tensor, "record constraint number"]
    margins: Float[Tensor, "record constraint"]
    weights: Float[Tensor, "record output number"]

    @classmethod
    def of(
        cls,
        model: SplitModel,
        cut: Float[Tensor, "record cut"],
        gradient: Float[Tensor, "record cut"],
        cells: Float[Tensor, "record private"],
        labels: Int[Tensor, " record"],
    ) -> Region:
        """Return the region around cells that replay the messages of each record's own loss, in float64."""
        client = model.client
        assert isinstance(client, DeepFMClient)
        cut, cells, eps = cut.double().cpu(), cells.double().cpu(), torch.finfo(gradient.dtype).eps
        with torch.no_grad():
            units = torch.cat([cut[:, : client.inputs], client.own.embedded(cells).flatten(1).double()], 1)
            units = torch.cat([units, client.own.numbers(cells)], 1)
            records, numbers = len(cells), len(client.own.dense)
            by_number = torch.zeros(records, units.shape[1], numbers, dtype=torch.float64)
            by_number[:, -numbers:] = torch.eye(numbers, dtype=torch.float64)
            by_cut = torch.zeros(records, units.shape[1], client.inputs, dtype=torch.float64)
            by_cut[:, : client.inputs] = torch.eye(client.inputs, dtype=torch.float64)
            values, slopes, reaches, signs, weights_of = [], [], [], [], []
            for layer in client.hidden:
                assert isinstance(layer, nn.Linear)
                weight, bias = layer.weight.double().cpu(), layer.bias.double().cpu()
                units = units @ weight.T + bias
                by_number, by_cut = weight @ by_number, weight @ by_cut
                on = units > 0
                weights_of.append(weight)
                values.append(units)
                slopes.append(by_number)
                reaches.append(by_cut.norm(dim=2))
                signs.append(on)
                units, by_number, by_cut = (
                    torch.where(on, units, 0),
                    torch.where(on[..., None], by_number, 0),
                    torch.where(on[..., None], by_cut, 0),
                )
            outer = client.out.weight.double().cpu()
            weights = outer @ by_number + client.own.dense_weight.double().cpu().T
            logits = model.client(cut.to(gradient), cells.to(gradient)).double().cpu()
            back = outer.expand(records, -1, -1)
            influences = []
            for k in reversed(range(len(client.hidden))):
                influences.append(back.norm(dim=1) * reaches[k])
                back = (back * signs[k][:, None]) @ weights_of[k]
        if model.head == "softmax":
            weights = weights - weights.mean(1, keepdim=True)
        chances = label_chances(model.head, logits)
        if model.head == "softmax":
            curvature = torch.diag_embed(chances) - chances[:, :, None] * chances[:, None]
            steepest = torch.linalg.eigvalsh(curvature)[:, -1]
        else:
            # Of any loss, by a difference; of cross-entropy this is the product of the chances.
            moved = [model.slopes(logits + step)[torch.arange(records), labels.cpu(), 0] for step in (-_STEP, _STEP)]
            steepest = chances.prod(1) if model.form.plain else (moved[1] - moved[0]).abs() / (2 * _STEP)
        # The same message up to rounding, of the slope and of all that it is multiplied with.
        size = gradient.double().cpu().norm(dim=1)
        slope = model.slopes(logits)[torch.arange(records), labels.cpu()].norm(dim=1)
        jacobian = size / slope.clamp(min=eps)
        within = rounding(gradient, model.form).double().cpu() / jacobian + _SLOPE * eps
        reach = (within / steepest.clamp(min=1e-300)).clamp(max=1.0)
        normals = [torch.cat(slopes, 1) * torch.where(torch.cat(signs, 1), 1.0, -1.0)[..., None]]
        margins = [torch.cat(values, 1).abs()]
        felt = (
            torch.cat(influences[::-1], 1)
            > (rounding(gradient, model.form).double().cpu() / size.clamp(min=1e-300))[:, None]
        )
        felt &= torch.cat(influences[::-1], 1) > eps * jacobian[:, None]
        normals[0] = torch.where(felt[..., None], normals[0], 0.0)
        point = cells[:, client.own.dense]
        identity = torch.eye(numbers, dtype=torch.float64).expand(records, -1, -1)
        normals += [identity, -identity, weights, -weights]
        margins += [point, 1 - point, reach[:, None].expand(-1, weights.shape[1]).repeat(1, 2)]
        normal, margin = torch.cat(normals, 1), torch.cat(margins, 1).clamp(min=0)
        # What no numbers within the bounds can break is left out, the same number of constraints for all records.
        lowest = torch.minimum(normal * (1 - point[:, None]), normal * -point[:, None]).sum(2)
        binding = margin + lowest < 0
        # The bounds themselves always bind.
        binding[:, normals[0].shape[1] : normals[0].shape[1] + 2 * numbers] = True
        count = max(1, int(binding.sum(1).max())) if records else 1
        chosen = binding.double().topk(count, dim=1).indices
        normal = torch.where(binding[..., None], normal, 0.0).gather(1, chosen[..., None].expand(-1, -1, numbers))
        return cls(point, normal, margin.gather(1, chosen), weights)

    @classmethod
    def joined(cls, regions: Sequence[Region]) -> Region:
        """Return the region in which several messages of the same records are the same, around one point."""
        return cls(
            regions[0].point,
            torch.cat([region.normals for region in regions], 1),
            torch.cat([region.margins for region in regions], 1),
            torch.cat([region.weights for region in regions], 1),
        )

    def segment(
        self, numbers: Float[Tensor, "record chain number"], direction: Float[Tensor, "record number"]
    ) -> tuple[Float[Tensor, "record chain"], Float[Tensor, "record chain"]]:
        """Return how far numbers can move back and forth along a direction."""
        margin = self.margins[:, None] + (numbers - self.point[:, None]) @ self.normals.mT
        rate = (self.normals @ direction[..., None])[..., 0][:, None]
        far = margin.clamp(min=0) / rate.abs().clamp(min=1e-300)
        back = torch.where(rate > 0, far, torch.inf).amin(2)
        forth = torch.where(rate < 0, far, torch.inf).amin(2)
        # A coordinate along the direction may bind nowhere else than at its bounds, which are among the constraints.
        return -back.clamp(max=1.0), forth.clamp(max=1.0)


@dataclass(frozen=True)
class NumberSamples:
    """Samples of private numbers, and each column's smallest and largest value that was met and replays the message."""

    numbers: Float[Tensor, "record sample number"]
    low: Float[Tensor, "record number"]
    high: Float[Tensor, "record number"]


def prior_samples(
    prior: NumberPrior, records: int, generator: torch.Generator
) -> Float[Tensor, "record sample number"]:
    """Return samples of the prior alone."""
    drawn = []
    for k, edges in enumerate(prior.edges):
        uniform = torch.rand(records, 1, 32 * _CHAINS, generator=generator, dtype=torch.float64)
        low, high = (edges[at].expand(records, 1) for at in (0, -1))
        drawn.append(prior.between(k, low, high, uniform)[:, 0].clamp(0, 1))
    return torch.stack(drawn, 2)


def region_samples(region: Region, prior: NumberPrior, generator: torch.Generator) -> NumberSamples:
    """Return samples of the prior within a region, from chains of moves that leave the logits as they are."""
    # A move changes one number and as many others as there are logits, such that no logit changes. The new value of the
    # first is drawn from its prior within the region; of several such draws and the old value, one is chosen by the
    # prior of the others (iterated sampling importance resampling, Tjelmeland 2004), which keeps the posterior.
    records, count = region.point.shape
    equations = int(torch.linalg.matrix_rank(region.weights).max()) if records else 0
    numbers = region.point[:, None].repeat(1, _CHAINS, 1)
    low, high = region.point.clone(), region.point.clone()
    steps = _STEPS * count
    samples = []
    for step in range(steps):
        order = torch.randperm(count, generator=generator).tolist()
        first, others = order[0], order[1 : 1 + equations]
        direction = torch.zeros(records, count, dtype=torch.float64)
        direction[:, first] = 1
        if others:
            partner = torch.linalg.pinv(region.weights[:, :, others], rtol=1e-9)
            direction[:, others] = -(partner @ region.weights[:, :, [first]])[..., 0]
        back, forth = region.segment(numbers, direction)
        for limit in (back, forth):
            reached = numbers + limit[..., None] * direction[:, None]
            low, high = torch.minimum(low, reached.amin(1)), torch.maximum(high, reached.amax(1))
        here = numbers[..., first]
        uniform = torch.rand(records, _CHAINS, _PROPOSALS, generator=generator, dtype=torch.float64)
        drawn = torch.cat([prior.between(first, here + back, here + forth, uniform), here[..., None]], 2)
        moved = drawn - here[..., None]
        weight = torch.zeros_like(moved)
        for other in others:
            weight += prior.log_density(other, numbers[..., other, None] + moved * direction[:, other, None, None])
        pick = torch.rand(weight.shape[:2], generator=generator, dtype=torch.float64)[..., None]
        chosen = (weight.softmax(2).cumsum(2) < pick).sum(2).clamp(max=_PROPOSALS)
        moved = moved.gather(2, chosen[..., None])
        numbers = (numbers + moved * direction[:, None]).clamp(0, 1)
        if step >= _BURNED * steps:
            samples.append(numbers)
    return NumberSamples(torch.cat(samples, 1), low.clamp(0, 1), high.clamp(0, 1))


def likeliest(
    samples: Float[Tensor, "record sample"], tolerance: float
) -> tuple[Float[Tensor, " record"], Float[Tensor, " record"]]:
    """Return the value whose tolerance holds most samples, and the share of samples that it holds."""
    ordered = samples.sort(1).values
    last = torch.searchsorted(ordered, (ordered + 2 * tolerance).contiguous(), right=True) - 1
    first = torch.arange(ordered.shape[1]).expand_as(last)
    covered = last - first
    at = covered.argmax(1, keepdim=True)
    middle = (ordered.gather(1, at) + ordered.gather(1, last.gather(1, at)))[:, 0] / 2
    return middle, (covered.gather(1, at)[:, 0] + 1) / ordered.shape[1]
