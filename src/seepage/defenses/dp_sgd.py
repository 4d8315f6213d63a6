"""DP-SGD (Abadi et al., CCS 2016): each record's gradient is clipped, and noise hides any single record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from seepage.defenses.accounting import Guarantee, gaussian_guarantee, gaussian_noise
from seepage.defenses.defense import Batches, Labels, Update, check_separate, flat, unflat, with_noise
from seepage.errors import BadInputError, positive
from seepage.learning import gradient, mean_loss
from seepage.models.model import Model
from seepage.models.wrapping import is_its_layers
from seepage.registry import ActsOn, defenses
from seepage.wire.horizontal import KnownDefense

# Entries of single records' gradients in memory at once; 64 MiB in float32.
_ENTRIES_AT_ONCE = 1 << 24
# Layers that process each record by itself and change none of their inputs in place.
_PLAIN = (nn.Linear, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Softplus, nn.Identity, nn.ReLU)


@defenses.register("dp_sgd", "horizontal")
@dataclass(frozen=True)
class DPSGD:
    """Each record's gradient is clipped, normal noise is added to their sum, and the mean is sent.

    Source: Abadi et al., Deep Learning with Differential Privacy (CCS 2016).

    The client itself adds the noise before the server sees anything, so that the guarantee holds against the server.
    It protects single records of the client, not the client as a whole. The noise is given, or follows from an epsilon
    of the whole training with ``for_training``.

    Attributes:
        clip_norm: bound on the Euclidean norm of a record's gradient, all parameters together.
        noise_multiplier: noise multiplier (noise standard deviation on every entry of the sum / clipping bound).
        epsilon: epsilon of the training that the noise is for, given instead of the noise multiplier.

    Raises:
        BadInputError: one of them is not a positive number, or not exactly one of noise and epsilon is given.

    Example:
        >>> from torch import nn
        >>> model = Model(nn.Linear(1, 1, bias=False), head="regression", name="mine")
        >>> _ = nn.init.zeros_(model.module.weight)
        >>> rows, wanted = torch.tensor([[[1.0], [1.0]]]), torch.tensor([[5.0, 0.25]])
        >>> sent = DPSGD(clip_norm=1.0, noise_multiplier=1e-9).gradient(model, rows, wanted, seeds=[0])
        >>> round(sent["weight"].item(), 4)
        -0.75
        >>> DPSGD(epsilon=3).for_training(sample_rate=0.01, steps=1000, delta=1e-4).noise_multiplier
        0.808
    """

    acts_on: ClassVar[ActsOn] = "gradients of single records"

    clip_norm: float | int = 1.0
    noise_multiplier: float | int | None = None
    epsilon: float | int | None = None

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise BadInputError(
                "dp_sgd takes either a noise_multiplier or the epsilon of a training, got "
                f"noise_multiplier={self.noise_multiplier} and epsilon={self.epsilon}; give one of them."
            )
        for name in ("clip_norm", "noise_multiplier", "epsilon"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, positive(name, getattr(self, name)))

    @staticmethod
    def words(options: Mapping[str, object]) -> str:
        """Return the defense in words, by its options."""
        if options.get("epsilon") is not None:
            return f"clipped gradients with noise for epsilon {options['epsilon']} of the training"
        return f"clipped gradients with noise of {options['noise_multiplier']} clipping bounds"

    def for_training(self, sample_rate: float, steps: int, delta: float, passes: int = 1) -> DPSGD:
        """Return it with the noise multiplier of its epsilon, see ``gaussian_noise``; itself where noise is given."""
        if self.noise_multiplier is not None:
            return self
        assert self.epsilon is not None
        noise_multiplier = gaussian_noise(self.epsilon, sample_rate, steps, delta, passes)
        return replace(self, noise_multiplier=noise_multiplier, epsilon=None)

    @property
    def _multiplier(self) -> float:
        if self.noise_multiplier is None:
            raise BadInputError(
                f"dp_sgd with epsilon {self.epsilon:g} has no noise until the training is known; give a "
                "noise_multiplier, or call for_training."
            )
        return self.noise_multiplier

    def gradient(
        self, model: Model, encoded: Batches, labels: Labels, seeds: Sequence[int], parameters: Update | None = None
    ) -> Update:
        """Return the noisy means of clipped gradients, see ``RecordDefense``."""
        check_separate("dp_sgd", model, len(encoded), seeds)
        total = self.clipped_sum(model, encoded, labels, parameters)
        noisy = with_noise(flat(total), seeds, self.clip_norm * self._multiplier)
        return unflat(noisy / encoded.shape[1], total)

    def clipped_sum(self, model: Model, encoded: Batches, labels: Labels, parameters: Update | None = None) -> Update:
        """Return the sum of the records' clipped gradients, shape (victim, *parameter)."""
        if not model.form.plain:
            # A record's own loss has no mean over the weights of others.
            model = replace(model, form=replace(model.form, reduction="sum"))
        if (layers := _chain(model.module)) is not None:
            return self._of_layers(model, layers, encoded, labels, parameters or model.parameters)
        entries = sum(parameter.numel() for parameter in model.parameters.values())
        together = max(1, _ENTRIES_AT_ONCE // (entries * len(encoded)))
        total: Update = {}
        for rows, targets in zip(encoded.split(together, 1), labels.split(together, 1), strict=True):
            gradients = gradient(model, rows[:, :, None], targets[:, :, None], parameters)
            squares = torch.stack([g.flatten(2).square().sum(2) for g in gradients.values()]).sum(0)
            # A gradient of zeros has norm 0 and stays as it is.
            factor = (self.clip_norm / squares.sqrt()).clamp(max=1)
            for name, g in gradients.items():
                part = torch.einsum("vr...,vr->v...", g, factor)
                total[name] = total[name] + part if name in total else part
        return total

    def _of_layers(
        self, model: Model, layers: list[tuple[str, nn.Module]], encoded: Tensor, labels: Tensor, place: Update
    ) -> Update:
        """Return the same for a chain of layers, without any record's gradient (Goodfellow, arXiv:1510.01799).

        The gradient in a linear layer's weights is the product of its error and its input, and so is its norm.
        """
        inputs, sums, rows = {}, {}, encoded
        with torch.enable_grad():
            for name, layer in layers:
                if isinstance(layer, nn.Linear):
                    inputs[name] = rows.detach()
                    rows = rows @ place[f"{name}.weight"].detach().mT
                    if layer.bias is not None:
                        rows = rows + place[f"{name}.bias"].detach()[..., None, :]
                    sums[name] = rows if rows.requires_grad else rows.requires_grad_()
                    rows = sums[name]
                else:
                    rows = layer(rows)
            of_each = replace(model.form, reduction="sum")
            loss = mean_loss(model.head, rows.flatten(0, 1), labels.flatten(), of_each)
            errors = dict(zip(sums, torch.autograd.grad(loss, list(sums.values())), strict=True))
        squares = torch.zeros(labels.shape, dtype=encoded.dtype, device=encoded.device)
        for name, layer in layers:
            if isinstance(layer, nn.Linear):
                squares += errors[name].square().sum(-1) * (inputs[name].square().sum(-1) + (layer.bias is not None))
        factor = (self.clip_norm / squares.sqrt()).clamp(max=1)[..., None]
        total = {}
        for name in model.parameters:
            of, _, part = name.rpartition(".")
            scaled = errors[of] * factor
            total[name] = scaled.sum(1) if part == "bias" else scaled.mT @ inputs[of]
        return total

    def noise(self, records: int) -> float:
        """Return the standard deviation of the noise on every entry of the mean over a number of records."""
        return self._multiplier * self.clip_norm / records

    def guarantee(self, sample_rate: float, steps: int, delta: float, passes: int = 1) -> Guarantee | None:
        """Return the guarantee for single records, see ``gaussian_guarantee``."""
        return gaussian_guarantee(self._multiplier, sample_rate, steps, delta, passes)

    def describe(self) -> KnownDefense:
        """Return the mechanism and its arguments."""
        arguments = {"clip_norm": self.clip_norm, "noise_multiplier": self._multiplier}
        return KnownDefense("dp_sgd", arguments, record_norm=self.clip_norm)


def _chain(module: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """Return the layers of a plain chain of linear layers and activations with their names, None for another module."""
    if not is_its_layers(module):
        return None
    modules = list(module.named_modules(remove_duplicate=False))
    layers = [(name, part) for name, part in modules if type(part) is not nn.Sequential]
    linear = [part for _, part in layers if isinstance(part, nn.Linear)]
    plain = type(module) is nn.Sequential and all(
        type(part) in _PLAIN and not getattr(part, "inplace", False) for _, part in layers
    )
    alone = len({id(p) for part in linear for p in part.parameters()}) == sum(len([*p.parameters()]) for p in linear)
    return layers if plain and alone and linear else None
