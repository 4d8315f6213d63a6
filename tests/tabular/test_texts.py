"""Numbers and dates as people write them, against the numbers and days that they were written from."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.datasets.dataset import own_table
from seepage.errors import BadInputError
from seepage.tabular.infer import Policy, infer
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.texts import DAYS, read_written

ROWS = 120
DRAW = np.random.default_rng(0)
BASE = pd.DataFrame({"age": DRAW.integers(20, 80, ROWS), "ill": DRAW.choice(["no", "yes"], ROWS)})
AMOUNTS = DRAW.gamma(2, 9000, ROWS).round(2)
DATES = [datetime.date(2015, 1, 1) + datetime.timedelta(days=int(day)) for day in DRAW.integers(0, 2500, ROWS)]


def european(amount: float) -> str:
    return f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))


WAYS: dict[str, tuple[Callable[[float], str], str | None]] = {
    "dollars": (lambda amount: f"${amount:,.2f}", "$"),
    "euros": (lambda amount: f"{european(amount)} €", "€"),
    "code": (lambda amount: f"CHF {amount:,.2f}".replace(",", "'"), "CHF"),
    "percent": (lambda amount: f"{amount:.2f}%", "%"),
    "unit": (lambda amount: f"{amount:.2f} kg", "kg"),
    "compound unit": (lambda amount: f"{amount:,.2f} mg/dL", "mg/dL"),
    "spaces": (lambda amount: f"{amount:,.2f}".replace(",", "\u202f"), None),
    "decimal comma": (lambda amount: f"{amount:.2f}".replace(".", ","), None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffix", [".csv", "frame"])
def test_amounts_are_read_as_they_were(tmp_path: Path, way: str, suffix: str) -> None:
    write, unit = WAYS[way]
    frame = BASE.assign(amount=[write(amount) for amount in AMOUNTS])
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    data, _ = own_table(path if suffix == ".csv" else frame, target="ill")
    column = data.schema.column("amount")
    assert isinstance(column, Continuous)
    assert column.unit == unit
    assert data.train.frame["amount"].tolist() == AMOUNTS.tolist()


def test_brackets_and_both_minuses_are_negative_and_zero_needs_no_unit() -> None:
    assert read_written(["($1,250)", "-$3", "\u22123 $", "$-4", "0"]).values.tolist() == [-1250, -3, -3, -4, 0]


@pytest.mark.parametrize(
    "texts",
    [["007 kg"], ["10-20"], ["1st"] + ["2nd"] * 2, ["A1"], ["1,2,3"], ["10+ years"], ["(5"], [".", ","], ["5 - 6"]],
)
def test_what_is_no_amount_is_none(texts: list[str]) -> None:
    assert np.isnan(read_written(texts).values).any()


@given(st.lists(st.decimals(0, 10**9, places=2), min_size=1, max_size=8), st.sampled_from(["$", "€", "%", " kg", ""]))
def test_any_amounts_come_back(amounts: list[float], unit: str) -> None:
    for written in ([f"{amount:,}{unit}" for amount in amounts], [european(amount) + unit for amount in amounts]):
        assert read_written(written).values.tolist() == [float(amount) for amount in amounts]


FORMS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %B %Y", "%b %d, %Y", "%d/%m/%y", "%m/%d/%Y")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("clock", ["", " %H:%M", " %I:%M %p"])
def test_dates_are_read_as_they_were(form: str, clock: str) -> None:
    moments = [datetime.datetime(d.year, d.month, d.day, d.day % 24 if clock else 0, 30 if clock else 0) for d in DATES]
    data, _ = own_table(BASE.assign(joined=[moment.strftime(form + clock) for moment in moments]), target="ill")
    column = data.schema.column("joined")
    assert isinstance(column, Continuous)
    assert column.unit == DAYS
    expected = [(moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1) for moment in moments]
    assert data.train.frame["joined"].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("suffix", [".csv", "frame"])
def test_days_that_could_be_months_need_an_order(tmp_path: Path, suffix: str) -> None:
    early = [date.replace(day=date.day % 12 + 1) for date in DATES]
    frame = BASE.assign(joined=[date.strftime("%d/%m/%Y") for date in early])
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    rows = path if suffix == ".csv" else frame
    with pytest.raises(BadInputError, match=r"'joined' holds dates such as .* \(day_first=True or day_first=False\)"):
        infer(rows, "ill")
    for first, form in ((True, "%d/%m/%Y"), (False, "%m/%d/%Y")):
        data, inferred = own_table(rows, target="ill", policy=Policy(day_first=first))
        meant = [datetime.datetime.strptime(text, form).date() for text in frame["joined"]]
        days = [float((date - datetime.date(1970, 1, 1)).days) for date in meant]
        assert data.train.frame["joined"].tolist() == days
        assert inferred is not None
        again, _ = own_table(rows, inferred.schema, policy=Policy(day_first=first))
        assert again.train.cells.equal(data.train.cells)
    # Points say that the day is first, and one day above 12 settles the order for all.
    assert (
        infer(BASE.assign(joined=[date.strftime("%d.%m.%Y") for date in early]), "ill").columns[2].taken == "continuous"
    )


def test_dates_in_both_orders_are_no_dates() -> None:
    assert np.isnan(read_written(["13/05/2020", "05/13/2020"]).values).all()


def test_a_unit_that_differs_is_refused_and_few_whole_ones_are_categories() -> None:
    weights = [f"{i} kg" for i in range(ROWS - 5)] + [f"{i}000 g" for i in range(1, 6)]
    with pytest.raises(BadInputError, match=r"'weight' holds numbers, but 5 of its cells .* are not numbers in kg"):
        infer(BASE.assign(weight=weights), "ill")
    terms = infer(BASE.assign(term=["36 months", "60 months"] * (ROWS // 2)), "ill").schema.column("term")
    assert isinstance(terms, Discrete)


@pytest.mark.parametrize("kind", [str, int])
def test_long_unique_numbers_are_identifiers(tmp_path: Path, kind: type) -> None:
    # As floats, they would be alike.
    cards = [kind(10**19 + i) for i in range(ROWS)]
    frame = BASE.assign(card=pd.Series(cards, dtype=object))
    frame.to_csv(tmp_path / "people.csv", index=False)
    for rows in (frame, tmp_path / "people.csv", BASE.assign(card=[10**16 + 7 * i for i in range(ROWS)])):
        assert [column.name for column in infer(rows, "ill").columns if column.taken == "left out"] == ["card"]


def test_ordinal_neighbours_are_taken_alike() -> None:
    late = DRAW.integers(-2, 9, (ROWS, 2))
    late[:11, 0] = np.arange(-2, 9)
    frame = BASE.assign(
        PAY_0=late[:, 0], PAY_2=np.where(late[:, 1] == 1, 0, late[:, 1]), PAY_3=late[:, 0] % 3, x=late[:, 1] % 2
    )
    kinds = {column.name: column.taken for column in infer(frame, "ill").columns}
    assert kinds["PAY_0"] == kinds["PAY_2"] == "continuous"
    # Another range is another scale.
    assert kinds["PAY_3"] == kinds["x"] == "discrete"
    few = frame.assign(PAY_0=frame["PAY_2"])
    assert {column.taken for column in infer(few, "ill").columns if column.name.startswith("PAY")} == {"discrete"}
    kept = infer(frame, "ill", Policy(overrides={"PAY_2": {"kind": "discrete"}})).schema.column("PAY_2")
    assert isinstance(kept, Discrete)


def test_a_size_behind_money_is_no_number_without_it() -> None:
    for mixed in (["$5.1K", "$3.4M", "$1.2B"], ["€5 Mio", "€5 Mrd", "€7 Mio"]):
        written = read_written(mixed * 5)
        assert written is None or bool(np.isnan(written.values).any())
    same = read_written(["$5.1K", "$3.4K", "$1.2K"] * 5)
    assert same is not None
    assert same.unit == "$ K"
    assert same.values[:3].tolist() == [5.1, 3.4, 1.2]
