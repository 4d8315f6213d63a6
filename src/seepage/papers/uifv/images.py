"""Convolutional networks of vertical learning on images; several trainings run as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.models.vertical import Stack, VerticalModel
from seepage.seeds import seeded
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Discrete

# Channels, height and width of a party's part of an image; its columns go channel by channel, row by row.
Shape = tuple[int, int, int]

# Features of a position of the image, after a bottom model has halved height and width.
_CHANNELS = 64
# Images processed at once where no gradient is needed.
_AT_ONCE = 256
# Number of positions that smoothing of made-up images averages over in each direction, and the deviation of the result,
# in units of half the range.
_WINDOW = 5
_CONTRAST = 0.4


class Convolutions(nn.Module):
    """Convolutions of the same sizes, one a network, each with PyTorch's default initialisation.

    Groups and dilation of the convolutions are as by default.
    """

    def __init__(self, make: Callable[[], nn.Conv2d | nn.ConvTranspose2d], seeds: Sequence[int]) -> None:
        super().__init__()
        convolutions = [seeded(make, seed) for seed in seeds]
        self.weights = nn.Parameter(torch.stack([convolution.weight.detach() for convolution in convolutions]))
        self.biases = nn.Parameter(torch.stack([c.bias.detach() for c in convolutions if c.bias is not None]))
        first = convolutions[0]
        # PyTorch also accepts a word for the padding, which is not used here.
        self.stride, self.padding = first.stride, tuple(int(side) for side in first.padding)
        self.more = first.output_padding if isinstance(first, nn.ConvTranspose2d) else None

    def forward(
        self, images: Float[Tensor, "network image channel height width"]
    ) -> Float[Tensor, "network image out high wide"]:
        """Return the outputs of each network's convolution for its images."""
        networks = len(self.weights)
        # Networks are groups of channels of one convolution.
        flat = images.transpose(0, 1).flatten(1, 2)
        weights, biases = self.weights.flatten(0, 1), self.biases.flatten()
        if self.more is None:
            outputs = functional.conv2d(flat, weights, biases, self.stride, self.padding, groups=networks)
        else:
            outputs = functional.conv_transpose2d(
                flat, weights, biases, self.stride, self.padding, self.more, groups=networks
            )
        return outputs.unflatten(1, (networks, -1)).transpose(0, 1)


class ImageBottom(nn.Module):
    """Bottom models: two convolutions of 64 channels with ReLU, then a max pooling of two by two positions."""

    def __init__(self, shape: Shape, seeds: Sequence[int]) -> None:
        super().__init__()
        self.shape = shape
        self.first = Convolutions(lambda: nn.Conv2d(shape[0], _CHANNELS, 3, padding=1), seeds)
        self.second = Convolutions(lambda: nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1), seeds)

    def forward(self, rows: Float[Tensor, "network image pixel"]) -> Float[Tensor, "network image feature"]:
        """Return features, channel by channel."""
        return _in_parts(self._part, rows)

    def _part(self, rows: Tensor) -> Tensor:
        maps = self.second(self.first(rows.unflatten(-1, self.shape)).relu()).relu()
        return functional.max_pool2d(maps.flatten(0, 1), 2).unflatten(0, maps.shape[:2]).flatten(2)


class ImageTop(nn.Module):
    """Top models: four convolutions and two fully connected layers on the parties' features side by side."""

    def __init__(self, shape: Shape, parties: int, outputs: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.inputs = (parties, _CHANNELS, shape[1] // 2, shape[2] // 2)
        sizes = (_CHANNELS, _CHANNELS, _CHANNELS, 2 * _CHANNELS, 2 * _CHANNELS)
        self.layers = nn.ModuleList(
            Convolutions(lambda a=a, b=b: nn.Conv2d(a, b, 3, padding=1), [seed + i for seed in seeds])
            for i, (a, b) in enumerate(pairwise(sizes))
        )
        places = (shape[1] // 8) * (parties * shape[2] // 8)
        self.last = Stack((sizes[-1] * places, 128, outputs), [seed + len(sizes) for seed in seeds])

    def forward(self, features: Float[Tensor, "network image feature"]) -> Float[Tensor, "network image output"]:
        """Return the outputs."""
        return _in_parts(self._part, features)

    def _part(self, features: Tensor) -> Tensor:
        maps = torch.cat(features.unflatten(-1, self.inputs).unbind(2), dim=-1)
        for i, layer in enumerate(self.layers):
            maps = layer(maps).relu()
            if i % 2:
                maps = functional.max_pool2d(maps.flatten(0, 1), 2).unflatten(0, maps.shape[:2])
        return self.last(maps.flatten(2))


class ImageInverse(nn.Module):
    """UIFV's InverNet for images: 1 to 3 transposed convolutions, of which the first doubles height and width."""

    def __init__(self, shape: Shape, layers: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.inputs = (_CHANNELS, shape[1] // 2, shape[2] // 2)
        sizes = (*[_CHANNELS] * layers, shape[0])
        self.layers = nn.ModuleList(
            Convolutions(
                lambda a=a, b=b, s=1 if i else 2: nn.ConvTranspose2d(a, b, 3, s, padding=1, output_padding=s - 1),
                [seed + i for seed in seeds],
            )
            for i, (a, b) in enumerate(pairwise(sizes))
        )

    def forward(self, features: Float[Tensor, "network image feature"]) -> Float[Tensor, "network image pixel"]:
        """Return images as rows."""
        return _in_parts(self._part, features)

    def _part(self, features: Tensor) -> Tensor:
        maps = features.unflatten(-1, self.inputs)
        for i, layer in enumerate(self.layers):
            maps = layer(maps.relu() if i else maps)
        return maps.flatten(2)


@dataclass(frozen=True)
class ImagePart:
    """A party's part of images, as its attacker knows it; InverNet has ``layers`` (2 in the paper) unless asked."""

    shape: Shape
    layers: int = 2

    def bottom(self, seeds: Sequence[int]) -> ImageBottom:
        """Return bottom models, from encoded images to features."""
        return ImageBottom(self.shape, seeds)

    def inverse(self, layers: int, seeds: Sequence[int]) -> ImageInverse:
        """Return networks from features to encoded images."""
        return ImageInverse(self.shape, layers, seeds)

    def queries(self, rows: int, seeds: Sequence[int]) -> Float[Tensor, "training row pixel"]:
        """Return images of smoothed normal noise around a colour drawn at random, from -1 to 1."""
        images = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(rows, *self.shape, generator=generator)
            smooth = functional.avg_pool2d(noise, _WINDOW, stride=1, padding=_WINDOW // 2, count_include_pad=False)
            colour = 2 * torch.rand(rows, self.shape[0], 1, 1, generator=generator) - 1
            images.append((colour + _CONTRAST * smooth / smooth.std()).clamp(-1, 1).flatten(1))
        return torch.stack(images)


def _in_parts(call: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return a network's outputs for its rows, computed in chunks where no gradient is needed."""
    if torch.is_grad_enabled() or rows.shape[1] <= _AT_ONCE:
        return call(rows)
    return torch.cat([call(part) for part in rows.split(_AT_ONCE, dim=1)], dim=1)


def vertical_images(partition: Partition, seeds: Sequence[int], shape: Shape) -> VerticalModel:
    """Return convolutional networks for some trainings, of parties that hold equal parts of each image.

    Source: Yang et al., UIFV (arXiv 2406.12588). Deviations: the printed channels of the bottom model's two layers do
    not fit each other, 3 to 64 and 64 to 64 here; widths of the top model are not stated, convolutions of 64, 64, 128
    and 128 channels, pooled after each two, and 128 units here.
    """
    pixels = shape[0] * shape[1] * shape[2]
    widths = sorted({len(columns) for columns in partition.columns})
    if widths != [pixels] or shape[1] % 8 or shape[2] % 8:
        raise BadInputError(
            f"networks for images of {shape[1]} rows of {shape[2]} places take parties of {pixels:,} numbers each and "
            f"sides that are multiples of eight, but parties hold {' or '.join(map(str, widths))}; cut images into "
            "equal parts of such sides."
        )
    target = partition.schema.target
    classes = target.width if isinstance(target, Discrete) else 2
    streams = [torch.Generator().manual_seed(seed) for seed in seeds]
    # Layers draw from the seeds that follow.
    drawn = [
        [int(torch.randint(2**60, (1,), generator=stream)) for stream in streams] for _ in range(partition.parties + 1)
    ]
    bottoms = tuple(ImageBottom(shape, seeds_of_party) for seeds_of_party in drawn[1:])
    outputs, head = (1, "sigmoid") if classes == 2 else (classes, "softmax")
    top = ImageTop(shape, partition.parties, outputs, drawn[0])
    return VerticalModel(partition, bottoms, top, head, "vertical_images", ImagePart(shape))
