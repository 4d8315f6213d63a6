"""Weights of a network from a safetensors file, checked before any is copied."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from seepage.errors import BadInputError, nearest

# Types that can be widened without rounding.
FLOATS = {torch.float16: 1, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3}
_ADVICE = "save them with safetensors.torch.save_file(model.state_dict(), FILE)"


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Copy the weights of a safetensors file into ``module``, all of them or none.

    The file has all of ``module.state_dict()``, in types that the module's represent without rounding. Tensors that
    share memory need to be there once.
    """
    wanted = {n: t for n, t in module.state_dict(keep_vars=True).items() if isinstance(t, Tensor)}
    what = f"the weights file {str(path)!r}"
    tensors = read_tensors(path, {name: tuple(tensor.shape) for name, tensor in wanted.items()}, what, _ADVICE)
    for name, tensor in tensors.items():
        check_numbers(f"{what}: {name!r}", tensor, wanted[name].dtype)
    present = {id(wanted[name]) for name in tensors}
    missing = [name for name, tensor in wanted.items() if id(tensor) not in present]
    if missing:
        raise BadInputError(
            f"{what} lacks {_some(missing)} of the model's {len(wanted)} tensors; it was saved from another network, "
            f"or not all of it was: {_ADVICE}."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            wanted[name].copy_(tensor)


def read_tensors(path: str | Path, shapes: dict[str, tuple[int, ...]], what: str, advice: str) -> dict[str, Tensor]:
    """Return those tensors of given names and shapes that a file holds, and no others; its header is checked first."""
    if not Path(path).is_file():
        raise BadInputError(f"{what} does not exist; {advice}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            unknown = [name for name in names if name not in shapes]
            if unknown:
                raise BadInputError(
                    f"{what} holds {_some(unknown)}, which the model has not"
                    + (f"; {nearest(unknown[0], shapes)}" if nearest(unknown[0], shapes) else "")
                    + f". The model's tensors are {_some(list(shapes), 8)}: both must be of the same network."
                )
            for name in names:
                shape = tuple(file.get_slice(name).get_shape())
                if shape != shapes[name]:
                    raise BadInputError(
                        f"{what} holds {name!r} of shape {shape} where the model has {shapes[name]}; it belongs to a "
                        "network of another size."
                    )
            return {name: file.get_tensor(name) for name in names}
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


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
