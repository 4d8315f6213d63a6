"""Many fully connected networks of one shape, trained at once: models are a leading axis of every tensor."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError, check_count
from seepage.shadow.learner import Trained, check_recipe, check_rows, in_parts

# Largest size of a chunk's gathered batch, in bytes: on a processor small enough for its cache, on an accelerator large
# enough to fill it.
CHUNK_BYTES = 2**21
ACCELERATOR_BYTES = 2**29


@dataclass(frozen=True)
class Stacked(Trained):
    """Fully connected ReLU networks with a softmax; without hidden layers, multinomial logistic regressions."""

    weights: tuple[Float[Tensor, "model _out _in"], ...]
    biases: tuple[Float[Tensor, "model _out"], ...]

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Weights and biases, layer by layer."""
        return tuple(part for pair in zip(self.weights, self.biases, strict=True) for part in pair)

    def holding(self, parameters: Iterable[Tensor]) -> Stacked:
        """Return models with other weights and biases, layer by layer."""
        parts = tuple(parameters)
        return Stacked(parts[0::2], parts[1::2])

    def logits(self, inputs: Float[Tensor, "query encoded"]) -> Float[Tensor, "model query label"]:
        """Return every model's logits for the same queries."""
        first = self.weights[0]
        # One product serves all models. Queries are the last axis until the end, which makes every step contiguous.
        hidden = (first.flatten(0, 1) @ inputs.to(first).mT).unflatten(0, first.shape[:2]) + self.biases[0][..., None]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            hidden = torch.baddbmm(bias[..., None], weight, hidden.relu_())
        return hidden.mT

    def answers(self, inputs: Float[Tensor, "query encoded"]) -> Float[Tensor, "model query label"]:
        """Return every model's chances of each class for the same queries."""
        return torch.softmax(self.logits(inputs), dim=-1)

    def moved(self, steps: Float[Tensor, "model parameter"]) -> Stacked:
        """Return models whose parameters are reduced by ``steps``, which are in the order of ``flat``."""
        parts = steps.split([part[0].numel() for part in self.parameters], dim=1)
        return self.holding(part - step.view_as(part) for part, step in zip(self.parameters, parts, strict=True))


@dataclass(frozen=True)
class Dense:
    """Recipe of fully connected networks: Adam on the mean cross-entropy of shuffled batches.

    Every model draws its first weights (as ``nn.Linear`` does: uniformly, at most 1 / root of the layer's inputs in
    size) and the order of its rows from a generator of its own. It is therefore the same, up to rounding, whichever
    models are trained beside it.

    Source: Zhang, Tople and Ohrimenko (2021), appendix: 12 or 20 hidden units, Adam at 0.01, weight decay 1e-4. Epochs
    and batches are not stated there, 20 and 128 here.

    Attributes:
        hidden: units of each hidden layer; none for logistic regression.
        batch_size: number of rows of a step; None for all of them.
        clip: bound on the norm of each record's gradient (DP-SGD); None for none.
        noise: noise multiplier: standard deviation of the noise on the sum of a batch's clipped gradients, in units of
            ``clip``.

    Raises:
        BadInputError: a count is below its least value, a rate is no number from 0 up, or noise comes without a clip.

    Example:
        >>> rows = torch.tensor([[0.0], [1.0], [0.0], [1.0]])
        >>> models = Dense(classes=2, epochs=200, batch_size=None).train(
        ...     rows, torch.tensor([0, 1, 0, 1]), torch.tensor([[0, 1], [2, 3]]), seeds=[0, 1]
        ... )
        >>> models.answers(rows[:2]).argmax(2).tolist()
        [[0, 1], [0, 1]]
    """

    classes: int
    hidden: tuple[int, ...] = ()
    epochs: int = 20
    batch_size: int | None = 128
    learning_rate: float | int = 0.01
    weight_decay: float | int = 1e-4
    clip: float | int | None = None
    noise: float | int = 0.0

    def __post_init__(self) -> None:
        counts = {"epochs": self.epochs, "batch_size": self.batch_size}
        rates = {"learning_rate": self.learning_rate, "clip": self.clip}
        check_recipe(self.classes, counts, rates, {"weight_decay": self.weight_decay, "noise": self.noise})
        for width in self.hidden:
            check_count("hidden", width)
        if self.noise and self.clip is None:
            raise BadInputError("noise is measured in units of clip, which is missing; give a bound (clip=1.0).")

    def describe(self) -> dict[str, object]:
        """Return the recipe as plain values."""
        return {"model": "mlp" if self.hidden else "lr", **asdict(self), "hidden": list(self.hidden)}

    def initial(self, width: int, seeds: Sequence[int]) -> tuple[Stacked, list[torch.Generator]]:
        """Return untrained models and the generators that draw their batches afterwards."""
        generators = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]
        sizes = (width, *self.hidden, self.classes)
        weights, biases = [], []
        for inner, outer in itertools.pairwise(sizes):
            drawn = torch.stack([torch.rand(outer, inner + 1, generator=generator) for generator in generators])
            drawn = (2 * drawn - 1) * inner**-0.5
            weights.append(drawn[..., :-1].contiguous())
            biases.append(drawn[..., -1].contiguous())
        return Stacked(tuple(weights), tuple(biases)), generators

    def train(
        self,
        inputs: Float[Tensor, "row encoded"],
        labels: Int[Tensor, " _row"],
        chosen: Int[Tensor, "model trained"],
        seeds: Sequence[int],
    ) -> Stacked:
        """Train one model on each line of ``chosen`` positions of rows, see ``Learner``."""
        check_rows(inputs, labels, chosen, seeds, self.classes)
        inputs, labels, chosen = inputs.float(), labels.long(), chosen.long()
        size = min(self.batch_size or chosen.shape[1], chosen.shape[1])
        budget = CHUNK_BYTES if inputs.device.type == "cpu" else ACCELERATOR_BYTES
        at_once = max(1, budget // (4 * size * inputs.shape[1]))
        return in_parts(
            lambda part: self._train(inputs, labels, chosen[part], seeds[part], size),
            *(len(seeds), at_once, self.learning_rate),
        )

    def rounds(
        self,
        inputs: Float[Tensor, "row encoded"],
        labels: Int[Tensor, " _row"],
        chosen: Int[Tensor, "model trained"],
        seeds: Sequence[int],
        count: int,
    ) -> list[Stacked]:
        """Return the models of ``train`` after ``count`` of the epochs at most, evenly spaced up to the last."""
        number = min(count, self.epochs)
        last = [round(self.epochs * (k + 1) / number) for k in range(number)]
        return [replace(self, epochs=epochs).train(inputs, labels, chosen, seeds) for epochs in last]

    def _train(self, inputs: Tensor, labels: Tensor, chosen: Tensor, seeds: Sequence[int], size: int) -> Stacked:
        models, generators = self.initial(inputs.shape[1], seeds)
        models = models.holding(part.to(inputs.device) for part in models.parameters)
        rate, decay = self.learning_rate, self.weight_decay
        optimiser = torch.optim.Adam(models.parameters, lr=rate, weight_decay=decay, fused=True)
        rows = chosen.shape[1]
        for _ in range(self.epochs):
            order = torch.stack([torch.randperm(rows, generator=generator) for generator in generators])
            shuffled = chosen.gather(1, order.to(chosen.device)).to(inputs.device)
            for start in range(0, rows, size):
                batch = shuffled[:, start : start + size]
                # Picking rows one by one is several times slower than by a flat index.
                rows_of = inputs.index_select(0, batch.flatten()).unflatten(0, batch.shape)
                targets = labels.index_select(0, batch.flatten()).view(batch.shape)
                self.write_gradient(models, rows_of, targets, generators)
                optimiser.step()
        return models

    def gradients(
        self,
        models: Stacked,
        inputs: Float[Tensor, "row encoded"],
        labels: Int[Tensor, " _row"],
        chosen: Int[Tensor, "model batch"],
    ) -> Float[Tensor, "model parameter"]:
        """Return each model's gradient of the mean cross-entropy over its own rows, ordered as ``Stacked.flat``."""
        check_rows(inputs, labels, chosen, range(len(chosen)), self.classes)
        # Backpropagation writes gradients to parameters; these copies keep the models untouched.
        copied = models.holding(part.detach().clone() for part in models.parameters)
        plain = replace(self, clip=None, noise=0.0)
        plain.write_gradient(copied, inputs.float()[chosen], labels.long()[chosen], [])
        gradients = []
        for parameter in copied.parameters:
            assert parameter.grad is not None
            gradients.append(parameter.grad.flatten(1))
        return torch.cat(gradients, dim=1)

    def write_gradient(
        self,
        models: Stacked,
        rows: Float[Tensor, "model record encoded"],
        labels: Int[Tensor, "model record"],
        generators: list[torch.Generator],
    ) -> None:
        """Write each parameter's gradient to its ``grad``: the chain rule by hand, which avoids autograd's overhead."""
        entering = [rows.mT]
        for weight, bias in zip(models.weights[:-1], models.biases[:-1], strict=True):
            entering.append(torch.baddbmm(bias[..., None], weight, entering[-1]).relu_())
        delta = torch.softmax(torch.baddbmm(models.biases[-1][..., None], models.weights[-1], entering[-1]), dim=1)
        delta.scatter_add_(1, labels[:, None], delta.new_full((len(labels), 1, labels.shape[1]), -1.0))
        deltas = [delta]
        for weight, inner in zip(reversed(models.weights[1:]), reversed(entering[1:]), strict=True):
            deltas.append(torch.bmm(weight.mT, deltas[-1]).mul_(inner > 0))
        deltas.reverse()
        share = 1 / labels.shape[1]
        scale: Tensor | float = share
        if self.clip is not None:
            # A record's gradient of a layer is an outer product, whose norm is a product of norms.
            squares = torch.zeros_like(labels, dtype=delta.dtype)
            for step, inner in zip(deltas, entering, strict=True):
                squares += step.square().sum(1) * (inner.square().sum(1) + 1)
            scale = (share * (self.clip / squares.sqrt().clamp(min=1e-12)).clamp(max=1.0))[:, None]
        for weight, bias, step, inner in zip(models.weights, models.biases, deltas, entering, strict=True):
            step.mul_(scale)
            weight.grad, bias.grad = torch.bmm(step, inner.mT), step.sum(2)
        if self.noise and self.clip is not None:
            for parameter in (*models.weights, *models.biases):
                assert parameter.grad is not None
                drawn = torch.stack([torch.randn(parameter.shape[1:], generator=generator) for generator in generators])
                parameter.grad += drawn.to(parameter.device) * (self.noise * self.clip * share)
