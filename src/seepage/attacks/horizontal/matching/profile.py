"""Configurations of attacks. Nothing here imports PyTorch."""

from typing import Literal

Profile = Literal["default", "faithful"]
