"""Parts of networks of a user's own: server and client of split learning, towers and top model of vertical learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seepage.errors import BadInputError, one_line
from seepage.models.batch_norm import normalising
from seepage.models.dropout import dropping
from seepage.models.own import OwnFactory
from seepage.models.split import SplitHead, SplitModel, categories_of, outputs_of, positions, usual_split_head
from seepage.models.vertical import Copies
from seepage.tabular.schema import Discrete, Schema

# Layers that a sentence names.
_NAMED = 3


def own_split(
    factory: OwnFactory,
    schema: Schema,
    private: Sequence[str],
    seed: int,
    head: SplitHead | None = None,
    options: Mapping[str, object] | None = None,
) -> SplitModel:
    """Return a user's own network of split learning; docs/networks.md says what its factory is given and returns."""
    mine = positions(schema, private)
    theirs = [i for i in range(len(schema.columns)) if i not in mine]
    used = head or usual_split_head(schema.target)
    offered: dict[str, object] = {
        "schema": schema,
        "private": tuple(private),
        "server_columns": categories_of(schema, theirs),
        "client_columns": categories_of(schema, mine),
        "outputs": outputs_of(schema.target, used),
        "head": used,
        "seed": seed,
    }
    network, reference = factory(offered, seed, options), factory.reference
    parts = [getattr(network, name, None) for name in ("server", "client")]
    if not isinstance(network, nn.Module) or not all(isinstance(part, nn.Module) for part in parts):
        raise BadInputError(
            f"the model factory {reference!r} returned an object of type {type(network).__name__} without the modules "
            "'server' and 'client' in it; return an nn.Module that has both, one for each side of the cut."
        )
    server, client = parts
    assert isinstance(server, nn.Module)
    assert isinstance(client, nn.Module)
    network.eval()
    if next(client.parameters(), None) is None:
        raise BadInputError(
            f"the client part of {reference!r} has no parameters, so that it learns nothing; give it some layers."
        )
    return SplitModel(server, client, schema, mine, used, reference)


def own_whole(
    factory: OwnFactory,
    schema: Schema,
    parts: Sequence[str],
    outputs: int,
    cut: int,
    seed: int,
    options: Mapping[str, object] | None = None,
    ends: int | None = None,
) -> tuple[Copies, tuple[nn.Module, ...]]:
    """Return a user's own network of split learning in parts: those of a client with all columns, then further ones.

    The first has a leading axis of one training. The last returns ``ends`` entries, or outputs.
    """
    offered: dict[str, object] = {**_of_rows(schema), "cut": cut, "outputs": outputs, "seed": seed}
    network, reference = _network(factory, offered, seed, options), factory.reference
    members = [getattr(network, name, None) for name in parts]
    modules = [module for module in members if isinstance(module, nn.Module)]
    if len(modules) < len(parts):
        lacking = ", ".join(
            repr(n) for n, member in zip(parts, members, strict=True) if not isinstance(member, nn.Module)
        )
        raise BadInputError(
            f"the network {reference!r} is without {lacking}; return an nn.Module with "
            f"{', '.join(map(repr, parts))} in it, the parts in the order in which records pass them."
        )
    if next(modules[0].parameters(), None) is None:
        raise BadInputError(
            f"the client part of {reference!r} has no parameters, so that it sends its columns as they are; give it "
            "some layers."
        )
    rows = torch.linspace(-1, 1, 2 * schema.width).view(2, -1)
    for name, module in zip(parts, modules, strict=True):
        what = f"the part {name!r} of {reference!r}"
        rows = _tried(module, rows, what)
        if rows.ndim != 2 or len(rows) != 2 or not rows.shape[1]:
            raise BadInputError(
                f"{what} returns shape {tuple(rows.shape)} for 2 records; return a row of numbers a record."
            )
    needed = outputs if ends is None else ends
    if rows.shape[1] != needed:
        raise BadInputError(
            f"the part {parts[-1]!r} of {reference!r} returns {rows.shape[1]} numbers a record where {needed} are "
            f"needed; {'change its last layer' if ends is None else 'name the network that was trained'}."
        )
    if len(modules) > 1 and not _crossed(modules, schema.width):
        raise BadInputError(
            f"no gradient crosses the cut of {reference!r}, so that the client cannot train: outputs do not depend on "
            "the activations; cut the network elsewhere."
        )
    return Copies(modules[:1]), tuple(module.eval() for module in modules[1:])


def as_they_predict(parts: Mapping[str, nn.Module | None]) -> tuple[str, ...]:
    """Return a sentence on the layers of a user's parts that would behave differently in training; none without any."""
    single = {name: part.networks[0] if isinstance(part, Copies) else part for name, part in parts.items()}
    modules = nn.ModuleDict({name: part for name, part in single.items() if part is not None})
    layers = [*dropping(modules), *normalising(modules)]
    if not layers:
        return ()
    named = ", ".join([*layers[:_NAMED], *([f"{len(layers) - _NAMED} more"] if len(layers) > _NAMED else [])])
    return (
        f"{named} run as they predict, in training too: messages of clients that drop values, or normalise by the "
        "batch, are others and were not attacked.",
    )


def _crossed(modules: Sequence[nn.Module], inputs: int) -> bool:
    """Return whether a gradient comes back from the last of several parts to the outputs of the first one."""
    cut = modules[0](torch.ones(2, inputs)).detach().requires_grad_(True)
    rows = cut
    for module in modules[1:]:
        rows = module(rows)
    return rows.requires_grad and torch.autograd.grad(rows.sum(), cut, allow_unused=True)[0] is not None


def _of_rows(schema: Schema) -> dict[str, object]:
    return {
        "schema": schema,
        "inputs": schema.width,
        "width": schema.width,
        "cardinalities": [column.width for column in schema.columns if isinstance(column, Discrete)],
        "numbers": len(schema.continuous),
    }


def own_bottom(
    factory: OwnFactory, schema: Schema, party: int, features: int, seeds: Sequence[int]
) -> tuple[Copies, int]:
    """Return a user's own bottom model of one party, a network for each training, and its number of features."""
    offered: dict[str, object] = {**_of_rows(schema), "party": party, "features": features}
    networks = [_network(factory, {**offered, "seed": seed}, seed) for seed in seeds]
    what = f"the bottom model {factory.reference!r} of party {party}"
    answered = _tried(networks[0], torch.zeros(2, schema.width), what)
    if answered.ndim != 2 or len(answered) != 2 or not answered.shape[1]:
        raise BadInputError(
            f"{what} returns shape {tuple(answered.shape)} for 2 records of {schema.width} inputs; return a row of "
            "features a record."
        )
    return Copies(networks), answered.shape[1]


def own_top(factory: OwnFactory, widths: Sequence[int], outputs: int, seeds: Sequence[int]) -> Copies:
    """Return a user's own top model, a network for each training, from all features to logits."""
    inputs = sum(widths)
    offered: dict[str, object] = {"inputs": inputs, "width": inputs, "widths": list(widths), "outputs": outputs}
    networks = [_network(factory, {**offered, "seed": seed}, seed) for seed in seeds]
    what = f"the top model {factory.reference!r}"
    answered = _tried(networks[0], torch.zeros(2, inputs), what)
    if tuple(answered.shape) != (2, outputs):
        raise BadInputError(
            f"{what} returns shape {tuple(answered.shape)} for 2 records of {inputs} features, where (2, {outputs}) is "
            "needed; change its last layer."
        )
    return Copies(networks)


def _network(
    factory: OwnFactory, offered: Mapping[str, object], seed: int, options: Mapping[str, object] | None = None
) -> nn.Module:
    network = factory(offered, seed, options)
    if not isinstance(network, nn.Module):
        raise BadInputError(
            f"the model factory {factory.reference!r} returned an object of type {type(network).__name__} where an "
            "nn.Module is expected; return the network itself."
        )
    return network


def _tried(network: nn.Module, rows: Tensor, what: str) -> Tensor:
    try:
        with torch.no_grad():
            answered = network.eval()(rows)
    except Exception as error:  # A user's module may raise anything.
        raise BadInputError(f"{what} does not take rows of {rows.shape[1]} inputs ({one_line(error)}).") from error
    if not isinstance(answered, Tensor) or not bool(answered.isfinite().all()):
        raise BadInputError(f"{what} returns no tensor of finite numbers; return one.")
    return answered
