"""Label inference where only gradients of whole batches come back (after Zou et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.labels.heads import by_heads, inputs_of
from seepage.registry import attacks
from seepage.wire.labels import BatchView, LabelGuess, LabelKnowledge, ReturnedView


@attacks.register("label_batch", "vertical", needs=("labels",))
@dataclass(frozen=True)
class LabelBatch:
    """Takes each batch's gradient apart into those of its records, and reads these with the best of several heads.

    Source: after Zou et al., Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated
    Learning (IEEE Transactions on Big Data 2022). What comes back is encrypted record by record, so that the party
    decrypts the gradient of its own last layer alone, a mean over the batch. Deviation: the paper descends on labels
    until their gradient matches. Here the records' gradients solve the linear equations in which the activations, which
    the party knows, are the coefficients; they are exact where a batch has no more records than the layer has inputs,
    and the smallest solution otherwise.
    """

    def __call__(self, view: BatchView, knowledge: LabelKnowledge, seeds: Sequence[int]) -> LabelGuess:
        """Return the guess for the records of all batches, one after another."""
        first, *others = (
            ReturnedView(
                exchange.features.flatten(1, 2),
                taken_apart(exchange).flatten(1, 2).to(exchange.features.dtype),
                exchange.own.flatten(1, 2),
            )
            for exchange in view.exchanges
        )
        return by_heads(
            inputs_of(replace(first, earlier=tuple(others))), knowledge, seeds, "batch-level label inference"
        )


def taken_apart(view: BatchView) -> Float[Tensor, "training batch record feature"]:
    """Return the gradient of each record's own loss, the smallest ones that give the batch's gradients."""
    ones = torch.ones_like(view.hidden[..., :1])
    coefficients = torch.cat([view.hidden, ones], dim=-1).double().mT
    sums = torch.cat([view.weight, view.bias[..., None, :]], dim=-2).double() * view.hidden.shape[2]
    return torch.linalg.pinv(coefficients, rtol=1e-7) @ sums
