"""The check that a message holds finite numbers only."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from seepage.errors import NotFiniteError


def check_finite(message: Mapping[str, Tensor]) -> None:
    """Refuse a message with an entry that is not finite: no attack's figure on it would mean anything.

    Args:
        message: tensors that cross the wire, by their names for people.

    Raises:
        NotFiniteError: an entry is not finite; the message names its tensor.

    Example:
        >>> import torch
        >>> check_finite({"bias": torch.tensor([1.0, torch.inf])})
        Traceback (most recent call last):
        ...
        seepage.errors.NotFiniteError: the message holds inf in its bias (1 of 2 entries not finite); give less noise.
    """
    for name, tensor in message.items():
        finite = tensor.isfinite()
        if not bool(finite.all()):
            wrong = tensor[~finite]
            raise NotFiniteError(
                f"the message holds {float(wrong[0])} in its {name} ({len(wrong)} of {tensor.numel()} entries not "
                "finite); give less noise."
            )
