"""The original formats that are not at hand, on small files written here in the same shape."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.papers.tableak.health_heritage import CONDITIONS, PLACES, PROCEDURES, SPECIALTIES
from seepage.papers.uifv.credit import COLUMNS as CREDIT_COLUMNS
from seepage.papers.uifv.credit import workbook
from tests.oracles.health import member_years

LAW = {
    "lsat": [150.0, 160.5, 170.0, 155.0, 140.0, np.nan],
    "gpa": [3.0, 3.5, 3.9, 2.5, 3.1, 3.2],
    "race": ["White", "Black", "Asian", "", "Hispanic", "White"],
    "resident": [0.0, 1.0, 0.0, 1.0, 1.0, 0.0],
    "college": ["Michigan", "Wyoming", "Hawaii", "Idaho", "Houston", "Idaho"],
    "year": ["2005", "2006", "200x", "2008", "2007", "2007"],
    "gender": [1.0, 0.0, 1.0, 0.0, 1.0, 1.0],
    "admit": [0.0, 1.0, 1.0, 0.0, 1.0, 0.0],
    "enroll": [np.nan, 1.0, 0.0, 0.0, 1.0, 0.0],
    "urm": [0.0] * 6,
}


def test_lawschool_from_stata(tmp_path):
    pd.DataFrame(LAW).to_stata(tmp_path / "lawschs1_1.dta", write_index=False)
    data = load("lawschool", tmp_path)
    assert len(data.all) == 4  # one has no race, one no score
    assert data.schema.width == 39
    assert sorted(data.all.frame["college"]) == ["Hawaii", "Houston", "Michigan", "Wyoming"]
    assert 160.5 in set(data.all.frame["lsat"])
    assert "partial copy: 4 complete rows" in data.notes[0]


def test_lawschool_from_csv_equals_stata(tmp_path):
    stata, text = tmp_path / "stata", tmp_path / "text"
    stata.mkdir()
    text.mkdir()
    frame = pd.DataFrame(LAW)
    frame.to_stata(stata / "lawschs1_1.dta", write_index=False)
    frame.rename(columns=str.title).replace({"Race": {"": " "}}).to_csv(
        text / "lawschs1_1.csv", index=False, encoding="utf-8-sig"
    )
    one, other = load("lawschool", stata), load("lawschool", text)
    assert one.schema == other.schema
    pd.testing.assert_frame_equal(one.train.frame, other.train.frame)


def test_lawschool_with_a_wrong_file(tmp_path):
    pd.DataFrame({"lsat": [1.0], "colour": ["red"]}).to_stata(tmp_path / "lawschs1_1.dta", write_index=False)
    with pytest.raises(BadInputError, match=r"lacks 'gpa', 'race'.* has 'lsat', 'colour'"):
        load("lawschool", tmp_path)
    (tmp_path / "lawschs1_1.dta").write_bytes(b"no Stata file at all")
    with pytest.raises(BadInputError, match="cannot be read as a table"):
        load("lawschool", tmp_path)


@pytest.mark.parametrize("name", ["credit", "bank_full", "crime"])
def test_copies_with_other_columns(tmp_path, name):
    file = {"credit": "UCI_Credit_Card.csv", "bank_full": "bank-full.csv", "crime": "communities.data"}[name]
    (tmp_path / file).write_text("x,y\n1,2\n")
    with pytest.raises(BadInputError, match=r"lacks|not the published file"):
        load(name, tmp_path)


def clients(rows: int = 40) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({name: generator.integers(0, 9, rows) for name in CREDIT_COLUMNS})
    frame["SEX"] = generator.integers(1, 3, rows)
    frame["EDUCATION"] = generator.integers(0, 7, rows)
    frame["MARRIAGE"] = generator.integers(0, 4, rows)
    frame.insert(0, "ID", np.arange(1, rows + 1))
    return frame.assign(last=generator.integers(0, 2, rows))


def test_credit_workbook():
    xlwt = pytest.importorskip("xlwt", reason="xlwt writes the old Excel format, nothing else here does")
    pytest.importorskip("python_calamine")
    rows = clients()
    book = xlwt.Workbook()
    sheet = book.add_sheet("Data")
    header = ["ID", *CREDIT_COLUMNS, "default payment next month"]
    for column, name in enumerate(header):
        sheet.write(0, column, f"X{column}")
        sheet.write(1, column, name)
        for row, value in enumerate(rows.iloc[:, column].tolist()):
            sheet.write(row + 2, column, value)
    buffer = io.BytesIO()
    book.save(buffer)
    buffer.seek(0)
    rows.columns = header
    pd.testing.assert_frame_equal(workbook(buffer), rows, check_dtype=False)


def test_credit_from_a_copy(tmp_path):
    rows = clients().rename(columns={"last": "default.payment.next.month"})
    (tmp_path / "UCI_Credit_Card.csv").write_bytes(rows.to_csv(index=False).encode())
    data = load("credit", tmp_path)
    assert (len(data.all), data.schema.width) == (40, 93)
    assert (data.all.frame["SEX"] == "male").sum() == (rows["SEX"] == 1).sum()
    assert "UCI_Credit_Card.csv" in data.notes[0]


def test_credit_with_a_fractional_amount(tmp_path):
    rows = clients().rename(columns={"last": "default.payment.next.month"}).astype({"AGE": object})
    rows.loc[3, "AGE"] = "thirty"
    (tmp_path / "UCI_Credit_Card.csv").write_bytes(rows.to_csv(index=False).encode())
    with pytest.raises(BadInputError, match=r"whole numbers only .*thirty"):
        load("credit", tmp_path)


@pytest.fixture
def prize() -> dict[str, pd.DataFrame]:
    """Tables in the shape of release 3, with ties, gaps, capped values and members without claims."""
    generator = np.random.default_rng(7)

    def pick(values, size):
        values = [None if value == "?" else value for value in values]
        return [values[i] for i in generator.integers(0, len(values), size)]

    members = [str(number) for number in (11, 2, 30, 4, 57, 6)]
    size = 80
    claims = pd.DataFrame(
        {
            "MemberID": pick(members[:5], size),
            "ProviderID": pick(["1", "2", "3", "?"], size),
            "Vendor": pick(["7", "8", "?"], size),
            "PCP": pick(["5", "?"], size),
            "Year": pick(["Y1", "Y2", "Y3"], size),
            "Specialty": pick(SPECIALTIES[-4:], size),
            "PlaceSvc": pick(PLACES[-4:], size),
            "PayDelay": pick(["0", "15", "162+", "99"], size),
            "LengthOfStay": pick(["1 day", "?"], size),
            "DSFS": pick(["0- 1 month"], size),
            "PrimaryConditionGroup": pick(CONDITIONS[30:37], size),
            "CharlsonIndex": ["0" if draw < 0.8 else "1-2" for draw in generator.uniform(size=size)],
            "ProcedureGroup": pick(PROCEDURES[:6], size),
            "SupLOS": ["0"] * size,
        }
    )
    drugs = pd.DataFrame(
        {"MemberID": pick(members, 20), "Year": pick(["Y1", "Y2"], 20), "DSFS": ["0- 1 month"] * 20}
    ).assign(DrugCount=pick(["1", "3", "7+"], 20))
    labs = pd.DataFrame(
        {"MemberID": pick(members, 20), "Year": pick(["Y2", "Y3"], 20), "DSFS": ["0- 1 month"] * 20}
    ).assign(LabCount=pick(["2", "10+"], 20))
    people = pd.DataFrame(
        {
            "MemberID": members,
            "AgeAtFirstClaim": ["0-9", "80+", None, "40-49", "10-19", "70-79"],
            "Sex": ["F", "M", None, "F", "M", "F"],
        }
    )
    return {"Claims": claims, "DrugCount": drugs, "LabCount": labs, "Members": people}


def test_health_heritage_equals_the_naive_aggregation(tmp_path, prize):
    for name, table in prize.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    data = load("health_heritage", tmp_path)
    expected = member_years(prize["Claims"], prize["DrugCount"], prize["LabCount"], prize["Members"])
    assert data.schema.width == 110
    columns = [*data.schema.names, "max_CharlsonIndex"]
    found = sorted(data.all.frame[columns].astype(str).to_numpy().tolist())
    assert found == sorted([str(row[name]) for name in columns] for row in expected)
    # Some member took drugs in a year without claims, and counts as having the first category.
    assert any(row["no_Claims"] == 0 and row["PrimaryConditionGroup"] == "AMI" for row in expected)
    assert data.notes == (f"{len(expected)} member-years instead of the original's 218,415",)


def test_health_heritage_with_an_unknown_code(tmp_path, prize):
    prize["Claims"].loc[5, "Specialty"] = "Astrology"
    for name, table in prize.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(BadInputError, match=r"'Astrology' in its column Specialty"):
        load("health_heritage", tmp_path)
    prize["Claims"].loc[5, "Specialty"] = "Other"
    prize["Claims"].loc[6, "PayDelay"] = "soon"
    prize["Claims"].to_csv(tmp_path / "Claims.csv", index=False)
    with pytest.raises(BadInputError, match=r"PayDelay should hold whole numbers.*'soon'"):
        load("health_heritage", tmp_path)
