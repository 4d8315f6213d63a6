"""Plain values of parts and digests of them, by which computations are compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from seepage.packages import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import torch

    # Values of JSON; a mapping's keys are texts.
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    np, torch = LazyModule("numpy"), LazyModule("torch")
    # Type checkers at run time take no type that contains itself.
    Json = object


def digest_of(values: Mapping[str, Json]) -> str:
    """Return a short digest of JSON values, the same for equal ones, whatever the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def arguments_of(part: object) -> dict[str, Json]:
    """Return the class and all arguments of a part as JSON values; of a function its name."""
    values = plain(part)
    return values if isinstance(values, dict) else {"kind": values}


def attributes_of(value: object) -> dict[str, object]:
    """Return the attributes of an object without what was computed from the others and kept (``cached_property``)."""
    attributes = getattr(value, "__dict__", {})
    computed = {name for name in attributes if isinstance(getattr(type(value), name, None), cached_property)}
    return {name: item for name, item in attributes.items() if name not in computed}


def plain(value: object) -> Json:
    """Return a part and all its arguments as JSON values, equal for equal parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__qualname__, **fields}
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        return [list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    # Never repr(): by default it holds an address, which differs from run to run.
    inner = {name: plain(item) for name, item in sorted(attributes_of(value).items())}
    return {"kind": type(value).__qualname__, **inner}
