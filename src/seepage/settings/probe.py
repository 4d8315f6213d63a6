"""Facts on a model's behaviour on some of a client's rows, for checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """The units of one activation layer; ``stuck`` ones have a vanishing derivative on every row looked at."""

    name: str
    kind: str
    units: int
    stuck: int


@dataclass(frozen=True)
class Gradients:
    """Gradients of some batches of one size, with the batches' own labels."""

    batch_size: int
    norms: tuple[float, ...]
    # Greatest difference between two when all have the same labels, as a share of the greatest norm; None where batches
    # cannot differ or all norms are zero.
    spread: float | None


@dataclass(frozen=True)
class Probe:
    """Facts on a model's behaviour on some of a client's rows, without any defense."""

    rows: int
    # Share whose predicted probability is beyond 0.999 or below 0.001 for every class; None for a regression.
    certain: float | None
    layers: tuple[Layer, ...]
    gradients: tuple[Gradients, ...]
