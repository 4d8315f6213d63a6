"""Images in vertical learning: the active party holds the left half of each, the passive party the right half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from seepage.assessment.measurement import Measurement
from seepage.models.vertical import VerticalModel
from seepage.papers.uifv.images import Shape, vertical_images
from seepage.papers.uifv.pictures import measure_images, picture
from seepage.settings.setting import Scale
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Schema
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess

# Images of a picture.
_SHOWN = 10


@dataclass(frozen=True)
class ImageHalves:
    """Rows that are images, cut into halves.

    Attributes:
        shape: channels, height and width of an image; columns are its pixels, channel by channel, row by row.

    Example:
        >>> ImageHalves((3, 8, 16)).half
        (3, 8, 8)
    """

    shape: Shape
    scales: ClassVar[Mapping[str, Scale]] = {"psnr": Scale(), "ssim": Scale(True, -1.0, 1.0)}
    captions: ClassVar[Mapping[str, str]] = {"psnr": "{:.1f} dB", "ssim": "similarity {:.2f}"}

    @property
    def half(self) -> Shape:
        """Channels, height and width of a party's half."""
        return (self.shape[0], self.shape[1], self.shape[2] // 2)

    @property
    def words(self) -> Mapping[str, str]:
        """What reports say, see ``VerticalLayout``."""
        channels, height, width = self.half
        return {
            "split": "images, cut into a left half, the active party's, and a right one, the passive party's",
            "secret": "all brightnesses of the passive party's half",
            "sought": f"the right half of each image, {channels * height * width:,} brightnesses",
            "networks": "Convolutional bottom models and a convolutional top model",
            "figures": "psnr is the peak signal-to-noise ratio in decibels and ssim the structural similarity, means "
            "over images; accuracy is the share of brightnesses found within a tenth of their range.",
        }

    def partition(self, schema: Schema) -> Partition:
        """Return the columns of the left half, the active party's, and of the right one."""
        width = self.shape[2]
        places = range(len(schema.columns))
        left = tuple(i for i in places if i % width < width // 2)
        return Partition(schema, (left, tuple(i for i in places if i % width >= width // 2)))

    def network(self, partition: Partition, seeds: Sequence[int]) -> VerticalModel:
        """Return the convolutional networks of some trainings."""
        return vertical_images(partition, seeds, self.half)

    def measure(self, seen: FeatureTranscript, guess: FeatureGuess) -> list[Measurement]:
        """Return the figures of guessed halves, see ``measure_images``."""
        return measure_images(self.half, seen, guess)

    def picture(self, cells: Float[Tensor, "image pixel"]) -> str | None:
        """Return a picture of the first halves."""
        return picture(self.half, cells[:_SHOWN]) or None
