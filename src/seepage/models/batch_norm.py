"""Batch normalisation as a pure function of the batch, without running statistics that every forward pass changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.calling import call
from seepage.models.copies import copied
from seepage.models.dropout import place_of

_REPLACED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_ANY = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]


class Moments(NamedTuple):
    """Mean and unbiased variance of each channel at the input of a batch normalisation, over records and positions."""

    mean: Float[Tensor, "*batch channel"]
    variance: Float[Tensor, "*batch channel"]


class BatchNorm(nn.Module):
    """``nn.BatchNorm1d``, ``2d`` and ``3d`` without side effects, with the same parameters, buffers and outputs.

    Only ``advanced`` updates running statistics. Without them, evaluation takes the batch's.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.channels, self.eps, self.momentum = channels, eps, momentum
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(channels) if tracked else None)
        self.register_buffer("running_var", torch.ones(channels) if tracked else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long) if tracked else None)

    @property
    def takes_batch(self) -> bool:
        """Whether the statistics are those of the batch."""
        return self.training or self.running_mean is None

    def forward(self, values: Float[Tensor, "record channel *position"]) -> Float[Tensor, "record channel *position"]:
        """Return the values, normalised."""
        shape = (1, -1, *[1] * (values.dim() - 2))
        if self.takes_batch:
            _check_several(values)
            over = _all_but_channels(values)
            centred = values - values.mean(over).view(shape)
            variance = centred.square().mean(over)
        else:
            assert self.running_mean is not None
            assert self.running_var is not None
            centred, variance = values - self.running_mean.view(shape), self.running_var
        scale = (variance + self.eps).rsqrt()
        if self.weight is None or self.bias is None:
            return centred * scale.view(shape)
        return centred * (scale * self.weight).view(shape) + self.bias.view(shape)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.channels}, eps={self.eps}, momentum={self.momentum}, affine={self.weight is not None}"


def by_batch(module: nn.Module, name: str) -> nn.Module:
    """Return the module, or a copy in which PyTorch's batch normalisations are replaced by ``BatchNorm``.

    A layer that alone is in evaluation mode is frozen: it keeps its running statistics.
    """
    layers = [(place, part) for place, part in module.named_modules() if isinstance(part, _ANY | BatchNorm)]
    if layers and not module.training:
        raise BadInputError(
            f"model {name!r} holds batch normalisation and is in evaluation mode, but clients train in training mode, "
            "where the statistics are those of their batch; call .train() on it. A layer that is frozen in training "
            "too may stay in evaluation mode by itself."
        )
    for place, part in layers:
        hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
        if isinstance(part, BatchNorm):
            continue
        if type(part) not in _REPLACED or any(hooks) or hasattr(part, "parametrizations"):
            raise BadInputError(
                f"model {name!r} holds {type(part).__name__} at {place or 'its root'!r}, a batch normalisation that "
                "does more than nn.BatchNorm1d, 2d or 3d (it is a subclass, synchronised, or has hooks); use one of "
                "these as it is."
            )
    if all(isinstance(part, BatchNorm) for _, part in layers):
        return module
    replaced = copied(module)
    if isinstance(replaced, _ANY):
        return _replacement(replaced)
    replacements: dict[int, BatchNorm] = {}
    for parent in list(replaced.modules()):
        # Not named_children(), which lists a layer that occurs twice only once.
        for child, part in list(parent._modules.items()):
            if isinstance(part, _ANY):
                setattr(parent, child, replacements.setdefault(id(part), _replacement(part)))
    return replaced


def _replacement(layer: nn.modules.batchnorm._BatchNorm) -> BatchNorm:  # pyright: ignore[reportPrivateUsage]
    replacement = BatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.running_mean is not None)
    replacement.weight, replacement.bias = layer.weight, layer.bias
    for buffer in ("running_mean", "running_var", "num_batches_tracked"):
        setattr(replacement, buffer, getattr(layer, buffer))
    return replacement.train(layer.training)


def normalising(module: nn.Module) -> list[str]:
    """Return the layers of a module that normalise by the batch in training, each as ``Kind at 'name'``."""
    return [place_of(name, part) for name, part in module.named_modules() if isinstance(part, _ANY | BatchNorm)]


def normalisations(module: nn.Module) -> dict[str, BatchNorm]:
    """Return the batch normalisations that take their statistics from the batch, by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, BatchNorm) and part.takes_batch}


def run_watched(
    module: nn.Module, rows: Float[Tensor, "record encoded"], parameters: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Moments]]:
    """Return a batch's outputs and the moments of the inputs of each layer of ``normalisations``; fit for ``vmap``."""
    moments: dict[str, Moments] = {}

    def note(name: str, entering: Tensor) -> None:
        if name in moments:
            raise BadInputError(
                f"the batch normalisation {name!r} runs more than once in a forward pass, so that it has several sets "
                "of statistics; give each place a layer of its own."
            )
        _check_several(entering)
        over = _all_but_channels(entering)
        moments[name] = Moments(entering.mean(over), entering.var(over))

    with _listening(module, note):
        return call(module, parameters, rows), moments


@contextmanager
def _listening(module: nn.Module, note: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call a function with name and input of each layer of ``normalisations`` that runs in the block."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, inputs: note(name, inputs[0])

    handles = [part.register_forward_pre_hook(hook(name)) for name, part in normalisations(module).items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def inputs_seen(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Record the inputs of each batch normalisation, by name of the layer, while the module runs."""
    inputs: dict[str, Tensor] = {}
    with _listening(module, lambda name, entering: inputs.update({name: entering.detach()})):
        yield inputs


def advanced(
    module: nn.Module, running: Mapping[str, Tensor], moments: Mapping[str, Moments], batches: int
) -> dict[str, Tensor]:
    """Return the running statistics after one more batch, as PyTorch's layers would update them.

    The number of batches before, besides those that the layers have counted, matters where a momentum is None.
    """
    after = dict(running)
    for name, layer in normalisations(module).items():
        share = _share(layer, batches)
        for buffer, value in zip(_buffers(name), moments[name], strict=True):
            if buffer in after:
                after[buffer] = torch.lerp(after[buffer], value, share)
    return after


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Return the running statistics of the layers of ``normalisations`` that have some, by name of the buffer."""
    named = dict(module.named_buffers())
    return {buffer: named[buffer] for name in normalisations(module) for buffer in _buffers(name) if buffer in named}


def statistics_sent(module: nn.Module, moments: Mapping[str, Moments]) -> dict[str, Moments]:
    """Return the moments of a batch that running statistics sent after it reveal, with their rounding."""
    layers, buffers = normalisations(module), dict(module.named_buffers())
    readings: dict[str, Moments] = {}
    # A layer that the network does not run has no moments.
    for name, sent in moments.items():
        share = _share(layers[name], 0)
        before = [buffers[buffer].to(value) for buffer, value in zip(_buffers(name), sent, strict=True)]
        after = [torch.lerp(old, value, share) for old, value in zip(before, sent, strict=True)]
        readings[name] = Moments(*((new - (1 - share) * old) / share for new, old in zip(after, before, strict=True)))
    return readings


def keeps_statistics(module: nn.Module) -> bool:
    """Whether every normalisation by the batch moves running statistics, which reveal its moments."""
    layers = normalisations(module).values()
    return bool(layers) and all(layer.running_mean is not None and layer.momentum != 0 for layer in layers)


def from_running(
    module: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor], batches: int
) -> dict[str, Moments]:
    """Return the moments of a batch that the running statistics before and after it reveal.

    One batch moves a running statistic r to (1 - momentum) r + momentum m, so m = (r' - (1 - momentum) r) / momentum.
    The momentum divides rounding errors too. ``batches`` are those before this one, as for ``advanced``.

    Raises:
        BadInputError: statistics of a layer are missing, or its momentum is 0, so that they do not change.

    Example:
        >>> layer = nn.Sequential(BatchNorm(1, momentum=0.5))
        >>> before = {"0.running_mean": torch.zeros(1), "0.running_var": torch.ones(1)}
        >>> after = {"0.running_mean": torch.ones(1), "0.running_var": 2 * torch.ones(1)}
        >>> from_running(layer, before, after, batches=0)["0"]
        Moments(mean=tensor([2.]), variance=tensor([3.]))
    """
    moments: dict[str, Moments] = {}
    for name, layer in normalisations(module).items():
        share = _share(layer, batches)
        if share == 0:
            raise BadInputError(
                f"the batch normalisation {name!r} has momentum 0, so its running statistics never move and say "
                "nothing about a batch."
            )
        missing = [buffer for buffer in _buffers(name) if buffer not in before or buffer not in after]
        if missing:
            raise BadInputError(
                f"the running statistics lack {' and '.join(map(repr, missing))}; hand in both of every batch "
                "normalisation, before and after the batch."
            )
        moments[name] = Moments(*((after[b] - (1 - share) * before[b]) / share for b in _buffers(name)))
    return moments


def moments_of_steps(module: nn.Module, after: Mapping[str, Tensor]) -> dict[str, Moments]:
    """Return the mean moments of the batches of one or more steps that running statistics after them reveal, by layer.

    S batches move a running statistic r to (1 - m)^S r plus a mean of theirs that weighs the last most. How many they
    were is counted beside the statistics, and one where it is not. The module's buffers are those before. Layers whose
    statistics did not move, or are not there, are left out.

    Example:
        >>> layer = nn.Sequential(BatchNorm(1, momentum=0.5))
        >>> after = {"0.running_mean": torch.full((1,), 1.5), "0.running_var": torch.ones(1)}
        >>> moments_of_steps(layer, after | {"0.num_batches_tracked": torch.tensor(2)})["0"].mean
        tensor([2.])
    """
    buffers, moments = dict(module.named_buffers()), {}
    for name, layer in normalisations(module).items():
        both, counter = _buffers(name), _buffers(name)[0].replace("running_mean", "num_batches_tracked")
        if any(buffer not in after or buffer not in buffers for buffer in both) or layer.momentum == 0:
            continue
        before = [buffers[buffer].to(after[buffer]) for buffer in both]
        if all(torch.equal(old, after[buffer]) for old, buffer in zip(before, both, strict=True)):
            continue
        counted = int(buffers[counter]) if counter in buffers else 0
        steps = max(1, int(after[counter]) - counted) if counter in after else 1
        share = steps / (counted + steps) if layer.momentum is None else 1 - (1 - layer.momentum) ** steps
        mean, variance = ((after[b] - (1 - share) * old) / share for old, b in zip(before, both, strict=True))
        moments[name] = Moments(mean, variance.clamp_min(0))
    return moments


def _share(layer: BatchNorm, batches: int) -> float:
    if layer.momentum is not None:
        return layer.momentum
    counted = 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
    return 1 / (counted + batches + 1)


def _buffers(layer: str) -> tuple[str, str]:
    place = f"{layer}." if layer else ""
    return f"{place}running_mean", f"{place}running_var"


def _all_but_channels(values: Tensor) -> list[int]:
    return [0, *range(2, values.dim())]


def _check_several(values: Tensor) -> None:
    if values.shape[0] * math.prod(values.shape[2:]) < 2:
        raise BadInputError(
            "batch normalisation needs at least two values a channel, but a batch of one record gives it one: the "
            "result is 0 whatever the record holds. Use a batch size of at least 2."
        )
