"""Law School Admissions: applications to public law schools in the United States, 2005 to 2008."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, in_order, measured, split
from seepage.datasets.files import obtain
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

ORIGINAL = "lawschs1_1.dta"
CARD = DatasetCard(
    name="lawschool",
    rows=96_584,
    columns=7,
    width=39,
    target="admit",
    source="Project SEAPHE, law school admissions data (public records of 2005 to 2008)",
    licence="no licence published; for research",
    home="http://www.seaphe.org/databases.php",
    files=(File(ORIGINAL),),
    copies=(File("lawschs1_1_first65535.csv"), File("lawschs1_1.csv")),
)

# fmt: off
COLLEGES = (
    "Arizona", "Arizona State", "Baltimore", "Buffalo", "Cincinnati", "Cleveland State", "George Mason", "Hawaii",
    "Houston", "Idaho", "Louisiana State", "Michigan", "Minnesota", "Missouri at Columbia", "Missouri at Kansas City",
    "Nevada Las Vegas", "North Carolina", "Northern Illinois", "Ohio State", "Virginia", "Washington", "West Virginia",
    "William and Mary", "Wyoming",
)
# fmt: on
COLUMNS = ("lsat", "gpa", "race", "resident", "college", "year", "gender", "admit")


@dataset(CARD)
def lawschool(folder: str | Path | None = None, test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Law school applications and whether they were admitted (Project SEAPHE).

    TabLeak's seven columns, its cleaning (rows with a missing or empty cell are dropped) and its
    shuffled 80/20 split. Scores are not rounded, as in its official code. Read from the original
    ``lawschs1_1.dta``, or from a CSV copy of it, of which the known one is partial. Arguments and errors
    are those of :func:`seepage.datasets.files.obtain` and :func:`seepage.datasets.dataset.split`.
    """
    files = obtain(CARD, folder)
    name = next(iter(files.contents))
    if name.endswith(".dta"):
        raw = files.parse(name, pd.read_stata)
    else:
        raw = files.parse(name, lambda file: pd.read_csv(file, encoding="utf-8-sig", dtype={"Year": str, "year": str}))
    raw.columns = [str(column).lower() for column in raw.columns]
    frame = in_order(raw, COLUMNS, name)
    for column in ("race", "college", "year"):
        text = frame[column].astype(object).where(frame[column].notna(), "").astype(str).str.strip()
        frame = frame.assign(**{column: text.where(text != "")})
    frame = frame.dropna(ignore_index=True)
    frame = frame.astype({"resident": "int64", "gender": "int64", "admit": "int64"})
    schema = Schema(
        columns=(
            measured(frame["lsat"], integer=False, unit="points", sensitive=True),
            measured(frame["gpa"], integer=False, unit="grade points", sensitive=True),
            Discrete(name="race", categories=("Asian", "Black", "Hispanic", "White"), sensitive=True),
            Discrete(name="resident", categories=(0, 1)),
            Discrete(name="college", categories=COLLEGES),
            Discrete(name="year", categories=("2005", "2006", "2007", "2008", "200x")),
            Discrete(name="gender", categories=(0, 1), sensitive=True),
        ),
        target=Discrete(name="admit", categories=(0, 1), sensitive=True),
    )
    notes = ()
    if len(frame) != CARD.rows:
        colleges = frame["college"].nunique()
        notes = (
            f"partial copy: {len(frame):,} complete rows ({name}) of the original's {CARD.rows:,}, {colleges} of "
            f"{len(COLLEGES)} colleges occur; bounds and tolerances are those of these rows",
        )
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(CARD.name, train, test, notes, CARD.source, CARD.licence)
