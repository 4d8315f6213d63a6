"""Documents of split, vertical and pooled learning: the same reader, the fields of another spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seepage.auditing import prepare_all
from seepage.config.document import read_text_document, setting_of
from seepage.config.tree import DocumentError
from seepage.errors import BadInputError
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.spec import Spec
from tests.attacks.split.test_exact import table

SPLIT = "{setting: split, dataset: german, private_columns: [housing]"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    table(2, rows=600).train.frame.astype({"a": str, "c": str}).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path


def one(text: str, folder: Path = Path(), given: dict[str, Any] | None = None) -> Spec:
    [spec] = read_text_document(text, "audit.yaml", folder, given)
    return spec


def test_a_document_says_what_a_spec_says() -> None:
    text = """
setting: split
dataset: {name: adult, missing: category}
private_columns: sex
defenses:
- none
- {label: noisy, all: [{name: cut_noise, noise_multiplier: 0.1}, {name: label_flip, probability: 0.05}]}
attacks: [{name: exact, aware: true}, posterior]
repetitions: 2
workers: 3
time_budget: 30m
control: false
gate: {above: 0.2, column: sex}
"""
    assert setting_of(text, "audit.yaml") == "split"
    options = {"cut_noise": {"noise_multiplier": 0.1}, "label_flip": {"probability": 0.05}}
    expected = find_setting("split").spec.of(
        dataset="adult",
        dataset_options={"missing": "category"},
        private_columns=["sex"],
        defenses=["none", {"name": "cut_noise+label_flip", "options": options, "label": "noisy"}],
        attacks=[{"name": "exact", "options": {"aware": True}}, "posterior"],
        repetitions=2,
        workers=3,
        time_budget=1800,
        control=False,
        gate={"above": 0.2, "column": "sex"},
    )
    assert one(text) == expected
    given = {"repetitions": 5, "defenses": ["none"], "gate": {"above": 0.5}}
    changed = {"repetitions": 5, "defenses": ("none",), "gate": {"above": 0.5, "column": "sex"}}
    assert one(text, given=given) == find_setting("split").spec.of(**{**expected.plain(), **changed})


def test_a_list_for_a_field_of_one_value_sweeps() -> None:
    text = "{setting: split, dataset: german, private_columns: [housing, job], epochs: [1, 2], clients: [3, 4]}"
    specs = read_text_document(text, "audit.yaml", Path())
    points = [(a, b) for a in (1, 2) for b in (3, 4)]
    of = find_setting("split").spec.of
    assert specs == [
        of(
            dataset="german",
            private_columns=["housing", "job"],
            epochs=a,
            clients=b,
            variant=f"epochs={a}, clients={b}",
        )
        for a, b in points
    ]
    layers = one("{setting: split, dataset: german, hidden: [8, 4]}")
    assert layers.model_dump()["hidden"] == (8, 4)


def test_an_option_that_takes_a_list_does_not_sweep_over_it() -> None:
    [first, *_] = one("{setting: pooled, defenses: {name: without_columns, columns: [age, race]}}").defenses
    assert first.options == {"columns": ["age", "race"]}
    swept = one("{setting: pooled, defenses: {name: without_columns, columns: [[age], [race]]}}").defenses
    assert [part.options["columns"] for part in swept] == [["age"], ["race"]]


def test_a_table_of_ones_own_lies_beside_the_document(rows: Path) -> None:
    [audit] = prepare_all([one("{setting: split, data: rows.csv, target: t, private_columns: [a, c]}", rows)])
    assert audit.own
    assert audit.about.dataset == "rows"
    assert audit.about.rows == 600
    # In pooled learning 'sensitive' is the column that is asked about, and no word on the table.
    pooled = (
        "{setting: pooled, data: rows.csv, target: t, sensitive: a, value: '1', rows: 60, auxiliary: 120, queries: 50}"
    )
    assert prepare_all([one(pooled, rows)])[0].own


def test_what_is_left_out_follows_from_the_protocol() -> None:
    spec = one("{setting: pooled, protocol: update, targets: 8, shadows: 40}")
    assert [part.name for part in spec.attacks] == ["dominant", "joint"]
    assert spec.model_dump()["shares"] == (0.1, 0.3, 0.5, 0.7, 0.9)


@pytest.mark.parametrize(
    ("said", "attacks"),
    [
        ("epochs: 5", ["exact", "posterior"]),
        ("stale: 1", ["exact", "posterior", "posterior_about"]),
        ("final: 1", ["exact", "posterior", "posterior_about"]),
        ("defenses: [none, 'weight_noise:{noise_multiplier: 1.0}']", ["exact", "posterior", "posterior_about"]),
        ("stale: 1, defenses: 'cut_noise:{noise_multiplier: 1.0}'", ["exact", "posterior"]),
        ("stale: 1, attacks: exact", ["exact"]),
    ],
)
def test_a_copy_that_is_off_is_fitted_unless_attacks_are_named(said: str, attacks: list[str]) -> None:
    assert [part.title for part in one(f"{SPLIT}, {said}}}").attacks] == attacks


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{setting: splti}", "audit.yaml:1: setting: unknown setting 'splti'; did you mean 'split'?"),
        ("{setting: [split]}", "audit.yaml:1: setting: unknown setting"),
        ("{setting: {a: b}}", "audit.yaml:1: setting: unknown setting"),
        ("setting:", "audit.yaml:1: setting: unknown setting 'null'"),
        (f"{SPLIT}, victims: 3}}", "audit.yaml:1: victims: unknown key 'victims'"),
        (f"{SPLIT},\n repetitions: 0}}", "audit.yaml:2: repetitions: must be greater than or equal to 1, got 0."),
        (f"{SPLIT},\n repetitions: '3'}}", "audit.yaml:2: repetitions: expected a whole number, got .3."),
        (f"{SPLIT},\n repetitions: true}}", "audit.yaml:2: repetitions: expected a whole number, got true."),
        (
            f"{SPLIT},\n defenses: [none,\n  {{name: label_flip, probability: 2}}]}}",
            r"audit.yaml:3: defenses\[1\].probability: the chance of a flipped label lies between 0 and 1, got",
        ),
        (f"{SPLIT},\n attacks: [exakt]}}", r"audit.yaml:2: attacks\[0\]: unknown .*'exakt'; did you mean 'exact'"),
        (f"{SPLIT},\n attacks: [{{name: exact, awear: true}}]}}", r"audit.yaml:2: attacks\[0\].awear: .*'aware'"),
        (
            f"{SPLIT}, defenses: [{{name: label_flip, probability: 0.1, label: none}}]}}",
            r"defenses\[0\]: a defense that does something would be called 'none'",
        ),
        (f"{SPLIT}, defenses: []}}", "defenses: an empty list sweeps over nothing"),
        (f"{SPLIT}, defenses: [cut_noise+cut_noise]}}", r"defenses\[0\]: .*combines 'cut_noise' with itself"),
        (f"{SPLIT}, nonsense.x: 1}}", "nonsense.x: unknown key"),
        (f"{SPLIT}, gate: 3}}", "gate.above: the limit of a lift is a number between 0 and 1"),
        (f"{SPLIT}, time_budget: soon}}", "time_budget: a time is written like 90s, 30m or 2h, got 'soon'"),
        (
            "{setting: split, dataset: adult, data_folder: 3}",
            "data_folder: expected the name of a file or folder, got 3",
        ),
        ("{setting: split, target: t}", "target: target describes a table of your own, but no data file was given"),
        ("{setting: split, dataset: adult, data: a.csv, target: t}", "leave one of the two out"),
        ("{setting: vertical, dataset: german, passive: 3}", "audit.yaml:1: passive: expected a list, got 3"),
        ("{setting: vertical, dataset: german, bottom: [0]}", r"audit.yaml:1: bottom\[0\]: .*got 0"),
        (
            "{setting: vertical, dataset: german, passive: [[age], [job]], parties: 4}",
            r"audit.yaml:1: columns are named \(passive\) for 3 parties, got parties=4",
        ),
        ("{setting: pooled, defenses: [{name: dp_training, noise_multiplier: 1}]}", r"defenses\[0\]: .*needs 'clip'"),
        ("{setting: pooled, sensitive: [sex, race]}", "sensitive: .*at most 1 item"),
        ("{setting: split, dataset: ~}", "audit.yaml:1: dataset: has no value"),
        ("{setting: split, dataset: {name: adult, folder: x}}", "dataset.folder: unknown option"),
        ("{setting: split, dataset: adlut}", "unknown dataset 'adlut'; did you mean 'adult'"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        read_text_document(text, "audit.yaml", Path())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{SPLIT}, attacks: [{{name: exact, label: prior}}]}}", "two parts would both be called 'prior'"),
        ("{setting: split, dataset: {name: german, seed: hello}}", "'german' cannot be loaded with seed='hello'"),
        (f"{SPLIT[:-9]}[hosing]}}", "unknown private column 'hosing'"),
        ("{setting: vertical, dataset: german, passive: [[age], [age]]}", "'age' is held 2 times"),
    ],
)
def test_what_does_not_suit_the_rows_is_refused_once_they_are_read(text: str, told: str) -> None:
    spec = one(text)
    with pytest.raises(BadInputError, match=told):
        prepare_all([spec])


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(DocumentError) as error:
        one(f"{SPLIT},\n repetitions: 0,\n epochs: 0,\n nonsense: 1}}")
    assert [(one.line, one.key) for one in error.value.mistakes] == [(2, "repetitions"), (3, "epochs"), (4, "nonsense")]
    with pytest.raises(DocumentError) as error:
        one("{setting: split, data: a.csv, target: t,\n repetitions: 0,\n missing: bogus}")
    assert [(one.line, one.key) for one in error.value.mistakes] == [(2, "repetitions"), (3, "missing")]
