"""Codes are no measurements: by name, by their spread, or as dates in digits; and amounts stay amounts."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seepage.datasets import own_table
from seepage.errors import BadInputError
from seepage.tabular.codes import meaning_of_name, spread
from seepage.tabular.infer import Inferred, Policy, infer
from seepage.tabular.reading import OrderedDates, open_table
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.tabular.texts import BESIDE_NUMBERS, MISSING, dates_in_digits

ROWS = 400
# Names of codes, in the languages and spellings of registers, claims, shops and statistical offices.
CODED = (
    *("condition_concept_id", "conceptId", "SNOMED CT", "loinc", "icd9", "ICD9Code", "Diag1", "dx_2", "DRG", "MS-DRG"),
    *("cpt4", "atc code", "zip3", "PLZ Wohnort", "Postleitzahl", "code_postal", "código_postal", "codice", "nuts3"),
    *("naics", "unspsc", "Gemeindekennziffer", "Fachabteilungsschlüssel", "KundenNr", "Kunden-Nr.", "artikelnummer"),
    *("hospital no", "WardNo", "telefono", "phone_number", "store", "county", "MemberID_t", "USUBJID", "cms_segid"),
    *("Unnamed: 0", "care_site_id", "customerid", "matricule", "gtin", "department", "num_dossier", "brand"),
    *("PROD_CD", "store_nbr", "filialnr", "kod_pocztowy", "CODMUNRES", "puma10", "ubigeo", "Kreis", "census_tract"),
    *("idcliente", "kuntanumero", "nr_klienta", "num_dni", "HHIDNUM", "MATNR", "STATEFIP", "okved", "matricula_aluno"),
)
MEASURED = (
    *("age", "Alter", "n_codes", "no_claims", "num_children", "nr_enfants", "zip_income", "id_age", "icd_count"),
    *("covid", "lipid", "paid", "acid", "hybrid", "steps", "balance", "price", "DaysInHospital", "visits_per_store"),
    *("visit_number", "education-num", "humidity", "steroid", "grid", "country_population", "Anzahl Nummern"),
    *("income_by_zip", "avg_income_zip", "crime_per_district", "pop_city", "hospital_beds", "key_presses", "cd4"),
    *("baseline_cd4", "code_reviews", "barcode_scans", "zip_km", "numero_hijos", "gdp", "Miete", "station_height_mm"),
)


def people(**columns: object) -> pd.DataFrame:
    """Return a table of columns with another one and a target."""
    rows = len(next(iter(columns.values())))  # pyright: ignore[reportArgumentType]
    return pd.DataFrame(
        {**columns, "ill": [row % 2 for row in range(rows)], "dose": [row % 83 / 7 for row in range(rows)]}
    )


def taken(frame: pd.DataFrame | Path, policy: Policy | None = None) -> dict[str, str]:
    return {column.name: column.taken for column in infer(frame, "ill", policy).columns}


def told(inferred: Inferred, name: str) -> str:
    return next(column.line() for column in inferred.columns if column.name == name)


@pytest.mark.long
@settings(max_examples=60)
@given(
    st.sampled_from(CODED),
    st.integers(2, 8),
    st.integers(11, 90),
    st.integers(0, 2**32),
    st.sampled_from(["whole", "float", "text", "gaps"]),
)
def test_codes_by_name_are_never_numbers(name: str, digits: int, different: int, seed: int, form: str) -> None:
    generator = np.random.default_rng(seed)
    codes = generator.integers(10**digits, 10 ** (digits + 1), different)
    cells = pd.Series(generator.choice(codes, ROWS))
    frame = people(**{name: cells})
    if form == "float":
        frame[name] = cells.astype(float)
    elif form == "text":
        frame[name] = cells.astype(str)
    elif form == "gaps":
        frame[name] = cells.astype(float).mask(np.arange(ROWS) % 9 == 0)
    inferred = infer(frame, "ill", Policy(missing="category"))
    if dates_in_digits(frame[name]) is not None:
        return
    kinds = {column.name: column for column in inferred.columns}
    assert kinds[name].taken != "continuous"
    if form != "text" and cells.nunique() > 10:
        assert "a guess: codes by the word" in kinds[name].line()
        assert f"overrides={{{name!r}: 'continuous'}}" in kinds[name].line()


@given(st.sampled_from(MEASURED), st.integers(15, 60), st.integers(0, 2**32))
def test_counts_and_amounts_by_name_are_numbers(name: str, largest: int, seed: int) -> None:
    cells = np.random.default_rng(seed).integers(0, largest, ROWS)
    assert taken(people(**{name: cells}))[name] == "continuous"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("condition_concept_id", "codes"),
        ("income_code", "codes"),
        ("zip_income", "measured"),
        ("n_ids", "measured"),
        ("store", "things"),
        ("stores", ""),
        ("days_per_ward", "measured"),
        ("number", ""),
        ("soc", "maybe"),
        ("besök", ""),
        ("", ""),
        ("_", ""),
    ],
)
def test_the_last_word_that_says_anything_counts(name: str, said: str) -> None:
    assert meaning_of_name(name)[0] == said


@settings(max_examples=40)
@given(st.integers(3, 7), st.integers(20, 90), st.integers(0, 2**32))
def test_few_numbers_far_apart_are_codes_whatever_their_name(digits: int, different: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    # At least ten numbers lie between two codes on average.
    codes = np.unique(generator.integers(10**digits, 10 ** (digits + 1), min(different, 9 * 10**digits // 30)))
    assert spread(codes, 40 * len(codes)) in ("codes", "maybe")
    assert spread(codes, len(codes)) == ""


def amounts() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(5)
    normal = draw.normal
    return {
        "years_old": draw.integers(18, 95, ROWS),
        "born": draw.integers(1930, 2010, ROWS),
        "waves": draw.choice([1990, 1994, 1999, 2001, 2003, 2007, 2010, 2012, 2014, 2017, 2019, 2021], ROWS),
        "spent": np.where(draw.random(ROWS) < 0.8, 0, draw.integers(100, 9999, ROWS)),
        "ldl": np.round(normal(130, 30, ROWS) / 5) * 5,
        "platelets": np.round(normal(250, 60, ROWS) / 10) * 10,
        "cells": np.round(normal(7000, 1500, ROWS) / 100) * 100,
        "wage": np.round(normal(50_000, 9_000, ROWS) / 500) * 500,
        # Ounces in grams, inches in millimetres: no round values, yet on a scale.
        "born_with": np.round(np.round(normal(120, 18, ROWS)) * 28.35),
        "tall": np.round(np.round(normal(67, 3, ROWS)) * 25.4),
        "systolic": normal(130, 15, ROWS).round(),
        "walked": draw.integers(500, 20_000, ROWS),
        "stayed": draw.geometric(0.15, ROWS),
        "offers": draw.choice([199, 249, 299, 349, 399, 449, 499, 599, 699, 799, 899, 999, 1299], ROWS),
        "contacts": np.minimum(draw.geometric(0.2, ROWS), 40),
        "campaign": np.minimum(draw.geometric(0.2, ROWS), 40),
    }


def test_ages_years_counts_and_rounded_values_stay_numbers() -> None:
    found = taken(people(**amounts()))
    assert {name for name, kind in found.items() if kind != "continuous"} == {"ill"}


def test_a_neighbouring_code_does_not_count_as_read() -> None:
    codes = [401_900, 401_901, 428_000, 584_900, 427_310, 250_000, 250_010, 272_400, 486_000, 530_810, 414_010]
    frame = people(diagnosis_code=[codes[row % 11] for row in range(ROWS)])
    data, inferred = own_table(frame, target="ill")
    assert inferred is not None
    column = inferred.schema.column("diagnosis_code")
    assert isinstance(column, Discrete)
    place = inferred.schema.names.index("diagnosis_code")
    first = data.train.cells[0, place]
    # Of all other categories none is near: cells are positions, and the tolerance of a category is 0.
    assert data.train.near(place, float(first), 0.0).sum() == sum(row % 11 == 0 for row in range(ROWS))
    assert any("guessed of columns: 'diagnosis_code' discrete" in note for note in data.notes)


def test_a_given_schema_that_takes_codes_for_numbers_is_told_of() -> None:
    frame = people(icd_code=[100 + row * 7 % 60 * 13 for row in range(ROWS)])
    schema = infer(frame, "ill", Policy(overrides={"icd_code": {"kind": "continuous"}})).schema
    data, _ = own_table(frame, schema)
    assert any("their names speak of codes: 'icd_code'" in note for note in data.notes)


def test_codes_with_letters_points_and_other_signs() -> None:
    rows = range(ROWS)
    frame = people(
        invoice=[f"C{536_000 + row % 90}" if row % 9 == 0 else str(536_000 + row % 90) for row in rows],
        stock=[f"{85_000 + row % 50}A" if row % 9 == 0 else str(85_000 + row % 50) for row in rows],
        icd9=[float(f"{100 + row * 7 % 60}.{row % 10}") for row in rows],
        diag=[("V27", "E909", "250.83")[row % 3] if row % 5 == 0 else f"{100 + row % 60}" for row in rows],
        price=[float(f"{100 + row * 7 % 60}.{row % 10}") for row in rows],
    )
    kinds = taken(frame)
    assert {name: kinds[name] for name in ("invoice", "stock", "icd9", "diag", "price")} == {
        **dict.fromkeys(("invoice", "stock", "icd9", "diag"), "discrete"),
        "price": "continuous",
    }


def test_a_guess_can_be_changed_and_a_target_is_not_guessed_by_its_spread(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    codes = np.sort(generator.integers(10_000, 99_999, 40))
    frame = people(store_id=generator.choice(codes, ROWS), area=generator.choice(codes, ROWS))
    changed = taken(frame, Policy(overrides={"store_id": {"kind": "continuous"}, "area": {"kind": "continuous"}}))
    assert (changed["store_id"], changed["area"]) == ("continuous", "continuous")
    assert infer(frame, "area").schema.target.kind == "continuous"
    assert infer(frame, "store_id").schema.target.kind == "discrete"


DATES = st.lists(
    st.dates(datetime.date(1850, 1, 1), datetime.date(2150, 12, 31)), min_size=12, max_size=40, unique=True
)


@pytest.mark.long
@given(DATES, st.sampled_from(["%Y%m%d", "%d%m%Y", "%m%d%Y"]), st.booleans(), st.booleans())
def test_eight_digits_that_are_dates_are_dates(days: list[datetime.date], form: str, whole: bool, gaps: bool) -> None:
    day_first = form == "%d%m%Y"
    # The order is told by a day above twelve.
    days = [*days, datetime.date(2020, 5, 31)]
    written = [day.strftime(form).rjust(8, "0") for day in days]
    year_first = all(1850 <= int(text[:4]) <= 2150 and 1 <= int(text[4:6]) <= 12 for text in written)
    if form != "%Y%m%d" and year_first:
        # 20 10 2011 may be the year 2010 as well.
        return
    cells: list[object] = [int(text) if whole else text for text in written]
    true = [(day - datetime.date(1970, 1, 1)).days for day in days]
    if gaps:
        cells, true = [*cells, None], [*true, None]  # pyright: ignore[reportAssignmentType]
    frame = people(seen=pd.Series(cells))
    policy = Policy(missing="category", day_first=day_first)
    source = OrderedDates(open_table(frame), day_first)
    inferred = infer(source, "ill", policy)
    column = inferred.schema.column("seen")
    assert isinstance(column, Continuous)
    assert column.unit == "days since 1970-01-01"
    cells_read = Table(inferred.schema, source).frame["seen"].tolist()
    assert [read for read, day in zip(cells_read, true, strict=True) if day is not None] == [
        day for day in true if day is not None
    ]


def test_dates_in_digits_that_leave_the_order_open_are_asked_for(tmp_path: Path) -> None:
    days = [datetime.date(2001 + i % 9, 1 + i % 12, 1 + i * 5 % 12) for i in range(ROWS)]
    path = tmp_path / "people.csv"
    people(seen=[day.strftime("%d%m%Y") for day in days]).to_csv(path, index=False)
    with pytest.raises(BadInputError, match="'seen' holds dates such as 05/12/2020, and no cell tells"):
        own_table(path, target="ill")
    for day_first in (True, False):
        data, inferred = own_table(path, target="ill", policy=Policy(day_first=day_first))
        assert inferred is not None
        read = data.train.frame["seen"].tolist()
        turned = [day if day_first else day.replace(month=day.day, day=day.month) for day in days]
        assert read == [(day - datetime.date(1970, 1, 1)).days for day in turned]


def test_a_year_alone_is_a_number_and_other_eight_digits_are_no_dates() -> None:
    generator = np.random.default_rng(4)
    frame = people(
        year=[1990 + row % 30 for row in range(ROWS)],
        amount=generator.integers(20_000_000, 21_000_000, ROWS),
        month=[202_001 + row % 12 for row in range(ROWS)],
    )
    found = infer(frame, "ill")
    units = {column.name: column.unit for column in found.schema.columns}
    assert units == {"year": None, "amount": None, "month": "days since 1970-01-01", "dose": None}
    kept = infer(frame, "ill", Policy(overrides={"month": {"kind": "discrete"}})).schema.column("month")
    assert isinstance(kept, Discrete)
    assert kept.categories == tuple(range(202_001, 202_013))


MARKS = sorted({*BESIDE_NUMBERS, *(mark for mark in MISSING if mark)})


@pytest.mark.long
@settings(max_examples=60)
@given(
    st.sampled_from(["whole", "few", "fractions", "commas", "dates", "codes", "clock"]),
    st.lists(st.sampled_from(MARKS), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.sampled_from([".csv", "frame", ".parquet"]),
    st.data(),
)
def test_marks_for_missing_cells_do_not_change_a_column_s_kind(
    kind: str, marks: list[str], capitals: bool, suffix: str, data: st.DataObject
) -> None:
    texts = {
        "whole": [str(row * 7 % 61) for row in range(60)],
        "few": [str(row % 4) for row in range(60)],
        "fractions": [f"{row * 7 % 61 / 8}" for row in range(60)],
        "commas": [f"{row * 7 % 61},{row % 10}" for row in range(60)],
        "dates": [f"{1 + row % 28:02}.05.{2000 + row % 20}" for row in range(60)],
        "codes": [f"{row * 7 % 31:05}" for row in range(60)],
        "clock": [f"{row % 24:02}:{row * 7 % 60:02}" for row in range(60)],
    }[kind]
    texts += texts
    places = data.draw(st.lists(st.integers(0, 119), min_size=1, max_size=12, unique=True))
    marked = list(texts)
    for i, place in enumerate(places):
        mark = marks[i % len(marks)]
        marked[place] = mark.upper() if capitals and mark.upper().lower() in BESIDE_NUMBERS else mark
    plain = infer(people(x=texts), "ill")
    frame = people(x=marked)
    with tempfile.TemporaryDirectory() as folder:
        source: Path | pd.DataFrame = frame
        if suffix != "frame":
            source = Path(folder) / f"people{suffix}"
            frame.to_csv(source, index=False) if suffix == ".csv" else frame.to_parquet(source)
        found = infer(source, "ill", Policy(missing="category"))
        table = Table(found.schema, open_table(source))
    column, was = found.schema.column("x"), plain.schema.column("x")
    assert (column.kind, column.unit) == (was.kind, was.unit)
    assert f"{len(places)} missing" in told(found, "x")
    assert len(table) == 120
    if isinstance(column, Continuous):
        read = table.frame["x"].tolist()
        true = Table(plain.schema, people(x=texts)).frame["x"].tolist()
        assert [read[i] for i in range(120) if i not in places] == [true[i] for i in range(120) if i not in places]
        assert all(read[i] == column.missing for i in places)


def test_marks_that_are_missing_are_named_and_words_beside_words_stay() -> None:
    rows = range(ROWS)
    frame = people(
        pressure=["." if row % 4 == 0 else str(90 + row % 61) for row in rows],
        sex=[(".", "m", "f")[row % 3] for row in rows],
    )
    with pytest.raises(
        BadInputError, match=r"missing cells: 100 in 'pressure' .*'\.' beside numbers counts as missing"
    ):
        infer(frame, "ill")
    found = infer(frame, "ill", Policy(missing="category"))
    assert "counts as missing beside numbers: '.' in 100 cells" in told(found, "pressure")
    sex = found.schema.column("sex")
    assert isinstance(sex, Discrete)
    assert sex.categories == (".", "f", "m")


@pytest.mark.long
def test_limits_are_the_number_of_the_limit_and_are_counted() -> None:
    rows = range(ROWS)
    frame = people(
        egfr=[">90" if row % 2 else str(15 + row % 71) for row in rows],
        crp=["< 0,5" if row % 3 == 0 else f"{row % 71},{1 + row % 9}" for row in rows],
        years=["90+" if row % 50 == 0 else str(18 + row % 71) for row in rows],
        band=[("<30", ">60", "30-60")[row % 3] for row in rows],
        above=[f">{row % 40}" for row in rows],
    )
    found = infer(frame, "ill")
    kinds = {column.name: column.taken for column in found.columns}
    assert [kinds[name] for name in ("egfr", "crp", "years", "band", "above")] == ["continuous"] * 3 + ["discrete"] * 2
    for name, count in (("egfr", 200), ("crp", 134), ("years", 8)):
        assert f"{count} cells of limits (<, > or +) as the number of the limit" in told(found, name)
    shown = Table(found.schema, frame).frame
    assert shown["egfr"].tolist()[:4] == [15, 90, 17, 90]
    assert shown["crp"].tolist()[:3] == [0.5, 1.2, 2.3]
    assert shown["years"].tolist()[:2] == [90, 19]
    words = frame.assign(crp=["neg" if row % 7 == 0 else cell for row, cell in enumerate(frame["crp"])])
    with pytest.raises(BadInputError, match=r"'crp' holds numbers, but 58 .*write a number for a word.* are limits"):
        infer(words, "ill")


def test_numbers_that_stand_for_missing_cells_are_pointed_at() -> None:
    rows = range(ROWS)
    frame = people(
        packs=[-9 if row % 10 == 0 else row % 40 for row in rows],
        bmi=[999 if row % 10 == 0 else 17 + row % 20 for row in rows],
        cold=[-9 if row % 10 == 0 else row % 40 - 20 for row in rows],
        top=[99 if row % 10 == 0 else row % 100 for row in rows],
    )
    found = infer(frame, "ill")
    hint = "leave cells empty where it means missing"
    assert [hint in told(found, name) for name in ("packs", "bmi", "cold", "top")] == [True, True, False, False]
    assert "-9 in 40 cells" in told(found, "packs")


def test_texts_that_differ_in_capitals_alone_are_pointed_at_and_rows_without_a_target_counted() -> None:
    rows = range(ROWS)
    frame = people(smoker=["yYnN"[row % 4] for row in rows], grade=[("1", "1.0", "2", "P")[row % 4] for row in rows])
    frame["vip"] = [("TRUE", "True", "false")[row % 3] for row in rows]
    frame["ill"] = frame["ill"].astype(float).mask(np.arange(ROWS) % 5 == 0)
    data, found = own_table(frame, target="ill", policy=Policy(missing="category"))
    assert found is not None
    assert "2 values written unlike another in capitals or blanks alone" in told(found, "smoker")
    assert "1 value written unlike another" in told(found, "grade")
    assert "80 missing: these rows are left out" in told(found, "ill")
    assert any("80 of 400 rows have no target and were dropped" in note for note in data.notes)


def test_another_site_is_told_all_that_does_not_fit_and_what_to_do_for_each() -> None:
    rows = range(60)
    first = people(ward=[("er", "icu")[row % 2] for row in rows], crp=[row * 7 % 41 / 2 for row in rows])
    schema: Schema = infer(first, "ill").schema
    second = people(ward=["palliative" if row % 9 == 4 else "er" for row in rows], crp=[np.nan] * 60)
    second.loc[3, "dose"] = np.nan
    with pytest.raises(BadInputError) as refused:
        own_table(second, schema, policy=Policy(missing="category"))
    said = str(refused.value)
    for part in (
        "'ward' holds 7 cells with none of its 2 categories, the first in data row 5",
        "add such values to the schema",
        "all 60 in 'crp', 1 in 'dose' (first in data row 4)",
        "is not widened by missing='category'",
        "missing: and a number",
        "take 'crp', empty in all rows, out of the schema",
    ):
        assert part in said
    assert "palliative" not in said
    alone, inferred = own_table(second, target="ill", policy=Policy(missing="category"))
    assert inferred is not None
    assert any("'crp' (it is empty)" in note for note in alone.notes)


def test_identifiers_that_all_look_like_days_are_no_dates() -> None:
    days = [19_800_000 + 100 * (1 + row % 12) + 1 + row % 28 for row in range(ROWS)]
    read = taken(people(member_no=days, DateKey=days, seen=days))
    assert (read["member_no"], read["DateKey"], read["seen"]) == ("discrete", "continuous", "continuous")
