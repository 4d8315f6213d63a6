"""Search for private cells, numbers among them, that replay a message, and the posterior of all that do."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree
from torch import Tensor

from seepage.attacks.split.parts.messages import logits_and_derivatives
from seepage.attacks.split.parts.nearest import Messages, candidate_gradients, distance, nearest, rounding
from seepage.attacks.split.parts.numbers import NumberPrior, Region, likeliest, prior_samples, region_samples
from seepage.attacks.split.parts.proof import FAR
from seepage.attacks.split.parts.refine import refined
from seepage.attacks.split.parts.space import Responder, Space, responder
from seepage.models.deepfm import DeepFMClient
from seepage.models.split import SplitModel
from seepage.tabular.schema import Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutView

# Rounds in which records without a fit are tried again, with so many combinations of categories or random numbers.
_ROUNDS, _TRIED = 5, 4
# Samples of a record that are replayed, and the share of them that has to fit.
_CHECKED, _FITTING = 16, 0.9
_NEWTON = 12  # steps that make several messages fit at once
# Combinations that are tried before any refinement, and records that are searched at once.
_MOST_TRIED, _TOGETHER = 2**13, 256


def replayed_guess(
    views: Sequence[CutView], knowledge: CutKnowledge, respond: Responder, space: Space, generator: torch.Generator
) -> CutGuess:
    """Return cells and labels that replay messages of an undefended DeepFM client, where private columns have numbers.

    A point that replays a message is searched on a grid and refined; where nothing fits yet, categories whose
    embeddings have about the sum that the derivatives give are tried. The posterior is the prior on the set of all
    numbers that replay the message, see ``parts.numbers``: all of the views' messages, or else the newest's alone.
    """
    first = views[0]
    prior = NumberPrior.of(first.model, knowledge, first.features)
    done = []
    for start in range(0, first.records, _TOGETHER):
        some = [view.of(slice(start, start + _TOGETHER)) for view in views]
        done.append(_replays(some, knowledge, respond, space, prior, start, generator))
    return CutGuess.joined(done)


def _replays(
    views: Sequence[CutView],
    knowledge: CutKnowledge,
    respond: Responder,
    space: Space,
    prior: NumberPrior,
    start: int,
    generator: torch.Generator,
) -> CutGuess:
    """Return the guess of some records: where nothing fits, the prior's likeliest numbers, and a mass of NaN."""
    view = views[0]
    model, gradient = view.model, view.own_gradient
    cells, labels, distances = _search(Messages(model, respond, view.cut, gradient, space), generator)
    prior = prior.rows(torch.arange(start, start + view.records))
    fits = (distances <= FAR * rounding(gradient, model.form)).cpu()
    numbers = numbers_of(model)
    drawn = prior_samples(prior, view.records, generator)
    low, high = torch.full((2, *drawn[:, 0].shape), torch.nan, dtype=torch.float64)
    together, joint = _joint(views, cells, labels) if len(views) > 1 else (cells, torch.zeros_like(fits))
    samples = drawn.shape[1]
    for point, fitting, shown in ((cells, fits & ~joint, views[:1]), (together, fits & joint, views)):
        records = fitting.nonzero()[:, 0]
        if not len(records):
            continue
        some = [seen.of(records) for seen in shown]
        at = point[records], labels[records]
        region = Region.joined([Region.of(seen.model, seen.cut, seen.own_gradient, *at) for seen in some])
        walked = region_samples(region, prior.rows(records), generator)
        # Where a unit is at the edge of its two signs, the region is computed on the wrong side.
        replayed = [_replayed(seen, point, labels, records, walked.numbers, generator) for seen in shown]
        valid = torch.stack(replayed).all(0)
        fits[records[~valid]] = False
        valid_records = records[valid]
        chosen = torch.randint(walked.numbers.shape[1], (samples,), generator=generator)
        drawn[valid_records] = walked.numbers[valid][:, chosen]
        low[valid_records], high[valid_records] = walked.low[valid], walked.high[valid]
    answered = cells.cpu().double()
    low_ends, high_ends = answered.clone(), answered.clone()
    answered[:, numbers] = likeliest_numbers(model, drawn)
    low_ends[:, numbers], high_ends[:, numbers] = low, high
    low_ends[~fits], high_ends[~fits] = torch.nan, torch.nan
    # Whole numbers within the interval, so that its ends are rounded inwards.
    lowest, highest = _inwards(model, low_ends, 1.0), _inwards(model, high_ends, -1.0)
    mass = torch.stack([_mass(knowledge, i, lowest[:, k], highest[:, k]) for k, i in enumerate(model.private)], 1)
    return CutGuess(
        model.unscaled(answered, model.private), labels.cpu().double(), residual=distances.double().cpu(), mass=mass
    )


def numbers_of(model: SplitModel) -> list[int]:
    """Return the positions of the numbers among the private columns."""
    return [k for k, i in enumerate(model.private) if i in model.schema.continuous]


def likeliest_numbers(
    model: SplitModel, samples: Float[Tensor, "record sample number"]
) -> Float[Tensor, "record number"]:
    """Return the private numbers, scaled, within whose tolerance most samples lie."""
    columns = [column for i in model.private if isinstance(column := model.schema.columns[i], Continuous)]
    within = [column.tolerance / (column.high - column.low or 1.0) for column in columns]
    return torch.stack([likeliest(samples[..., k], tolerance)[0] for k, tolerance in enumerate(within)], dim=1)


def _search(
    messages: Messages, generator: torch.Generator
) -> tuple[Float[Tensor, "record private"], Int[Tensor, " record"], Float[Tensor, " record"]]:
    """Return cells, scaled, and labels that fit best, and the distance of their gradients."""
    model, respond, space = messages.model, messages.respond, messages.space
    cut, gradient = messages.cut, messages.gradient
    numbers, within = numbers_of(model), rounding(gradient, model.form)
    # One number alone is determined, the more exactly the better the fit; of several, any point of the set will do.
    enough = within / 2 if len(numbers) > 1 else torch.zeros_like(within)
    some = _thinned(space, generator)
    closest = nearest(replace(messages, space=some), 2)
    labels = closest.labels[:, 0]
    start = some.of_codes(some.codes(closest.places[:, 0]))
    cells, distances = refined(messages, start, labels, enough)
    categories = [k for k in range(len(model.private)) if k not in numbers]
    sums = _Sums.of(model, space, categories) if respond.additive is not None and model.head == "sigmoid" else None
    for _ in range(_ROUNDS):
        bad = (distances > within).nonzero()[:, 0]
        if not len(bad):
            break
        trial = cells[bad][:, None].repeat(1, 2 * _TRIED, 1)
        if sums is not None and respond.additive is not None:
            _, derivatives = logits_and_derivatives(gradient[bad], respond.additive, model.form)
            _, jacobian = respond.responses(respond.of_cut(cut[bad]), respond.of_cells(cells[bad]))
            trial[..., categories] = sums.near(cells[bad], derivatives - jacobian[:, 0], 2 * _TRIED)
        # Half of the trials begin with other numbers, in the likeliest categories.
        for k in numbers:
            values = space.values[k].to(trial)
            at = torch.randint(len(values), (len(bad), _TRIED), generator=generator)
            trial[:, _TRIED:, k] = values[at]
        trial[:, _TRIED:, categories] = trial[:, :1, categories]
        rows = bad.repeat_interleave(2 * _TRIED)
        tried, apart = refined(messages.of(rows), trial.flatten(0, 1), labels[rows], enough[rows])
        least, at = apart.view(len(bad), -1).min(1)
        tried = tried.view(*trial.shape)[torch.arange(len(bad)), at]
        better = least < distances[bad]
        cells[bad] = torch.where(better[:, None], tried, cells[bad])
        distances[bad] = torch.where(better, least, distances[bad])
    return cells, labels, distances


def _thinned(space: Space, generator: torch.Generator) -> Space:
    """Return a space with some of the values of the widest columns, where all combinations are too many to try."""
    values = list(space.values)
    while math.prod(len(value) for value in values) > _MOST_TRIED:
        k = max(range(len(values)), key=lambda k: len(values[k]))
        values[k] = values[k][torch.randperm(len(values[k]), generator=generator)[: max(1, len(values[k]) // 2)]]
    return replace(space, values=tuple(values))


@dataclass(frozen=True)
class _Sums:
    """Sums of the embeddings of combinations of categories."""

    client: DeepFMClient
    combinations: Float[Tensor, "combination category"]
    tree: KDTree

    @classmethod
    def of(cls, model: SplitModel, space: Space, categories: list[int]) -> _Sums | None:
        client = model.client
        if not isinstance(client, DeepFMClient) or not client.fields or not categories:
            return None
        grids = [torch.arange(space.widths[k]) for k in categories]
        combinations = torch.cartesian_prod(*grids).view(-1, len(categories))
        full = torch.zeros(len(combinations), len(model.private))
        full[:, categories] = combinations.float()
        with torch.no_grad():
            sums = client.own.embedded(full.to(model.device)).sum(1)
        return cls(client, combinations.float(), KDTree(sums.cpu().double().numpy()))

    def near(
        self, cells: Float[Tensor, "record private"], apart: Float[Tensor, "record cut"], number: int
    ) -> Float[Tensor, "record near category"]:
        """Return combinations whose sum differs from that of cells as their derivatives do, nearest first."""
        client = self.client
        fields = apart[:, : client.fields * client.dim].unflatten(1, (client.fields, client.dim))
        with torch.no_grad():
            wanted = client.own.embedded(cells).sum(1) + fields.median(1).values
        _, at = self.tree.query(wanted.cpu().double().numpy(), k=min(number, self.tree.n))
        at = np.asarray(at).reshape(len(cells), -1)
        at = np.pad(at, ((0, 0), (0, number - at.shape[1])), mode="edge")
        return self.combinations[torch.from_numpy(at)].to(cells)


def _joint(
    views: Sequence[CutView], cells: Float[Tensor, "record private"], labels: Int[Tensor, " record"]
) -> tuple[Float[Tensor, "record private"], Bool[Tensor, " record"]]:
    """Return cells with numbers changed such that all messages are replayed, and where they are."""
    # Each message gives a logit, which is a straight line in the numbers within a region: Gauss-Newton steps, halved
    # where they do not help, since regions change.
    numbers, additive = numbers_of(views[0].model), responder(views[0].model).additive
    none = torch.zeros(len(cells), dtype=torch.bool)
    if additive is None or views[0].model.head != "sigmoid":
        return cells, none
    clients = [copy.deepcopy(view.model.client).double().cpu() for view in views]
    cuts = [view.cut.double().cpu() for view in views]
    read = [logits_and_derivatives(view.own_gradient, additive, view.model.form)[0] for view in views]
    wanted = torch.stack([logits.double().cpu() for logits in read], 1)
    # A logit far from zero is known less exactly.
    sure = (wanted.sigmoid() * (-wanted).sigmoid()).clamp(min=1e-9)
    at = cells.double().cpu()

    def missed(point: Tensor) -> Float[Tensor, "record view"]:
        return sure * (torch.stack([c(cut, point)[:, 0] for c, cut in zip(clients, cuts, strict=True)], 1) - wanted)

    for _ in range(_NEWTON):
        point = at.clone().requires_grad_(True)
        apart = missed(point)
        by_view = [torch.autograd.grad(each.sum(), point, retain_graph=True)[0] for each in apart.unbind(1)]
        slopes = torch.stack([slope[:, numbers] for slope in by_view], 1)
        step = -(torch.linalg.pinv(slopes, rtol=1e-6) @ apart.detach()[..., None])[..., 0]
        best, least = at, apart.detach().norm(dim=1)
        with torch.no_grad():
            for share in 2.0 ** -torch.arange(6):
                trial = at.clone()
                trial[:, numbers] = (trial[:, numbers] + share * step).clamp(0, 1)
                size = missed(trial).norm(dim=1)
                best = torch.where((size < least)[:, None], trial, best)
                least = torch.minimum(least, size)
        at = best
    solution, all_records = at.to(cells), torch.arange(len(cells))
    valid = [_replayed(view, solution, labels, all_records, at[:, None, numbers], None) for view in views]
    return solution, torch.stack(valid).all(0)


def _replayed(
    view: CutView,
    cells: Tensor,
    labels: Tensor,
    records: Tensor,
    numbers: Float[Tensor, "chosen sample number"],
    generator: torch.Generator | None,
) -> Bool[Tensor, " chosen"]:
    """Return where samples replay the message, some of them or all."""
    some = torch.arange(numbers.shape[1])
    if generator is not None:
        some = torch.randint(numbers.shape[1], (_CHECKED,), generator=generator)
    respond, rows = responder(view.model), records.repeat_interleave(len(some))
    trial = cells[rows].clone()
    trial[:, numbers_of(view.model)] = numbers[:, some].flatten(0, 1).to(trial)
    answer = respond.responses(respond.of_cut(view.cut[rows]), respond.of_cells(trial))
    gradients = candidate_gradients(view.model, *answer)[torch.arange(len(rows)), labels[rows]]
    received = view.own_gradient[rows]
    form = view.model.form
    fits = distance(form, gradients, received) <= FAR * rounding(received, form)
    return fits.view(len(records), -1).double().mean(1).cpu() >= _FITTING


def _inwards(model: SplitModel, scaled: Tensor, side: float) -> Float[Tensor, "record private"]:
    """Return the ends of intervals, unscaled, those of whole numbers rounded towards the inside."""
    ends = []
    for k, i in enumerate(model.private):
        column = model.schema.columns[i]
        value = scaled[:, k]
        if isinstance(column, Continuous):
            value = value * (column.high - column.low or 1.0) + column.low
            if column.integer:
                # What is whole up to rounding stays.
                value = side * torch.ceil(side * value - 1e-6 * (column.high - column.low))
        ends.append(value)
    return torch.stack(ends, 1)


def _mass(
    knowledge: CutKnowledge, column: int, low: Float[Tensor, " record"], high: Float[Tensor, " record"]
) -> Float[Tensor, " record"]:
    """Return the chance of a value between two ends, by the column's marginal."""
    marginal = knowledge.statistics.marginals[column]
    below = torch.cat([torch.zeros(1, dtype=torch.float64), marginal.probabilities.cumsum(0)])
    first = torch.searchsorted(marginal.values, low.nan_to_num().contiguous())
    last = torch.searchsorted(marginal.values, high.nan_to_num().contiguous(), right=True)
    mass = (below[last] - below[first]).clamp(0, 1)
    return torch.where(low.isnan() | high.isnan(), torch.nan, mass)
