"""Weights of a network from a safetensors file, checked before any is copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.pairing import Pairing, Shape, listing, pair, shapes_of

# Types that can be widened without rounding.
FLOATS = {torch.float16: 1, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3}
_ADVICE = "save them with safetensors.torch.save_file(model.state_dict(), FILE)"


def load_weights(module: nn.Module, path: str | Path, without: Collection[str] = ()) -> None:
    """Copy the weights of a safetensors file into ``module``, all of them or none.

    The file has all of ``module.state_dict()``, in types that the module's represent without rounding. Tensors that
    share memory need to be there once, and those ``without`` which a server sends its model need not be there.
    """
    wanted, what = _tensors(module), f"the weights file {str(path)!r}"
    buffers = {name for name, _ in module.named_buffers()}
    tensors, _ = read_paired(path, shapes_of(wanted), what, _ADVICE, buffers)
    for name, tensor in tensors.items():
        check_numbers(f"{what}: {name!r}", tensor, wanted[name].dtype)
    needed = [name for name in _missing(wanted, tensors) if name not in without]
    if needed:
        raise BadInputError(
            f"{what} lacks {_few_of(needed)} of the model's {len(wanted)} tensors; it was saved from another network, "
            f"or not all of it was: {_ADVICE}. Expected: {listing(wanted, shapes_of(wanted))}."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            wanted[name].copy_(tensor)


def lacking(module: nn.Module, path: str | Path) -> tuple[str, ...]:
    """Return the tensors of a module that a file of weights lacks."""
    wanted, what = _tensors(module), f"the weights file {str(path)!r}"
    buffers = {name for name, _ in module.named_buffers()}
    tensors, _ = read_paired(path, shapes_of(wanted), what, _ADVICE, buffers)
    return tuple(_missing(wanted, tensors))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {n: t for n, t in module.state_dict(keep_vars=True).items() if isinstance(t, Tensor)}


def _missing(wanted: Mapping[str, Tensor], tensors: Collection[str]) -> list[str]:
    """Return the wanted tensors that are not there, nor others of the same memory; counters of batches may lack."""
    present = {id(wanted[name]) for name in tensors}
    counts = "num_batches_tracked"
    return [name for name, t in wanted.items() if id(t) not in present and name.rpartition(".")[2] != counts]


def read_paired(
    path: str | Path, expected: Mapping[str, Shape], what: str, advice: str, buffers: Collection[str] = ()
) -> tuple[dict[str, Tensor], Pairing]:
    """Return the tensors of a file under a network's names and in its shapes, see ``pair``; its header comes first."""
    if not Path(path).is_file():
        raise BadInputError(f"{what} does not exist; {advice}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            came = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            if not came:
                raise BadInputError(f"{what} holds no tensor; {advice}.")
            pairing = pair(came, expected, what, buffers)
            return pairing.read({name: file.get_tensor(name) for name in came}), pairing
    except SafetensorError as error:
        raise BadInputError(
            f"{what} is no whole safetensors file ({' '.join(str(error).split())}): it may have been cut short, or be "
            f"of another format, none of which is read here for safety's sake; {advice}."
        ) from error
    except OSError as error:
        raise BadInputError(f"{what} cannot be read ({error}); {advice}.") from error


def check_numbers(what: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Refuse a tensor that ``dtype`` cannot represent without rounding, or that holds NaN or infinities."""
    if dtype not in FLOATS:
        if tensor.dtype != dtype:
            raise BadInputError(f"{what} is of type {_name(tensor.dtype)}, the model's of type {_name(dtype)}.")
        return
    if tensor.dtype not in FLOATS:
        raise BadInputError(
            f"{what} is of type {_name(tensor.dtype)} where floating-point numbers are expected "
            f"({', '.join(_name(kind) for kind in FLOATS)}); undo what turned them into others, such as quantisation."
        )
    if FLOATS[tensor.dtype] > FLOATS[dtype]:
        raise BadInputError(
            f"{what} is of type {_name(tensor.dtype)}, which the model's {_name(dtype)} would round; make the model "
            f"{_name(tensor.dtype)}."
        )
    broken = ~tensor.isfinite()
    if bool(broken.any()):
        raise BadInputError(
            f"{what} holds {float(tensor[broken][0])} ({int(broken.sum())} of its {tensor.numel()} numbers are not "
            "finite); training has diverged, or the file was made from something else."
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _few_of(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
