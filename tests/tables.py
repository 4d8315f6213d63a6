"""Tables that several tests use."""

from __future__ import annotations

import pandas as pd

from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import telling
from seepage.tabular.schema import Continuous, Schema
from seepage.tabular.table import Table


def pay_table(rows: int = 400) -> Dataset:
    """Return a table whose target is a number that follows its columns."""
    data = telling(rows=rows)
    frame, schema = data.train.frame, data.schema
    pay = Continuous(name="pay", low=0, high=10, tolerance=1.0)
    made = frame.drop(columns=schema.target.name).assign(
        pay=3 * frame["cause"].astype(float) + 2 * frame["noise_0"].astype(float)
    )
    table = Table(Schema(columns=schema.columns, target=pay), pd.DataFrame(made))
    return Dataset("made", table, None, (), "made up", "none")
