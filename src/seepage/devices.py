"""The device that computes."""

from __future__ import annotations

import torch

from seepage.errors import BadInputError
from seepage.text import how_many


def find_device(name: str) -> torch.device:
    """Return a device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:1``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadInputError(
            f"device {name!r} was asked for but PyTorch sees {how_many(torch.cuda.device_count(), 'CUDA device')}; "
            "use 'cpu' or 'auto', or install a PyTorch build with CUDA support."
        )
    return device
