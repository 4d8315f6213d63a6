"""One run of a protocol: the view of the curious party, and the secret that it tries to learn.

Only settings and the assessment may read the secret; attacks and baselines cannot import this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from jaxtyping import Float, Int
from torch import Tensor

from seepage.wire.horizontal import AnyView
from seepage.wire.pooled import ModelView, PredictionView
from seepage.wire.split import CutView
from seepage.wire.vertical import ActivationView

V = TypeVar("V", bound=AnyView, covariant=True)
A = TypeVar("A", bound=ActivationView, covariant=True)


@dataclass(frozen=True)
class RecordsSecret:
    """The true records and labels behind each victim's update: float64, codes, or values of numbers.

    ``used`` are the records in each of several rounds' messages; None where all of them are.
    """

    cells: Float[Tensor, "victim record column"]
    labels: Float[Tensor, "victim record"]
    used: Int[Tensor, "victim round used"] | None = None


@dataclass(frozen=True)
class Transcript(Generic[V]):
    """Views and the secret behind them, for the same victims in the same order."""

    view: V
    secret: RecordsSecret


@dataclass(frozen=True)
class CutTranscript:
    """The view of split learning's server, and true private cells and labels, before any flip, of the same records."""

    view: CutView
    cells: Float[Tensor, "record private"]
    labels: Float[Tensor, " record"]


@dataclass(frozen=True)
class FeatureTranscript(Generic[A]):
    """The view of the active party, or of a server without columns, and the target's true cells and labels."""

    view: A
    cells: Float[Tensor, "training record column"]
    labels: Float[Tensor, "training record"]

    def of(self, records: slice) -> FeatureTranscript[A]:
        """Return the transcript of some of the records."""
        return FeatureTranscript(cast("A", self.view.of(records)), self.cells[:, records], self.labels[:, records])


@dataclass(frozen=True)
class ColumnsSecret:
    """A passive party's true cells, and the labels of the same records, where views are of more records than these."""

    cells: Float[Tensor, "training record column"]
    labels: Float[Tensor, "training record"]


@dataclass(frozen=True)
class PooledTranscript:
    """The views that a party or client may have of joint models, and the attribute's share in each victim's rows."""

    answers: PredictionView
    models: ModelView
    shares: Float[Tensor, " target"]
