"""All private numbers that replay a message, around one point that does, and chains that walk over them.

Where all units of a ReLU network keep their signs, its outputs are straight lines in the numbers n and its derivatives
do not change at all. So a message is the same for all n of a region: units keep their signs and every logit its value,

    +-(u_k + U_k (n - n_0)) >= 0 for every unit k that the message shows,   |W (n - n_0)| <= reach,   0 <= n <= 1.

The reach is the change of a logit that the loss's slope hides in rounding: rounding / (|J| |ds/df|). A move changes one
number and as many others as there are logits, such that no logit changes: ``d_others = -pinv(W_others) w_first``.
The new value of the first is drawn from its prior within the region. Of several such draws and the old value, one is
chosen by the prior of the others (iterated sampling importance resampling, Tjelmeland 2004), which keeps the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seepage.attacks.split.parts.messages import rounding
from seepage.attacks.split.parts.number_prior import CHAINS, NumberPrior
from seepage.models.deepfm import DeepFMClient
from seepage.models.split import SplitModel, label_chances
from seepage.tabular.schema import Continuous

_PROPOSALS, _STEPS = 8, 48  # proposals of a step, and steps for each column
_BURNED = 0.3  # share of steps before the first sample is kept
_SLOPE = 4  # roundings of a probability's absolute value in the loss's slope
_STEP = 1e-4  # difference of a logit over which a slope is taken to be straight


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


def region_samples(region: Region, prior: NumberPrior, generator: torch.Generator) -> NumberSamples:
    """Return samples of the prior within a region, from chains of moves that leave the logits as they are."""
    records, count = region.point.shape
    equations = int(torch.linalg.matrix_rank(region.weights).max()) if records else 0
    numbers = region.point[:, None].repeat(1, CHAINS, 1)
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
        current = numbers[..., first]
        uniform = torch.rand(records, CHAINS, _PROPOSALS, generator=generator, dtype=torch.float64)
        drawn = torch.cat([prior.between(first, current + back, current + forth, uniform), current[..., None]], 2)
        moved = drawn - current[..., None]
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
    densest = covered.argmax(1, keepdim=True)
    middle = (ordered.gather(1, densest) + ordered.gather(1, last.gather(1, densest)))[:, 0] / 2
    return middle, (covered.gather(1, densest)[:, 0] + 1) / ordered.shape[1]


def number_places(model: SplitModel) -> list[int]:
    """Return the positions of the numbers among the private columns."""
    return [k for k, i in enumerate(model.private) if i in model.schema.continuous]


def likeliest_numbers(
    model: SplitModel, samples: Float[Tensor, "record sample number"]
) -> Float[Tensor, "record number"]:
    """Return the private numbers, scaled, within whose tolerance most samples lie."""
    columns = [column for i in model.private if isinstance(column := model.schema.columns[i], Continuous)]
    within = [column.tolerance / (column.high - column.low or 1.0) for column in columns]
    return torch.stack([likeliest(samples[..., k], tolerance)[0] for k, tolerance in enumerate(within)], dim=1)
