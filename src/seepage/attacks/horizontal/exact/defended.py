"""Preparation of defended gradients by an attacker who knows the defense."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.learning import gradient
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge

_DUMMY_BATCHES, _RECORDS_AT_ONCE = 16, 64
# Relative distance to the bound within which a norm was scaled down to it; rounding moves it by far less.
_AT_THE_BOUND = 1 - 1e-4


def undo_clipping(view: GradientView, knowledge: Knowledge, encoder: Encoder, seed: int = 0) -> GradientView:
    """Return the gradients scaled to their likely length before they were clipped: the mean over dummy batches."""
    # Rows and labels of dummies follow the public marginals. Gradients shorter than the bound, and those whose bound is
    # longer than the dummies', are not changed. Without this step, the bias of a clipped gradient would pull all
    # restored label counts towards the model's mean prediction.
    bound = knowledge.defense.norm
    if bound is None:
        return view
    length = _norms(view.gradient)
    usual = usual_length(view.model, knowledge, encoder, seed)
    scaled = torch.where((length >= bound * _AT_THE_BOUND) & (length < usual), usual / length, torch.ones_like(length))
    restored = {name: g * scaled.view(-1, *[1] * (g.dim() - 1)) for name, g in view.gradient.items()}
    return GradientView(view.model, restored, view.parameters)


def usual_length(model: Model, knowledge: Knowledge, encoder: Encoder, seed: int = 0) -> Float[Tensor, ""]:
    """Return the mean norm of gradients of dummy batches, whose rows and labels follow the public marginals."""
    generator = torch.Generator().manual_seed(seed)
    shape = (_DUMMY_BATCHES, knowledge.batch_size)
    columns = len(knowledge.schema.columns)
    uniform = torch.rand(*shape, columns, generator=generator, dtype=torch.float64)
    rows = encoder.encode(knowledge.statistics.rows(uniform).to(encoder.mean.device))
    target = knowledge.statistics.target
    drawn = torch.multinomial(target.probabilities, shape[0] * shape[1], replacement=True, generator=generator)
    labels = target.values[drawn].view(shape).to(rows.device)
    return _norms(gradient(model, rows, labels)).mean()


def _norms(gradients: dict[str, Tensor]) -> Float[Tensor, " batch"]:
    return torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients.values()]).norm(dim=0)


def lost_to_clipping(
    model: Model, bias: str, rows: Float[Tensor, "record encoded"], bound: float, parameters: Mapping[str, Tensor]
) -> Float[Tensor, "class output"]:
    """Return the mean loss by clipping of a record's part in the output bias's gradient, for each class of record."""
    # Unclipped, that part is the mean probability of each output less 1 for the record's class. A record that the model
    # gets wrong has the longer gradient and loses more of it, so that the parts no longer follow from the mean alone.
    classes = 2 if model.head == "sigmoid" else parameters[bias].numel()
    lost = []
    for label in range(classes):
        total = torch.zeros(parameters[bias].numel(), dtype=torch.float64, device=rows.device)
        for group in rows.split(_RECORDS_AT_ONCE):
            places = {name: p.expand(len(group), *p.shape) for name, p in parameters.items()}
            gradients = gradient(model, group[:, None], torch.full_like(group[:, :1], label), places)
            scale = (bound / _norms(gradients)).clamp(max=1)
            total += ((1 - scale)[:, None] * gradients[bias].flatten(1)).sum(0).double()
        lost.append(total / len(rows))
    return torch.stack(lost)


def counts_by_effects(
    moved: Float[Tensor, "victim output"], effects: Float[Tensor, "... class output"], records: int
) -> tuple[Float[Tensor, "victim class"], Float[Tensor, "... class"]]:
    """Return the class counts whose effects fit a bias's gradient best, and the growth of its noise in them."""
    # Least squares over counts that add up to the number of records. Effects are a record's part by its class; growth
    # is the norm of each count's derivative in the gradient's entries times the number of records.
    classes = effects.shape[-2]
    # Counts with the right sum: equal ones, moved along directions whose entries sum to 0.
    along = torch.linalg.svd(effects.new_ones(1, classes)).Vh[1:].mT
    inverse = along @ torch.linalg.pinv(effects.mT @ along)
    even = effects.mean(-2)
    counts = records / classes + records * (inverse @ (moved - even)[..., None])[..., 0]
    return counts, inverse.norm(dim=-1)


def weigh_counts(
    counts: Float[Tensor, "victim class"],
    knowledge: Knowledge,
    share: Float[Tensor, " class"],
    growth: Float[Tensor, "... class"] | float = 1.0,
) -> Float[Tensor, "victim class"]:
    """Weigh class counts from a noisy gradient against those that the public marginal expects."""
    # The count of class c has mean B p and variance B p (1 - p) before the gradient is seen, B the batch size and p the
    # class's public share; noise of standard deviation s on the bias adds an error of B s, times ``growth``, to the
    # restored count. The two are combined in proportion to their precision; without noise nothing is changed.
    noise, records = knowledge.defense.noise, knowledge.batch_size
    if noise == 0:
        return counts
    expected, variance = records * share, records * share * (1 - share)
    return expected + variance / (variance + (records * noise * growth) ** 2) * (counts - expected)


def counts_by_sign(
    signs: Float[Tensor, "victim class"], mean: Float[Tensor, " class"], records: int, share: Float[Tensor, " class"]
) -> Float[Tensor, "victim class"]:
    """Return the expected class counts of a batch for which only the signs of the bias gradient are known."""
    # The derivative with respect to the bias of class c is positive where fewer than B m records are labelled c, with m
    # the mean predicted probability of c and B the batch size, and negative where more are. The expectation is that of
    # a binomial count of the class's public share, on that side of B m; where a sign is 0 the count is B m itself.
    counts = torch.arange(records + 1, dtype=mean.dtype, device=mean.device)[:, None]
    whole = torch.full_like(counts, records)
    ways = torch.lgamma(whole + 1) - torch.lgamma(counts + 1) - torch.lgamma(whole - counts + 1)
    chance = (ways + torch.xlogy(counts, share) + torch.xlogy(whole - counts, 1 - share)).exp()
    turn = records * mean
    expected = []
    for side in (counts < turn, counts > turn):
        likely = chance * side
        total = likely.sum(0)
        # Where the marginal allows no count on this side, the gradient decides, and the count is B m.
        expected.append(torch.where(total > 0, (likely * counts).sum(0) / total, turn))
    return torch.where(signs > 0, expected[0], torch.where(signs < 0, expected[1], turn))
