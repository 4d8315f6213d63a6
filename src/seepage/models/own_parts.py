"""Parts of networks of a user's own: server and client of split learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from seepage.errors import BadInputError
from seepage.models.own import OwnFactory
from seepage.models.split import SplitHead, SplitModel, positions
from seepage.tabular.schema import Discrete, Schema


def own_split(
    factory: OwnFactory,
    schema: Schema,
    private: Sequence[str],
    seed: int,
    head: SplitHead | None = None,
    options: Mapping[str, object] | None = None,
) -> SplitModel:
    """Return a user's own network of split learning.

    The factory, see ``models.own.load_own``, returns a module with two modules in it. ``server`` maps the server's
    cells (record, column) to activations (record, cut); ``client`` maps activations and the client's cells to logits. A
    discrete cell is its code, a number is scaled so that its schema's bounds are 0 and 1. Of these arguments, the
    factory receives those that it has a parameter for: ``schema``; ``private``, names of the client's columns;
    ``server_columns`` and ``client_columns``, the number of categories of each column, None for a number; ``outputs``;
    ``head``; ``seed``.

    Args:
        factory: factory of the network.
        schema: schema of the table.
        private: names of the client's columns.
        seed: seed of the initialisation.
        head: head of the model; the target's usual one if None.
        options: further arguments of the factory.

    Raises:
        BadInputError: the factory cannot be called, or returns no two modules.
    """
    mine = positions(schema, private)
    theirs = [i for i in range(len(schema.columns)) if i not in mine]
    classes = schema.target.width if isinstance(schema.target, Discrete) else 2
    used: SplitHead = head or ("sigmoid" if classes == 2 else "softmax")

    def widths(columns: Sequence[int]) -> list[int | None]:
        held = [schema.columns[i] for i in columns]
        return [column.width if isinstance(column, Discrete) else None for column in held]

    offered: dict[str, object] = {
        "schema": schema,
        "private": tuple(private),
        "server_columns": widths(theirs),
        "client_columns": widths(mine),
        "outputs": 1 if used == "sigmoid" else classes,
        "head": used,
        "seed": seed,
    }
    made, reference = factory(offered, seed, options), factory.reference
    parts = [getattr(made, name, None) for name in ("server", "client")]
    if not isinstance(made, nn.Module) or not all(isinstance(part, nn.Module) for part in parts):
        raise BadInputError(
            f"the model factory {reference!r} returned an object of type {type(made).__name__} without the modules "
            "'server' and 'client' in it; return an nn.Module that has both, one for each side of the cut."
        )
    server, client = parts
    assert isinstance(server, nn.Module)
    assert isinstance(client, nn.Module)
    if next(client.parameters(), None) is None:
        raise BadInputError(
            f"the client part of {reference!r} has no parameters, so that it learns nothing; give it some layers."
        )
    return SplitModel(server, client, schema, mine, used, reference)
