"""A starter can be used as it is, and with any of its comments turned into lines."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from seepage import registry
from seepage.config.document import keys_of, read_document, read_text_document
from seepage.config.starter import _scalar, starter
from seepage.config.tree import parse
from seepage.errors import BadInputError
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.catalogue import settings
from seepage.settings.horizontal.spec import make_spec
from tests.parts import horizontal


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    pd.DataFrame({"age": range(40), "no": ["a", "b"] * 20}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", registry.datasets.names())
def test_a_starter_is_the_default_audit_of_its_dataset(name: str) -> None:
    assert read_text_document(starter(dataset=name), "audit.yaml", Path()) == [make_spec(dataset=name)]


@pytest.mark.parametrize("setting", settings())
def test_a_starter_of_any_setting_says_the_defaults(setting: str) -> None:
    [spec] = read_text_document(starter(setting), "audit.yaml", Path())
    assert spec == find_setting(setting).spec.of()


def uncommented(text: str, keys: Collection[str]) -> list[tuple[str, str]]:
    """Return each commented key, and the text with it as a line."""
    found = re.finditer(r"^# (\w+): .*$", text, re.MULTILINE)
    return [(one[1], text.replace(one[0], one[0].removeprefix("# "))) for one in found if one[1] in keys]


@pytest.mark.parametrize("setting", settings())
def test_every_comment_that_holds_a_key_can_be_used(setting: str, people: Path) -> None:
    kind = find_setting(setting).spec
    keys = keys_of(kind)
    default = kind.of()
    public = uncommented(starter(setting), keys)
    of_own = starter(setting, data=people, target="no", out=people.parent / "audit.yaml")
    own = uncommented(of_own, keys)
    assert len(public) > 10
    assert {key for key, _ in public} < {key for key, _ in own} | set(yaml.safe_load(of_own))
    for key, text in (*public, *own):
        [spec] = read_text_document(text, "audit.yaml", people.parent)
        if spec.data is None and keys[key].default is not None:
            assert spec == default
    # Each field stands somewhere: in the one starter or the other, or below another key.
    said = {key for key, _ in own} | {key for _, text in own[:1] for key in yaml.safe_load(text)} | {"dataset"}
    assert said - {"setting"} == {key for key, one in keys.items() if one.option.below is None}


def test_a_table_is_named_from_the_folder_of_the_document(people: Path) -> None:
    (people.parent / "sub").mkdir()
    for out in (people.parent / "audit.yaml", people.parent / "sub" / "audit.yaml"):
        out.write_text(starter(data=people, target="no", out=out))
        [spec] = horizontal(read_document(out))
        assert spec.data is not None
        assert spec.data.resolve() == people
        assert (spec.target, spec.batch_sizes) == ("no", (8, 20))
    assert "data: ../people.csv" in out.read_text()


def test_a_table_with_gaps_is_given_a_policy_for_them(people: Path) -> None:
    assert "\n# missing: refuse\n" in starter(data=people, target="no", out=people.parent / "audit.yaml")
    pd.DataFrame({"age": [*range(39), None], "no": ["a", "b"] * 20}).to_csv(people, index=False)
    out = people.parent / "audit.yaml"
    out.write_text(starter(data=people, target="no", out=out))
    [spec] = read_document(out)
    assert spec.missing == "category"


def test_what_cannot_be_audited_is_refused(people: Path) -> None:
    with pytest.raises(BadInputError, match="did you mean 'adult'"):
        starter(dataset="adlut")
    with pytest.raises(BadInputError, match="did you mean 'split'"):
        starter("spilt")
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
