"""Interface of recipes that train many models at once, and of these models: the same for tables, texts and graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError, check_count, non_negative, positive


@runtime_checkable
class Learner(Protocol):
    """A training recipe, known to all parties."""

    @property
    def classes(self) -> int:
        """Number of classes of a model."""
        ...

    def train(
        self, inputs: Tensor, labels: Int[Tensor, " row"], chosen: Int[Tensor, "model trained"], seeds: Sequence[int]
    ) -> Trained:
        """Train one model on each line of ``chosen`` positions of rows; ``seeds``: of first weights and batches."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the recipe as plain values."""
        ...


_Models = TypeVar("_Models", bound="Trained")


class Trained(ABC):
    """Models of one kind: a dataclass of parameters, with models on their first axis, and of values that all share."""

    names: ClassVar[tuple[str, ...]]
    """Names of the parameters, in the order of ``flat``."""

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Trained parameters, in the order of ``names``."""
        return tuple(getattr(self, name) for name in self.names)

    def __len__(self) -> int:
        return len(self.parameters[0])

    @abstractmethod
    def answers(self, inputs: Tensor) -> Float[Tensor, "model query label"]:
        """Return each model's chances of every class, for queries on the first axis of ``inputs``."""

    def holding(self: _Models, parameters: Iterable[Tensor]) -> _Models:
        """Return models with other parameters."""
        return replace(cast(Any, self), **dict(zip(self.names, parameters, strict=True)))

    def flat(self) -> Float[Tensor, "model parameter"]:
        """Return each model's parameters in one row."""
        return torch.cat([part.flatten(1) for part in self.parameters], dim=1)

    def of(self: _Models, chosen: slice) -> _Models:
        """Return some of the models."""
        return self.holding(part[chosen] for part in self.parameters)

    def followed_by(self: _Models, other: _Models) -> _Models:
        """Return these models and then those of another stack of the same shape."""
        return self.holding(torch.cat(pair) for pair in zip(self.parameters, other.parameters, strict=True))


def check_rows(
    inputs: Tensor, labels: Tensor, chosen: Int[Tensor, "model trained"], seeds: Sequence[int], classes: int
) -> None:
    """Refuse rows that models cannot be trained on."""
    if len(inputs) != len(labels):
        raise BadInputError(f"{len(inputs)} rows came with {len(labels)} labels; give one label a row.")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise BadInputError(
            f"labels are class codes from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}."
        )
    if not chosen.numel() or not 0 <= int(chosen.min()) <= int(chosen.max()) < len(inputs):
        raise BadInputError(
            f"each model is trained on at least one of the rows 0 to {len(inputs) - 1}, got positions of shape "
            f"{tuple(chosen.shape)}" + (f" up to {int(chosen.max())}." if chosen.numel() else ".")
        )
    if len(seeds) != len(chosen):
        raise BadInputError(f"{len(chosen)} models need as many seeds, got {len(seeds)}.")


def check_recipe(
    classes: int,
    counts: Mapping[str, int | None],
    above: Mapping[str, float | int | None],
    at_least: Mapping[str, float | int | None],
) -> None:
    """Refuse unusable settings of a recipe: counts from 1, numbers above 0, numbers from 0; None is not checked."""
    for name, count in counts.items():
        if count is not None:
            check_count(name, count)
    if classes < 2:
        raise BadInputError(f"a model tells at least two classes apart, got classes={classes!r}.")
    for name, value in above.items():
        if value is not None:
            positive(name, value)
    for name, value in at_least.items():
        if value is not None:
            non_negative(name, value)


def in_parts(train: Callable[[slice], _Models], count: int, at_once: int, learning_rate: float | int) -> _Models:
    """Train as many models at a time as fit into memory, and return all; refuse numbers that are not finite."""
    done = train(slice(0, at_once))
    for start in range(at_once, count, at_once):
        done = done.followed_by(train(slice(start, start + at_once)))
    if not bool(done.flat().isfinite().all()):
        raise BadInputError(
            f"training at a learning rate of {learning_rate:g} ended in numbers that are not finite; give a smaller "
            "learning_rate, or check that inputs are finite."
        )
    return done
