"""Checks of a training: labels that differ, losses and messages that hold finite numbers only."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from seepage.errors import BadInputError, NotFiniteError
from seepage.tabular.schema import Column


def check_finite(message: Mapping[str, Tensor]) -> None:
    """Refuse with NotFiniteError a message with an entry that is not finite: no attack's figure would mean anything."""
    for name, tensor in message.items():
        finite = tensor.isfinite()
        if not bool(finite.all()):
            wrong = tensor[~finite]
            raise NotFiniteError(
                f"the message holds {float(wrong[0])} in its {name} ({len(wrong)} of {tensor.numel()} entries not "
                "finite); give less noise."
            )


def check_labels(labels: Tensor, target: Column) -> None:
    """Refuse labels that are the same in all rows, which lie along the last axis."""
    if bool((labels == labels[..., :1]).all(-1).any()):
        raise BadInputError(
            f"the target {target.name!r} is the same in all {labels.shape[-1]} rows, so there is nothing to learn; "
            "choose another target or add rows where it differs."
        )


def check_losses(losses: Tensor, training: str, learning_rate: float | int) -> None:
    """Refuse a training whose losses are not finite."""
    if not bool(losses.isfinite().all()):
        raise BadInputError(
            f"{training} training at a learning rate of {learning_rate:g} ended in numbers that are not finite; give a "
            "smaller learning_rate."
        )
