"""The model that an audit or an attack is about: a registered one, one of the user's own, with or without weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from seepage import models
from seepage.errors import BadInputError
from seepage.models.calling import plain_attention
from seepage.models.copies import copied
from seepage.models.embedding import adapted
from seepage.models.head import Dropout
from seepage.models.model import Head, Model, usual_head
from seepage.models.own import load_own
from seepage.models.weights import load_weights
from seepage.models.wrapping import as_column, as_logits, from_same_buffers, returns_chances, within_chances
from seepage.sources import is_own
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics


def make_model(
    model: str | Model | nn.Module,
    schema: Schema,
    statistics: Statistics,
    *,
    seed: int = 0,
    head: Head | None = None,
    options: Mapping[str, object] | None = None,
    weights: Path | None = None,
    dropout: Dropout = "on",
    device: torch.device | str = "cpu",
    partial: bool = False,
) -> tuple[Model, str | None]:
    """Return a model that fits a table and a digest of the source file that made it (None where seepage did).

    What was passed is copied. A module of one output for two classes gets ``sigmoid`` where no head is given, and its
    logits are taken where what it returns are chances. Weights may be ``partial``: what they lack is initialised, see
    ``lacking``.
    """
    digest = None
    if isinstance(model, str) and not is_own(model):
        network = models.create(model, **(options or {}), schema=schema, seed=seed, head=head)
        assert isinstance(network, Model)
    elif isinstance(model, str):
        loaded = load_own(model, schema, seed, head, options)
        network, digest = loaded.network, loaded.digest
    elif isinstance(model, nn.Module):
        network = copied(model)
    elif isinstance(model, Model):
        network = copy.deepcopy(model)
    else:
        raise BadInputError(
            f"model is a name, 'file.py:factory' or an instance of a torch.nn.Module, got {_kind(model)}."
        )
    # Where nobody chose a head, a network of one output for two classes has that of a single logit.
    open_head = head is None and isinstance(network, nn.Module)
    if isinstance(network, nn.Module):
        name = model if isinstance(model, str) else type(network).__name__
        _materialise(network, schema.width)
        network = Model(network, head or usual_head(schema), name, dropout=dropout)
    if weights is not None:
        load_weights(network.module, weights, network.module.state_dict() if partial else ())
    dtype = next(iter(network.parameters.values())).dtype
    if not dtype.is_floating_point or dtype.itemsize < torch.float32.itemsize:
        raise BadInputError(
            f"model {network.name!r} has {dtype} parameters; attacks need float32 or float64: convert it with .float()."
        )
    network = replace(network, module=adapted(network.module, schema, statistics))
    network = network.masked(schema.width) if network.dropout == "on" else network
    network = replace(network, module=from_same_buffers(network.module, schema.width))
    network = _with_column_outputs(network, schema, open_head)
    network.check(schema)
    return replace(network, module=network.module.to(device)), digest


def _kind(thing: object) -> str:
    """Return what a thing is in words: the class itself, or an instance of one."""
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"


def _materialise(module: nn.Module, width: int) -> None:
    """Give lazy layers their shapes by a run on a row of zeros; what they do not take, ``Model.check`` says."""
    lazy = nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer
    if any(isinstance(part, lazy) for part in (*module.parameters(), *module.buffers())):
        with torch.no_grad(), torch.random.fork_rng():
            module(torch.zeros(2, width))


def _with_column_outputs(network: Model, schema: Schema, open_head: bool) -> Model:
    """Return a model whose outputs (record,) are a column, with the head of a single logit where it has one."""
    first = next(network.module.parameters())
    try:
        outputs = network.outputs(torch.zeros(2, schema.width, device=first.device, dtype=first.dtype))
    except Exception:  # A user's module may raise anything; ``Model.check`` says what.
        return network
    if not isinstance(outputs, torch.Tensor):
        raise BadInputError(
            f"model {network.name!r} returns {_kind(outputs)}; let its forward return the logits alone, a row for each "
            "record."
        )
    if outputs.shape == (2,):
        network = replace(network, module=as_column(network.module))
    two = isinstance(schema.target, Discrete) and schema.target.width == 2
    if open_head and two and outputs.shape in ((2,), (2, 1)):
        network = replace(network, head="sigmoid")
    if network.head != "sigmoid" or returns_chances(network.module):
        return network
    try:
        with plain_attention():
            chances = within_chances(network.module, schema.width)
    except Exception:  # A user's module need not take such rows.
        return network
    return replace(network, module=as_logits(network.module)) if chances else network
