"""Parts of one's own in a file: written by ``seepage new``, named with options, and told what they return wrongly."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from seepage import audit
from seepage.config.document import read_text_document
from seepage.config.tree import DocumentError
from seepage.errors import BadInputError
from seepage.settings.option import code_of
from tests.commands import Run, commands

FAST: dict[str, Any] = {"batch_sizes": 1, "victims": 2, "labels": "true", "control": False, "workers": 1}
KINDS = ("attack", "defense", "metric", "model")
BAD = """
import torch
from seepage.wire.horizontal import GradientView, Knowledge, KnownDefense, RecordsGuess

class Mapping:
    def __call__(self, view: GradientView, knowledge: Knowledge, seeds):
        return {"cells": 1}

class Flat:
    def __call__(self, view: GradientView, knowledge: Knowledge, seeds):
        return RecordsGuess(torch.zeros(len(seeds), 1, len(knowledge.schema.columns) + 1).double())

class Nothing:
    acts_on = "update"
    def __call__(self, update, seeds):
        return None
    def describe(self):
        return KnownDefense("nothing", {})

class Short(Nothing):
    def __call__(self, update, seeds):
        return {name: tensor[..., :1] for name, tensor in update.items()}

class Number:
    def __call__(self, matched):
        return 0.5

VALUE = 3
"""


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return commands(capfd, monkeypatch, tmp_path)


@pytest.fixture
def written(seepage: Run, tmp_path: Path) -> dict[str, str]:
    for kind in KINDS:
        assert seepage("new", kind, f"my_{kind}.py")[0] == 0
    return {kind: f"{tmp_path / f'my_{kind}.py'}:My{kind.capitalize()}" for kind in KINDS}


def test_what_is_written_runs_and_so_do_its_tests(
    written: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = audit(
        "german",
        written["model"],
        attacks=[written["attack"], {"name": written["attack"], "unit": 1, "label": "second"}],
        defenses=["none", f"{written['defense']}:{{step: 0.5}}"],
        metrics=["accuracy", f"{written['metric']}:{{least: 20}}"],
        **FAST,
    )
    overall = report.frame().query("metric == 'accuracy' and column.isna()")
    means: dict[tuple[str, str], float] = {
        (row["attack"], row["defense"]): row["mean"] for row in overall.to_dict(orient="records")
    }
    assert means["MyAttack", "none"] == means["second", "none"] == 1
    assert means["MyAttack", "MyDefense"] < 1
    counted = report.frame().query("metric == 'my_metric' and attack == 'MyAttack' and defense == 'none'")
    assert list(counted["mean"]) == [1]
    monkeypatch.syspath_prepend(str(tmp_path))
    for kind in KINDS:
        module = importlib.import_module(f"test_my_{kind}")
        [test] = [value for name, value in vars(module).items() if name.startswith("test_")]
        test()


def test_starters_are_not_written_over_and_need_names_of_modules(seepage: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    for arguments, said in (
        ([str(tmp_path / "mine.py")], "exists already"),
        ([str(tmp_path / "my-attack.py")], "is to be imported"),
        ([str(tmp_path / "mine.txt")], "is to be imported"),
        ([str(tmp_path / "other.py"), "--name", "1st"], "no name of a class"),
    ):
        status, _, errors = seepage("new", "attack", *arguments)
        assert (status, said in errors) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".py") == ["mine.py"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attacks": "Mapping"}, "'Mapping' returned an object of type dict where .*RecordsGuess is expected"),
        ({"attacks": "Flat"}, r"'Flat' returned cells of shape \(\d+, 1, 21\) .* = \(\d+, records, 20\)"),
        (
            {"defenses": "Nothing"},
            "the defense Nothing returned an object of type NoneType, expected a dict of tensors",
        ),
        ({"defenses": "Short"}, r"the defense Short returned shape .* expected a tensor of shape \(\d+, "),
        ({"metrics": "Number"}, "the metric Number returned float, expected a list of .*Measurement"),
        ({"attacks": "Flta"}, "unknown class in attack .*did you mean 'Flat'"),
        ({"attacks": "VALUE"}, "is an object of type int, no class"),
        ({"attacks": "Mapping:{step: 1}"}, "unknown argument of attack .*'step'"),
    ],
)
def test_what_is_returned_wrongly_is_said(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    [(field, name)] = fields.items()
    # No audit does without the accuracy.
    parts = [*(["accuracy"] if field == "metrics" else []), f"{tmp_path / 'bad.py'}:{name}"]
    chosen: dict[str, Any] = {"attacks": "dlg:{iterations: 2}", **FAST, field: parts}
    with pytest.raises(BadInputError, match=message):
        audit("german", **chosen)


def test_a_wrong_metric_is_said_where_an_attack_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The trial of the attack ends before any guess is scored.
    monkeypatch.setattr("seepage.run.plan._TRIAL_SECONDS", 0.0)
    (tmp_path / "bad.py").write_text(BAD)
    with pytest.raises(BadInputError, match="the metric Number returned float"):
        audit(
            "german",
            "nn1",
            attacks="dlg:{iterations: 500}",
            metrics=["accuracy", f"{tmp_path / 'bad.py'}:Number"],
            **FAST,
        )


def test_files_that_cannot_be_imported_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_the_sort\n")
    with pytest.raises(BadInputError, match=r"of the attack .*broken.py:A' cannot be imported: it raised Module"):
        audit("german", attacks=f"{tmp_path / 'broken.py'}:A", **FAST)
    with pytest.raises(BadInputError, match=r"names the file .*none.py', which does not exist"):
        audit("german", attacks=f"{tmp_path / 'none.py'}:A", **FAST)


@pytest.mark.parametrize(
    "said", ["attacks: bad.py:Flat", "attacks: [{name: 'bad.py:Flat'}]", "metrics: [accuracy, bad.py:Number]"]
)
def test_a_document_runs_code_only_with_consent(tmp_path: Path, said: str) -> None:
    (tmp_path / "bad.py").write_text(f"{BAD}\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n")
    document = f"dataset: german\n{said}\n"
    with pytest.raises(DocumentError, match="is code, which a document may run only with your consent"):
        read_text_document(document, "a.yaml", tmp_path)
    assert not (tmp_path / "ran").exists()
    [spec] = read_text_document(document, "a.yaml", tmp_path, allow_code=True)
    assert (tmp_path / "ran").exists()
    # Paths are as seen from the document.
    assert code_of(spec) == [f"{tmp_path / 'bad.py'}:{'Number' if 'Number' in said else 'Flat'}"]
