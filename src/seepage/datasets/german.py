"""German Credit: a thousand loan applications to a German bank, with the credit risk of each."""

from __future__ import annotations

from seepage.datasets.about import DatasetCard, dataset
from seepage.datasets.dataset import Dataset, bundled, measured, split
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table

CARD = DatasetCard(
    name="german",
    rows=1000,
    columns=20,
    width=63,
    target="risk",
    source="Hofmann, Statlog (German Credit Data), UCI Machine Learning Repository, doi:10.24432/C5NC77",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data",
    bundled=True,
)

# Meaning of each published code; A47 and A95 never occur, but belong to the published list and therefore to the encoded
# width.
# fmt: off
CATEGORIES: dict[str, dict[str, str]] = {
    "checking_account": {"A11": "<0 DM", "A12": "0-200 DM", "A13": ">=200 DM", "A14": "none"},
    "credit_history": {
        "A30": "no credits taken", "A31": "all paid here", "A32": "paid till now", "A33": "past delay",
        "A34": "critical",
    },
    "purpose": {
        "A40": "new car", "A41": "used car", "A42": "furniture", "A43": "radio or television", "A44": "appliances",
        "A45": "repairs", "A46": "education", "A47": "vacation", "A48": "retraining", "A49": "business",
        "A410": "other",
    },
    "savings": {
        "A61": "<100 DM", "A62": "100-500 DM", "A63": "500-1000 DM", "A64": ">=1000 DM", "A65": "unknown or none",
    },
    "employment": {"A71": "unemployed", "A72": "<1 year", "A73": "1-4 years", "A74": "4-7 years", "A75": ">=7 years"},
    "status_and_sex": {
        "A91": "male, divorced or separated", "A92": "female, divorced, separated or married", "A93": "male, single",
        "A94": "male, married or widowed", "A95": "female, single",
    },
    "other_debtors": {"A101": "none", "A102": "co-applicant", "A103": "guarantor"},
    "property": {
        "A121": "real estate", "A122": "savings contract or life insurance", "A123": "car or other",
        "A124": "unknown or none",
    },
    "other_installments": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rent", "A152": "own", "A153": "free"},
    "job": {
        "A171": "unskilled, non-resident", "A172": "unskilled, resident", "A173": "skilled",
        "A174": "management or highly qualified",
    },
    "telephone": {"A191": "none", "A192": "yes"},
    "foreign_worker": {"A201": "yes", "A202": "no"},
}
# fmt: on
UNITS: dict[str, str | None] = {
    "duration": "months",
    "credit_amount": "DM",
    "installment_rate": "% of disposable income, in 4 grades",
    "residence_since": "years, in 4 grades",
    "age": "years",
    "existing_credits": None,
    "dependants": "people",
}
SENSITIVE = {"checking_account", "credit_amount", "savings", "status_and_sex", "age", "foreign_worker"}


@dataset(CARD)
def german(test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Loan applications with their outcome (UCI Statlog German Credit), bundled: 1,000 rows.

    TabLeak's columns in their published order, its shuffled 800/200 split (section 4) by default.
    The published codes are spelled out as words. The target's code 1 is "bad". Arguments and errors are
    those of :func:`seepage.datasets.dataset.split`.

    Example:
        >>> data = german()
        >>> len(data.train), len(data.test), data.schema.width
        (800, 200, 63)
    """
    frame = bundled("german")
    for name, words in CATEGORIES.items():
        frame[name] = frame[name].map(words).astype(object)
    frame["risk"] = frame["risk"].map({1: "good", 2: "bad"}).astype(object)

    def column(name: str) -> Column:
        sensitive = name in SENSITIVE
        if name in CATEGORIES:
            return Discrete(name=name, categories=tuple(CATEGORIES[name].values()), sensitive=sensitive)
        return measured(frame[name], unit=UNITS[name], sensitive=sensitive)

    schema = Schema(
        columns=tuple(column(str(name)) for name in frame.columns if name != "risk"),
        target=Discrete(name="risk", categories=("good", "bad"), sensitive=True),
    )
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(CARD.name, train, test, (), CARD.source, CARD.licence)
