"""Heritage Health Prize with all of its aggregated columns, as in the work on dataset properties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, in_order, measured
from seepage.datasets.files import obtain
from seepage.errors import BadInputError
from seepage.papers.tableak.health_heritage import COPY
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

CARD = DatasetCard(
    name="health_years",
    rows=171_067,
    columns=123,
    width=135,
    target="Charlson>0",
    source="Heritage Provider Network, Heritage Health Prize, release 3 (Kaggle, 2011)",
    licence="rules of the competition; research use",
    home="https://www.kaggle.com/c/hhp/data",
    files=(File(COPY, inside=("health_171067.csv.zip",)),),
    notes=("the label is a Charlson index above 0, not days in hospital, which the copy lacks",),
)
AGES = ("05", "15", "25", "35", "45", "55", "65", "75", "85")
BANDS = ("0-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70-79", "80+")
FLAGS = ("ClaimsTruncated", "labNull", "drugNull")
# Identifiers, the publisher's own split, and the columns that the label is computed from.
LEFT_OUT = (
    "MemberID_t",
    "YEAR_t",
    "trainset",
    *(f"CharlsonIndexI_{k}" for k in ("max", "min", "ave", "range", "stdev")),
)


@dataset(CARD)
def health_years(folder: str | Path | None = None) -> Dataset:
    """Patient-years of an insurer in all 123 aggregated columns (Heritage Health Prize), and serious illness.

    Zhang, Tople and Ohrimenko (2021) use the 139 columns of the competition's winners. The copy that is read here
    lacks the days in hospital, which are their label. A Charlson index above 0 takes their place, and the columns it
    is computed from are left out. Sex and age are a column each. Figures on this table are comparable with the
    published ones, but not on the same data. Argument and errors are those of :func:`seepage.datasets.files.obtain`.
    """
    raw = obtain(CARD, folder).parse(COPY, pd.read_csv)
    coded = [*(f"age_{age}" for age in AGES), "age_MISS", "sexMALE", "sexFEMALE", "sexMISS"]
    in_order(raw, [*LEFT_OUT, *coded, *FLAGS, CARD.target], COPY)
    ages = raw[coded[:9]].to_numpy()
    if not (ages.sum(1) == 1).all() or not (raw["sexMALE"] + raw["sexFEMALE"] == 1).all():
        raise BadInputError(f"{COPY} holds rows without age or sex, which the copy should not; get it again.")
    numbers = raw.drop(columns=[*LEFT_OUT, *coded, *FLAGS, CARD.target])
    if len(
        unusable := [c for c in numbers if numbers[c].isna().any() or not pd.api.types.is_numeric_dtype(numbers[c])]
    ):
        raise BadInputError(f"{COPY} holds cells of its column {unusable[0]!r} that are no numbers; get it again.")
    # A copy is contiguous in memory; pandas otherwise warns of fragmentation when columns are added.
    frame = numbers.copy().assign(
        sex=np.where(raw["sexMALE"] == 1, "M", "F"),
        age=np.array(BANDS, dtype=object)[ages.argmax(1)],
        **{name: raw[name].astype(int) for name in FLAGS},
        **{CARD.target: np.where(raw[CARD.target] > 0, ">0", "0")},
    )
    schema = Schema(
        columns=(
            *(
                measured(frame[name], integer=bool((numbers[name] == numbers[name].round()).all()))
                for name in map(str, numbers.columns)
            ),
            Discrete(name="sex", categories=("F", "M"), sensitive=True),
            Discrete(name="age", categories=BANDS, sensitive=True, unit="years"),
            *(Discrete(name=name, categories=(0, 1), sensitive=name == FLAGS[0]) for name in FLAGS),
        ),
        target=Discrete(name=CARD.target, categories=("0", ">0"), sensitive=True),
    )
    return Dataset(CARD.name, Table(schema, frame), None, CARD.notes, CARD.source, CARD.licence)
