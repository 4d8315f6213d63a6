"""Images in vertical learning, the active party's left half and the passive party's right one: scores and pictures."""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.features import OF_RANGE, within
from seepage.assessment.measurement import Measurement
from seepage.errors import BadInputError
from seepage.models.vertical import VerticalModel
from seepage.papers.uifv.images import Shape, vertical_images
from seepage.settings.setting import Scale
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Schema
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess

# Images of a picture.
_SHOWN = 10
# Range of a pixel's brightness.
_RANGE = 255.0
_LEAST = 0.5 / _RANGE
# Gap between the images of a picture, in pixels.
_GAP = 2


@dataclass(frozen=True)
class ImageHalves:
    """Rows that are images, cut into halves; columns are the pixels, channel by channel, row by row."""

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
        width, places = self.shape[2], range(len(schema.columns))
        left, right = (tuple(i for i in places if (i % width >= width // 2) == side) for side in (False, True))
        return Partition(schema, (left, right))

    def network(self, partition: Partition, seeds: Sequence[int]) -> VerticalModel:
        """Return the convolutional networks of some trainings."""
        return vertical_images(partition, seeds, self.half)

    def measure(self, transcript: FeatureTranscript, guess: FeatureGuess) -> list[Measurement]:
        """Return the figures of guessed halves, see ``measure_images``."""
        return measure_images(self.half, transcript, guess)

    def picture(self, cells: Float[Tensor, "image pixel"]) -> str | None:
        """Return a picture of the first halves."""
        return picture(self.half, cells[:_SHOWN]) or None


def measure_images(shape: Shape, transcript: FeatureTranscript, guess: FeatureGuess) -> list[Measurement]:
    """Return the figures of guessed images, one value a training, NaN where the attack itself failed.

    ``psnr``: peak signal-to-noise ratio in decibels, mean over images, by scikit-image; ``ssim``: structural
    similarity by scikit-image with its own window of seven pixels, mean over images. ``accuracy``: the share of
    brightness values that are right within a tenth of their range. ``failed``: whether the attack failed.
    """
    if guess.cells.shape != transcript.cells.shape:
        raise BadInputError(
            f"a guess of shape {tuple(guess.cells.shape)} was held against images of shape "
            f"{tuple(transcript.cells.shape)}; guess the images of the view."
        )
    metrics = library("skimage.metrics")
    failed = guess.cells.isnan().flatten(1).any(1)
    if guess.failed is not None:
        failed = failed | guess.failed
    psnr, ssim = torch.full((2, len(transcript.cells)), torch.nan, dtype=torch.float64)
    for k in (~failed).nonzero()[:, 0].tolist():
        true, guessed = (_pixels(shape, cells[k]) for cells in (transcript.cells, guess.cells))
        pairs = list(zip(true, guessed, strict=True))
        # An image without any error has an infinite ratio; half a step of brightness counts as the least error.
        ratios = [metrics.peak_signal_noise_ratio(a, np.where(a == b, b + _LEAST, b), data_range=1.0) for a, b in pairs]
        psnr[k] = float(np.mean(ratios))
        ssim[k] = float(
            np.mean([metrics.structural_similarity(a, b, channel_axis=2, data_range=1.0) for a, b in pairs])
        )
    near = within(transcript.cells.flatten(1), guess.cells.flatten(1), OF_RANGE * _RANGE).double().mean(1)
    accuracy = torch.where(failed, torch.nan, near)
    return [
        Measurement("accuracy", None, accuracy, True, (0.0, 1.0)),
        Measurement("psnr", None, psnr, True, (0.0, float("inf"))),
        Measurement("ssim", None, ssim, True, (-1.0, 1.0)),
        Measurement("failed", None, failed.double(), False, (0.0, 1.0)),
    ]


def picture(shape: Shape, cells: Float[Tensor, "image pixel"]) -> str:
    """Return images of brightness from 0 to 255 side by side as a data URI of a PNG; an empty string for a NaN."""
    if bool(cells.isnan().any()):
        return ""
    height, width = shape[1:]
    strip = np.full((height, len(cells) * (width + _GAP) - _GAP, 3), 255, dtype=np.uint8)
    for i, pixel in enumerate(_pixels(shape, cells)):
        strip[:, i * (width + _GAP) : i * (width + _GAP) + width] = np.round(pixel * _RANGE)
    written = io.BytesIO()
    library("PIL.Image").fromarray(strip).save(written, format="PNG")
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()


def library(name: str) -> ModuleType:
    """Return a module of the extra ``images``."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInputError(
            f"images are measured and drawn by {name.partition('.')[0]}, which is not installed; "
            "pip install 'seepage[images]'."
        ) from error


def _pixels(shape: Shape, cells: Float[Tensor, "image pixel"]) -> np.ndarray:
    """Return images (image, height, width, channel) from 0 to 1."""
    return (cells.unflatten(-1, shape).permute(0, 2, 3, 1).clamp(0, _RANGE) / _RANGE).numpy()
