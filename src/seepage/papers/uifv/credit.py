"""Default of Credit Card Clients: cardholders of a bank in Taiwan, 2005, and who defaulted."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, in_order, measured, split
from seepage.datasets.files import obtain
from seepage.errors import BadInputError
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table

WORKBOOK = "default of credit card clients.xls"
CARD = DatasetCard(
    name="credit",
    rows=30_000,
    columns=23,
    width=93,
    target="default",
    source="Yeh, Default of Credit Card Clients, UCI Machine Learning Repository, doi:10.24432/C55S3H",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/350/default+of+credit+card+clients",
    files=(
        File(
            WORKBOOK,
            url="https://archive.ics.uci.edu/static/public/350/default+of+credit+card+clients.zip",
            inside=("default+of+credit+card+clients.zip",),
            sha256="30c6be3abd8dcfd3e6096c828bad8c2f011238620f5369220bd60cfc82700933",
        ),
    ),
    copies=(File("UCI_Credit_Card_raw.csv"), File("UCI_Credit_Card.csv")),
)

# Codes 0 of both and 5 and 6 of EDUCATION occur but are not explained by the publisher.
WORDS: dict[str, dict[int, str]] = {
    "SEX": {1: "male", 2: "female"},
    "EDUCATION": {
        0: "unexplained 0",
        1: "graduate school",
        2: "university",
        3: "high school",
        4: "others",
        5: "unexplained 5",
        6: "unexplained 6",
    },
    "MARRIAGE": {0: "unexplained 0", 1: "married", 2: "single", 3: "others"},
}
PAYMENTS = ("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6")
# Months of delay that occur in any of the six columns (-2 no use, -1 paid in full, 0 revolving).
DELAYS = tuple(range(-2, 9))
COLUMNS = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *PAYMENTS,
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)


@dataset(CARD)
def credit(folder: str | Path | None = None, test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Credit card clients in Taiwan and whether they defaulted (UCI), 30,000 rows.

    All columns but the running number: 9 discrete (six of them months of delay) and 14 amounts.
    Read from the original Excel workbook, or from a CSV copy with the same columns. Arguments and errors
    are those of :func:`seepage.datasets.files.obtain` and :func:`seepage.datasets.dataset.split`.
    """
    files = obtain(CARD, folder)
    name = next(iter(files.contents))
    raw = files.parse(name, workbook if name == WORKBOOK else pd.read_csv)
    raw.columns = [str(column).replace(".", " ").replace("default payment next month", "default") for column in raw]
    frame = in_order(raw, [*COLUMNS, "default"], name)
    try:
        frame = frame.astype("int64")
    except (ValueError, TypeError) as error:
        raise BadInputError(f"{name} should hold whole numbers only ({error}); check that it is unedited.") from error
    for column, words in WORDS.items():
        frame[column] = frame[column].map(words).astype(object)
    frame["default"] = frame["default"].map({0: "no", 1: "yes"}).astype(object)

    def describe(name: str) -> Column:
        if name in WORDS:
            return Discrete(name=name, categories=tuple(WORDS[name].values()), sensitive=True)
        if name in PAYMENTS:
            return Discrete(name=name, categories=DELAYS, sensitive=True, unit="months of delay")
        return measured(frame[name], unit="years" if name == "AGE" else "TWD", sensitive=name in ("AGE", "LIMIT_BAL"))

    schema = Schema(
        columns=tuple(describe(name) for name in COLUMNS),
        target=Discrete(name="default", categories=("no", "yes"), sensitive=True),
    )
    notes = (f"read from the copy {name}, not from the original workbook",) if files.copy else ()
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(CARD.name, train, test, notes, CARD.source, CARD.licence)


def workbook(file: io.BytesIO) -> pd.DataFrame:
    """Return the sheet of the original Excel workbook."""
    try:
        # The first row of the sheet numbers the columns, the second names them.
        return pd.read_excel(file, header=1, engine="calamine")
    except ImportError as error:
        raise BadInputError(
            f"{WORKBOOK} is an Excel workbook of the old format, and the package python-calamine that reads it is "
            "not installed; pip install python-calamine."
        ) from error
