"""Choices about networks, as types. Nothing here imports PyTorch."""

from typing import Literal

Head = Literal["softmax", "sigmoid", "regression"]
"""Outputs of a network."""

Dropout = Literal["on", "off"]
"""How clients train a network that drops values in training: as it is, or without dropout."""

Loss = Literal["cross_entropy", "focal", "squared", "squared_chance", "huber"]
"""Loss of one record."""

Reduction = Literal["mean", "sum"]
"""What the loss of a batch is of those of its records, as in PyTorch."""
