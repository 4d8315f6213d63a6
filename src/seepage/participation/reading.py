"""Who took part in which round: a table, read from a CSV file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seepage.errors import BadInputError, unknown_name
from seepage.files import read_text
from seepage.text import clean, how_many

LONG = ("round", "client")
# More would be no table of sites or rounds; the elimination of so many takes minutes.
_MOST = 20_000_000
_LARGEST = 4 * _MOST


@dataclass(frozen=True, eq=False)
class Participation:
    """Who took part in which round.

    Attributes:
        rounds, clients: their names.
        matrix: whether a client's value is part of a round's sum (round, client); 0 and 1 are taken too.

    Raises:
        BadInputError: shapes, names or values do not fit.
    """

    rounds: tuple[str, ...]
    clients: tuple[str, ...]
    matrix: NDArray[np.bool_]

    def __init__(self, rounds: Sequence[str], clients: Sequence[str], matrix: ArrayLike) -> None:
        values = np.asarray(matrix)
        if values.shape != (len(rounds), len(clients)) or not values.size:
            raise BadInputError(
                f"a participation matrix has a row for each of {len(rounds)} rounds and a column for each of "
                f"{len(clients)} clients, at least one of both, got the shape {values.shape}."
            )
        if not np.isin(values, (0, 1)).all():
            raise BadInputError(
                f"participation is 0 or 1, got {clean(values[~np.isin(values, (0, 1))][0], 40)}; weights of clients "
                "do not matter, so write 1 for each that took part."
            )
        for kind, names in (("round", rounds), ("client", clients)):
            if twice := [name for name, number in Counter(names).items() if number > 1]:
                raise BadInputError(
                    f"each {kind} has a name of its own, got {clean(twice[0], 60)!r} twice; rename one."
                )
        for name, value in (("rounds", tuple(rounds)), ("clients", tuple(clients)), ("matrix", values.astype(bool))):
            object.__setattr__(self, name, value)

    def without(self, clients: Sequence[str]) -> Participation:
        """Return the same rounds without some clients, whose values can be subtracted from each sum."""
        for name in clients:
            if name not in self.clients:
                raise unknown_name("client", name, self.clients)
        left = [i for i, name in enumerate(self.clients) if name not in clients]
        if not left:
            raise BadInputError("every client's value is known already; leave out one, so that there is a question.")
        return Participation(self.rounds, [self.clients[i] for i in left], self.matrix[:, left])


def read_participation(path: Path) -> Participation:
    """Return the participation in a CSV file.

    Either a line a round and a column of 0 and 1 a client, with the rounds' names in a first column ``round`` or
    without names; or, under the header ``round,client``, a line for each time that a client took part.

    Raises:
        BadInputError: the file cannot be read, or a line cannot be understood.
    """
    try:
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise BadInputError(
                f"{clean(path, 200)!r} has {path.stat().st_size:,} bytes, more than a table of {_MOST:,} cells; leave "
                "out rounds, or clients that were in the same rounds as others."
            )
        text = read_text(path, f"the participation table {clean(path, 200)!r}", _LARGEST, "utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{clean(path, 200)!r} is not in UTF-8 ({error}); save it as CSV in UTF-8.") from error
    except FileNotFoundError:
        raise BadInputError(f"the participation table {clean(path, 200)!r} does not exist; give its path.") from None
    except OSError as error:
        raise BadInputError(f"the participation table {clean(path, 200)!r} cannot be read: {error}.") from error
    try:
        lines = [(i, line) for i, line in enumerate(csv.reader(text.splitlines()), 1) if any(map(str.strip, line))]
    except csv.Error as error:
        raise BadInputError(f"{clean(path, 200)!r} is no CSV file: {error}.") from error
    if len(lines) < 2:
        raise BadInputError(
            f"{clean(path, 200)!r} has {how_many(len(lines), 'line')}; a header and a line a round are expected, "
            "such as 'round,a,b' and '1,0,1'."
        )
    header = [cell.strip() for cell in lines[0][1]]
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise BadInputError(
            f"the header of {clean(path, 200)!r} has no comma, got {clean(header[0], 60)!r}; separate cells by commas."
        )
    for number, line in lines[1:]:
        if len(line) != len(header):
            raise BadInputError(
                f"line {number} of {clean(path, 200)!r} has {len(line)} cells, and the header {len(header)}; write as "
                "many, separated by commas."
            )
    rows = [(number, [cell.strip() for cell in line]) for number, line in lines[1:]]
    return _long(rows, path) if tuple(map(str.lower, header)) == LONG else _wide(header, rows, path)


def _long(rows: Sequence[tuple[int, list[str]]], path: Path) -> Participation:
    for number, row in rows:
        if not all(row):
            raise BadInputError(f"line {number} of {clean(path, 200)!r} names no {LONG[row[0] != '']}; give its name.")
    rounds = {name: i for i, name in enumerate(dict.fromkeys(row[0] for _, row in rows))}
    clients = {name: i for i, name in enumerate(dict.fromkeys(row[1] for _, row in rows))}
    _check_size(len(rounds), len(clients))
    matrix = np.zeros((len(rounds), len(clients)), dtype=bool)
    for number, (of, client) in rows:
        if matrix[rounds[of], clients[client]]:
            raise BadInputError(
                f"line {number} of {clean(path, 200)!r} has client {clean(client, 60)!r} in round {clean(of, 60)!r} a "
                "second time; a sum holds a client once."
            )
        matrix[rounds[of], clients[client]] = True
    return Participation(list(rounds), list(clients), matrix)


def _wide(header: list[str], rows: Sequence[tuple[int, list[str]]], path: Path) -> Participation:
    named = header[0].lower() in (LONG[0], "")
    clients = header[named:]
    if not clients or not all(clients):
        raise BadInputError(
            f"the header of {clean(path, 200)!r} names each client, in a column of its own, got {clean(header, 200)}."
        )
    _check_size(len(rows), len(clients))
    for number, row in rows:
        for client, cell in zip(clients, row[named:], strict=True):
            if cell not in ("0", "1"):
                raise BadInputError(
                    f"line {number} of {clean(path, 200)!r} has neither 1 (took part) nor 0 (did not) for client "
                    f"{clean(client, 60)!r}; write 1 or 0. A column of names of rounds is headed 'round'."
                )
    rounds = [row[0] if named else str(i) for i, (_, row) in enumerate(rows, 1)]
    return Participation(rounds, clients, np.array([[cell == "1" for cell in row[named:]] for _, row in rows]))


def _check_size(rounds: int, clients: int) -> None:
    if rounds * clients > _MOST:
        raise BadInputError(
            f"a table of up to {_MOST:,} cells is searched, got {rounds:,} rounds of {clients:,} clients; leave out "
            "rounds, or clients that were in the same rounds as others."
        )
