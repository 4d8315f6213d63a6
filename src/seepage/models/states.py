"""States of a network in the forms that federations hand on, as tensors by name."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.pairing import is_list, pair, shapes_of

State: TypeAlias = "Mapping[str, Tensor | np.ndarray] | Sequence[np.ndarray | Tensor] | str | Path | nn.Module"
"""A ``state_dict()``, a module, a list of arrays in the order of a ``state_dict()``, or a safetensors file."""

# What wrappers put before every name: data parallelism, ``torch.compile``, and Opacus.
WRAPPERS = ("module.", "_orig_mod.", "_module.")
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_FORMS = "a state_dict(), a list of arrays with names=model.state_dict(), or the path of a safetensors file"


def as_state(state: object, what: str, names: Iterable[str] | Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return a state as tensors by name, on the CPU, without wrappers' prefix.

    The arrays of a list take ``names`` in their order. Where these are a state of the network, the list may be a part
    of it, see ``pair``. Without any, its arrays are numbered.
    """
    if isinstance(state, nn.Module):
        state = state.state_dict()
    if isinstance(state, str | Path):
        tensors: Mapping[str, object] = _from_file(Path(state), what)
    elif isinstance(state, Mapping):
        tensors = state
    elif isinstance(state, Sequence) and not isinstance(state, bytes):
        tensors = _of_list(list(state), what, names)
    else:
        raise BadInputError(f"{what} is of type {type(state).__name__}; give {_FORMS}.")
    if not tensors:
        raise BadInputError(f"{what} holds no tensor; give {_FORMS}.")
    prefix = common_prefix(map(str, tensors))
    return {str(name).removeprefix(prefix): _tensor(value, f"{what}: {name!r}") for name, value in tensors.items()}


def _of_list(
    listed: list[object], what: str, names: Iterable[str] | Mapping[str, Tensor] | None
) -> Mapping[str, object]:
    """Return the entries of a list by name."""
    if listed and all(isinstance(entry, tuple) and len(entry) == 2 for entry in listed):
        raise BadInputError(
            f"{what} is a list of pairs, as named_parameters() gives them; give {_FORMS}. To capture gradients, "
            "call seepage.capture(model.named_parameters(), FILE)."
        )
    numbered = {str(i): entry for i, entry in enumerate(listed)}
    keys = list(numbered if names is None else names)
    if len(keys) == len(listed):
        return dict(zip(keys, listed, strict=True))
    if not isinstance(names, Mapping):
        raise BadInputError(
            f"{what} is a list of {len(listed)} arrays for {len(keys)} names; give one name an array. Where some did "
            "not leave the client, names=model.state_dict() does, as far as shapes say which."
        )
    arrays = {name: _tensor(value, f"{what}: array {name}") for name, value in numbered.items()}
    buffers = [name for name, tensor in names.items() if is_buffer(name, tensor)]
    pairing = pair(shapes_of(arrays), shapes_of(names), what, buffers)
    return dict(pairing.read(arrays))


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
    """Return before less after, by name in the order of ``before``; for running values, the value after.

    What the state after training lacks did not leave the client, and is left out. Of numbered arrays, floating-point
    running values cannot be told from parameters: their change is returned.
    """
    expected, came = shapes_of(before), shapes_of(after)
    buffers = [name for name, tensor in before.items() if is_buffer(name, tensor)]
    numbered = is_list(before) and is_list(after)
    if numbered:
        # Numbers are no names: the same number may be another array.
        renamed = {f"array {name}": shape for name, shape in expected.items()}
        pairing = pair(came, renamed, "the state after training", [f"array {name}" for name in buffers])
        places = {name.removeprefix("array "): place for name, place in pairing.places.items()}
    else:
        pairing = pair(came, expected, "the state after training", buffers)
        places = dict(pairing.places)
    if pairing.layout != "as it is":
        name = next(name for name, place in places.items() if expected[name] != came[place])
        raise BadInputError(
            f"{name!r} has shape {expected[name]} before training and {came[places[name]]} after it; give two states "
            "of one network."
        )
    if all(name in buffers for name in places):
        raise BadInputError("the states hold running values and no parameter; give whole states of one network.")
    difference = {n: after[p] if n in buffers else before[n] - after[p] for n, p in places.items()}
    return dict(zip(map(str, range(len(difference))), difference.values(), strict=True)) if numbered else difference


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors by name: of each, in the order of names, its name, type, shape and bytes."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        head = f"{name}\0{str(tensor.dtype).removeprefix('torch.')}\0{'x'.join(map(str, tensor.shape))}\0"
        digest.update(head.encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def is_sent(state: Mapping[str, Tensor], digest: str, names: Collection[str]) -> bool:
    """Return whether a state, or the part of it with these names, has the digest of what a server sent.

    A server may have sent the same values in another floating-point type, and without running values.
    """
    parts = [
        dict(state),
        {name: tensor for name, tensor in state.items() if name in names},
        {name: tensor for name, tensor in state.items() if not is_buffer(name, tensor)},
        {name: tensor for name, tensor in state.items() if name in names and not is_buffer(name, tensor)},
    ]
    return any(state_digest(cast) == digest for part in parts for cast in (part, *_cast(part)))


def _cast(state: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield a state in the other floating-point types that hold its values."""
    for kind in _FLOATS:
        cast = {name: t.to(kind) if t.dtype.is_floating_point else t for name, t in state.items()}
        if all(torch.equal(cast[name].to(tensor.dtype), tensor) for name, tensor in state.items()):
            yield cast


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
