"""The form of messages under a loss that an audit or a capture names."""

from __future__ import annotations

import torch

from seepage.errors import BadInputError
from seepage.models.head import Head
from seepage.models.message import PLAIN, MessageForm
from seepage.settings.loss import BatchLoss


def form_of(loss: BatchLoss | None, head: Head, classes: int) -> MessageForm:
    """Return the form of messages under a loss, the plain one if None.

    Args:
        head: output of the network.
        classes: number of classes; any number where the target is a number.

    Raises:
        BadInputError: the loss has not one weight for each class, or is no loss of a number.

    Example:
        >>> form_of(BatchLoss.model_validate("sum"), "sigmoid", 2).reduction
        'sum'
    """
    if loss is None:
        return PLAIN
    form = MessageForm(**loss.model_dump())
    if head != "regression":
        form.slopes(head, torch.zeros(1, classes if head == "softmax" else 1))
        if form.weights and not any(form.weights):
            raise BadInputError("weights of 0 for every class leave no gradient; give one above 0.")
    elif form.weights or form.smoothing or form.loss not in ("cross_entropy", "squared", "huber"):
        raise BadInputError(
            f"the target is a number, which the loss ({form.describe()}) is not for; of a loss of numbers give "
            "reduction, scale, or huber with delta."
        )
    return form


def loss_in_words(loss: BatchLoss | None) -> str:
    """Return the end of a sentence on a training with this loss; nothing where it is the usual one."""
    form = PLAIN if loss is None else MessageForm(**loss.model_dump())
    return "" if form.plain else f", with a loss of another form, which the attacker knows ({form.describe()})"
