"""The loaders on the real files, where these are at hand."""

from __future__ import annotations

import pytest

from seepage.datasets import catalogue, load
from seepage.datasets.about import card_of
from seepage.tabular.schema import Continuous
from tests.datasets.parts import categories, sizes

FILES = {
    "lawschool": "lawschs1_1_first65535.csv.gz",
    "health_heritage": "health_171067.csv.zip",
    "bank_full": "bank.zip",
    "bank_additional": "bank-additional.zip",
    "credit": "UCI_Credit_Card_raw.csv.gz",
    "crime": "communities.data.gz",
}
EXPECTED = {
    "lawschool": (44_893, 11_224, 39),
    "bank_full": (36_168, 9043, 51),
    "bank_additional": (32_950, 8238, 65),
    "credit": (24_000, 6000, 93),
    "crime": (1595, 399, 100),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sizes(real, name):
    data = load(name, real(FILES[name]))
    assert (*sizes(data), data.schema.width) == EXPECTED[name]
    card = card_of(name)
    assert card is not None
    assert (card.width, card.columns) == (data.schema.width, len(data.schema.columns))
    assert data.schema.target.name == card.target
    if not data.notes:
        assert len(data.all) == card.rows


def test_lawschool_says_that_it_is_partial(real):
    data = load("lawschool", real(FILES["lawschool"]))
    (note,) = data.notes
    assert "56,117" in note
    assert "96,584" in note
    assert "13 of 24" in note
    assert len(categories(data.schema.columns[4])) == 24
    assert not any(column.integer for column in data.schema.columns if isinstance(column, Continuous))


def test_health_heritage(real):
    data = load("health_heritage", real(FILES["health_heritage"]))
    assert (*sizes(data), data.schema.width) == (136_853, 34_214, 110)
    assert (len(data.schema.discrete), len(data.schema.continuous)) == (6, 11)
    assert "171,067 of the original's 218,415" in data.notes[0]
    assert "names are taken from" in data.notes[1]
    frame = data.all.frame
    assert (frame["max_CharlsonIndex"] == ">0").mean() == pytest.approx(0.316, abs=1e-3)

    def share(column, value, other, wanted):
        return (frame.loc[frame[column] == value, other] == wanted).mean()

    # The copy numbers its categories; the names we give must behave as what they stand for.
    assert share("PrimaryConditionGroup", "PRGNCY", "Sex", "F") > 0.95
    assert share("PrimaryConditionGroup", "GYNECA", "Sex", "F") > 0.95
    assert share("PrimaryConditionGroup", "STROKE", "max_CharlsonIndex", ">0") > 0.95
    assert share("PrimaryConditionGroup", "LIVERDZ", "max_CharlsonIndex", ">0") > 0.95
    assert share("PrimaryConditionGroup", "HIPFX", "AgeAtFirstClaim", "80+") > 0.5
    assert share("Specialty", "Obstetrics and Gynecology", "Sex", "F") > 0.95
    assert share("Specialty", "Pediatrics", "AgeAtFirstClaim", "0-9") > 0.6
    assert share("Specialty", "Rehabilitation", "ProcedureGroup", "MED") > 0.7
    assert share("PlaceSvc", "Independent Lab", "Specialty", "Laboratory") > 0.7


def test_credit_columns(real):
    data = load("credit", real(FILES["credit"]))
    assert (len(data.schema.discrete), len(data.schema.continuous)) == (9, 14)
    assert data.all.labels.mean() == pytest.approx(0.2212)
    assert data.all.frame["SEX"].value_counts().to_dict() == {"female": 18_112, "male": 11_888}


def test_the_catalogue_finds_copies(real):
    folder = real(FILES["lawschool"])
    listed = {listing.name: listing for listing in catalogue(folder)}["lawschool"]
    assert (listed.availability, listed.where) == ("copy found", str(folder / FILES["lawschool"]))


def test_crime_targets(real):
    folder = real(FILES["crime"])
    classes, rate = load("crime", folder), load("crime", folder, target="rate")
    labels = rate.all.labels
    expected = (labels >= 0.15).long() + (labels > 0.5).long()
    assert (classes.all.labels.long() == expected).all()
    assert {0.15, 0.5} <= set(labels.tolist())
    assert classes.notes == ("1 missing cell filled with the median of the column",)


def test_the_folder_may_come_from_the_environment(real, monkeypatch):
    monkeypatch.setenv("SEEPAGE_DATA", str(real(FILES["crime"])))
    assert len(load("crime").all) == 1994
    listed = {listing.name: listing.availability for listing in catalogue()}
    assert listed["crime"] == "found"
