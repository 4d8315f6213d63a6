"""The likelihood of private numbers under bare gradients of a DeepFM client: flat on the set of all that replay them.

Numbers that cannot be listed are not determined by one message: a whole region of them replays it (``numbers``). One
point of the region is searched: bins of numbers with all categories, the nearest of which is refined. Where nothing
fits yet, the message gives S, the sum of all embeddings (``meet``), and categories are tried whose embeddings have
about the sum by which S differs. With likelihood 1 in the region and 0 outside, the posterior is the prior within the
region, from which samples are drawn; the answer is the value whose tolerance holds most of them.

Several messages have a region each, and a point in all of them has ``f_k(n) = logit_k`` for every message k. Within
regions f is a straight line, so that Gauss-Newton steps from the first point find it, or else the newest message
counts alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.attacks.split.parts.messages import FAR, Messages, logits_and_derivatives
from seepage.attacks.split.parts.nearest import Exhaustive
from seepage.attacks.split.parts.number_prior import NumberPrior
from seepage.attacks.split.parts.numbers import Region, likeliest_numbers, number_places, region_samples
from seepage.attacks.split.parts.problem import CutProblem, Likelihood
from seepage.attacks.split.parts.refine import refined
from seepage.attacks.split.parts.responder import responder
from seepage.attacks.split.parts.space import Space, check_enumerable
from seepage.attacks.split.parts.sums import EmbeddingSums
from seepage.models.deepfm import DeepFMClient
from seepage.tabular.schema import Continuous
from seepage.wire.split import CutGuess, CutKnowledge, CutView

# Rounds in which records without a fit are tried again, with so many combinations of categories or random numbers.
_ROUNDS, _TRIED = 5, 4
# Samples of a record that are replayed, and the share of them that has to fit.
_CHECKED, _FITTING = 16, 0.9
_NEWTON = 12  # steps that make several messages fit at once
# Combinations that are tried before any refinement, and records that are searched at once.
_MOST_TRIED, _TOGETHER = 2**13, 256


@dataclass(frozen=True)
class ReplayingNumbers(Likelihood):
    """All cells and labels that replay messages of an undefended DeepFM client, where private columns have numbers.

    Attributes:
        wanted: whether messages are taken for gradients as they are.
        most: largest number of configurations, those of bins; None where they are not listed.
    """

    wanted: bool
    most: int | None

    def applies(self, problem: CutProblem) -> bool:
        """Return whether the set of all numbers that replay a message is looked for and can be computed."""
        return self.wanted and bool(problem.space.binned) and replayable(problem.first, problem.knowledge)

    def guess(self, problem: CutProblem) -> CutGuess:
        """Return the likeliest cells that replay all messages of a record, or else the newest."""
        if self.most is not None:
            check_enumerable(problem.space, self.most)
        first, generator, done = problem.first, problem.generator(), []
        prior = NumberPrior.of(first.model, problem.knowledge, first.features)
        for start in range(0, first.records, _TOGETHER):
            block = [view.of(slice(start, start + _TOGETHER)) for view in problem.rounds.views]
            rows = prior.rows(torch.arange(start, start + block[0].records))
            done.append(_guess_in_regions(block, problem, rows, generator))
        return CutGuess.joined(done)


def replayable(view: CutView, knowledge: CutKnowledge) -> bool:
    """Return whether the set of all numbers that replay a message can be computed."""
    known = view.model.form.scale_of != "record" and not view.model.form.training
    return isinstance(view.model.client, DeepFMClient) and knowledge.defense.bare and known


def _guess_in_regions(
    views: Sequence[CutView], problem: CutProblem, prior: NumberPrior, generator: torch.Generator
) -> CutGuess:
    """Return the guess of some records: where nothing fits, the prior's likeliest numbers, and a mass of NaN."""
    rounds = [
        Messages(view.model, problem.responder(view), view.cut, view.own_gradient, problem.space) for view in views
    ]
    newest, model = rounds[0], rounds[0].model
    cells, labels, distances = _fitting_cells(newest, generator)
    fits = (distances <= FAR * newest.rounding).cpu()
    numbers, drawn = number_places(model), prior.samples(len(fits), generator)
    ends = torch.full((2, *cells.shape), torch.nan, dtype=torch.float64)
    together, joint = _jointly_replaying(rounds, cells, labels) if len(rounds) > 1 else (cells, torch.zeros_like(fits))
    samples = drawn.shape[1]
    for point, fitting, shown in ((cells, fits & ~joint, rounds[:1]), (together, fits & joint, rounds)):
        records = fitting.nonzero()[:, 0]
        if not len(records):
            continue
        fitted = [messages.of(records) for messages in shown]
        answer = point[records], labels[records]
        region = Region.joined(
            [Region.of(messages.model, messages.cut, messages.gradient, *answer) for messages in fitted]
        )
        walked = region_samples(region, prior.rows(records), generator)
        # Where a unit is at the edge of its two signs, the region is computed on the wrong side.
        valid = torch.stack([_replayed(messages, *answer, walked.numbers, generator) for messages in fitted]).all(0)
        chosen = torch.randint(walked.numbers.shape[1], (samples,), generator=generator)
        rows = records[valid]
        drawn[rows] = walked.numbers[valid][:, chosen]
        ends[:, rows] = cells[rows].cpu().double()
        ends[:, rows[:, None], numbers] = torch.stack([walked.low[valid], walked.high[valid]])
    answered = cells.cpu().double()
    answered[:, numbers] = likeliest_numbers(model, drawn)
    mass = [_mass_between(problem, k, *ends[..., k]) for k in range(len(model.private))]
    cells = model.unscaled(answered, model.private)
    return CutGuess(cells, labels.cpu().double(), residual=distances.double().cpu(), mass=torch.stack(mass, 1))


def _fitting_cells(
    messages: Messages, generator: torch.Generator
) -> tuple[Float[Tensor, "record private"], Int[Tensor, " record"], Float[Tensor, " record"]]:
    """Return cells, scaled, and labels that fit best, and the distance of their gradients."""
    model, respond, space = messages.model, messages.respond, messages.space
    cut, gradient = messages.cut, messages.gradient
    numbers, within = number_places(model), messages.rounding
    # One number alone is determined, the more exactly the better the fit; of several, any point of the set will do.
    enough = within / 2 if len(numbers) > 1 else torch.zeros_like(within)
    thinned = _thinned_space(space, generator)
    closest = Exhaustive().nearest(replace(messages, space=thinned), 2)
    labels = closest.labels[:, 0]
    start = thinned.of_codes(thinned.codes(closest.places[:, 0]))
    cells, distances = refined(messages, start, labels, enough)
    categories = [k for k in range(len(model.private)) if k not in numbers]
    client, additive, sums = model.client, respond.additive, None
    if isinstance(client, DeepFMClient) and client.fields and categories and model.head == "sigmoid":
        sums = EmbeddingSums.of(client, space, categories)
    for _ in range(_ROUNDS):
        bad = (distances > within).nonzero()[:, 0]
        if not len(bad):
            break
        trial = cells[bad][:, None].repeat(1, 2 * _TRIED, 1)
        if sums is not None and isinstance(client, DeepFMClient) and additive is not None:
            # By the sum of the embeddings in use and the median difference of derivatives by the server's embeddings.
            _, derivatives = logits_and_derivatives(gradient[bad], additive, model.form)
            _, jacobian = respond.responses(respond.of_cut(cut[bad]), respond.of_cells(cells[bad]))
            apart = (derivatives - jacobian[:, 0])[:, : client.fields * client.dim]
            with torch.no_grad():
                wanted = client.own.embedded(cells[bad]).sum(1)
            wanted = wanted + apart.unflatten(1, (client.fields, client.dim)).median(1).values
            near = torch.from_numpy(sums.near(wanted, 2 * _TRIED)[1])
            # Where there are fewer combinations, the last one again.
            near = near[:, torch.arange(2 * _TRIED).clamp(max=near.shape[1] - 1)]
            trial[..., categories] = sums.codes[near].to(trial)
        # Half of the trials begin with other numbers, in the likeliest categories.
        for k in numbers:
            values = space.values[k].to(trial)
            index = torch.randint(len(values), (len(bad), _TRIED), generator=generator)
            trial[:, _TRIED:, k] = values[index]
        trial[:, _TRIED:, categories] = trial[:, :1, categories]
        rows = bad.repeat_interleave(2 * _TRIED)
        tried, apart = refined(messages.of(rows), trial.flatten(0, 1), labels[rows], enough[rows])
        least, index = apart.view(len(bad), -1).min(1)
        tried = tried.view(*trial.shape)[torch.arange(len(bad)), index]
        better = least < distances[bad]
        cells[bad] = torch.where(better[:, None], tried, cells[bad])
        distances[bad] = torch.where(better, least, distances[bad])
    return cells, labels, distances


def _thinned_space(space: Space, generator: torch.Generator) -> Space:
    """Return a space with some of the values of the widest columns, where all combinations are too many to try."""
    values = list(space.values)
    while math.prod(len(value) for value in values) > _MOST_TRIED:
        k = max(range(len(values)), key=lambda k: len(values[k]))
        values[k] = values[k][torch.randperm(len(values[k]), generator=generator)[: max(1, len(values[k]) // 2)]]
    return replace(space, values=tuple(values))


def _jointly_replaying(
    rounds: Sequence[Messages], cells: Float[Tensor, "record private"], labels: Int[Tensor, " record"]
) -> tuple[Float[Tensor, "record private"], Bool[Tensor, " record"]]:
    """Return cells with numbers changed such that all messages are replayed, and where they are."""
    numbers, additive = number_places(rounds[0].model), responder(rounds[0].model).additive
    if additive is None or rounds[0].model.head != "sigmoid":
        return cells, torch.zeros(len(cells), dtype=torch.bool)
    clients = [copy.deepcopy(messages.model.client).double().cpu() for messages in rounds]
    cuts = [messages.cut.double().cpu() for messages in rounds]
    read = [logits_and_derivatives(messages.gradient, additive, messages.model.form)[0] for messages in rounds]
    wanted = torch.stack([logits.double().cpu() for logits in read], 1)
    # A logit far from zero is known less exactly.
    sure = (wanted.sigmoid() * (-wanted).sigmoid()).clamp(min=1e-9)
    iterate = cells.double().cpu()

    def missed(point: Tensor) -> Float[Tensor, "record round"]:
        return sure * (torch.stack([c(cut, point)[:, 0] for c, cut in zip(clients, cuts, strict=True)], 1) - wanted)

    for _ in range(_NEWTON):
        point = iterate.clone().requires_grad_(True)
        off = missed(point)
        slopes = [torch.autograd.grad(each.sum(), point, retain_graph=True)[0][:, numbers] for each in off.unbind(1)]
        step = -(torch.linalg.pinv(torch.stack(slopes, 1), rtol=1e-6) @ off.detach()[..., None])[..., 0]
        best, least = iterate, off.detach().norm(dim=1)
        with torch.no_grad():
            # Halved where it does not help, since regions change.
            for share in 2.0 ** -torch.arange(6):
                trial = iterate.clone()
                trial[:, numbers] = (trial[:, numbers] + share * step).clamp(0, 1)
                size = missed(trial).norm(dim=1)
                best = torch.where((size < least)[:, None], trial, best)
                least = torch.minimum(least, size)
        iterate = best
    valid = [_replayed(messages, iterate.to(cells), labels, iterate[:, None, numbers], None) for messages in rounds]
    return iterate.to(cells), torch.stack(valid).all(0)


def _replayed(
    messages: Messages,
    cells: Float[Tensor, "record private"],
    labels: Int[Tensor, " record"],
    numbers: Float[Tensor, "record sample number"],
    generator: torch.Generator | None,
) -> Bool[Tensor, " record"]:
    """Return where samples of numbers replay the message, some of them or all."""
    if generator is not None:
        numbers = numbers[:, torch.randint(numbers.shape[1], (_CHECKED,), generator=generator)]
    trial = cells[:, None].repeat(1, numbers.shape[1], 1)
    trial[..., number_places(messages.model)] = numbers.to(trial)
    fits = messages.apart(trial, labels) <= FAR * messages.rounding[:, None]
    return fits.double().mean(1).cpu() >= _FITTING


def _mass_between(
    problem: CutProblem, k: int, low: Float[Tensor, " record"], high: Float[Tensor, " record"]
) -> Float[Tensor, " record"]:
    """Return the chance of a private column's value between two ends, by its marginal; NaN where there are none."""
    place = problem.first.model.private[k]
    column, marginal = problem.knowledge.schema.columns[place], problem.knowledge.statistics.marginals[place]
    if isinstance(column, Continuous):
        span = column.high - column.low
        low, high = (end * (span or 1.0) + column.low for end in (low, high))
        if column.integer:
            # Whole numbers within the interval; what is whole up to rounding stays.
            low, high = torch.ceil(low - 1e-6 * span), -torch.ceil(-high - 1e-6 * span)
    below = torch.cat([torch.zeros(1, dtype=torch.float64), marginal.probabilities.cumsum(0)])
    first = torch.searchsorted(marginal.values, low.nan_to_num().contiguous())
    last = torch.searchsorted(marginal.values, high.nan_to_num().contiguous(), right=True)
    return torch.where(low.isnan() | high.isnan(), torch.nan, (below[last] - below[first]).clamp(0, 1))
