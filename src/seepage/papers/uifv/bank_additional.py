"""Bank Marketing, the second version: with economic indicators of the day of each call."""

from __future__ import annotations

from pathlib import Path

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset
from seepage.papers.exact.bank_full import MONTHS, load_bank

FILE = "bank-additional-full.csv"
CARD = DatasetCard(
    name="bank_additional",
    rows=41_188,
    columns=20,
    width=65,
    target="y",
    source="Moro, Rita and Cortez, Bank Marketing, UCI Machine Learning Repository, doi:10.24432/C5K306",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/222/bank+marketing",
    files=(
        File(
            FILE,
            url="https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
            inside=("bank+marketing.zip", "bank-additional.zip"),
            sha256="74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        ),
    ),
)

# fmt: off
JOBS = (
    "admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired", "self-employed", "services",
    "student", "technician", "unemployed", "unknown",
)
EDUCATION = (
    "basic.4y", "basic.6y", "basic.9y", "high.school", "illiterate", "professional.course", "university.degree",
    "unknown",
)
# fmt: on
ANSWER = ("no", "yes", "unknown")
# In the published order of columns.
COLUMNS: dict[str, tuple[str, ...] | str | None] = {
    "age": "years",
    "job": JOBS,
    "marital": ("divorced", "married", "single", "unknown"),
    "education": EDUCATION,
    "default": ANSWER,
    "housing": ANSWER,
    "loan": ANSWER,
    "contact": ("cellular", "telephone"),
    "month": MONTHS,
    "day_of_week": ("mon", "tue", "wed", "thu", "fri"),
    "duration": "seconds",
    "campaign": "contacts",
    "pdays": "days, 999 for never",
    "previous": "contacts",
    "poutcome": ("failure", "nonexistent", "success"),
    "emp.var.rate": "%",
    "cons.price.idx": "index",
    "cons.conf.idx": "index",
    "euribor3m": "%",
    "nr.employed": "thousand people",
}
FRACTIONAL = {"emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"}
SENSITIVE = {"age", "job", "marital", "default", "housing", "loan"}


@dataset(CARD)
def bank_additional(folder: str | Path | None = None, test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Bank telemarketing with economic indicators (bank-additional-full.csv), the version that UIFV uses.

    All columns; "unknown" is a category. The file is ordered by date, the split is shuffled. Arguments and errors are
    those of :func:`seepage.datasets.files.obtain` and :func:`seepage.datasets.dataset.split`.
    """
    return load_bank(CARD, COLUMNS, SENSITIVE, fractional=FRACTIONAL, folder=folder, test_share=test_share, seed=seed)
