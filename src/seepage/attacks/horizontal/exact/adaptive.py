"""Updates of Adam and AdamW: the gradient behind a first step, and a smoother step that can be matched."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.exact.defended import usual_length
from seepage.attacks.horizontal.matching.labels import spell_out
from seepage.learning import gradient
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, UpdateView
from seepage.wire.precision import cast_noise, last_place

_LEAST = 1.0  # standard errors by which a step has to fall short of its full length, else it is taken to
_BENDS = 0.3  # relative standard error of an entry's size at which the smoother step bends
# Largest relative error of the first two layers' gradients at which records are searched in them one by one.
READABLE = 1e-2
_OF_SIGNS = 0.15  # bend of a step for signs alone, as a share of the root mean square of the entries of usual gradients
# Dummy records of each class, rounds of expectation, and the share of an entry's bound that it certainly exceeds.
_DUMMIES, _EXPECTATIONS, _BOUND = 256, 10, 0.8
_NO_CHANCE = 1e-6  # share of the median variance of entries that counts as none


@dataclass(frozen=True)
class FirstStep:
    """The gradient behind a first step of Adam, entry by entry, shapes (victim, *parameter).

    An entry's error is as large as itself where the update says its sign and at most a bound below it.
    """

    gradient: dict[str, Tensor]
    noise: dict[str, Tensor]  # standard deviation of each entry's error
    bend: float  # largest size given to within a third, median over entries
    sizes: bool  # whether entries have sizes, as after a single step


def first_gradient(view: UpdateView, records: int) -> FirstStep:
    """Return the mean gradient that an update of Adam or AdamW reveals; after several steps, entries without sizes.

    A first step has no history: parameters move by rate times f = g / (|g| + epsilon), whatever the betas. The sign is
    that of g, and |g| = epsilon |f| / (1 - |f|). What float32 leaves of how far f falls short of 1 is the rounding of
    the new parameter p, evenly spread over its last place ulp(p), and the roundings on the way to f:

        s_f = hypot(ulp(p) / (rate sqrt(12)), 1.5 * 2^-24 |f|),    s_g = s_f (|g| + epsilon)^2 / epsilon.

    The relative error of |g| is about |g| s_f / epsilon: at the usual epsilon of 1e-8, parameters of 0.1 and a rate of
    0.001, 2% at |g| = 1e-4 and 20% at 1e-3. AdamW's decay of the parameters, known before the step, is taken off first;
    Adam's weight decay is part of g and is taken off last.
    """
    training, begin = view.training, view.model.parameters
    single = training.steps(records) == 1
    moved, decay, epsilon = sum(training.rates(records)), float(training.weight_decay), float(training.epsilon)
    gradients, noise, bends = {}, {}, []
    for name, update in view.update.items():
        before = begin[name].detach().double()
        precision = torch.finfo(begin[name].dtype).eps
        place = last_place(before - update.double(), begin[name].dtype)
        step = update.double()
        roundings = 1.0
        if training.optimizer == "adamw" and decay:
            step, roundings = step - moved * decay * before, 2**0.5
        step = step / moved
        coarse = torch.full_like(step, cast_noise(update, view.precision) / moved)
        error = torch.hypot(torch.hypot(roundings * place / (12**0.5 * moved), 0.75 * precision * step.abs()), coarse)
        bends.append((_BENDS * epsilon / error).flatten())
        if single:
            size = epsilon * step.abs() / (1 - step.abs()).maximum(_LEAST * error)
            deviation = (error * (size + epsilon).square() / epsilon).minimum(size)
        else:
            size = deviation = step.abs()
        entries = size * step.sign()
        if training.optimizer == "adam" and decay and single:
            entries = entries - decay * before
        gradients[name], noise[name] = entries.to(update.dtype), deviation.to(update.dtype)
    return FirstStep(gradients, noise, float(torch.cat(bends).median()), single)


def layer_noise(first: FirstStep) -> list[float]:
    """Return the greatest standard deviation of the error over victims, for each layer's weights: mean over entries."""
    weights = list(first.noise.values())[::2]
    return [float(noise.flatten(1).double().square().mean(1).sqrt().max()) for noise in weights]


def lost_sizes(view: UpdateView, knowledge: Knowledge) -> str | None:
    """Return why single records cannot be searched in a step of Adam; None where entries have kept their sizes."""
    training, records = view.training, knowledge.batch_size // view.clients
    name = {"adam": "Adam", "adamw": "AdamW"}[training.optimizer]
    if training.steps(records) > 1:
        return f"{name} mixes the gradients of several local steps"
    if view.clients > 1:
        return f"{name}'s steps of several clients are added up"
    if knowledge.defense.name not in ("none", training.optimizer):
        return f"steps of {name} went through {knowledge.defense.name}"
    first = first_gradient(view, records)
    weights = list(first.gradient.values())[:4:2]
    sizes = [float(g.flatten(1).double().square().mean(1).sqrt().min()) for g in weights]
    worst = max(noise / size if size else math.inf for noise, size in zip(layer_noise(first)[:2], sizes, strict=True))
    if worst <= READABLE:
        return None
    return (
        f"a first step of {name} keeps signs, and sizes only far below {first.bend:.0e}: rounding of the parameters "
        f"leaves an error of {worst:.0%} of a gradient's usual size, {READABLE:.0%} is allowed"
    )


def labels_of_step(
    view: UpdateView, knowledge: Knowledge, encoder: Encoder, seed: int = 0
) -> Float[Tensor, "victim record"]:
    """Return labels with the class counts that explain an update of Adam best, in order of class."""
    # The output bias is far too large for its size to survive. Shares of the classes are sought whose mixture of dummy
    # records' mean gradients fits all other entries. Entries whose size is lost count as beyond their bound, on their
    # sign's side: a regression of censored data (Tobin, Econometrica 1958), by expectation and maximisation.
    records, model = knowledge.batch_size, view.model
    first = first_gradient(view, records // view.clients)
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(_DUMMIES, len(knowledge.schema.columns), generator=generator, dtype=torch.float64)
    rows = encoder.encode(knowledge.statistics.rows(uniform).to(encoder.mean.device))
    target = knowledge.statistics.target.probabilities.to(rows.device).double()
    means, variance = [], rows.new_zeros(()).double()
    for label, share in enumerate(target):
        gradients = gradient(model, rows[:, None], torch.full_like(rows[:, :1], label))
        flat = torch.cat([g.flatten(1) for g in gradients.values()], 1).double()
        means.append(flat.mean(0))
        variance = variance + share * flat.var(0) / records
    estimates, error = (
        torch.cat([g.flatten(1) for g in part.values()], 1).double() for part in (first.gradient, first.noise)
    )
    # Units that hardly any dummy activates say nothing that can be counted on.
    used = variance > _NO_CHANCE * variance.median()
    mean, estimates, error, variance = torch.stack(means)[:, used], estimates[:, used], error[:, used], variance[used]
    read, sign, root = error < _BENDS * estimates.abs(), estimates.sign(), variance.sqrt()
    bound = _BOUND * estimates.abs() if first.sizes else torch.zeros_like(estimates)
    weights = 1 / (variance + torch.where(read, error.square(), 0))
    against = mean[1:] - mean[0]
    inverse = torch.linalg.pinv(torch.einsum("ce,ve,de->vcd", against, weights, against))
    shares = target[1:].expand(len(estimates), -1)
    for _ in range(_EXPECTATIONS):
        expected = mean[0] + shares @ against
        beyond = (bound - sign * expected) / root
        # Mean of a normal variable beyond a bound.
        hazard = (-0.5 * beyond.square() - torch.special.log_ndtr(-beyond)).exp() / math.sqrt(2 * math.pi)
        entries = torch.where(read, estimates, torch.where(sign == 0, 0.0, expected + sign * root * hazard))
        right = torch.einsum("ce,ve->vc", against, weights * (entries - mean[0]))
        shares = (inverse @ right[..., None])[..., 0].clamp(0, 1)
    counts = records * torch.cat([1 - shares.sum(1, keepdim=True), shares], 1)
    return spell_out(counts, records).to(rows.dtype)


def smoothed(view: UpdateView, knowledge: Knowledge, encoder: Encoder) -> UpdateView:
    """Return updates as those of an optimiser with a larger epsilon, which dummy records can be matched to."""
    # Adam's step hardly depends on entries far above epsilon: its derivative by them is epsilon / |g|^2. The step with
    # a larger one is exact for entries below the bend, too long by at most a quarter above it. Several steps have no
    # inverse: their update stays, and the dummy's optimiser alone is smoother.
    training, begin, records = view.training, view.model.parameters, knowledge.batch_size
    first = first_gradient(view, records)
    entries = sum(p.numel() for p in begin.values())
    usual = float(usual_length(view.model, knowledge, encoder)) / math.sqrt(entries)
    epsilon = max(float(training.epsilon), first.bend if first.sizes else 0.0, _OF_SIGNS * usual)
    smoother = replace(training, epsilon=epsilon)
    if not first.sizes:
        return replace(view, training=smoother)
    rate, decay = float(training.learning_rate), float(training.weight_decay)
    update = {}
    for name, g in first.gradient.items():
        before = begin[name].detach()
        averaged = g + decay * before if training.optimizer == "adam" else g
        step = rate * averaged / (averaged.abs() + epsilon)
        update[name] = step + rate * decay * before if training.optimizer == "adamw" else step
    return replace(view, update=update, training=smoother)
