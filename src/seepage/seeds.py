"""One random stream for each purpose of each victim, all from the audit's one seed."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, victim: int, purpose: str) -> int:
    """Return the seed of one victim's random numbers for one purpose, in [0, 2**63).

    It depends on nothing else, so that a victim is the same whichever attacks, batch sizes and other
    victims are in the audit.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(victim, zlib.crc32(purpose.encode())))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
