"""A starter can be used as it is, and with any of its comments turned into lines."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from seepage import registry
from seepage.config.document import read_document, read_text_document
from seepage.config.starter import _scalar, starter
from seepage.config.tree import parse
from seepage.errors import BadInputError
from seepage.settings.horizontal_spec import make_spec


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    pd.DataFrame({"age": range(40), "no": ["a", "b"] * 20}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", registry.datasets.names())
def test_a_starter_is_the_default_audit_of_its_dataset(name: str) -> None:
    assert read_text_document(starter(name), "audit.yaml", Path()) == [make_spec(dataset=name)]


def uncommented(text: str) -> list[str]:
    """Return the text with each commented key, and what belongs to it, in place of the one it comments on."""
    texts = []
    for found in re.finditer(r"^# (\w+):.*\n((?:#   .*\n)*)", text, re.MULTILINE):
        key, block = found.group(1), re.sub(r"^# ", "", found.group(0), flags=re.MULTILINE)
        rest = text.replace(found.group(0), "")
        texts.append(re.sub(rf"^{key}:.*\n", "", rest, flags=re.MULTILINE) + block)
    return texts


def test_every_comment_that_holds_a_key_can_be_used(people: Path) -> None:
    public = uncommented(starter())
    own = uncommented(starter(data=people, target="no", out=people.parent / "audit.yaml"))
    assert (len(public), len(own)) == (4, 9)
    for text in (*public, *own):
        assert read_text_document(text, "audit.yaml", people.parent)
    [spec] = read_text_document(public[1], "audit.yaml", Path())
    assert [part.called for part in spec.attacks] == ["tableak", "tableak(restarts=10)", "tableak(restarts=30)"]


def test_a_table_is_named_from_the_folder_of_the_document(people: Path) -> None:
    (people.parent / "sub").mkdir()
    for out in (people.parent / "audit.yaml", people.parent / "sub" / "audit.yaml"):
        out.write_text(starter(data=people, target="no", out=out))
        [spec] = read_document(out)
        assert spec.data is not None
        assert spec.data.resolve() == people
        assert (spec.target, spec.batch_sizes) == ("no", (8, 20))
    assert "data: ../people.csv" in out.read_text()


def test_a_table_with_gaps_is_given_a_policy_for_them(people: Path) -> None:
    assert "\n# missing: category\n" in starter(data=people, target="no", out=people.parent / "audit.yaml")
    pd.DataFrame({"age": [*range(39), None], "no": ["a", "b"] * 20}).to_csv(people, index=False)
    out = people.parent / "audit.yaml"
    out.write_text(starter(data=people, target="no", out=out))
    [spec] = read_document(out)
    assert spec.missing == "category"


def test_what_cannot_be_audited_is_refused(people: Path) -> None:
    with pytest.raises(BadInputError, match="did you mean 'adult'"):
        starter("adlut")
    with pytest.raises(BadInputError, match="needs a target"):
        starter(data=people)
    with pytest.raises(BadInputError, match="did you mean 'age'"):
        starter(data=people, target="agee")
    with pytest.raises(BadInputError, match="does not exist"):
        starter(data=people.with_name("none.csv"), target="age")


@given(st.text() | st.sampled_from(["no", "8", "1e3", "0x1F", "~", "=", "1_000", "a: b", "#", "- a", "x\u2028y", ""]))
def test_any_name_is_written_so_that_it_is_read_as_itself(text: str) -> None:
    written = f"key: {_scalar(text)}"
    assert "\n" not in written
    assert parse(written, "audit.yaml").plain() == {"key": text}
    assert yaml.safe_load(written) == {"key": text}
