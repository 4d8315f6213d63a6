"""Plain ReLU networks at given parameters: inputs and errors of each layer, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Network:
    """A fully connected ReLU network in float64.

    Attributes:
        weights: weights of each affine layer, (unit, input).
        biases: biases of each affine layer, (unit,).

    Example:
        >>> network = Network((torch.eye(2), torch.ones(1, 2)), (torch.zeros(2), torch.zeros(1)))
        >>> passed = network.inputs(torch.tensor([[1.0, -1.0]]))
        >>> [entry.tolist() for entry in passed]
        [[[1.0, -1.0]], [[1.0, 0.0]], [[1.0]]]
        >>> [error.tolist() for error in network.errors(passed, torch.ones(1, 1))]
        [[[1.0, 0.0]], [[1.0]]]
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @classmethod
    def at(cls, parameters: Sequence[Tensor]) -> Network:
        """Return the network of the parameters, which are weights and biases in turn."""
        held = [parameter.detach().double() for parameter in parameters]
        return cls(tuple(held[::2]), tuple(held[1::2]))

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
        """Return the derivative with respect to each layer's outputs before its ReLU.

        Args:
            inputs: inputs of each layer, as ``inputs`` returns them.
            error: derivative with respect to the outputs.
        """
        found = [error]
        for weight, entered in zip(reversed(self.weights[1:]), reversed(inputs[1:-1]), strict=True):
            found.append((found[-1] @ weight) * (entered > 0))
        return found[::-1]


def extended(rows: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch extended"]:
    """Return rows with an appended 1, which the bias multiplies.

    Example:
        >>> extended(torch.zeros(1, 2)).tolist()
        [[0.0, 0.0, 1.0]]
    """
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


def errors_back(network: Network) -> Float[Tensor, "difference unit"]:
    """Return a basis of the errors at the last hidden layer's units, if all of them are active.

    With several outputs, which are classes, errors sum to 0, so that only their differences from the first count.

    Example:
        >>> network = Network((torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 5.0]])), (torch.zeros(2), torch.zeros(2)))
        >>> errors_back(network).tolist()
        [[2.0, 3.0]]
    """
    last = network.weights[-1]
    return last if len(last) == 1 else last[1:] - last[:1]
