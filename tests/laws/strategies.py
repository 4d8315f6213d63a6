"""Hypothesis strategies for schemas and the tables that fit them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st

from seepage.tabular.schema import Column, Continuous, Discrete, Schema
from seepage.tabular.table import Table, frame_of
from seepage.tabular.texts import MISSING

# What a CSV file gives back as it was: no control characters, and no space at either end.
_SIGNS = "abcXYZ0123456789äß.,;-_'\"?<=> "
# Words for a missing cell, such as "-", are read as one even where a schema has them as a category.
WRITABLE = st.text(_SIGNS, min_size=1, max_size=6).filter(lambda text: text == text.strip() and text not in MISSING)
# What is taken for a text even without a schema, and not for a missing cell.
WORDS = st.builds(
    lambda first, rest: first + rest.strip(), st.sampled_from("abXYß?"), st.text(_SIGNS, max_size=5)
).filter(lambda text: text not in MISSING)


def categories(texts: st.SearchStrategy[str] | None = None, most: int = 6) -> st.SearchStrategy:
    """Return unequal categories of one or several types; with ``texts``, of one type that files can hold."""
    kinds = [
        st.text(max_size=6) if texts is None else texts,
        st.integers() if texts is None else st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
    ]
    chosen = [*kinds, st.one_of(kinds)] if texts is None else kinds
    return st.one_of([st.lists(kind, min_size=1, max_size=most, unique=True).map(tuple) for kind in chosen])


@st.composite
def discrete(draw: st.DrawFn, name: str = "column", values: st.SearchStrategy | None = None) -> Discrete:
    return Discrete(
        name=name,
        categories=draw(categories() if values is None else values),
        sensitive=draw(st.booleans()),
        unit=draw(st.none() | st.text(max_size=3)),
    )


@st.composite
def continuous(draw: st.DrawFn, name: str = "column", largest: float = 1e9) -> Continuous:
    integer = draw(st.booleans())
    if integer:
        # Up to the largest whole number that a schema takes.
        bound = st.integers(-int(min(largest, 2**48)), int(min(largest, 2**48))).map(float)
    else:
        bound = st.floats(-largest, largest)
    # A zero more turns -0.0 into 0.0, above which Hypothesis sees no -0.0.
    low, high = sorted((draw(bound) + 0.0, draw(bound) + 0.0))
    return Continuous(
        name=name,
        low=low,
        high=high,
        tolerance=draw(st.floats(0, largest)),
        integer=integer,
        sensitive=draw(st.booleans()),
        unit=draw(st.none() | st.text(max_size=3)),
    )


@st.composite
def schemas(
    draw: st.DrawFn, texts: st.SearchStrategy[str] | None = None, largest: float = 1e9, most_columns: int = 4
) -> Schema:
    """Return a schema of up to ``most_columns`` columns and a target.

    With ``texts`` (such as ``WRITABLE``) for names and categories, CSV and Parquet files can hold its
    tables; ``largest`` bounds continuous columns.
    """
    name = st.text(min_size=1, max_size=6) if texts is None else texts
    names = draw(st.lists(name, min_size=2, max_size=most_columns + 1, unique=True))
    values = categories(texts)
    columns: list[Column] = [draw(discrete(name, values) | continuous(name, largest)) for name in names]
    return Schema(columns=tuple(columns[1:]), target=columns[0])


def _cells(column: Column, rows: int) -> st.SearchStrategy[list[float]]:
    if isinstance(column, Discrete):
        cell = st.integers(0, column.width - 1).map(float)
    elif column.integer:
        cell = st.integers(int(column.low), int(column.high)).map(float)
    else:
        cell = st.floats(column.low, column.high)
    return st.lists(cell, min_size=rows, max_size=rows)


@contextmanager
def _unseen_type_checks() -> Iterator[None]:
    # beartype checks one random item of a tuple, and Hypothesis refuses strategies that draw at random.
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@st.composite
def tables(draw: st.DrawFn, schema: st.SearchStrategy[Schema] | None = None, most_rows: int = 8) -> Table:
    """Return a table of 2 to ``most_rows`` rows."""
    chosen = draw(schemas() if schema is None else schema)
    rows = draw(st.integers(2, most_rows))
    columns = (*chosen.columns, chosen.target)
    cells = torch.from_numpy(np.array([draw(_cells(column, rows)) for column in columns]).T.copy())
    with _unseen_type_checks():
        frame = frame_of(chosen, cells[:, :-1])
        label = Schema(columns=(chosen.target,), target=Discrete(name=chosen.target.name + "'", categories=(0,)))
        return Table(chosen, pd.concat([frame, frame_of(label, cells[:, -1:])], axis=1))
