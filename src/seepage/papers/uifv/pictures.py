"""Scores of guessed parts of images, and a picture of some of them."""

from __future__ import annotations

import base64
import importlib
import io
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.features import OF_RANGE, within
from seepage.assessment.measurement import Measurement
from seepage.errors import BadInputError
from seepage.papers.uifv.images import Shape
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess

# Range of a pixel's brightness.
_RANGE = 255.0
_LEAST = 0.5 / _RANGE
# Gap between the images of a picture, in pixels.
_GAP = 2


def measure_images(shape: Shape, seen: FeatureTranscript, guess: FeatureGuess) -> list[Measurement]:
    """Return the figures of guessed images, one value a training, NaN where the attack itself failed.

    ``psnr``: peak signal-to-noise ratio in decibels, mean over images, by scikit-image; ``ssim``: structural
    similarity by scikit-image with its own window of seven pixels, mean over images. ``accuracy``: the share of
    brightness values that are right within a tenth of their range. ``failed``: whether the attack failed.

    Args:
        shape: channels, height and width of an image.
        seen: transcript with the true images.
        guess: guess of the same images.

    Raises:
        BadInputError: the guess is of other images, or scikit-image is not installed.
    """
    if guess.cells.shape != seen.cells.shape:
        raise BadInputError(
            f"a guess of shape {tuple(guess.cells.shape)} was held against images of shape "
            f"{tuple(seen.cells.shape)}; guess the images of the view."
        )
    metrics = library("skimage.metrics")
    failed = guess.cells.isnan().flatten(1).any(1)
    if guess.failed is not None:
        failed = failed | guess.failed
    psnr, ssim = torch.full((2, len(seen.cells)), torch.nan, dtype=torch.float64)
    for k in (~failed).nonzero()[:, 0].tolist():
        true, guessed = (_pixels(shape, cells[k]) for cells in (seen.cells, guess.cells))
        pairs = list(zip(true, guessed, strict=True))
        # An image without any error has an infinite ratio; half a step of brightness counts as the least error.
        ratios = [metrics.peak_signal_noise_ratio(a, np.where(a == b, b + _LEAST, b), data_range=1.0) for a, b in pairs]
        psnr[k] = float(np.mean(ratios))
        ssim[k] = float(
            np.mean([metrics.structural_similarity(a, b, channel_axis=2, data_range=1.0) for a, b in pairs])
        )
    near = within(seen.cells.flatten(1), guess.cells.flatten(1), OF_RANGE * _RANGE).double().mean(1)
    accuracy = torch.where(failed, torch.nan, near)
    return [
        Measurement("accuracy", None, accuracy, True, (0.0, 1.0)),
        Measurement("psnr", None, psnr, True, (0.0, float("inf"))),
        Measurement("ssim", None, ssim, True, (-1.0, 1.0)),
        Measurement("failed", None, failed.double(), False, (0.0, 1.0)),
    ]


def picture(shape: Shape, cells: Float[Tensor, "image pixel"]) -> str:
    """Return images side by side as a data URI of a PNG; an empty string where a cell is NaN.

    Args:
        shape: channels, height and width of an image.
        cells: brightness from 0 to 255.

    Raises:
        BadInputError: Pillow is not installed.
    """
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
    """Return a module of the extra ``images``.

    Raises:
        BadInputError: it is not installed.
    """
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
