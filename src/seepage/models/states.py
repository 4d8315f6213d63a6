"""States of a network in the forms that federations hand on, as tensors by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from seepage.errors import BadInputError

State: TypeAlias = "Mapping[str, Tensor | np.ndarray] | Sequence[np.ndarray | Tensor] | str | Path | nn.Module"
"""A ``state_dict()``, a module, a list of arrays in the order of a ``state_dict()``, or a safetensors file."""

# What wrappers put before every name: data parallelism, ``torch.compile``, and Opacus.
WRAPPERS = ("module.", "_orig_mod.", "_module.")
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_FORMS = "a state_dict(), a list of arrays with names=model.state_dict(), or the path of a safetensors file"


def as_state(state: object, what: str, names: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Return a state as tensors by name, on the CPU, without wrappers' prefix; a list needs names in its order."""
    if isinstance(state, nn.Module):
        state = state.state_dict()
    if isinstance(state, str | Path):
        tensors: Mapping[str, object] = _from_file(Path(state), what)
    elif isinstance(state, Mapping):
        tensors = state
    elif isinstance(state, Sequence) and not isinstance(state, bytes):
        listed = list(state)
        if listed and all(isinstance(entry, tuple) and len(entry) == 2 for entry in listed):
            raise BadInputError(
                f"{what} is a list of pairs, as named_parameters() gives them; give {_FORMS}. To capture gradients, "
                "call seepage.capture(model.named_parameters(), FILE)."
            )
        keys = None if names is None else list(names)
        if keys is None:
            raise BadInputError(
                f"{what} is a list of {len(listed)} arrays, which have no names; give names=model.state_dict(), in the "
                "same order."
            )
        if len(keys) != len(listed):
            raise BadInputError(
                f"{what} is a list of {len(listed)} arrays for {len(keys)} names; give one name an array, as "
                "names=model.state_dict() does."
            )
        tensors = dict(zip(keys, listed, strict=True))
    else:
        raise BadInputError(f"{what} is of type {type(state).__name__}; give {_FORMS}.")
    if not tensors:
        raise BadInputError(f"{what} holds no tensor; give {_FORMS}.")
    prefix = common_prefix(map(str, tensors))
    return {str(name).removeprefix(prefix): _tensor(value, f"{what}: {name!r}") for name, value in tensors.items()}


def common_prefix(names: Iterable[str]) -> str:
    """Return the prefix that wrappers put before all names; empty if there is none."""
    all_names, prefix = list(names), ""
    while all_names:
        wrapper = next((w for w in WRAPPERS if all(name.startswith(prefix + w) for name in all_names)), None)
        if wrapper is None:
            break
        prefix += wrapper
    return prefix


def is_buffer(name: str, tensor: Tensor) -> bool:
    """Return whether an entry of a state is a running value and no parameter."""
    return name.rpartition(".")[2] in _RUNNING or not tensor.dtype.is_floating_point


def changes(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return before less after, by name in the order of ``before``; for running values, the value after."""
    for source, target, lacks in ((before, after, "after"), (after, before, "before")):
        missing = [name for name in source if name not in target]
        if missing:
            raise BadInputError(
                f"the state {lacks} training lacks {', '.join(map(repr, missing[:3]))}"
                f"{' and more' if len(missing) > 3 else ''}, which the other has; give two states of one network."
            )
    difference = {}
    for name, tensor in before.items():
        if tensor.shape != after[name].shape:
            raise BadInputError(
                f"{name!r} has shape {tuple(tensor.shape)} before training and {tuple(after[name].shape)} after it; "
                "give two states of one network."
            )
        difference[name] = after[name] if is_buffer(name, tensor) else tensor - after[name]
    if all(is_buffer(name, tensor) for name, tensor in before.items()):
        raise BadInputError("the states hold running values and no parameter; give whole states of one network.")
    return difference


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors by name: of each, in the order of names, its name, type, shape and bytes."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        head = f"{name}\0{str(tensor.dtype).removeprefix('torch.')}\0{'x'.join(map(str, tensor.shape))}\0"
        digest.update(head.encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def _from_file(path: Path, what: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise BadInputError(f"{what} is the file {str(path)!r}, which does not exist; give {_FORMS}.")
    try:
        return load_file(str(path))
    except (SafetensorError, OSError) as error:
        raise BadInputError(
            f"{what}, {str(path)!r}, is no whole safetensors file ({' '.join(str(error).split())}); nothing else is "
            "read here for safety's sake: write it with safetensors.torch.save_file(model.state_dict(), FILE)."
        ) from error


def _tensor(value: object, what: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, np.ndarray | np.generic):
        try:
            return torch.from_numpy(np.array(value))
        except TypeError as error:
            raise BadInputError(f"{what} is an array of type {value.dtype}, expected numbers.") from error
    raise BadInputError(f"{what} is of type {type(value).__name__} where a tensor or an array is expected.")
