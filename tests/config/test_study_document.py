"""Documents of split, vertical and pooled learning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seepage.config.mistakes import DocumentError
from seepage.config.starter import study_starter
from seepage.config.study_document import is_study, read_study
from seepage.errors import BadInputError
from seepage.settings.studies import STUDIES, study_kind
from tests.attacks.split.test_exact import table

SPLIT = "{study: split, dataset: german, private: [housing]"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    table(2, rows=600).train.frame.astype({"a": str, "c": str}).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("uncommented", [False, True])
def test_a_starter_says_the_defaults(study: str, uncommented: bool) -> None:
    # German Credit has too few rows for what pooled learning asks for.
    dataset = "adult" if study == "pooled" else "german"
    text = study_starter(study, dataset)
    if uncommented:
        text, rest = text.split("# All else, with its default:\n")
        text += re.sub("^# ", "", rest, flags=re.M)
        assert text.count("\n") > 20
    assert read_study(text, "audit.yaml", Path()).spec == study_kind(study).spec.of(dataset=dataset)


def test_a_document_says_what_a_spec_says() -> None:
    text = """
study: split
dataset: {name: adult, missing: category}
private: sex
defenses:
- none
- {label: noisy, all: [{name: cut_noise, noise_multiplier: 0.1}, {name: label_flip, probability: 0.05}]}
attacks: [{name: exact, aware: true}, posterior]
units: 2
gate: {above: 0.2, column: sex}
"""
    made = read_study(text, "audit.yaml", Path())
    assert is_study(text, "audit.yaml")
    assert made.spec == study_kind("split").spec.of(
        dataset="adult",
        dataset_options={"missing": "category"},
        private=["sex"],
        defenses=[
            "none",
            {
                "name": "cut_noise+label_flip",
                "options": {"cut_noise": {"noise_multiplier": 0.1}, "label_flip": {"probability": 0.05}},
                "label": "noisy",
            },
        ],
        attacks=[{"name": "exact", "options": {"aware": True}}, "posterior"],
        units=2,
    )
    assert made.gate is not None
    assert (made.gate.above, made.gate.column) == (0.2, "sex")
    assert not made.study.own


def test_a_table_of_ones_own_lies_beside_the_document(rows: Path) -> None:
    made = read_study("{study: split, data: rows.csv, target: t, private: [a, c]}", "audit.yaml", rows)
    assert made.study.own
    assert made.spec.dataset == made.study.dataset
    assert made.study.rows == 600
    # In pooled learning 'sensitive' is the column that is asked about, and no word on the table.
    pooled = (
        "{study: pooled, data: rows.csv, target: t, sensitive: a, value: '1', rows: 60, auxiliary: 120, queries: 50}"
    )
    assert read_study(pooled, "audit.yaml", rows).study.own


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{study: splti}", "audit.yaml:1: study: unknown study 'splti'; did you mean 'split'?"),
        ("{study: [split]}", "audit.yaml:1: study: unknown study"),
        ("{study: {a: b}}", "audit.yaml:1: study: unknown study"),
        ("study:", "audit.yaml:1: study: unknown study 'null'"),
        (f"{SPLIT}, victims: 3}}", "audit.yaml:1: victims: unknown key of a study of split learning: 'victims'"),
        (f"{SPLIT},\n units: 0}}", "audit.yaml:2: units: Input should be greater than or equal to 1, got 0."),
        (f"{SPLIT},\n units: '3'}}", "audit.yaml:2: units: Input should be a valid integer, got .3."),
        (f"{SPLIT},\n units: true}}", "audit.yaml:2: units: Input should be a valid integer, got true."),
        (
            f"{SPLIT},\n defenses: [none,\n  {{name: label_flip, probability: 2}}]}}",
            r"audit.yaml:3: defenses\[1\]: the chance of a flipped label lies between 0 and 1, got probability=2",
        ),
        (f"{SPLIT},\n attacks: [exakt]}}", "audit.yaml:2: attacks: unknown attack 'exakt'; did you mean 'exact'"),
        (f"{SPLIT},\n attacks: [{{name: exact, awear: true}}]}}", "audit.yaml:2: attacks: .*awear"),
        (f"{SPLIT}, attacks: [{{name: exact, label: prior}}]}}", "two parts would both be called 'prior'"),
        (
            f"{SPLIT}, defenses: [{{name: label_flip, probability: 0.1, label: none}}]}}",
            r"defenses\[0\]: a defense that does something would be called 'none'",
        ),
        (f"{SPLIT}, defenses: []}}", "defenses: .*at least 1 item"),
        (f"{SPLIT}, nonsense.x: 1}}", "nonsense.x: unknown key"),
        (f"{SPLIT}, gate: 3}}", "gate.above: expected a lift over guessing"),
        ("{study: split, dataset: [adult, german]}", "dataset: expected the name of one dataset"),
        ("{study: split, dataset: adult, data_folder: 3}", "data_folder: expected the name of a folder, got 3"),
        ("{study: split, target: t}", "target: describes a table of your own, but no data file was given"),
        ("{study: split, dataset: adult, data: a.csv, target: t}", "a dataset is named too"),
        ("{study: vertical, dataset: german, passive: 3}", "audit.yaml:1: passive: Input should be a list, got 3"),
        ("{study: vertical, dataset: german, bottom: [0]}", r"audit.yaml:1: bottom\[0\]: .*got 0"),
        (
            "{study: vertical, dataset: german, passive: [[age], [job]], parties: 4}",
            r"audit.yaml:1: columns are named \(passive\) for 3 parties, got parties=4",
        ),
        ("{study: pooled, defenses: [{name: dp_training, noise_multiplier: 1}]}", r"defenses\[0\]: .*needs clip"),
        ("{study: split, dataset: ~}", "audit.yaml:1: dataset: expected the name of one dataset, .*got null.$"),
        ("{study: split, dataset: {name: adult, folder: x}}", "says where files lie in data_folder"),
        ("{study: split, dataset: {name: german, seed: hello}}", "'german' cannot be loaded with seed='hello'"),
        ("{study: split, dataset: adlut}", "unknown dataset 'adlut'; did you mean 'adult'"),
        (f"{SPLIT[:-9]}[hosing]}}", "unknown private column 'hosing'"),
        ("{study: vertical, dataset: german, passive: [[age], [age]]}", "'age' is held 2 times"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        read_study(text, "audit.yaml", Path())


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(DocumentError) as error:
        read_study(f"{SPLIT},\n units: 0,\n epochs: 0,\n nonsense: 1}}", "audit.yaml", Path())
    assert [(one.line, one.key) for one in error.value.mistakes] == [(2, "units"), (3, "epochs"), (4, "nonsense")]
    with pytest.raises(DocumentError) as error:
        read_study("{study: split, data: a.csv, target: t,\n units: 0,\n missing: bogus}", "audit.yaml", Path())
    assert [(one.line, one.key) for one in error.value.mistakes] == [(2, "units"), (3, "missing")]
