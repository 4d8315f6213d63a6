"""Trained networks in a run folder, so that no later command trains them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from seepage.digests import Json, digest_of
from seepage.files import write_whole
from seepage.models.model import Model
from seepage.settings.horizontal.spec import Training
from seepage.settings.horizontal.training import Learnt, holding

FOLDER = "networks"
_LEARNT = "learnt"


def place_of(folder: Path, origin: Mapping[str, Json]) -> Path:
    """Return the file of the networks with an origin: JSON values that determine them to the last bit."""
    return folder / FOLDER / f"{digest_of(origin)}.safetensors"


def keep(path: Path, models: Sequence[Model], learnt: Learnt, private: bool = False) -> None:
    """Write the networks of the attacked rounds and the quality of the last, as safetensors; nothing if it is there."""
    if path.exists():
        return
    states = [{**model.parameters, **dict(model.module.named_buffers())} for model in models]
    named = {f"{i}.{name}": tensor for i, state in enumerate(states) for name, tensor in state.items()}
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}
    about = {**asdict(learnt), "training": learnt.training.model_dump()}
    write_whole(path, save(tensors, metadata={_LEARNT: json.dumps(about)}), private)


def find(path: Path, model: Model, training: Training) -> tuple[list[Model], Learnt] | None:
    """Return the networks of a file: copies of ``model`` with other parameters; None without a complete file."""
    names = [name for name, _ in (*model.parameters.items(), *model.module.named_buffers())]
    try:
        with safe_open(path, framework="pt") as file:
            learnt = Learnt(**{**json.loads(file.metadata()[_LEARNT]), "training": training})
            states = [{name: file.get_tensor(f"{i}.{name}") for name in names} for i in range(training.attacked_rounds)]
            return [holding(model, parameters) for parameters in states], learnt
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        # A damaged or foreign file is no reason to stop: the networks are trained again.
        return None
