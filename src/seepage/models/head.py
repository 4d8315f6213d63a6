"""Choices about networks, as types. Nothing here imports PyTorch."""

from typing import Literal

Head = Literal["softmax", "sigmoid", "regression"]
"""Outputs of a network."""

Dropout = Literal["refused", "off"]
"""What is done with a network that drops values in training: it is refused, or audited without dropout."""
