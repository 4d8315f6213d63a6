"""Taobao's ad log: the advertisements shown to users, and the clicks on them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from seepage.datasets.about import DatasetCard, File, dataset
from seepage.datasets.dataset import Dataset, in_order, measured, split
from seepage.datasets.files import Obtained, obtain
from seepage.errors import check_choice, check_count
from seepage.tabular.schema import Column, Discrete, Schema
from seepage.tabular.table import Table

LOG = "raw_sample.csv"
ADS = "ad_feature.csv"
USERS = "user_profile.csv"
SAMPLE = "alimama_sampled_train.txt"
Missing = Literal["drop", "category"]

CARD = DatasetCard(
    name="taobao",
    rows=26_557_961,
    columns=12,
    width=None,
    target="clk",
    source="Alibaba Group, Ad Display/Click Data on Taobao.com, Tianchi data set 56",
    licence="CC BY-NC-SA 4.0",
    home="https://tianchi.aliyun.com/dataset/56",
    files=(File(LOG), File(ADS), File(USERS)),
    copies=(File(SAMPLE),),
    notes=("three files by hand: raw_sample.csv, ad_feature.csv and user_profile.csv",),
)

# Names in the files, and names here.
_LOG = {"user": "user", "adgroup_id": "adgroup", "pid": "pid", "clk": "clk"}
_ADS = {"adgroup_id": "adgroup", "cate_id": "cate", "campaign_id": "campaign", "customer": "customer"}
_ADS |= {"brand": "brand", "price": "price"}
_USERS = {"userid": "user", "cms_group_id": "cms_group", "age_level": "age", "pvalue_level": "pvalue"}
_USERS |= {"shopping_level": "shopping", "occupation": "occupation"}
# The copy has 250 numbers of earlier visits before these.
_HISTORY = 250
_SAMPLE = (
    *("user", "cms_segid", "cms_group", "gender", "age", "pvalue", "shopping", "occupation", "new_user"),
    *("adgroup", "cate", "campaign", "customer", "brand", "price", "pid", "clk"),
)

PRIVATE = ("age", "pvalue", "shopping", "occupation")
PUBLIC = ("pid", "adgroup", "cate", "campaign", "customer", "brand", "price")


@dataset(CARD)
def taobao(
    folder: str | Path | None = None,
    rows: int | None = None,
    missing: Missing = "drop",
    cms_group: bool = True,
    test_share: float = 0.1,
    seed: int = 42,
) -> Dataset:
    """Advertisements shown on Taobao and whether they were clicked on, 26.6 million rows.

    The log is joined with the data on advertisements and users, as in EXACT: users without a profile are left out.
    Cells are empty for some users' purchase levels and some brands; a brand without a name is a category of its own. A
    category is a value that occurs in the rows that are used. Where the three files are missing, a sample of 500 rows
    of another publication is read (``alimama_sampled_train.txt``), whose missing purchase levels are 0.

    Args:
        folder: folder with the files, see :func:`seepage.datasets.files.obtain`, whose errors this raises, too.
        rows: number of rows, drawn at random; all of them if None.
        missing: treatment of rows without a purchase level: ``drop`` them, or make it a ``category``.
        cms_group: whether the users' micro group, which follows from sex and age, is among the columns.
        test_share, seed: arguments of the split, see :func:`seepage.datasets.dataset.split`.
    """
    check_choice("missing:", missing, Missing)
    if rows is not None:
        check_count("rows", rows)
    files = obtain(CARD, folder)
    frame = _sample(files) if files.copy else _joined(files)
    notes = (f"read from the copy {SAMPLE}, 500 rows of another publication",) if files.copy else ()
    if missing == "drop":
        frame = frame[frame["pvalue"] > 0]
    if rows is not None and rows < len(frame):
        chosen = np.random.default_rng(seed).choice(len(frame), rows, replace=False)
        frame = frame.iloc[np.sort(chosen)]
    return from_log(CARD, frame.reset_index(drop=True), cms_group, notes, test_share, seed)


def from_log(
    card: DatasetCard, frame: pd.DataFrame, cms_group: bool, notes: tuple[str, ...], test_share: float, seed: int
) -> Dataset:
    """Return a log as a dataset; see :func:`taobao`."""
    private = (*(("cms_group",) if cms_group else ()), *PRIVATE)
    columns = (*PUBLIC, *private)

    def column(name: str) -> Column:
        if name == "price":
            return measured(frame[name], integer=False, unit="CNY")
        categories = tuple(int(value) for value in np.unique(frame[name]))
        return Discrete(name=name, categories=categories, sensitive=name in private)

    schema = Schema(
        columns=tuple(column(name) for name in columns), target=Discrete(name="clk", categories=(0, 1), sensitive=True)
    )
    train, test = split(Table(schema, frame[[*columns, "clk"]]), test_share, seed)
    return Dataset(card.name, train, test, notes, card.source, card.licence)


def _joined(files: Obtained) -> pd.DataFrame:
    log, ads, users = (
        in_order(files.parse(name, pd.read_csv).rename(columns=str.strip), list(wanted), name).rename(columns=wanted)
        for name, wanted in ((LOG, _LOG), (ADS, _ADS), (USERS, _USERS))
    )
    # The publisher's page codes are texts such as 430548_1007.
    log["pid"] = log["pid"].astype("category").cat.codes
    frame = log.merge(ads, on="adgroup", how="inner").merge(users, on="user", how="inner")
    frame[["brand", "pvalue"]] = frame[["brand", "pvalue"]].fillna(0)
    return frame.astype({name: "int64" for name in frame.columns if name != "price"})


def _sample(files: Obtained) -> pd.DataFrame:
    raw = files.parse(SAMPLE, lambda content: pd.read_csv(content, header=None))
    expected = _HISTORY + len(_SAMPLE)
    raw = in_order(raw.rename(columns=str), [str(i) for i in range(expected)], SAMPLE)
    frame = raw.iloc[:, _HISTORY:].set_axis(list(_SAMPLE), axis=1)
    return frame.astype({name: "int64" for name in _SAMPLE if name != "price"})
