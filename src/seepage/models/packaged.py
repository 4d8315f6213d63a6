"""Networks of other packages, which the extra ``architectures`` brings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from torch import nn

from seepage.errors import BadInputError
from seepage.models.model import Head, Model, output_width, usual_head
from seepage.seeds import seeded
from seepage.tabular.schema import Discrete, Schema


def package(name: str, model: str) -> ModuleType:
    """Return a package that holds a network."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"the model {model!r} is built by the package {error.name or name!r}, which is not installed; "
            "pip install 'seepage[architectures]'."
        ) from error


def of_columns(
    build: Callable[[list[int], int, int], nn.Module], schema: Schema, seed: int, head: Head | None, name: str
) -> Model:
    """Return the model of a network of codes and numbers, built from categories, number of numbers and of outputs."""
    head = head or usual_head(schema)
    cardinalities = [column.width for column in schema.columns if isinstance(column, Discrete)]
    sizes: tuple[object, ...] = cardinalities, len(schema.continuous), output_width(schema, head)
    try:
        return Model(seeded(lambda: build(*sizes), seed), head, name)
    except (ValueError, AssertionError) as error:
        raise BadInputError(f"the model {name!r} cannot be built: {error}; change its options.") from error
