"""Scores of membership in a whole training, from the trained model or from the models of all its rounds.

A score is higher for likelier members. All take what a model says of a record's own class as the logit of its chance,
phi = log(p / (1 - p)), in one round or several.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Logits = Float[Tensor, "model record round"]
Scores = Float[Tensor, "target record"]
# Keeps the covariance of rounds that say nearly the same invertible.
_RIDGE = 1e-6
# Degrees of freedom by which a record's variance is drawn to the usual one: a few shadow models tell little of it.
_PRIOR = 2


def own_class_logits(
    logits: Float[Tensor, "model record label"], labels: Float[Tensor, " record"]
) -> Float[Tensor, "model record"]:
    """Return log(p / (1 - p)) of each record's own class, without the rounding of p near 0 and 1.

    Example:
        >>> own_class_logits(torch.tensor([[[2.0, 0.5]]]), torch.tensor([0.0])).tolist()
        [[1.5]]
    """
    codes = labels.long().to(logits.device)[None, :, None].expand(len(logits), -1, 1)
    values = logits.double()
    others = values.scatter(2, codes, -torch.inf).logsumexp(2)
    return values.gather(2, codes)[..., 0] - others


def loss_scores(targets: Logits) -> Scores:
    """Return the negative loss of the last round: the threshold attack of Yeom et al. (2018), without any shadow."""
    return torch.nn.functional.logsigmoid(targets[..., -1])


def lira_scores(
    targets: Logits,
    shadows: Logits,
    members: Bool[Tensor, "model record"],
    left_out: Bool[Tensor, "target model"] | None = None,
) -> Scores:
    """Return LiRA's log-likelihood ratio of each record in each target (Carlini et al. 2022, algorithm 1, online).

    The logits of a record under models that were trained with it have one normal distribution, those under the others
    another one. ``left_out``: shadow models that a target is not compared with, such as the target itself.

    Deviations: a record has one variance, that of both distributions together, drawn by two degrees of freedom to the
    geometric mean over records; the paper has two variances, of each record where there are many shadow models and of
    all records elsewhere. Several rounds are put together by the linear discriminant of all records (Fisher 1936).
    """
    weights = _weights(targets, shadows, left_out)
    direction = _discriminant(shadows.double(), members)
    scores, others = targets.double() @ direction, shadows.double() @ direction
    squares, means = torch.zeros_like(scores), list[Tensor]()
    for inside in (members.double(), 1 - members.double()):
        means.append(_means(weights, others, inside))
        squares += (weights @ inside) * (_means(weights, others.square(), inside) - means[-1].square())
    freedom = weights.sum(1, keepdim=True) - 2
    least = torch.finfo(torch.float64).tiny
    usual = (squares / freedom).clamp(min=least).log().mean(1, keepdim=True).exp()
    variance = (_PRIOR * usual + squares.clamp(min=0)) / (_PRIOR + freedom)
    return ((scores - means[1]).square() - (scores - means[0]).square()) / (2 * variance)


def _weights(targets: Tensor, shadows: Tensor, left_out: Tensor | None) -> Float[Tensor, "target model"]:
    """Return 1 for each shadow model that a target is compared with, else 0."""
    everyone = torch.ones(len(targets), len(shadows), dtype=torch.float64)
    return everyone if left_out is None else everyone - left_out.double()


def _means(weights: Tensor, values: Float[Tensor, "model record"], counted: Tensor) -> Float[Tensor, "target record"]:
    """Return for each target and record the mean over the shadow models that count."""
    return weights @ (values * counted) / (weights @ counted)


def _discriminant(values: Logits, members: Bool[Tensor, "model record"]) -> Float[Tensor, " round"]:
    """Return the weights of rounds by which members' logits differ most from others', in units of their spread."""
    count = values.shape[2]
    if count == 1:
        return torch.ones(1, dtype=torch.float64)
    gap, scatter = torch.zeros(count, dtype=torch.float64), torch.zeros(count, count, dtype=torch.float64)
    for inside, sign in ((members, 1.0), (~members, -1.0)):
        means = (values * inside[..., None]).sum(0) / inside.sum(0)[:, None]
        gap += sign * means.mean(0)
        apart = (values - means)[inside]
        scatter += apart.T @ apart
    scatter += _RIDGE * scatter.diagonal().mean() * torch.eye(count, dtype=torch.float64)
    return torch.linalg.solve(scatter, gap)


def rmia_scores(
    targets: Logits,
    shadows: Logits,
    members: Bool[Tensor, "model record"],
    population: tuple[Float[Tensor, "target other round"], Float[Tensor, "model other round"]],
    left_out: Bool[Tensor, "target model"] | None = None,
    gamma: float = 1.0,
) -> Scores:
    """Return RMIA's share of population records that a record dominates (Zarifzadeh et al. 2024, equations 2 to 4).

    A record's ratio is its chance under the target over its mean chance under models with and without it, each half
    (online); that of a population record, which no model was trained on, over its mean under all. ``population``:
    logits of population records under targets and shadows.

    Deviations: gamma is 1 (2 in the paper's experiments, at which few of a table's records dominate any); of several
    rounds the geometric mean of ratios is taken.
    """
    weights, inside = _weights(targets, shadows, left_out), members.double()
    of_targets, of_shadows = (logits.double().sigmoid() for logits in population)
    ratio_parts, others = list[Tensor](), list[Tensor]()
    for k, chances in enumerate(shadows.double().sigmoid().unbind(2)):
        expected = (_means(weights, chances, inside) + _means(weights, chances, 1 - inside)) / 2
        ratio_parts.append(targets[..., k].double().sigmoid().log() - expected.log())
        everyone = weights @ of_shadows[..., k] / weights.sum(1, keepdim=True)
        others.append(of_targets[..., k].log() - everyone.log())
    ratios, population_ratios = torch.stack(ratio_parts).mean(0), torch.stack(others).mean(0).sort(1).values
    threshold = torch.tensor(gamma, dtype=torch.float64).log()
    dominated = torch.searchsorted(population_ratios, (ratios - threshold).contiguous(), right=True)
    return dominated.double() / population_ratios.shape[1]
