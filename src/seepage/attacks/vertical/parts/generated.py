"""Rows that an attacker generates for queries."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.models.images import Shape
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete

# Number of positions that smoothing averages over in each direction, and the deviation of the result, in units of half
# the range.
_WINDOW = 5
_CONTRAST = 0.4


def generated(
    encoder: Encoder, rows: int, seeds: Sequence[int], stretch: float | int = 1
) -> Float[Tensor, "training row encoded"]:
    """Return valid rows whose cells are drawn evenly: categories from all, numbers from their range.

    Args:
        encoder: encoder of the target's columns, with numbers from -1 to 1.
        rows: number of rows of each training.
        seeds: one seed a training.
        stretch: width of the range, in units of the true one.

    Example:
        >>> from seepage.datasets.planted import telling
        >>> from seepage.models.vertical import encoder_of
        >>> queries = generated(encoder_of(telling(rows=9).schema), rows=5, seeds=[0, 1])
        >>> queries.shape, queries.sum(-1).unique().tolist()
        (torch.Size([2, 5, 11]), [4.0])
    """
    return torch.stack([_one(encoder, rows, torch.Generator().manual_seed(seed), stretch) for seed in seeds])


def plain_uniform(encoder: Encoder, rows: int, seeds: Sequence[int]) -> Float[Tensor, "training row encoded"]:
    """Return rows whose encoded columns are all numbers drawn evenly from 0 to 1; they are not valid rows."""
    drawn = [torch.rand(rows, encoder.width, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(drawn)


def smooth_noise(image: Shape, rows: int, seeds: Sequence[int]) -> Float[Tensor, "training row pixel"]:
    """Return images of smoothed normal noise around a colour drawn at random, from -1 to 1.

    Args:
        image: channels, height and width.
        rows: number of images of each training.
        seeds: one seed a training.

    Example:
        >>> images = smooth_noise((3, 8, 8), rows=5, seeds=[0])
        >>> images.shape, float(images.abs().max()) <= 1
        (torch.Size([1, 5, 192]), True)
    """
    images = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(rows, *image, generator=generator)
        smooth = functional.avg_pool2d(noise, _WINDOW, stride=1, padding=_WINDOW // 2, count_include_pad=False)
        colour = 2 * torch.rand(rows, image[0], 1, 1, generator=generator) - 1
        images.append((colour + _CONTRAST * smooth / smooth.std()).clamp(-1, 1).flatten(1))
    return torch.stack(images)


def _one(encoder: Encoder, rows: int, generator: torch.Generator, stretch: float | int) -> Tensor:
    parts = []
    for column in encoder.schema.columns:
        if isinstance(column, Discrete):
            codes = torch.randint(column.width, (rows,), generator=generator)
            parts.append(functional.one_hot(codes, column.width).float())
        else:
            parts.append(stretch * (2 * torch.rand(rows, 1, generator=generator) - 1))
    return torch.cat(parts, dim=1)
