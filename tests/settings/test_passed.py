"""Attacks and defenses that a caller passes as objects, in all four settings."""

from __future__ import annotations

import functools
import pickle  # noqa: TID251 - as audits go to worker processes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from cloudpickle import dumps  # noqa: TID251 - as above
from torch import Tensor

import seepage
from seepage import registry
from seepage.auditing import prepare_all
from seepage.datasets import Dataset, load
from seepage.datasets.planted import distinct
from seepage.defenses.answers import RoundedAnswers
from seepage.defenses.feature_noise import FeatureNoise
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.digests import plain
from seepage.errors import BadInputError
from seepage.report.report import Report
from seepage.run import runner
from seepage.run.workers import Work, WorkerProcesses, make_sendable
from seepage.settings.catalogue import setting
from seepage.settings.setting import Audit
from seepage.sources import NoDigestError, fingerprint
from seepage.wire.horizontal import GradientView, KnownDefense
from seepage.wire.pooled import PooledKnowledge, PredictionView, PropertyGuess
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge, FeatureView
from tests.attacks.split.test_exact import table as cut_table
from tests.attacks.vertical.parts import table as feature_table
from tests.settings.test_pooled import SMALL, people


def baseline(setting: str, name: str, view: object, knowledge: object, seeds: Sequence[int]) -> Any:
    return registry.baselines.of(setting).create(name)(view, knowledge, seeds)


@dataclass(frozen=True)
class LikeBaseline:
    """Attack of the caller's own in the settings whose attacks are called with a view, knowledge and seeds."""

    setting: str
    name: str

    def __call__(self, view: object, knowledge: object, seeds: Sequence[int]) -> Any:
        return baseline(self.setting, self.name, view, knowledge, seeds)


def first_share(view: PredictionView, known: PooledKnowledge, seed: int) -> PropertyGuess:
    assert view.ask(known.queries).shape[0] == view.targets
    chances = torch.zeros(view.targets, len(known.shares), dtype=torch.float64)
    chances[:, 0] = 1
    return PropertyGuess(known.shares, chances)


@dataclass(frozen=True)
class Case:
    """What is passed in a setting.

    Attributes:
        rows: the table.
        fields: fields of the spec.
        named: attack by name and options.
        attack: the same attack as an object.
        label: its label in results.
        own: attack of the caller's own.
        like: baseline that it is as good as.
        defense: defense as an object.
        defense_named: the same defense by name and options.
    """

    rows: Callable[[], Dataset]
    fields: dict[str, Any]
    named: dict[str, Any]
    attack: Callable[[], object]
    label: str
    own: object
    like: str
    defense: object
    defense_named: dict[str, Any]


CASES = {
    "horizontal": Case(
        lambda: load("german"),
        {"batch_sizes": 1, "victims": 2, "baselines": "mode", "model": "linear"},
        {"name": "dlg", "iterations": 3},
        lambda: registry.attacks.create("dlg", iterations=3),
        "Reconstruction",
        LikeBaseline("horizontal", "mode"),
        "mode",
        GaussianNoise(0.01),
        {"name": "gaussian_noise", "scale": 0.01},
    ),
    "split": Case(
        lambda: cut_table(2, rows=300),
        {
            "private_columns": ["a"],
            "hidden": [8],
            "epochs": 1,
            "auxiliary": 50,
            "attacked_records": 20,
            "repetitions": 1,
        },
        {"name": "exact", "votes": 2},
        lambda: registry.attacks.create("exact", votes=2),
        "exact",
        LikeBaseline("split", "marginals"),
        "marginals",
        LabelFlip(0.2),
        {"name": "label_flip", "probability": 0.2},
    ),
    "vertical": Case(
        lambda: feature_table(rows=400),
        {
            **{"passive": ["a", "b", "n"], "bottom": [8], "features": 4, "top": [4], "auxiliary": 0.3, "leaked": 20},
            **{"repetitions": 1, "epochs": 1, "baselines": "constant"},
        },
        {"name": "uifv_sa", "epochs": 2, "steps": 20},
        lambda: registry.attacks.create("uifv_sa", epochs=2, steps=20),
        "uifv_sa",
        LikeBaseline("vertical", "constant"),
        "constant",
        FeatureNoise(1.0),
        {"name": "feature_noise", "scale": 1.0},
    ),
    "pooled": Case(
        lambda: people(0.9),
        {
            **{field: value for field, value in SMALL.items() if field != "dataset"},
            "targets": 4,
            "shadows": 4,
            "rows": 40,
            "auxiliary": 200,
            "epochs": 1,
            "repetitions": 1,
        },
        {"name": "meta", "classifier": "lr"},
        lambda: registry.attacks.create("meta", classifier="lr"),
        "meta",
        first_share,
        "chance",
        RoundedAnswers(1),
        {"name": "rounded_answers", "digits": 1},
    ),
}
EACH = pytest.mark.parametrize("name", CASES)
EACH_SPLIT_LONG = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "split" else name for name in CASES]
)


def options(name: str, **more: Any) -> dict[str, Any]:
    return {**CASES[name].fields, "control": False, "workers": 1, **more}


def audited(name: str, out: Path | None = None, **more: Any) -> Report:
    return seepage.audit(CASES[name].rows(), setting=name, out=out, **options(name, **more))


def prepared(name: str, **more: Any) -> Audit:
    rows = CASES[name].rows()
    [audit] = prepare_all([setting(name).spec.of(dataset=rows.name, **options(name, **more))], dataset=rows)
    return audit


def identities(audit: Audit) -> list[object]:
    return [audit.identity(audit.configurations[0], part) for part in audit.parts if part.kind == "attack"]


def figures(report: Report, attack: str, defense: str | None = None) -> dict[tuple[str, str | None], float | None]:
    rows = [row for row in report.rows if row.attack == attack and defense in (None, row.defense)]
    assert rows, sorted({row.attack for row in report.rows})
    return {(row.metric, row.column): row.mean for row in rows}


def own_accuracy(report: Report, label: str) -> list[float]:
    """Return the accuracy on each attacked unit; a row of a baseline may be the mean of further draws."""
    run = next(run for run in report.runs if run.label == label)
    [measured] = [each for each in run.measured if (each.metric, each.column) == ("accuracy", None)]
    return measured.values.tolist()


@pytest.mark.long
@EACH
def test_an_object_is_the_attack_and_the_defense_that_it_was_made_as(name: str) -> None:
    case = CASES[name]
    by_name = audited(name, attacks=[case.named], defenses=[case.defense_named])
    passed = audited(name, attacks=case.attack(), defenses=[case.defense])
    called = str(case.named["name"])
    assert figures(passed, case.label, case.defense_named["name"]) == figures(by_name, called)
    assert passed.audit.parts[-1].part.options


@EACH_SPLIT_LONG
def test_a_callable_of_ones_own_is_an_attack(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    report = audited(name, tmp_path / "run", attacks=[{"name": case.own, "label": "mine"}])
    assert own_accuracy(report, "mine") == own_accuracy(report, case.like)
    # What is kept is found again, by source and values.
    again = audited(name, tmp_path / "run", attacks=[{"name": case.own, "label": "mine"}])
    assert [row.mean for row in again.rows] == [row.mean for row in report.rows]


@EACH
def test_identities_tell_objects_apart(name: str) -> None:
    case = CASES[name]
    own = [identities(prepared(name, attacks=[one])) for one in (case.own, case.attack(), case.attack())]
    assert own[0] != own[1] == own[2]
    defended = [prepared(name, attacks=[case.own], defenses=[one]) for one in (case.defense, "none")]
    assert len({repr(identities(audit)) for audit in defended}) == 2


@EACH_SPLIT_LONG
def test_what_nothing_tells_apart_is_not_kept(name: str, tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(view: object, knowledge: object, seeds: Sequence[int]) -> object:
        with lock:
            return CASES[name].own(view, knowledge, seeds)  # pyright: ignore[reportCallIssue]

    with pytest.raises(BadInputError, match="'locked' cannot be kept in a run folder: lock has no values"):
        audited(name, tmp_path / "run", attacks=[locked])
    assert not (tmp_path / "run").exists()
    assert figures(audited(name, attacks=[locked]), "locked")


class Silent:
    def started(self, name: int) -> None: ...

    def advanced(self, name: int, share: float) -> None: ...


@EACH
def test_what_belongs_to_one_process_is_not_sent_to_another(name: str) -> None:
    lock = threading.Lock()

    def locked(view: object, knowledge: object, seeds: Sequence[int]) -> object:
        with lock:
            raise AssertionError

    with pytest.raises(BadInputError, match=r"'locked' cannot be sent to worker processes .*give workers=1"):
        next(WorkerProcesses(2).run(Work([], [prepared(name, attacks=[locked])], Silent())))


def test_objects_are_sent_whole() -> None:
    case = CASES["split"]
    audit = prepared("split", attacks=[case.own], defenses=["none", case.defense])
    make_sendable([audit])
    sent = pickle.loads(dumps(audit))  # noqa: S301 - made here
    [attack] = [part for part in audit.parts if part.kind == "attack"]
    for configuration in audit.configurations:
        # A missing figure is equal to no number, and to itself as a text.
        here, there = (
            [repr(m) for m in one.expose(configuration, range(1)).measure(attack).measured] for one in (audit, sent)
        )
        assert here == there != []


@pytest.mark.slow
def test_objects_reach_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_WORTH_WORKERS_SECONDS", 0.0)
    case = CASES["split"]
    alone, together = (
        audited("split", workers=workers, attacks=[case.own], defenses=["none", case.defense]) for workers in (1, 2)
    )
    assert [(row.attack, row.mean) for row in alone.rows] == [(row.attack, row.mean) for row in together.rows]


@pytest.mark.long
def test_an_attack_that_fails_in_its_own_way_stops_no_other_part() -> None:
    def failing(view: object, knowledge: object, seeds: Sequence[int]) -> object:
        raise KeyError("mine")

    report = audited("split", attacks=[failing, CASES["split"].named])
    assert figures(report, "exact")
    assert not [row for row in report.rows if row.attack == "failing" and row.mean is not None]


@EACH
def test_objects_of_other_settings_and_makers_are_refused(name: str) -> None:
    other = CASES["vertical" if name == "split" else "split"]
    elsewhere = CASES["split" if name == "horizontal" else "horizontal"]
    with pytest.raises(BadInputError, match=r"is one of .* learning, not of"):
        prepared(name, attacks=[other.attack()])
    with pytest.raises(BadInputError, match=r"is one of .* learning, not of"):
        prepared(name, defenses=[elsewhere.defense])
    with pytest.raises(BadInputError, match="LikeBaseline makes a part and is none itself"):
        prepared(name, attacks=[LikeBaseline])
    with pytest.raises(BadInputError, match="dlg makes a part and is none itself"):
        prepared(name, attacks=[registry.attacks["dlg"].factory])
    with pytest.raises(BadInputError, match="two different attacks would both be called 'LikeBaseline'"):
        prepared(name, attacks=[LikeBaseline(name, "one"), LikeBaseline(name, "other")])
    with pytest.raises(BadInputError, match=r"a defense of|has no place in this audit, which takes"):
        prepared(name, defenses=[lambda message: message])


def test_views_and_needs_of_objects_are_held_against_the_deployment() -> None:
    def seeing(view: GradientView, knowledge: object, seeds: Sequence[int]) -> object:
        raise AssertionError

    class Needing:
        needs = ("auxiliary",)

        def __call__(self, view: FeatureView, knowledge: FeatureKnowledge, seeds: Sequence[int]) -> FeatureGuess:
            rows = knowledge.granted_auxiliary("the attack")
            return FeatureGuess(rows.cells.mean(1, keepdim=True).expand(-1, view.records, -1).double())

    with pytest.raises(BadInputError, match="'seeing' takes a gradient"):
        prepared("vertical", attacks=[seeing])
    with pytest.raises(BadInputError, match="'Needing' needs auxiliary rows"):
        prepared("vertical", attacks=[Needing()], auxiliary=0)
    assert figures(audited("vertical", attacks=[Needing()]), "Needing")


@dataclass(frozen=True)
class Halved:
    """Defense of the caller's own."""

    by: float = 2.0

    def __call__(self, update: dict[str, Tensor], seeds: Sequence[int]) -> dict[str, Tensor]:
        return {name: tensor / self.by for name, tensor in update.items()}

    def describe(self) -> KnownDefense:
        return KnownDefense("halved", {"by": self.by})


@pytest.mark.long
def test_a_defense_of_ones_own_is_applied_in_horizontal_learning() -> None:
    report = audited("horizontal", attacks=[CASES["horizontal"].named], defenses=["none", Halved()])
    assert {row.defense for row in report.rows} == {"none", "Halved"}


def test_what_an_object_computes_with_is_in_its_digest() -> None:
    def scaled(by: float) -> Callable[[float], float]:
        return lambda value: value * by

    assert fingerprint(scaled(2.0)) == fingerprint(scaled(2.0)) != fingerprint(scaled(3.0))
    assert len({fingerprint(one) for one in (lambda: 1, lambda: 2, functools.partial(scaled, 2.0))}) == 3
    assert fingerprint(torch.nn.Linear(2, 1)) != fingerprint(torch.nn.Linear(2, 1))
    one = torch.zeros(2)
    assert fingerprint([one, {"a": one}]) == fingerprint([torch.zeros(2), {"a": torch.zeros(2)}])
    # What was computed from a schema's fields and kept is no part of what it holds.
    schema = distinct(rows=20).schema
    before = fingerprint(schema), plain(schema)
    assert schema.blocks
    assert (fingerprint(schema), plain(schema)) == before
    space: dict[str, Any] = {"__name__": "cell"}
    exec("def attack(view, knowledge, seeds): return None", space)
    with pytest.raises(NoDigestError, match="attack is defined in no file"):
        fingerprint(space["attack"])
    holds: list[object] = []
    holds.append(holds)
    with pytest.raises(NoDigestError, match="holds itself"):
        fingerprint(holds)
