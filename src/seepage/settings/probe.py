"""Facts on a model's behaviour on some of a client's rows, for checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """The units of one activation layer.

    Attributes:
        stuck: number of units with a vanishing derivative on every row looked at.
    """

    name: str
    kind: str
    units: int
    stuck: int


@dataclass(frozen=True)
class Gradients:
    """Gradients of some batches of one size.

    Attributes:
        norms: norm of each gradient, with the batches' own labels.
        spread: greatest difference between two of the batches' gradients when all have the same labels,
            as a share of the greatest norm; None where batches cannot differ or all norms are zero.
    """

    batch_size: int
    norms: tuple[float, ...]
    spread: float | None


@dataclass(frozen=True)
class Probe:
    """Facts on a model's behaviour on some of a client's rows, without any defense.

    Attributes:
        certain: share of them whose predicted probability is beyond 0.999 or below 0.001 for every class;
            None for a regression.
        layers: the ReLU, sigmoid and tanh layers that ran on them.
        gradients: gradients of batches of each size, the first batches that the audit itself attacks.
    """

    rows: int
    certain: float | None
    layers: tuple[Layer, ...]
    gradients: tuple[Gradients, ...]
