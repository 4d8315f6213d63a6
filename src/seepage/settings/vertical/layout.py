"""Interface of rows of vertical learning that are no table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from seepage.assessment.measurement import Measurement
from seepage.models.vertical import VerticalModel
from seepage.settings.setting import Scale
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Schema
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess


@runtime_checkable
class VerticalLayout(Protocol):
    """Split of a row that is no table among parties, with their networks and the measures of a guess.

    A dataset has it as its ``layout``. The active party is number 0, the attacked one number 1.
    """

    @property
    def words(self) -> Mapping[str, str]:
        """Texts for reports.

        Keys: ``split`` (split of rows, in a refusal of other shares), ``secret`` (object of the attack), ``sought``
        (one row of it), ``networks``, ``figures`` (description of the measurements).
        """
        ...

    @property
    def scales(self) -> Mapping[str, Scale]:
        """Reading of each metric that is the layout's own."""
        ...

    @property
    def captions(self) -> Mapping[str, str]:
        """Format of a metric's mean below a picture, by metric."""
        ...

    def partition(self, schema: Schema) -> Partition:
        """Return the columns of each party."""
        ...

    def network(self, partition: Partition, seeds: Sequence[int]) -> VerticalModel:
        """Return networks of some trainings, with the layout of a party's part."""
        ...

    def measure(self, transcript: FeatureTranscript, guess: FeatureGuess) -> list[Measurement]:
        """Return the figures of a guess, one value a training."""
        ...

    def picture(self, cells: Float[Tensor, "record column"]) -> str | None:
        """Return a picture of the first records as a data URI; None where there is nothing to show."""
        ...
