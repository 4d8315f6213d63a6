"""Attacks of a passive party on the labels: by its trained features, or by the gradients that come back."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.models.kernel_regression import fitted
from seepage.wire.labels import ReturnedView


def completion_scores(
    view: ReturnedView, labelled: Int[Tensor, "training known"], labels: Float[Tensor, "training known"]
) -> Float[Tensor, "training record"]:
    """Score records by a head on the party's own trained features, which is fitted to a few known labels.

    Source: Fu et al., Label Inference Attacks Against Vertical Federated Learning (USENIX Security 2022), passive model
    completion. Deviation: the head is a regression whose penalty and kernel follow from leaving one out, instead of a
    layer that is trained with MixMatch. Known records should be left out of any figure.
    """
    return _scores(view.features, labelled, labels)


def raw_scores(
    view: ReturnedView, labelled: Int[Tensor, "training known"], labels: Float[Tensor, "training known"]
) -> Float[Tensor, "training record"]:
    """Score records by the same head on the party's own columns: a baseline without joint learning."""
    return _scores(view.own, labelled, labels)


def gradient_scores(
    view: ReturnedView, labelled: Int[Tensor, "training known"], labels: Float[Tensor, "training known"]
) -> Float[Tensor, "training record"]:
    """Score records by the cosines of their gradients with those of known records: sought label less other labels.

    Source: Li et al., Label Leakage and Protection (ICLR 2022), the direction of gradients, with several known records
    of both kinds.
    """
    _check(labels)
    trainings = torch.arange(len(labelled))[:, None]
    directions = functional.normalize(view.gradient.double(), dim=-1)
    of_labelled, sought = directions[trainings, labelled], labels.double()[..., None]
    with_it = (of_labelled * sought).sum(1, keepdim=True) / sought.sum(1, keepdim=True)
    without = (of_labelled * (1 - sought)).sum(1, keepdim=True) / (1 - sought).sum(1, keepdim=True)
    return (directions * (with_it - without)).sum(-1)


def left_out(view: ReturnedView, labelled: Int[Tensor, "training known"]) -> Bool[Tensor, "training record"]:
    """Return the records whose labels are not known."""
    rest = torch.ones(view.features.shape[:2], dtype=torch.bool)
    rest[torch.arange(len(labelled))[:, None], labelled] = False
    return rest


def _scores(
    inputs: Float[Tensor, "training record input"], labelled: Tensor, labels: Tensor
) -> Float[Tensor, "training record"]:
    _check(labels)
    trainings = torch.arange(len(labelled))[:, None]
    values = labels.double()[..., None]
    return fitted(inputs[trainings, labelled].double(), values, inputs.double()).values[..., 0]


def _check(labels: Float[Tensor, "training known"]) -> None:
    if bool((labels == labels[:, :1]).all(1).any()):
        raise BadInputError(
            f"all {labels.shape[1]} known labels of a training are the same, so that nothing tells others apart; let "
            "the party know records of both kinds."
        )
