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
    """The true records behind each victim's update.

    Attributes:
        cells: true cells, float64, codes of discrete columns, values of continuous ones.
        labels: true labels: codes (classification) or values (regression).
        used: whether each record is in each of several rounds' messages; None where all of them are.
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
    """The view of split learning's server, and the client's true values of the same records in the same order.

    Attributes:
        cells: true cells of the private columns, float64: codes of discrete ones, values of continuous ones.
        labels: true class codes, before any that were flipped.
    """

    view: CutView
    cells: Float[Tensor, "record private"]
    labels: Float[Tensor, " record"]


@dataclass(frozen=True)
class FeatureTranscript(Generic[A]):
    """The view of vertical learning's active party, and the target's true values of the same records.

    Attributes:
        view: view of the active party, or of a server without columns.
        cells: true cells of the target's columns, float64: codes of discrete ones, values of continuous ones.
    """

    view: A
    cells: Float[Tensor, "training record column"]
    labels: Float[Tensor, "training record"]

    def of(self, some: slice) -> FeatureTranscript[A]:
        """Return the transcript of some of the records."""
        return FeatureTranscript(cast("A", self.view.of(some)), self.cells[:, some], self.labels[:, some])


@dataclass(frozen=True)
class PooledTranscript:
    """The views that a party or client of pooled learning may have of joint models, and the victims' shares.

    Attributes:
        shares: share of the sensitive attribute in each victim's rows.
    """

    answers: PredictionView
    models: ModelView
    shares: Float[Tensor, " target"]
