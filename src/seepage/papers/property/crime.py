"""Communities and Crime: census, police and crime figures of 1,994 communities in the United States."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, measured, split
from seepage.datasets.files import obtain
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.table import Table
from seepage.text import how_many

FILE = "communities.data"
CARD = DatasetCard(
    name="crime",
    rows=1994,
    columns=100,
    width=100,
    target="ViolentCrimesPerPop",
    source="Redmond, Communities and Crime, UCI Machine Learning Repository, doi:10.24432/C53W3X",
    licence="CC BY 4.0",
    home="https://archive.ics.uci.edu/dataset/183/communities+and+crime",
    files=(
        File(
            FILE,
            url="https://archive.ics.uci.edu/static/public/183/communities+and+crime.zip",
            inside=("communities+and+crime.zip",),
            sha256="09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
        ),
    ),
)

# The published order; the first five identify a community and are not figures.
# fmt: off
COLUMNS = (
    "state", "county", "community", "communityname", "fold", "population", "householdsize", "racepctblack",
    "racePctWhite", "racePctAsian", "racePctHisp", "agePct12t21", "agePct12t29", "agePct16t24", "agePct65up",
    "numbUrban", "pctUrban", "medIncome", "pctWWage", "pctWFarmSelf", "pctWInvInc", "pctWSocSec", "pctWPubAsst",
    "pctWRetire", "medFamInc", "perCapInc", "whitePerCap", "blackPerCap", "indianPerCap", "AsianPerCap", "OtherPerCap",
    "HispPerCap", "NumUnderPov", "PctPopUnderPov", "PctLess9thGrade", "PctNotHSGrad", "PctBSorMore", "PctUnemployed",
    "PctEmploy", "PctEmplManu", "PctEmplProfServ", "PctOccupManu", "PctOccupMgmtProf", "MalePctDivorce",
    "MalePctNevMarr", "FemalePctDiv", "TotalPctDiv", "PersPerFam", "PctFam2Par", "PctKids2Par", "PctYoungKids2Par",
    "PctTeen2Par", "PctWorkMomYoungKids", "PctWorkMom", "NumIlleg", "PctIlleg", "NumImmig", "PctImmigRecent",
    "PctImmigRec5", "PctImmigRec8", "PctImmigRec10", "PctRecentImmig", "PctRecImmig5", "PctRecImmig8", "PctRecImmig10",
    "PctSpeakEnglOnly", "PctNotSpeakEnglWell", "PctLargHouseFam", "PctLargHouseOccup", "PersPerOccupHous",
    "PersPerOwnOccHous", "PersPerRentOccHous", "PctPersOwnOccup", "PctPersDenseHous", "PctHousLess3BR", "MedNumBR",
    "HousVacant", "PctHousOccup", "PctHousOwnOcc", "PctVacantBoarded", "PctVacMore6Mos", "MedYrHousBuilt",
    "PctHousNoPhone", "PctWOFullPlumb", "OwnOccLowQuart", "OwnOccMedVal", "OwnOccHiQuart", "RentLowQ", "RentMedian",
    "RentHighQ", "MedRent", "MedRentPctHousInc", "MedOwnCostPctInc", "MedOwnCostPctIncNoMtg", "NumInShelters",
    "NumStreet", "PctForeignBorn", "PctBornSameState", "PctSameHouse85", "PctSameCity85", "PctSameState85",
    "LemasSwornFT", "LemasSwFTPerPop", "LemasSwFTFieldOps", "LemasSwFTFieldPerPop", "LemasTotalReq",
    "LemasTotReqPerPop", "PolicReqPerOffic", "PolicPerPop", "RacialMatchCommPol", "PctPolicWhite", "PctPolicBlack",
    "PctPolicHisp", "PctPolicAsian", "PctPolicMinor", "OfficAssgnDrugUnits", "NumKindsDrugsSeiz", "PolicAveOTWorked",
    "LandArea", "PopDens", "PctUsePubTrans", "PolicCars", "PolicOperBudg", "LemasPctPolicOnPatr",
    "LemasGangUnitDeploy", "LemasPctOfficDrugUn", "PolicBudgPerPop", "ViolentCrimesPerPop",
)
# fmt: on
IDENTIFIERS = COLUMNS[:5]
TARGET = COLUMNS[-1]
SENSITIVE = {
    *("racepctblack", "racePctWhite", "racePctAsian", "racePctHisp", "medIncome"),
    *("TotalPctDiv", "PctPopUnderPov", "PctUnemployed", "PctIlleg", "PctForeignBorn"),
}
CLASSES = ("<0.15", "0.15-0.5", ">0.5")


@dataset(CARD)
def crime(folder: str | Path | None = None, target: str = "class", test_share: float = 0.2, seed: int = 42) -> Dataset:
    """Census figures of 1,994 communities and their violent crime (UCI Communities and Crime).

    The 100 figures that (nearly) every community has, each scaled to [0, 1] by the publisher; the 22
    of the police survey that 84% of the communities lack and the five identifiers are left out. Other
    arguments and errors are those of :func:`seepage.datasets.files.obtain` and :func:`seepage.datasets.dataset.split`.

    Args:
        target: ``class`` for three classes of the violent crime rate (below 0.15, up to 0.5, above), as in the work on
            property inference, ``rate`` for the rate itself.

    Raises:
        BadInputError: ``target`` is neither.
    """
    if target not in ("class", "rate"):
        raise BadInputError(f"target must be 'class' (three classes) or 'rate' (a number), got {target!r}.")
    files = obtain(CARD, folder)
    raw = files.parse(FILE, lambda file: pd.read_csv(file, header=None, na_values="?"))
    if raw.shape[1] != len(COLUMNS):
        raise BadInputError(f"{FILE} should have {len(COLUMNS)} columns, but has {raw.shape[1]}; get it again.")
    raw.columns = list(COLUMNS)
    frame = raw.drop(columns=list(IDENTIFIERS))
    # The police survey left most communities out; the one other gap is a single cell.
    frame = frame.loc[:, frame.isna().mean() < 0.5].astype("float64")
    gaps = int(frame.isna().sum().sum())
    frame = frame.fillna(frame.median())
    if target == "class":
        rate = frame[TARGET]
        code = (rate >= 0.15).astype(int) + (rate > 0.5).astype(int)
        frame[TARGET] = code.map(dict(enumerate(CLASSES))).astype(object)
        column = Discrete(name=TARGET, categories=CLASSES)
    else:
        column = measured(frame[TARGET], integer=False, unit="scaled to [0, 1]")
    schema = Schema(
        columns=tuple(
            measured(frame[name], integer=False, unit="scaled to [0, 1]", sensitive=name in SENSITIVE)
            for name in map(str, frame.columns)
            if name != TARGET
        ),
        target=column,
    )
    notes = (f"{how_many(gaps, 'missing cell')} filled with the median of the column",) if gaps else ()
    train, test = split(Table(schema, frame), test_share, seed)
    return Dataset(CARD.name, train, test, notes, CARD.source, CARD.licence)
