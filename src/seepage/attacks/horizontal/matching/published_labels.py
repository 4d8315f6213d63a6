"""Published methods that restore class counts from the gradient of the output layer, each with its own assumptions."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def by_sign(gradient: Float[Tensor, "victim class"]) -> Float[Tensor, "victim class"]:
    """Return the class of one record: that with the least derivative (iDLG: Zhao, Mopuri and Bilen, 2020)."""
    # For one record, the derivative by the output of class c is its predicted probability, less one where c is its
    # label: negative for the label alone. So is the sum of that of the output weights whose inputs are not negative.
    return nn.functional.one_hot(gradient.argmin(-1), gradient.shape[-1]).to(gradient.dtype)


def by_minimum(weights: Float[Tensor, "victim class input"], records: int) -> Float[Tensor, "victim class"]:
    """Return one record of each of the classes with the least entry (Yin et al., CVPR 2021)."""
    # Under its assumptions no class has two records, and the inputs of the output layer are not negative.
    least = weights.amin(-1)
    return torch.zeros_like(least).scatter(-1, least.topk(records, largest=False).indices, 1.0)


def by_impact(sums: Float[Tensor, "victim class"], records: int) -> Float[Tensor, "victim class"]:
    """Return counts from one record's impact on its class (LLG: Wainakh et al., PETS 2022, without auxiliary data)."""
    # Each class whose sum of derivatives of its output weights is negative has a record. A record is assumed to move
    # its class by (1 + 1/classes) / records times the sum of the negative ones; the others are assigned one after the
    # other to the class that is smallest without the assigned ones. Offsets that need more knowledge are 0.
    classes = sums.shape[-1]
    impact = (1 + 1 / classes) / records * sums.clamp(max=0).sum(-1, keepdim=True)
    left, given = sums.clone(), torch.zeros_like(sums)
    for _ in range(records):
        # Classes that must have a record and have none yet come first, the most negative first.
        owed = (sums < 0) & (given == 0)
        rank = left.where(owed | ~owed.any(-1, keepdim=True), torch.inf)
        unit = nn.functional.one_hot(rank.argmin(-1), classes).to(sums.dtype)
        given += unit
        left -= unit * impact
    return given


def by_embedding(
    weights: Float[Tensor, "victim class input"],
    bias: Float[Tensor, "victim class"],
    place: tuple[Float[Tensor, "*victim class input"], Float[Tensor, "*victim class"]],
    records: int,
) -> Float[Tensor, "victim class"]:
    """Return counts that explain the bias gradient by each class's mean record (iLRG: Ma et al., ICLR 2023)."""
    # The ratio of a class's derivatives of weights and bias is taken as its records' mean input of the output layer,
    # from which their mean prediction follows; then counts solve a linear system, by least squares. It is exact where
    # all records of a batch have the same input there.
    # Where a class's derivative vanishes, its ratio is undefined and taken as 0.
    safe = bias.where(bias != 0, torch.inf)
    embedding = weights / safe[..., None]
    predicted = (embedding @ place[0].mT + place[1][..., None, :]).softmax(-1)
    classes = bias.shape[-1]
    moved = predicted.mT - torch.eye(classes, dtype=bias.dtype, device=bias.device)
    system = torch.cat([moved, torch.ones_like(bias)[:, None]], dim=1)
    sums = torch.cat([records * bias, torch.full_like(bias[:, :1], records)], dim=1)
    return (torch.linalg.pinv(system) @ sums[..., None])[..., 0].clamp(min=0)
