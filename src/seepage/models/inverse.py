"""Networks trained to reconstruct the rows of a table from data that depend on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.errors import BadInputError, check_choice, check_count
from seepage.models.vertical import PartLayout, Stack
from seepage.pace import paced, rehearsal
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete

InverseLoss = Literal["mse", "fields"]
Inputs = Float[Tensor, "training row feature"]
Rows = Float[Tensor, "training row encoded"]
Chances = tuple[Float[Tensor, "training row _value"] | None, ...]

# A network has failed if its loss on its own rows exceeds this multiple of the best constant's.
_WORSE = 1.1
# Number of times that failed networks are trained again, each time with a smaller rate.
_RESTARTS = 2
_SLOWER = 0.2
# Training until convergence: the first of the cycles takes this share of the most steps. Another follows while the loss
# on held-out rows falls by this share, and is not small beside a constant's.
_FIRST_CYCLE = 1 / 8
_FALLING = 0.1
_SMALL = 1e-3
# Share of the rows that are held out for this. Of fewer rows every tenth counts for more than the time that is saved.
_HELD_OUT = 0.1
_ENOUGH_ROWS = 150
# Number of cells of further rows that judge convergence, whatever the number of rows.
_ENOUGH_CELLS = 1000
# Share of the most steps after which most networks have converged: two cycles.
_USUAL = 3 / 8
# Bound on the norm of one network's gradient.
_CLIP = 1.0
# Share of errors that lie below the radii.
SURE = 0.9
_TEMPERATURES = tuple(2.0**k for k in range(-6, 4))


@dataclass(frozen=True)
class Inverse:
    """Trained networks, one for each training, from inputs, shifted and scaled, to encoded rows.

    ``failed`` are those whose outputs are not finite, or fit their own rows worse than a constant.
    """

    networks: nn.Module
    mean: Float[Tensor, "training 1 feature"]
    std: Float[Tensor, "training 1 feature"]
    encoder: Encoder
    loss: InverseLoss
    failed: Bool[Tensor, " training"]

    def outputs(self, inputs: Inputs) -> Rows:
        """Return encoded rows: numbers, and for each category a score (``mse``) or a logit (``fields``)."""
        with torch.no_grad():
            return self.networks((inputs - self.mean) / self.std)

    def cells(self, inputs: Inputs) -> Float[Tensor, "training row column"]:
        """Return the rows; NaN where the network failed."""
        return torch.where(self.failed[:, None, None], torch.nan, cells_of(self.encoder, self.outputs(inputs)))

    def chances(self, inputs: Inputs) -> Chances | None:
        """Return the chance of each category of each column, None for numbers; None where trained by ``mse``."""
        return None if self.loss == "mse" else chances_of(self.encoder, self.outputs(inputs))


@dataclass(frozen=True)
class Inverter:
    """Training of networks that reconstruct rows: Adam with a rate that falls to 0 along a cosine.

    UIFV's InverNet for tables is (100, 100, 300, encoded); optimiser, rate and epochs are not stated there. Shifted and
    scaled inputs, bounded gradients and restarts of networks that diverged are additions here. The loss is the squared
    error of encoded rows (``mse``, the paper's), or the cross-entropy of each discrete column and the squared error of
    each continuous one (``fields``). ``steps`` are the least, for tables of few rows.

    With ``converge``, training ends once the loss on held-out rows no longer falls; ``epochs`` and ``steps`` are then
    its most, and it takes all of them for fewer than 150 rows, unless further rows judge it by 1,000 cells. The rate
    falls to 0 in cycles, each of twice the steps of the one before (Loshchilov and Hutter 2017), and each network is
    kept as it was after the cycle with the least loss.
    """

    hidden: tuple[int, ...] = (100, 300)
    loss: InverseLoss = "mse"
    standardise: bool = True
    epochs: int = 60
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float | int = 2e-3
    layout: PartLayout | None = None
    converge: bool = False

    def __post_init__(self) -> None:
        check_choice("loss of an inverse network:", self.loss, InverseLoss)
        for name in ("epochs", "steps", "batch_size"):
            check_count(name, getattr(self, name))
        for width in self.hidden:
            check_count("hidden", width)
        rate = self.learning_rate
        if isinstance(rate, bool) or not 0 < rate < math.inf:
            raise BadInputError(f"a learning rate is a positive number, got learning_rate={rate!r}.")

    def fit(
        self,
        inputs: Inputs,
        encoded: Rows,
        encoder: Encoder,
        seeds: Sequence[int],
        weights: Float[Tensor, "training row"] | None = None,
        held_out: tuple[Float[Tensor, "training check feature"], Float[Tensor, "training check encoded"]] | None = None,
    ) -> Inverse:
        """Train a network for each training; convergence is judged by ``held_out`` rows, or some of the rows."""
        rows = inputs.shape[1]
        apart, rehearsed = int(_HELD_OUT * rows), rehearsal()
        times = rehearsed.times if rehearsed else 1.0
        further = 0 if held_out is None else held_out[0].shape[1] * len(encoder.schema.columns)
        few = rows * times < _ENOUGH_ROWS and further * times < _ENOUGH_CELLS
        if not self.converge or weights is not None or few:
            held_out = None
        elif held_out is None:
            held_out = inputs[:, -apart:], encoded[:, -apart:]
            inputs, encoded = inputs[:, :-apart], encoded[:, :-apart]
        inverse = self._fit(inputs, encoded, encoder, seeds, weights, held_out)
        rate = float(self.learning_rate)
        for attempt in range(_RESTARTS):
            if not bool(inverse.failed.any()):
                break
            rate *= _SLOWER
            again = replace(self, learning_rate=rate)._fit(
                inputs, encoded, encoder, [seed + attempt + 1 for seed in seeds], weights, held_out
            )
            inverse = _better(inverse, again)
        return inverse

    def _networks(self, width: int, encoder: Encoder, seeds: Sequence[int]) -> nn.Module:
        if self.layout is None:
            return Stack((width, *self.hidden, encoder.width), seeds)
        return self.layout.inverse(len(self.hidden) + 1, seeds)

    def _fit(
        self,
        inputs: Tensor,
        encoded: Tensor,
        encoder: Encoder,
        seeds: Sequence[int],
        weights: Tensor | None,
        held_out: tuple[Tensor, Tensor] | None,
    ) -> Inverse:
        trainings, rows, width = inputs.shape
        mean, std = inputs.new_zeros(trainings, 1, width), inputs.new_ones(trainings, 1, width)
        if self.standardise:
            mean = inputs.mean(1, keepdim=True)
            spread = inputs.std(1, keepdim=True, correction=0)
            std = torch.where(spread > 0, spread, torch.ones_like(spread))
        scaled = (inputs - mean) / std
        networks = self._networks(width, encoder, seeds)
        parameters = list(networks.parameters())
        optimiser = torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)
        size = min(self.batch_size, rows)
        batches = math.ceil(rows / size)
        total = max(self.epochs, math.ceil(self.steps / batches)) * batches
        rehearsed = rehearsal()
        if rehearsed is not None:
            batches = math.ceil(rows * rehearsed.times / self.batch_size)
            whole = max(self.epochs, math.ceil(self.steps / batches)) * batches * (1 if held_out is None else _USUAL)
            held_out, total = None, math.ceil(whole)
        drawn = _batches(rows, size, seeds)
        index = torch.arange(trainings)[:, None]
        constant = _constant_loss(encoder, self.loss, encoded, weights)
        last = inputs.new_zeros(trainings)
        converging = None if held_out is None else _Converging(parameters, constant)
        for length in [total] if converging is None else _cycles(total):
            for step in paced(length):
                # What a schedule would set, without its costs.
                optimiser.param_groups[0]["lr"] = self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / length))
                batch = next(drawn)
                of_rows = row_losses(encoder, self.loss, networks(scaled[index, batch]), encoded[index, batch])
                if weights is not None:
                    of_rows = of_rows * weights[index, batch]
                losses = of_rows.mean(1)
                optimiser.zero_grad()
                losses.sum().backward()
                _clip(parameters)
                optimiser.step()
                if step >= length - batches:
                    last += losses.detach() * batch.shape[1] / rows
            if converging is None or held_out is None:
                break
            with torch.no_grad():
                now = row_losses(encoder, self.loss, networks((held_out[0] - mean) / std), held_out[1]).mean(1)
            if converging.ended(now):
                break
        if converging is not None:
            converging.restore()
            with torch.no_grad():
                last = row_losses(encoder, self.loss, networks(scaled), encoded).mean(1)
        finite = torch.stack([p.detach().flatten(1).isfinite().all(1) for p in parameters]).all(0)
        failed = ~finite | ~(last <= _WORSE * constant + 1e-6)
        if rehearsed is not None:
            # Too few steps to fail.
            failed = torch.zeros_like(failed)
        return Inverse(networks.requires_grad_(False), mean, std, encoder, self.loss, failed)


def _batches(rows: int, size: int, seeds: Sequence[int]) -> Iterator[Tensor]:
    """Yield positions of the rows of each step (training, row), pass after pass in an order of each training's own."""
    order = [torch.Generator().manual_seed(seed) for seed in seeds]
    while True:
        yield from torch.stack([torch.randperm(rows, generator=generator) for generator in order]).split(size, dim=1)


def _cycles(total: int) -> list[int]:
    """Return numbers of steps, each about twice the one before, whose sum is ``total``."""
    lengths, length = list[int](), math.ceil(_FIRST_CYCLE * total)
    while (left := total - sum(lengths)) > 0:
        lengths.append(left if left < 3 * length else length)
        length *= 2
    return lengths


class _Converging:
    """The networks of each training at the least loss on held-out rows so far."""

    def __init__(self, parameters: Sequence[nn.Parameter], constant: Float[Tensor, " training"]) -> None:
        self._parameters, self._constant = parameters, constant
        self._least = torch.full_like(constant, torch.inf)
        self._best = [p.detach().clone() for p in parameters]

    def ended(self, losses: Float[Tensor, " training"]) -> bool:
        """Take note of the losses after a cycle; return whether no network gains by a further one."""
        better = losses < self._least
        for best, parameter in zip(self._best, self._parameters, strict=True):
            best[better] = parameter.detach()[better]
        falling = losses < (1 - _FALLING) * self._least
        self._least = torch.where(better, losses, self._least)
        return not bool((falling & (self._least > _SMALL * self._constant)).any())

    def restore(self) -> None:
        """Set the networks back to where each was best; one that was never finite stays as it is."""
        with torch.no_grad():
            for best, parameter in zip(self._best, self._parameters, strict=True):
                parameter[self._least.isfinite()] = best[self._least.isfinite()]


@dataclass(frozen=True)
class Calibration:
    """Calibration of a network's answers on pairs that it was not trained on.

    ``temperatures`` divide the scores of each discrete column; ``radii`` are the errors of each continuous one, in
    encoded units, that nine in ten stay below; NaN for others.
    """

    temperatures: Float[Tensor, "training column"]
    radii: Float[Tensor, "training column"]

    @classmethod
    def of(cls, encoder: Encoder, outputs: Rows, encoded: Rows) -> Calibration:
        """Measure the calibration on held-out pairs of answers and true rows.

        Radii are those of split conformal prediction (Lei et al. 2018), and of fewer than nine in ten where fewer than
        ten were held out.
        """
        schema, rows = encoder.schema, outputs.shape[1]
        temperatures = torch.ones(len(outputs), len(schema.columns), dtype=outputs.dtype)
        radii = torch.full_like(temperatures, torch.nan)
        rank = min(math.ceil(SURE * (rows + 1)), rows)
        for i, (column, block) in enumerate(zip(schema.columns, schema.blocks, strict=True)):
            if isinstance(column, Discrete):
                fits = [
                    (encoded[..., block] * (outputs[..., block] / t).log_softmax(-1)).sum((1, 2)) for t in _TEMPERATURES
                ]
                temperatures[:, i] = torch.tensor(_TEMPERATURES, dtype=outputs.dtype)[torch.stack(fits).argmax(0)]
            else:
                errors = (outputs[..., block.start] - encoded[..., block.start]).abs()
                radii[:, i] = errors.sort(1).values[:, rank - 1]
        return cls(temperatures, radii)

    def chances(self, encoder: Encoder, outputs: Rows) -> Chances:
        """Return the chance of each category, None for columns of numbers."""
        return chances_of(encoder, outputs / self.temperatures[:, None, encoder.groups.argmax(1)])

    def widths(self, encoder: Encoder) -> Float[Tensor, "training column"]:
        """Return the radii in the cells' own units."""
        columns = encoder.schema.columns
        scale = [1.0 if isinstance(c, Discrete) else (c.high / 2 - c.low / 2) or 1.0 for c in columns]
        return self.radii.double() * torch.tensor(scale, dtype=torch.float64)


def row_losses(encoder: Encoder, loss: InverseLoss, outputs: Rows, encoded: Rows) -> Float[Tensor, "training row"]:
    """Return each row's loss, mean over its encoded columns (``mse``) or over its columns (``fields``)."""
    if loss == "mse":
        return (outputs - encoded).square().mean(-1)
    numbers = encoder.is_continuous
    total = (outputs[..., numbers] - encoded[..., numbers]).square().sum(-1)
    for places in encoder.categories:
        # Columns of as many categories at once, categories first: on wide tables ten times as fast as one by one.
        logits, shares = (t.index_select(-1, places.flatten()) for t in (outputs, encoded))
        chances = logits.unflatten(-1, places.shape).log_softmax(-2)
        total = total - (shares * chances.flatten(-2)).sum(-1)
    return total / len(encoder.schema.columns)


def cells_of(encoder: Encoder, outputs: Float[Tensor, "*some encoded"]) -> Float[Tensor, "*some column"]:
    """Return the cells nearest to a network's outputs: the largest entry of each group; numbers are not rounded."""
    raw = encoder.destandardise(outputs.double())
    cells = [
        raw[..., block].argmax(-1).double()
        if isinstance(column, Discrete)
        else raw[..., block.start].clamp(column.low, column.high)
        for column, block in zip(encoder.schema.columns, encoder.schema.blocks, strict=True)
    ]
    return torch.stack(cells, dim=-1)


def chances_of(encoder: Encoder, outputs: Rows) -> Chances:
    """Return the chance of each category from logits, None for columns of numbers."""
    return tuple(
        outputs[..., block].double().softmax(-1) if isinstance(column, Discrete) else None
        for column, block in zip(encoder.schema.columns, encoder.schema.blocks, strict=True)
    )


def _constant_loss(
    encoder: Encoder, loss: InverseLoss, encoded: Tensor, weights: Tensor | None
) -> Float[Tensor, " training"]:
    """Return the loss of the best outputs that are the same for all rows."""
    shares = torch.ones_like(encoded[..., 0]) if weights is None else weights
    mean = (encoded * shares[..., None]).sum(1, keepdim=True) / shares.sum(1)[:, None, None]
    if loss == "fields":
        mean = torch.where(encoder.is_continuous, mean, mean.clamp(min=torch.finfo(mean.dtype).tiny).log())
    return (row_losses(encoder, loss, mean.expand_as(encoded), encoded) * shares).mean(1)


def _clip(parameters: Sequence[nn.Parameter]) -> None:
    """Bound each network's own gradient: one that diverges must not slow the others down."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
    factor = _CLIP / norms.clamp(min=_CLIP)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


def _better(inverse: Inverse, retry: Inverse) -> Inverse:
    """Return the first's networks, and the second's where those failed."""
    chosen = inverse.failed
    with torch.no_grad():
        for first, second in zip(inverse.networks.parameters(), retry.networks.parameters(), strict=True):
            first[chosen] = second[chosen]
    return replace(inverse, failed=inverse.failed & retry.failed)
