"""Networks at given parameters, layer by layer and record by record: protocol of attacks, and plain ReLU networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.attacks.horizontal.exact.spans import Span


@dataclass(frozen=True)
class ForwardRun:
    """Records on their way through a network."""

    entering: list[Float[Tensor, "record _"]]  # with an appended 1 where a layer has a bias
    outputs: Float[Tensor, "record output"]
    errors: Callable[[Tensor], list[Tensor]]  # by each layer's outputs, from those by the network's
    # Whether each unit of the first layer has no error by a record, whatever its label.
    quiet: Callable[[], Bool[Tensor, "record unit"]]
    reach: Callable[[], list[Tensor]]  # squared length of the terms of a record's inputs, two layers; generous

    def silent(self) -> Bool[Tensor, " record"]:
        """Return which records leave the first layer's units without an error."""
        return self.quiet().all(1)


class Tap(NamedTuple):
    """A deeper layer whose inputs a search compares with their span: index, width and factor of lengths."""

    layer: int
    inputs: int
    scale: float = 1.0


class Tower(NamedTuple):
    """Encoded columns that some layers take together, and no layer with other columns."""

    columns: Bool[Tensor, " encoded"]
    layers: tuple[int, ...]


@runtime_checkable
class Layered(Protocol):
    """A network whose affine layers take one input a record.

    The first ``affine`` layers take inputs that are affine in the encoded row, ``taps`` others. A state is all that the
    taps' inputs depend on and is itself affine in the encoded row, so that a search that changes one cell at a time
    computes it incrementally.
    """

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        ...

    @property
    def hidden(self) -> int:
        """Number of leading layers whose gradients distinguish single records."""
        ...

    @property
    def takes_rows(self) -> bool:
        """Whether the first layer takes the encoded row itself and has a bias."""
        ...

    @property
    def taps(self) -> Sequence[Tap]:
        """Layers whose inputs a search compares, besides the affine ones, where their spans are known."""
        ...

    @property
    def towers(self) -> Sequence[Tower]:
        """Groups of columns that no layer takes together; all columns in one of them where there are no such groups."""
        ...

    @property
    def state_weight(self) -> Float[Tensor, "state encoded"]:
        """Map from the encoded row to the state."""
        ...

    @property
    def state_bias(self) -> Float[Tensor, " state"]:
        """Constant part of the state."""
        ...

    @property
    def memory(self) -> int:
        """Numbers that are stored for each row while the taps' inputs are computed."""
        ...

    def run(self, rows: Float[Tensor, "record encoded"]) -> ForwardRun:
        """Return the records' way through the network."""
        ...

    def away(self, spans: Sequence[Span]) -> tuple[Float[Tensor, "rest encoded"], Float[Tensor, " rest"]]:
        """Return the map from the encoded row to what lies outside the spans of the affine layers' inputs."""
        ...

    def entries(self) -> list[Float[Tensor, "_ encoded"]]:
        """Return the maps from the encoded row to the affine layers' inputs, less their constants."""
        ...

    def deep(self, state: Float[Tensor, "*batch state"], rough: bool = False) -> list[Float[Tensor, "*batch _"]]:
        """Return the taps' inputs; computed in float32 if they may be rough."""
        ...

    def slopes(
        self, state: Float[Tensor, "start state"], direction: Float[Tensor, "state number"]
    ) -> list[Float[Tensor, "start _ number"]]:
        """Return the derivative of the taps' inputs along directions of the state."""
        ...


@dataclass(frozen=True)
class Network:
    """A fully connected ReLU network in float64."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @classmethod
    def of_parameters(cls, parameters: Sequence[Tensor]) -> Network:
        """Return the network of the parameters, which are weights and biases in turn."""
        values = [parameter.detach().double() for parameter in parameters]
        return cls(tuple(values[::2]), tuple(values[1::2]))

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.biases[-1])

    @property
    def hidden(self) -> int:
        """All but the last layer: its gradient has no more dimensions than there are outputs."""
        return len(self.weights) - 1

    @property
    def takes_rows(self) -> bool:
        """True in plain networks."""
        return True

    @property
    def taps(self) -> Sequence[Tap]:
        """The second layer, where its span is known."""
        return (Tap(1, len(self.weights[0])),)

    @property
    def towers(self) -> Sequence[Tower]:
        """All columns, as the first layer takes them together."""
        first = self.weights[0]
        return (Tower(torch.ones_like(first[0], dtype=torch.bool), tuple(range(self.hidden))),)

    @property
    def state_weight(self) -> Float[Tensor, "state encoded"]:
        """Weights of the first layer: the state is what it returns."""
        return self.weights[0]

    @property
    def state_bias(self) -> Float[Tensor, " state"]:
        """Biases of the first layer."""
        return self.biases[0]

    @property
    def memory(self) -> int:
        """Nothing besides the state."""
        return 0

    def run(self, rows: Float[Tensor, "record encoded"]) -> ForwardRun:
        """Return the records' way through the network."""
        inputs, weight, bias = self.inputs(rows), self.weights[0], self.biases[0]

        def reach() -> list[Tensor]:
            return [rows.square().sum(1) + 1, 1 + (rows.square() @ weight.square().T + bias.square()).sum(1)]

        entering = [extended(entered) for entered in inputs[:-1]]
        return ForwardRun(entering, inputs[-1], partial(self.errors, inputs), lambda: ~(inputs[1] > 0), reach)

    def away(self, spans: Sequence[Span]) -> tuple[Float[Tensor, "rest encoded"], Float[Tensor, " rest"]]:
        """Return the map from the encoded row to what lies outside the span of the first layer's inputs."""
        return spans[0].off_rows[:, :-1], spans[0].off_rows[:, -1]

    def entries(self) -> list[Float[Tensor, "_ encoded"]]:
        """The first layer takes the encoded row itself."""
        first = self.weights[0]
        return [torch.eye(first.shape[1], dtype=first.dtype, device=first.device)]

    def deep(self, state: Float[Tensor, "*batch state"], rough: bool = False) -> list[Float[Tensor, "*batch _"]]:
        """Return the input of the second layer, which costs so little that it is never rough."""
        return [state.relu()]

    def slopes(
        self, state: Float[Tensor, "start state"], direction: Float[Tensor, "state number"]
    ) -> list[Float[Tensor, "start _ number"]]:
        """Return the derivative of the second layer's input for the units that are active now."""
        return [(state > 0).to(state.dtype)[..., None] * direction]

    def inputs(self, rows: Float[Tensor, "*batch encoded"]) -> list[Float[Tensor, "*batch entering"]]:
        """Return the inputs of each layer, and last the outputs."""
        entering = [rows]
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            outputs = torch.nn.functional.linear(entering[-1], weight, bias)
            entering.append(outputs if i + 1 == len(self.weights) else outputs.relu())
        return entering

    def errors(
        self, inputs: Sequence[Tensor], error: Float[Tensor, "*batch output"]
    ) -> list[Float[Tensor, "*batch unit"]]:
        """Return the derivative with respect to each layer's outputs before its ReLU."""
        errors = [error]
        for weight, entered in zip(reversed(self.weights[1:]), reversed(inputs[1:-1]), strict=True):
            errors.append((errors[-1] @ weight) * (entered > 0))
        return errors[::-1]


def extended(rows: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch extended"]:
    """Return rows with an appended 1, which the bias multiplies."""
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


def errors_back(network: Network) -> Float[Tensor, "difference unit"]:
    """Return a basis of the errors at the last hidden layer's units, if all of them are active."""
    # With several outputs, which are classes, errors sum to 0, so that only their differences from the first count.
    last = network.weights[-1]
    return last if len(last) == 1 else last[1:] - last[:1]
