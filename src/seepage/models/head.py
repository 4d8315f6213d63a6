"""Outputs of networks. Nothing here imports PyTorch."""

from typing import Literal

Head = Literal["softmax", "sigmoid", "regression"]
