"""Assignment of a table's columns to the parties of vertical federated learning."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seepage.errors import BadInputError, unknown_name
from seepage.tabular.schema import Schema

# Largest rounding error at which a sum of shares counts as an exact half.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Partition:
    """Positions of each party's columns in the schema; the first party is the active one, with labels and top model.

    It may hold labels alone; every other party holds a column.
    """

    schema: Schema
    columns: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        names = self.schema.names
        if len(self.columns) < 2:
            raise BadInputError(f"vertical learning takes at least two parties, got {len(self.columns)}; name more.")
        for party, positions in enumerate(self.columns):
            # An active party may hold labels alone.
            if party and not positions:
                raise BadInputError(
                    f"party {party} of {len(self.columns)} holds no column, so that it has nothing to contribute; give "
                    "it one, or name fewer parties."
                )
        owners: dict[str, list[int]] = {name: [] for name in names}
        for party, positions in enumerate(self.columns):
            for position in positions:
                owners[names[position]].append(party)
        for name, owned in owners.items():
            if len(owned) < 2:
                continue
            by = sorted(set(owned))
            raise BadInputError(
                f"column {name!r} is named {len(owned)} times by party {by[0]}; name it once."
                if len(by) == 1
                else f"column {name!r} is held {len(owned)} times, by parties {' and '.join(map(str, by))}; give each "
                "column to one party, once."
            )
        nobody = [name for name, owned in owners.items() if not owned]
        if nobody:
            raise BadInputError(
                f"no party holds {', '.join(map(repr, nobody))}; give each to one, or leave them out of the table."
            )
        object.__setattr__(self, "columns", tuple(tuple(sorted(positions)) for positions in self.columns))

    @property
    def parties(self) -> int:
        """Number of parties."""
        return len(self.columns)

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        """Schema of each party's columns; each has the target, though only the active party holds it."""
        columns, target = self.schema.columns, self.schema.target
        parties = [tuple(columns[i] for i in positions) for positions in self.columns]
        # A schema is of one column at least; that of a party with labels alone has none.
        return tuple(
            Schema(columns=party, target=target) if party else Schema.model_construct(columns=(), target=target)
            for party in parties
        )

    def check_target(self, party: int) -> None:
        """Refuse a party that the active party cannot attack."""
        if party == 0:
            raise BadInputError(
                "the target of the attack is party 0, which is the attacker itself: it holds the labels and receives "
                f"the features; choose a party from 1 to {self.parties - 1}."
            )
        if not isinstance(party, int) or isinstance(party, bool) or not 0 < party < self.parties:
            raise BadInputError(f"there is no party {party!r}; passive parties are numbered 1 to {self.parties - 1}.")


def by_names(schema: Schema, parties: Sequence[Sequence[str]]) -> Partition:
    """Return the partition by names of columns, the active party's first, which has the rest if it names none."""
    for name in (name for names in parties for name in names):
        if name == schema.target.name:
            raise BadInputError(
                f"the target {name!r} was given to a party as a column; labels are the active party's, leave it out."
            )
        if name not in schema.names:
            raise unknown_name("column", name, schema.names)
    columns = [tuple(schema.names.index(name) for name in names) for names in parties]
    if columns and not columns[0]:
        taken = {i for positions in columns for i in positions}
        columns[0] = tuple(i for i in range(len(schema.columns)) if i not in taken)
    return Partition(schema, tuple(columns))


def by_shares(
    schema: Schema,
    shares: Sequence[float | int],
    seed: int | None = None,
    private: Collection[str] = (),
    holder: int = 1,
) -> Partition:
    """Return the partition that gives each party a share of the discrete and of the continuous columns.

    Passive parties take the next columns of either kind first; the active party, whose share is the first, takes the
    rest. The order of columns is random by ``seed``, that of the schema if None. Passive party ``holder`` gets the
    ``private`` columns whatever its share, where columns are left for the others.
    """
    if any(isinstance(share, bool) or not 0 < share < 1 for share in shares) or not math.isclose(sum(shares), 1):
        raise BadInputError(
            f"shares of columns are numbers between 0 and 1 that sum to 1, one a party, got {list(shares)!r}."
        )
    order = np.arange(len(schema.columns))
    if seed is not None:
        order = np.random.default_rng(seed).permutation(order)
    dealt: list[list[int]] = [[] for _ in shares]
    # Passive parties first, the active one last.
    turns = [*range(1, len(shares)), 0]
    for kind in (schema.discrete, schema.continuous):
        places = [int(i) for i in order if int(i) in kind]
        private_columns = [i for i in places if schema.names[i] in private]
        if not private:
            _deal(places, turns, shares, dealt)
            continue
        places = private_columns + [i for i in places if i not in private_columns]
        count = max(len(private_columns), math.ceil(shares[holder] * len(places) - 0.5 - _ROUNDING))
        dealt[holder] += places[:count]
        others = [share / (1 - shares[holder]) for share in shares]
        _deal(places[count:], [party for party in turns if party != holder], others, dealt)
    if private and not all(dealt):
        return by_shares(schema, shares, seed)
    # Shares of few columns of either kind may round to none.
    for columns in dealt:
        richest = max(dealt, key=len)
        if not columns and len(richest) > 1:
            columns.append(richest.pop())
    if not dealt[0]:
        raise BadInputError(
            f"party 0 of {len(shares)} holds no column once the others have their shares; name fewer parties. To give "
            "the active party labels alone, name the columns of all passive parties."
        )
    return Partition(schema, tuple(tuple(positions) for positions in dealt))


def _deal(
    places: Sequence[int], turns: Sequence[int], shares: Sequence[float | int], dealt: Sequence[list[int]]
) -> None:
    """Deal places to parties in turn, to each its share; the last one takes what is left."""
    given, start = 0.0, 0
    for party in turns:
        given += shares[party]
        # Half down: of an odd number, the active party takes the larger half.
        stop = len(places) if party == 0 else math.ceil(given * len(places) - 0.5 - _ROUNDING)
        dealt[party].extend(places[start:stop])
        start = stop
