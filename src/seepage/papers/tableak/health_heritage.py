"""Heritage Health Prize: insurance claims, drugs and laboratory tests of one patient in one year."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, in_order, measured, split
from seepage.datasets.files import Obtained, obtain
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table

ARCHIVE = "HHP_release3.zip"
COPY = "health.csv"
CARD = DatasetCard(
    name="health_heritage",
    rows=218_415,
    columns=17,
    width=110,
    target="max_CharlsonIndex",
    source="Heritage Provider Network, Heritage Health Prize, release 3 (Kaggle, 2011)",
    licence="rules of the competition; research use",
    home="https://www.kaggle.com/c/hhp/data",
    files=(
        File("Claims.csv", inside=(ARCHIVE,)),
        File("DrugCount.csv", inside=(ARCHIVE,)),
        File("LabCount.csv", inside=(ARCHIVE,)),
        File("Members.csv", inside=(ARCHIVE,)),
    ),
    copies=(File(COPY, inside=("health_171067.csv.zip",)),),
)

# In alphabetical order with "?" (missing) where TabLeak's one-hot encoding puts it, under the name of the column and
# "_?": among equals, the first category counts.
# fmt: off
CONDITIONS = (
    "AMI", "APPCHOL", "ARTHSPIN", "CANCRA", "CANCRB", "CANCRM", "CATAST", "CHF", "COPD", "FLaELEC", "FXDISLC",
    "GIBLEED", "GIOBSENT", "GYNEC1", "GYNECA", "HEART2", "HEART4", "HEMTOL", "HIPFX", "INFEC4", "LIVERDZ", "METAB1",
    "METAB3", "MISCHRT", "MISCL1", "MISCL5", "MSC2a3", "NEUMENT", "ODaBNCA", "PERINTL", "PERVALV", "PNCRDZ", "PNEUM",
    "PRGNCY", "?", "RENAL1", "RENAL2", "RENAL3", "RESPR4", "ROAMI", "SEIZURE", "SEPSIS", "SKNAUT", "STROKE", "TRAUMA",
    "UTI",
)
SPECIALTIES = (
    "Anesthesiology", "Diagnostic Imaging", "Emergency", "General Practice", "Internal", "Laboratory",
    "Obstetrics and Gynecology", "Other", "Pathology", "Pediatrics", "Rehabilitation", "?", "Surgery",
)
PROCEDURES = (
    "ANES", "EM", "MED", "PL", "?", "RAD", "SAS", "SCS", "SDS", "SEOA", "SGS", "SIS", "SMCD", "SMS", "SNS", "SO",
    "SRS", "SUS",
)
PLACES = (
    "Ambulance", "Home", "Independent Lab", "Inpatient Hospital", "Office", "Other", "Outpatient Hospital", "?",
    "Urgent Care",
)
# fmt: on
AGES = ("0-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70-79", "80+", "?")
OF_CLAIMS = {
    "PrimaryConditionGroup": CONDITIONS,
    "Specialty": SPECIALTIES,
    "ProcedureGroup": PROCEDURES,
    "PlaceSvc": PLACES,
}
# The copy numbers its count columns like the script in the appendix of the competition's first milestone report (team
# Market Makers, 2011), whose other column names it shares. Sex, age and illness confirm it: pregnancy and gynaecology
# occur for women, paediatrics for children, strokes with illness.
# fmt: off
NUMBERED = {
    "pcg": (
        "MSC2a3", "METAB3", "ARTHSPIN", "NEUMENT", "RESPR4", "MISCHRT", "SKNAUT", "GIBLEED", "INFEC4", "TRAUMA",
        "HEART2", "RENAL3", "ROAMI", "MISCL5", "ODaBNCA", "UTI", "COPD", "GYNEC1", "CANCRB", "FXDISLC", "AMI",
        "PRGNCY", "HEMTOL", "HEART4", "SEIZURE", "APPCHOL", "CHF", "GYNECA", "?", "PNEUM", "RENAL2", "GIOBSENT",
        "STROKE", "CANCRA", "FLaELEC", "MISCL1", "HIPFX", "METAB1", "PERVALV", "LIVERDZ", "CATAST", "CANCRM",
        "PERINTL", "PNCRDZ", "RENAL1", "SEPSIS",
    ),
    "sp": (
        "Internal", "Laboratory", "General Practice", "Surgery", "Diagnostic Imaging", "Emergency", "Other",
        "Pediatrics", "Rehabilitation", "Obstetrics and Gynecology", "Anesthesiology", "Pathology", "?",
    ),
    "pg": (
        "EM", "PL", "MED", "SCS", "RAD", "SDS", "SIS", "SMS", "ANES", "SGS", "SEOA", "SRS", "SNS", "SAS", "SUS", "?",
        "SMCD", "SO",
    ),
    "ps": (
        "Office", "Independent Lab", "Urgent Care", "Outpatient Hospital", "Inpatient Hospital", "Ambulance", "Other",
        "Home", "?",
    ),
}
# fmt: on
NUMBERS = {
    "LabCount_total": "tests",
    "LabCount_months": "months",
    "DrugCount_total": "prescriptions",
    "DrugCount_months": "months",
    "no_Claims": "claims",
    "no_Providers": "providers",
    "no_Vendors": "vendors",
    "no_PCPs": "physicians",
    "PayDelay_total": "days",
    "PayDelay_max": "days",
    "PayDelay_min": "days",
}
KEY = ["MemberID", "Year"]


@dataset(CARD)
def health_heritage(folder: str | Path | None = None, test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Patient-years of an insurer, with whether a serious illness was coded (Heritage Health Prize).

    TabLeak's 17 columns: one row for each member and year, with the most frequent condition,
    specialty, procedure and place of its claims; the target's code 1 is a maximal Charlson index
    above 0. Read from the four tables of the original release 3, or from a copy that is already
    aggregated by member and year. Rows come in the order of member and year, which the published
    code does not settle, so its 80/20 split is met in size only. Arguments and errors are those of
    :func:`seepage.datasets.files.obtain` and :func:`seepage.datasets.dataset.split`.
    """
    files = obtain(CARD, folder)
    frame = _from_copy(files) if files.copy else _from_tables(files)
    schema = Schema(
        columns=(
            *(measured(frame[name], unit=unit) for name, unit in NUMBERS.items()),
            Discrete(name="PrimaryConditionGroup", categories=CONDITIONS, sensitive=True),
            Discrete(name="Specialty", categories=SPECIALTIES, sensitive=True),
            Discrete(name="ProcedureGroup", categories=PROCEDURES, sensitive=True),
            Discrete(name="PlaceSvc", categories=PLACES),
            Discrete(name="AgeAtFirstClaim", categories=AGES, sensitive=True, unit="years"),
            Discrete(name="Sex", categories=("F", "M", "?"), sensitive=True),
        ),
        target=Discrete(name="max_CharlsonIndex", categories=("0", ">0"), sensitive=True),
    )
    notes: tuple[str, ...] = ()
    if files.copy:
        notes = (
            f"partial, derived copy: {len(frame):,} of the original's {CARD.rows:,} member-years (those of known age "
            "and sex), already aggregated; totals are averages times counts",
            "the copy numbers the categories of claims and does not say which is which; their names are taken from "
            "the script in the first milestone report of the competition, whose column names it shares",
        )
    elif len(frame) != CARD.rows:
        notes = (f"{len(frame):,} member-years instead of the original's {CARD.rows:,}",)
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(CARD.name, train, test, notes, CARD.source, CARD.licence)


def _from_tables(files: Obtained) -> pd.DataFrame:
    def read(name: str, *columns: str) -> pd.DataFrame:
        raw = files.parse(f"{name}.csv", lambda file: pd.read_csv(file, dtype=str, na_values="", keep_default_na=False))
        return in_order(raw, columns, f"{name}.csv")

    claims = read("Claims", *KEY, "ProviderID", "Vendor", "PCP", "PayDelay", "CharlsonIndex", *OF_CLAIMS)
    claims = claims.assign(
        PayDelay=_capped(claims["PayDelay"]),
        # Only whether the index is above 0 matters.
        ill=claims["CharlsonIndex"].fillna("0") != "0",
    )
    groups = claims.groupby(KEY)
    rows = groups.agg(
        no_Claims=("ProviderID", "count"),
        no_Providers=("ProviderID", "nunique"),
        no_Vendors=("Vendor", "nunique"),
        no_PCPs=("PCP", "nunique"),
        PayDelay_total=("PayDelay", "sum"),
        PayDelay_max=("PayDelay", "max"),
        PayDelay_min=("PayDelay", "min"),
        ill=("ill", "max"),
    )
    for name, categories in OF_CLAIMS.items():
        named = claims[name].fillna("?")
        unknown = sorted(set(named) - set(categories))
        if unknown:
            raise BadInputError(
                f"Claims.csv holds {unknown[0]!r} in its column {name}, which release 3 does not have there; "
                f"expected one of {', '.join(categories)}. Check that it is the right release, unedited."
            )
        codes = named.map({category: code for code, category in enumerate(categories)})
        counts = claims[KEY].assign(code=codes).groupby([*KEY, "code"]).size().rename("count").reset_index()
        counts = counts.sort_values(["count", "code"], ascending=[False, True])
        rows[name] = counts.drop_duplicates(KEY).set_index(KEY)["code"]
    monthly = []
    for name in ("LabCount", "DrugCount"):
        counts = read(name, *KEY, name)
        counts[name] = _capped(counts[name])
        monthly.append(counts.groupby(KEY).agg(**{f"{name}_total": (name, "sum"), f"{name}_months": (name, "count")}))
    rows = pd.concat([*monthly, rows], axis=1, join="outer").sort_index()
    # A member-year without claims counts as one whose claims all have the first category.
    rows = rows.astype("float64").fillna(0).astype("int64").reset_index()
    for name, categories in OF_CLAIMS.items():
        rows[name] = rows[name].map(dict(enumerate(categories))).astype(object)
    members = read("Members", "MemberID", "AgeAtFirstClaim", "Sex").fillna("?")
    rows = rows.merge(members, on="MemberID", how="left").fillna({"AgeAtFirstClaim": "?", "Sex": "?"})
    return rows.assign(max_CharlsonIndex=_target(rows["ill"]))


def _from_copy(files: Obtained) -> pd.DataFrame:
    raw = files.parse(COPY, pd.read_csv)
    counts = {kind: [f"{kind}{number}" for number in range(1, len(names) + 1)] for kind, names in NUMBERED.items()}
    plain = ["no_Claims", "no_Providers", "no_Vendors", "no_PCPs", "PayDelay_max", "PayDelay_min"]
    averages = ["labCount_ave", "labcount_months", "drugCount_ave", "drugcount_months", "PayDelay_ave"]
    ages = [*(f"age_{middle:02d}" for middle in range(5, 90, 10)), "age_MISS"]
    sexes = ["sexFEMALE", "sexMALE", "sexMISS"]
    raw = in_order(raw, [*plain, *averages, *ages, *sexes, "Charlson>0", *chain.from_iterable(counts.values())], COPY)
    frame = raw[plain].assign(
        LabCount_total=_whole(raw["labCount_ave"] * raw["labcount_months"]),
        LabCount_months=raw["labcount_months"],
        DrugCount_total=_whole(raw["drugCount_ave"] * raw["drugcount_months"]),
        DrugCount_months=raw["drugcount_months"],
        PayDelay_total=_whole(raw["PayDelay_ave"] * raw["no_Claims"]),
        AgeAtFirstClaim=_largest(raw[ages], AGES, AGES),
        Sex=_largest(raw[sexes], ("F", "M", "?"), ("F", "M", "?")),
        max_CharlsonIndex=_target(raw["Charlson>0"]),
    )
    for (name, categories), (kind, numbered) in zip(OF_CLAIMS.items(), NUMBERED.items(), strict=True):
        frame[name] = _largest(raw[counts[kind]], numbered, categories)
    return frame


def _largest(counts: pd.DataFrame, names: tuple[str, ...], order: tuple[str, ...]) -> pd.Series:
    """Return for each row the name of its largest count, the first in ``order`` among equals."""
    sorted_counts = counts.to_numpy()[:, [names.index(name) for name in order]]
    return pd.Series(np.array(order, dtype=object)[sorted_counts.argmax(axis=1)], index=counts.index)


def _capped(series: pd.Series) -> pd.Series:
    """Return counts whose largest value is written with a plus ("162+") as numbers."""
    numbers = pd.to_numeric(series.str.rstrip("+"), errors="coerce")
    wrong = series[numbers.isna() & series.notna()]
    if len(wrong):
        raise BadInputError(
            f"the column {series.name} should hold whole numbers, the largest perhaps with a plus, but holds "
            f"{wrong.iloc[0]!r}; check that it is the right file, unedited."
        )
    return numbers


def _whole(series: pd.Series) -> pd.Series:
    return series.round().astype("int64")


def _target(series: pd.Series) -> pd.Series:
    return (series > 0).map({False: "0", True: ">0"}).astype(object)
