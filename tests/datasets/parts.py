"""What several of these tests need."""

from __future__ import annotations

from seepage.datasets import Dataset
from seepage.tabular.schema import Category, Column, Discrete


def sizes(data: Dataset) -> tuple[int, int]:
    """Return the number of training and of test rows."""
    return len(data.train), 0 if data.test is None else len(data.test)


def categories(column: Column) -> tuple[Category, ...]:
    """Return the categories of a discrete column."""
    assert isinstance(column, Discrete)
    return column.categories
