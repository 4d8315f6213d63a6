"""What attacks read of messages of federated statistics, as one guess of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float

from seepage import kernel
from seepage.wire.statistics import StatisticsGuess

Message = TypeVar("Message")


@dataclass(frozen=True)
class ReadMessage:
    """What was read of one message: codes (record, column), outcomes, what is proved, how, and facts by name."""

    cells: Float[np.ndarray, "record column"]
    labels: Float[np.ndarray, " record"]
    proof: kernel.Certified
    regime: str
    facts: Mapping[str, float] = field(default_factory=dict)


def read_each(
    messages: Sequence[Message], seeds: Sequence[int], read: Callable[[Message, int], ReadMessage]
) -> StatisticsGuess:
    """Return the guess of all messages, each read by itself with its own seed."""
    guesses = [read(message, seed) for message, seed in zip(messages, seeds, strict=True)]
    return StatisticsGuess(
        torch.from_numpy(np.stack([guess.cells for guess in guesses])),
        labels=torch.from_numpy(np.stack([guess.labels for guess in guesses])),
        proofs=tuple(guess.proof for guess in guesses),
        regime=tuple(guess.regime for guess in guesses),
        facts=tuple(guess.facts for guess in guesses) if any(guess.facts for guess in guesses) else None,
    )
