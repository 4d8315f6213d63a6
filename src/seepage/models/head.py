"""Choices about networks, as types. Nothing here imports PyTorch."""

from typing import Literal, get_args

Head = Literal["softmax", "sigmoid", "regression"]
"""Outputs of a network."""

Dropout = Literal["on", "off"]
"""How clients train a network that drops values in training: as it is, or without dropout."""

Loss = Literal["cross_entropy", "focal", "squared", "squared_chance", "huber"]
"""Loss of one record."""

Reduction = Literal["mean", "sum"]
"""What the loss of a batch is of those of its records, as in PyTorch."""


def loss_fields(named: object) -> object:
    """Return the fields of a loss that the name of a reduction or of a loss stands for; anything else as it is.

    Example:
        >>> loss_fields("sum"), loss_fields("focal"), loss_fields({"smoothing": 0.1})
        ({'reduction': 'sum'}, {'loss': 'focal'}, {'smoothing': 0.1})
    """
    if not isinstance(named, str):
        return named
    return {"reduction" if named in get_args(Reduction) else "loss": named}
