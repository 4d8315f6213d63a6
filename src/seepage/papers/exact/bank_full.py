"""Bank Marketing, the first version: phone calls of a Portuguese bank to sell a term deposit; and the common loader."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, in_order, measured, split
from seepage.datasets.files import obtain
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table

FILE = "bank-full.csv"
CARD = DatasetCard(
    name="bank_full",
    rows=45_211,
    columns=16,
    width=51,
    target="y",
    source="Moro, Rita and Cortez, Bank Marketing, UCI Machine Learning Repository, doi:10.24432/C5K306",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/222/bank+marketing",
    files=(
        File(
            FILE,
            url="https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
            inside=("bank+marketing.zip", "bank.zip"),
            sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
        ),
    ),
)

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# fmt: off
JOBS = (
    "admin.", "unknown", "unemployed", "management", "housemaid", "entrepreneur", "student", "blue-collar",
    "self-employed", "retired", "technician", "services",
)
# fmt: on
# In the published order of columns.
COLUMNS: dict[str, tuple[str, ...] | str | None] = {
    "age": "years",
    "job": JOBS,
    "marital": ("married", "divorced", "single"),
    "education": ("unknown", "secondary", "primary", "tertiary"),
    "default": ("no", "yes"),
    "balance": "EUR",
    "housing": ("no", "yes"),
    "loan": ("no", "yes"),
    "contact": ("unknown", "telephone", "cellular"),
    "day": "day of the month",
    "month": MONTHS,
    "duration": "seconds",
    "campaign": "contacts",
    "pdays": "days, -1 for never",
    "previous": "contacts",
    "poutcome": ("unknown", "other", "failure", "success"),
}
SENSITIVE = {"age", "job", "marital", "default", "balance", "housing", "loan"}


@dataset(CARD)
def bank_full(folder: str | Path | None = None, test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Bank telemarketing (UCI Bank Marketing, bank-full.csv), the version that EXACT uses.

    All columns; "unknown" is a category. The file is ordered by date, the split is shuffled. Arguments and errors are
    those of :func:`seepage.datasets.files.obtain` and :func:`seepage.datasets.dataset.split`.
    """
    return load_bank(CARD, COLUMNS, SENSITIVE, folder=folder, test_share=test_share, seed=seed)


def load_bank(
    card: DatasetCard,
    columns: Mapping[str, tuple[str, ...] | str | None],
    sensitive: Collection[str],
    fractional: Collection[str] = (),
    *,
    folder: str | Path | None,
    test_share: float,
    seed: int,
) -> Dataset:
    """Read one of the versions: ``columns`` has the categories of each column, or the unit of its numbers.

    Columns are in the published order, ``fractional`` names those of numbers that are not whole.
    """
    [file] = card.files
    raw = obtain(card, folder).parse(file.name, lambda content: pd.read_csv(content, sep=";", keep_default_na=False))
    frame = in_order(raw, [*columns, card.target], file.name)

    def column(name: str) -> Column:
        domain = columns[name]
        if isinstance(domain, tuple):
            return Discrete(name=name, categories=domain, sensitive=name in sensitive)
        return measured(frame[name], integer=name not in fractional, unit=domain, sensitive=name in sensitive)

    schema = Schema(
        columns=tuple(column(name) for name in columns),
        target=Discrete(name=card.target, categories=("no", "yes"), sensitive=True),
    )
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(card.name, train, test, (), card.source, card.licence)
