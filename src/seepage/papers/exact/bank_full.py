"""Bank Marketing, the first version: phone calls of a Portuguese bank to sell a term deposit."""

from __future__ import annotations

from pathlib import Path

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset
from seepage.papers.exact.bank import load_bank

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
JOBS = (
    "admin.",
    "unknown",
    "unemployed",
    "management",
    "housemaid",
    "entrepreneur",
    "student",
    "blue-collar",
    "self-employed",
    "retired",
    "technician",
    "services",
)
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

    All columns; "unknown" is a category. The file is ordered by date, the split is shuffled.

    Args:
        folder: folder with the file, see :func:`seepage.datasets.files.obtain`.
        test_share, seed: arguments of the split, see :func:`seepage.datasets.dataset.split`.

    Raises:
        BadInputError: the file is missing, damaged or another one, or the share leaves no row.
    """
    return load_bank(CARD, COLUMNS, SENSITIVE, folder=folder, test_share=test_share, seed=seed)
