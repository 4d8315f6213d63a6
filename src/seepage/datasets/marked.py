"""A table as rows for joint models, with a sensitive attribute marked; and a synthetic one with known correlations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError, unknown_name
from seepage.shadow.pooling import MarkedRows
from seepage.tabular.schema import Category, Continuous, Discrete, Schema
from seepage.tabular.table import Table

SYNTHETIC = "A"
# Share of rows from which on a category has enough of them for parties with shares of it.
_FREQUENT = 0.1


def marked(
    data: Dataset, sensitive: str, value: Category | None = None, keep: bool = True, without: Sequence[str] = ()
) -> MarkedRows:
    """Return all rows of a dataset in the form that joint models take, with a sensitive attribute marked.

    Categories are encoded as 0 and 1, numbers standardised over all rows: the parties agree on both beforehand. The
    share of ``value`` is the secret, of the rarer of two categories if None; for a column of numbers it is the bound
    above which rows carry the attribute, the median if None.
    """
    rows = data.all
    if not isinstance(rows.schema.target, Discrete):
        raise BadInputError(
            f"the target {rows.schema.target.name!r} is a number; the audit of dataset properties asks models for the "
            "chances of classes, so choose a target with categories."
        )
    if sensitive == rows.schema.target.name:
        raise BadInputError(f"{sensitive!r} is the target, which models answer with; choose another sensitive column.")
    for name in (sensitive, *without):
        if name not in rows.schema.names:
            raise unknown_name("column", name, rows.schema.names)
    carries = _carries(rows, sensitive, value)
    dropped = {*without, *(() if keep else (sensitive,))}
    positions = [i for i, column in enumerate(rows.schema.columns) if column.name not in dropped]
    if not positions:
        raise BadInputError("no column is left to train on; leave out fewer.")
    parts = [_encoded(rows, i) for i in positions]
    names = [rows.schema.columns[i].name for i in positions]
    return MarkedRows(
        torch.cat(parts, dim=1),
        rows.labels.long(),
        carries,
        tuple(part.shape[1] for part in parts),
        names.index(sensitive) if sensitive in names else None,
    )


def usual_value(rows: Table, sensitive: str) -> Category:
    """Return the category whose share is asked for where none is named: the rarest that a tenth of the rows have.

    Where none is so frequent, the most frequent one; of two categories the rarer, however rare.
    """
    column = rows.schema.column(sensitive)
    assert isinstance(column, Discrete)
    counts = torch.bincount(rows.column(rows.schema.names.index(sensitive)).long(), minlength=column.width)
    there = counts.nonzero()[:, 0].tolist()
    frequent = [code for code in there if len(there) <= 2 or counts[code] >= _FREQUENT * len(rows)]
    code = min(frequent, key=lambda candidate: int(counts[candidate])) if frequent else int(counts.argmax())
    return column.categories[code]


def _carries(rows: Table, sensitive: str, value: Category | None) -> Bool[Tensor, " row"]:
    position = rows.schema.names.index(sensitive)
    column, cells = rows.schema.columns[position], rows.column(position)
    if isinstance(column, Discrete):
        if value is None:
            counts = torch.bincount(cells.long(), minlength=column.width)
            if int((counts > 0).sum()) > 2:
                raise BadInputError(
                    f"the sensitive column {sensitive!r} has {int((counts > 0).sum())} categories; name the one whose "
                    "share is the secret (value)."
                )
            code = int(torch.where(counts > 0, counts, counts.max() + 1).argmin())
        elif value in column.categories:
            code = column.categories.index(value)
        elif str(value) in (written := [str(category) for category in column.categories]):
            code = written.index(str(value))
        else:
            raise unknown_name(f"category of {sensitive!r}:", str(value), written)
        carries = cells == code
    else:
        if isinstance(value, str):
            raise BadInputError(f"{sensitive!r} is a column of numbers, of which those above a number are meant.")
        carries = cells > (float(cells.median()) if value is None else float(value))
    if bool(carries.all()) or not bool(carries.any()):
        raise BadInputError(
            f"{int(carries.sum())} of {len(rows)} rows carry the attribute of the sensitive column {sensitive!r}: it "
            "has one value here and no distribution to be kept secret; choose another column or value."
        )
    return carries


def _encoded(rows: Table, position: int) -> Float[Tensor, "row encoded"]:
    column, cells = rows.schema.columns[position], rows.column(position)
    if isinstance(column, Discrete):
        return torch.nn.functional.one_hot(cells.long(), column.width).float()
    spread = float(cells.std()) if len(cells) > 1 else 0.0
    return ((cells - cells.mean()) / (spread if spread > 0 else 1.0)).float()[:, None]


def with_synthetic(
    data: Dataset, columns: Sequence[str] = (), target: bool = True, strength: float | int = 0.8, seed: int = 0
) -> Dataset:
    """Add a synthetic sensitive column ``A`` with known correlations to a dataset.

    ``A`` is uniform on 0 to 4 and 6 to 10; rows above 5 carry the attribute. With probability ``strength``, and
    independently for each cell of the named columns, a cell is replaced by one drawn from the lower half of its column
    where ``A`` is below 5, from the upper half where it is above (X~A), as is the target's if that is to follow (Y~A).
    Zhang, Tople and Ohrimenko (2021) state neither mechanism nor strength.
    """
    if not 0 <= strength <= 1:
        raise BadInputError(f"strength is a chance in [0, 1], got strength={strength!r}.")
    rows = data.all
    schema = rows.schema
    if SYNTHETIC in (*schema.names, schema.target.name):
        raise BadInputError(f"the table already has a column {SYNTHETIC!r}; rename it.")
    for name in columns:
        if name not in schema.names:
            raise unknown_name("column", name, schema.names)
    generator = np.random.default_rng(seed)
    attribute = generator.choice([0, 1, 2, 3, 4, 6, 7, 8, 9, 10], size=len(rows))
    cells, labels = rows.cells.numpy().copy(), rows.labels.numpy().copy()
    for name in columns:
        position = schema.names.index(name)
        cells[:, position] = pulled(cells[:, position], schema.columns[position], attribute, strength, generator)
    if target:
        labels = pulled(labels, schema.target, attribute, strength, generator)
    frame = rows.of_cells(torch.from_numpy(cells), torch.from_numpy(labels)).frame
    added = Continuous(name=SYNTHETIC, low=0, high=10, tolerance=0, integer=True, sensitive=True)
    frame[SYNTHETIC] = attribute
    table = Table(Schema(columns=(*schema.columns, added), target=schema.target), frame)
    correlated = " and ".join([*map(repr, columns), *(["the target"] if target else [])]) or "nothing"
    note = f"a synthetic column A was added, with which {correlated} correlates at a strength of {strength:g}"
    return replace(data, train=table, test=None, notes=(*data.notes, note))


def pulled(
    cells: np.ndarray,
    column: Discrete | Continuous,
    attribute: np.ndarray,
    strength: float | int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return cells, some drawn anew: from the lower half of a column where the attribute is below 5, else the upper."""
    if isinstance(column, Discrete):
        half = column.width // 2
        lower, upper = np.arange(half), np.arange(half, column.width)
        if column.width < 2:
            raise BadInputError(f"column {column.name!r} has one category, so that nothing can correlate with it.")
    else:
        middle = float(np.median(cells))
        lower, upper = cells[cells <= middle], cells[cells > middle]
        if not len(upper):
            raise BadInputError(f"column {column.name!r} has one value in most rows, so that it has no upper half.")
    drawn = np.where(attribute > 5, generator.choice(upper, size=len(cells)), generator.choice(lower, size=len(cells)))
    return np.where(generator.random(len(cells)) < strength, drawn, cells)
