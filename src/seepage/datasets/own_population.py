"""A user's own texts, and a user's own graph, as populations of pooled learning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seepage.datasets.dataset import Dataset, texts_of
from seepage.datasets.marked import marked
from seepage.datasets.population import Nodes, Texts
from seepage.datasets.words import ANY_WORD, numbered
from seepage.errors import BadInputError, Remedy
from seepage.shadow.graph import Graph
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Category, Discrete

# Number of words of a text that are read.
_LENGTH = 40
_DECIMALS = re.compile(r"^([0-9]+)\.0+$")
# Largest number of identifiers that a message names.
_NAMED = 3


def own_texts(
    data: Dataset, column: str, sensitive: str, value: Category | None = None, folder: str | Path | None = None
) -> Texts:
    """Return texts of one's own, which models read; the target is learnt, and another column is the attribute.

    Words are runs of letters of any script, in lower case, with vectors of GloVe's file in the folder. A text that is
    missing, or holds no word that is read, stays as one without words.
    """
    rows = marked(data, sensitive, value)
    words, vectors, origin = numbered([text or "" for text in data.beside[column]], folder, _LENGTH, pattern=ANY_WORD)
    empty = int((words == 0).all(1).sum())
    notes = [
        *data.notes,
        origin,
        f"of each text in {column!r}, the first {_LENGTH} words that have a vector are read",
        *([f"{empty:,} of {len(words):,} texts hold no word that is read"] if empty else []),
    ]
    marks = {sensitive: rows.carries}
    return Texts(data.name, words, vectors, rows.labels, _classes(data), marks, data.schema.target.name, tuple(notes))


def own_nodes(
    data: Dataset,
    identifier: str,
    edges: str | Path,
    separator: str,
    sensitive: str,
    value: Category | None = None,
    keep: bool = True,
) -> Nodes:
    """Return a graph of one's own: a row a node, and a file with an edge a row.

    The first two columns of the file of edges are the identifiers of the nodes that are joined, in either order.
    """
    rows = marked(data, sensitive, value, keep)
    codes = _codes(data.beside[identifier], identifier)
    pairs, notes = _pairs(codes, Path(edges), separator)
    graph = Graph.of(rows.inputs.numpy(), pairs)
    alone = int((np.diff(graph.edges.indptr) == 0).sum())
    if alone:
        notes.append(f"{alone:,} of {len(graph):,} nodes have no edge")
    marks = {sensitive: rows.carries}
    # An attribute that models must not see is no feature already.
    return Nodes(
        data.name, graph, rows.labels, _classes(data), marks, {}, data.schema.target.name, (*data.notes, *notes)
    )


def _classes(data: Dataset) -> tuple[str, ...]:
    target = data.schema.target
    # Marked rows are refused otherwise.
    assert isinstance(target, Discrete)
    return tuple(map(str, target.categories))


def _codes(identifiers: Sequence[str | None], name: str) -> dict[str, int]:
    """Return the number of each node by its identifier."""
    codes: dict[str, int] = {}
    for i, key in enumerate(map(_bare, identifiers)):
        if key is None or key in codes:
            fault = "is missing" if key is None else f"{key!r} is that of row {codes[key] + 1}, too"
            raise BadInputError(
                f"each node has an identifier of its own in the column {name!r}, but the one of row {i + 1} {fault}; "
                "name the column of identifiers (",
                Remedy("node_column", placeholder="COLUMN"),
                "), or take the node out.",
            )
        codes[key] = i
    return codes


def _bare(identifier: str | None) -> str | None:
    """Return a whole number without the decimals that a gap in its column brings with it."""
    return identifier if identifier is None else _DECIMALS.sub(r"\1", identifier)


def _pairs(codes: dict[str, int], path: Path, separator: str) -> tuple[np.ndarray, list[str]]:
    """Return the numbers of the nodes of each edge, and notes on the edges that are left out."""
    source = open_table(path, separator)
    if len(source.shown_names()) < 2:
        raise BadInputError(f"the edges {str(path)!r} need two columns, the identifiers of both nodes; got one.")
    ends = [[_bare(text) for text in texts_of(raw)] for _, raw in source.columns(source.names[:2])]
    numbers = np.array([[codes.get(key or "", -1) for key in end] for end in ends], dtype=np.int64).T
    valid = (numbers >= 0).all(1)
    loops = valid & (numbers[:, 0] == numbers[:, 1])
    unknown = list(dict.fromkeys(key or "(missing)" for end in ends for key in end if (key or "") not in codes))
    named = ", ".join(map(repr, unknown[:_NAMED])) + (", ..." if len(unknown) > _NAMED else "")
    used = numbers[valid & ~loops]
    if not len(used):
        raise BadInputError(
            f"no row of {str(path)!r} joins two different nodes by {source.names[0]!r} and {source.names[1]!r}"
            + (f"; no node is called {named}" if unknown else "")
            + ": its first two columns hold identifiers as the nodes have them (",
            Remedy("node_column", placeholder="COLUMN"),
            ").",
        )
    distinct = len(np.unique(np.sort(used, axis=1), axis=0))
    counts = (
        (int((~valid).sum()), f"a node is not there ({named})"),
        (int(loops.sum()), "both nodes are the same"),
        (len(used) - distinct, "another row has the same nodes"),
    )
    notes = [f"{distinct:,} edges join nodes by {source.names[0]!r} and {source.names[1]!r}, in either order"]
    notes += [
        f"{count:,} of {len(numbers):,} rows of edges {'counts' if count == 1 else 'count'} for nothing: {what}"
        for count, what in counts
        if count
    ]
    if len(source.names) > 2:
        notes.append(f"further columns of edges are not read: {', '.join(map(repr, source.names[2:]))}")
    return used, notes
