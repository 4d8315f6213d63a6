"""Seeds: one random stream for each purpose of each victim, all from the audit's one seed; networks drawn from one."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")


def stream(seed: int, victim: int, purpose: str) -> int:
    """Return the seed of one victim's random numbers for one purpose, in [0, 2**63).

    It depends on nothing else, so that a victim is the same whichever attacks, batch sizes and other
    victims are in the audit.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(victim, zlib.crc32(purpose.encode())))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def seeded(build: Callable[[], T], seed: int) -> T:
    """Return ``build()`` with PyTorch's own initialisation drawn from ``seed``, global state untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # noqa: TID251  initialisers of torch.nn take no generator; the fork undoes it
        return build()
