"""Controls of all settings: a table of pure noise, an attack that guesses, and one that knows the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from seepage import registry
from seepage.assessment.measurement import Measurement
from seepage.attacks.pooled import Meta
from seepage.auditing import prepare_all, run_all
from seepage.baselines.labels import LabelMode
from seepage.baselines.random import Random
from seepage.baselines.split import Marginals
from seepage.baselines.statistics import LikeliestTable
from seepage.baselines.trees import OwnMarginals
from seepage.baselines.vertical import UniformRows
from seepage.datasets import Dataset
from seepage.datasets.coins import with_coins
from seepage.registry import Need
from seepage.report.report import Report
from seepage.results.checks.facts import exceeds_by_more_than_chance, leaks
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings import catalogue
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.settings.pooled import audit as pooled
from seepage.settings.pooled.audit import PooledAudit
from seepage.settings.pooled.seed import AttackSeed
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.setting import Audit
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.statistics.audit import StatisticsAudit
from seepage.settings.statistics.spec import StatisticsSpec
from seepage.settings.threat_model import applicability
from seepage.settings.trees.audit import TreesAudit
from seepage.settings.trees.spec import TreesSpec
from seepage.settings.units import UnitsExposure
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.pooled import PooledKnowledge, PredictionView, PropertyGuess
from seepage.wire.statistics import NewtonView, StatisticsKnowledge
from seepage.wire.trees import HistogramsView, TreesKnowledge
from tests.parts import register

SETTINGS = ("horizontal", "split", "vertical", "pooled", "trees", "statistics")
# Their controls are held by tests/settings/test_audits.py or test_statistics.py in every run, too.
BESIDES = ("split", "vertical", "pooled", "trees", "statistics")
# An attack of each setting that works, and is quick.
WORKING = {
    **{"horizontal": "unmix", "split": "exact", "vertical": "ridge_sa", "pooled": "meta", "trees": "anchor"},
    "statistics": "counts",
}


def noise(rows: int = 1500) -> Dataset:
    """A table in which no column tells anything of another, or of the label."""
    rng = np.random.default_rng(0)
    frame: dict[str, np.ndarray] = {name: rng.integers(0, 2, rows) for name in ("a", "b", "c", "d", "t")}
    frame["n"] = rng.uniform(-1, 1, rows)
    schema = Schema(
        columns=(
            *(Discrete(name=name, categories=(0, 1), sensitive=name == "a") for name in "abcd"),
            Continuous(name="n", low=-1, high=1, tolerance=0.1),
        ),
        target=Discrete(name="t", categories=(0, 1)),
    )
    return Dataset("noise", Table(schema, pd.DataFrame(frame)), None, (), "generated", "none needed")


def audit(setting: str, attack: str) -> Audit:
    """An audit of the table of noise, as small as it can be."""
    # Networks of split learning are trained fifteen times, and learn no more of more rows of noise.
    data, shared = (
        noise(600 if setting == "split" else 1500),
        {"attacks": [attack], "workers": 1, "gate": {"above": 0.9}},
    )
    if setting == "horizontal":
        spec = make_spec(**shared, dataset="noise", model="nn1", batch_sizes=4, victims=5)
        return HorizontalAudit(spec, prepare(spec, data))
    if setting == "split":
        cut = {"private_columns": ("a", "b"), "hidden": (8,), "epochs": 1, "attacked_records": 40, "auxiliary": 60}
        cut["baselines"] = ("marginals",)
        return SplitAudit(SplitSpec.of(**shared, **cut), data)
    if setting == "vertical":
        parties = {
            "passive": ["a", "b"],
            "bottom": (8,),
            "features": 4,
            "top": (4,),
            "epochs": 1,
            "leaked": 40,
            "baselines": ["constant"],
        }
        return VerticalAudit(VerticalSpec.of(**shared, **parties, attacked_records=100), data)
    if setting == "statistics":
        return StatisticsAudit(StatisticsSpec.of(**shared, rows=30, sites=3, repetitions=5, minimum_level=1), data)
    if setting == "trees":
        return TreesAudit(TreesSpec.of(**shared, rows=20, clients=3, trees=2, repetitions=5), data)
    pool = {"sensitive": "a", "value": 1, "rows": 100, "auxiliary": 400, "queries": 30, "targets": 12, "shadows": 12}
    return PooledAudit(PooledSpec.of(**shared, **pool, epochs=3, batch_size=64), data)


def ran(setting: str, attack: str) -> Report:
    [report] = run_all([audit(setting, attack)])
    return report


@pytest.mark.long
@pytest.mark.parametrize(
    "setting", [pytest.param(name, marks=pytest.mark.slow) if name in BESIDES else name for name in SETTINGS]
)
def test_on_pure_noise_the_control_still_shows_that_the_attack_works(setting: str) -> None:
    """So that nothing found means nothing there."""
    report = ran(setting, WORKING[setting])
    assert report.control is not None
    assert report.negative is not None
    control, nothing = (
        [row for row in rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
        for rows in (report.control, report.negative)
    )
    assert [row.attack for row in control] == [row.attack for row in nothing] == [WORKING[setting]]
    assert all(row.n >= 5 for row in (*control, *nothing))
    assert all(map(leaks, control))
    assert report.findings is not None
    assert not {"SEEP004", "SEEP005", "SEEP021"} & {one.code for one in report.findings}
    # What the control reads is what an attack that knows the answer would read of nothing.
    assert all(map(exceeds_by_more_than_chance, control))


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("horizontal", {}),
        ("pooled", {"sensitive": "telephone", "rows": 100}),
        ("split", {}),
        ("split", {"topology": "u_shaped"}),
        ("statistics", {}),
        ("statistics", {"protocol": "cox"}),
        ("statistics", {"protocol": "table"}),
        ("trees", {}),
        ("trees", {"protocol": "secureboost"}),
        ("vertical", {}),
        ("vertical", {"unsplit": True}),
        ("vertical", {"parties": 3}),
    ],
)
def test_every_default_attack_has_a_positive_control_without_which_no_gate_passes(
    setting: str, options: dict[str, object]
) -> None:
    [audit] = prepare_all([catalogue.setting(setting).spec.of(dataset="german", **options)])
    control = audit.control()
    assert control is not None
    registered, deployment = registry.attacks.of(setting), audit.deployment()
    usual = {name for name in audit.usual_attacks if applicability(registered[name], deployment).applies}
    assert usual
    assert usual <= {part.part.name for part in control.parts if part.kind == "attack"}


@pytest.mark.slow
def test_bare_gradients_must_give_the_labels_away() -> None:
    report = ran("split", "label_direction")
    assert report.control is not None
    [control] = [row for row in report.control if row.is_attack and (row.metric, row.column) == ("accuracy", "t")]
    assert (control.attack, leaks(control)) == ("label_direction", True)
    assert report.negative is not None
    [nothing] = [row for row in report.negative if row.is_attack and (row.metric, row.column) == ("accuracy", "t")]
    assert not exceeds_by_more_than_chance(nothing)
    assert report.findings is not None
    assert not {"SEEP004", "SEEP021"} & {one.code for one in report.findings}


@pytest.mark.slow
def test_a_label_attack_that_guesses_fails_its_control(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, registry.attacks, "guessing", GuessedLabels, "split")
    report = ran("split", "guessing")
    assert report.findings is not None
    [failed] = [one for one in report.findings if one.code == "SEEP004"]
    assert "of the labels" in failed.message


@pytest.mark.parametrize("swapped", [False, True])
def test_the_control_of_vertical_learning_has_labels_too(swapped: bool) -> None:
    made = audit("vertical", "label_direction")
    control = made.negative() if swapped else made.control()
    assert control is not None
    [attack] = [part for part in control.parts if part.kind == "attack"]
    read = control.expose(control.configurations[0], range(control.units)).measure(attack)
    found = [one for one in read.measured if isinstance(one, Measurement)]
    [accuracy] = [float(one.values.mean()) for one in found if (one.metric, one.column) == ("accuracy", "t")]
    assert (accuracy < 0.6) if swapped else (accuracy > 0.95)
    # What norms or features say depends on the table.
    assert audit("vertical", "label_norm").control() is None


class GuessedLabels(LabelMode):
    """The most frequent label, whatever came back."""


class GuessedRecords(Random):
    """Records drawn from the marginals."""


class GuessedCells(Marginals):
    """The likeliest cells and label, whatever came back."""


class GuessedRows(UniformRows):
    """Rows drawn evenly."""


@dataclass(frozen=True)
class GuessedShares:
    """Shares drawn evenly."""

    def __call__(self, view: PredictionView, knowledge: PooledKnowledge, seeds: Sequence[int]) -> PropertyGuess:
        generator = torch.Generator().manual_seed(seeds[0])
        chances = torch.rand(view.targets, len(knowledge.shares), generator=generator).double()
        return PropertyGuess(knowledge.shares, chances)


@dataclass(frozen=True)
class GuessedTrees:
    """Rows with the counts of every column, whatever the trees say."""

    def __call__(self, view: HistogramsView, knowledge: TreesKnowledge, seeds: Sequence[int]) -> RecordsGuess:
        return OwnMarginals()(view, knowledge, [seed + 1 for seed in seeds])


@dataclass(frozen=True)
class GuessedTables:
    """The likeliest table, whatever later sums say."""

    def __call__(self, view: NewtonView, knowledge: StatisticsKnowledge, seeds: Sequence[int]) -> RecordsGuess:
        return LikeliestTable()(view, knowledge, seeds)


GUESSING = {
    "horizontal": GuessedRecords,
    "split": GuessedCells,
    "vertical": GuessedRows,
    "pooled": GuessedShares,
    "trees": GuessedTrees,
    "statistics": GuessedTables,
}
# Side information without which controls leave an attack out.
NEEDS: dict[str, tuple[Need, ...]] = {"split": ("weights",), "vertical": ("leaked",)}


# In split learning, an attack that guesses labels fails its control above.
@pytest.mark.long
@pytest.mark.parametrize(
    "setting", [pytest.param(name, marks=pytest.mark.slow) if name in BESIDES else name for name in SETTINGS]
)
def test_an_attack_that_guesses_passes_no_control_and_no_gate(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, registry.attacks, "guessing", GUESSING[setting], setting, NEEDS.get(setting, ()))
    report = ran(setting, "guessing")
    assert report.findings is not None
    failed = [one for one in report.findings if one.code == "SEEP004"]
    assert [one.severity for one in failed] == ["error"]
    [score] = [row for row in report.rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    assert failed[0].concerns(score.batch_size, score.defense, score.attack)
    # Its lift is far below the limit, which shows nothing.
    assert (score.lift or 0.0) < 0.2
    assert report.decision is not None
    assert report.decision.outcome == "undecided"
    assert "SEEP004" in report.decision.line


@dataclass(frozen=True)
class Knowing:
    """The truth, which no attack is given."""

    truth: ClassVar[Tensor]

    def __call__(self, view: PredictionView, knowledge: PooledKnowledge, seeds: Sequence[int]) -> PropertyGuess:
        shares = torch.tensor(knowledge.shares, dtype=torch.float64)
        return PropertyGuess(knowledge.shares, (self.truth[:, None] == shares).double())


def test_an_attack_that_knows_the_truth_is_found_by_the_negative_control(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, registry.attacks, "knowing", Knowing, "pooled")
    made = audit("pooled", "knowing")
    assert isinstance(made, PooledAudit)
    nothing = made.negative()
    assert nothing is not None
    exposure = nothing.expose(nothing.configurations[0], range(1))
    assert isinstance(exposure, UnitsExposure)
    [seed] = exposure.units
    assert isinstance(seed, AttackSeed)
    monkeypatch.setattr(Knowing, "truth", seed._truth, raising=False)
    with Store(None) as store:
        [runs] = run_audits([nothing], store)
    rows = [row for row in rows_of(nothing, runs) if row.is_attack and row.metric == "accuracy"]
    assert [(row.mean, exceeds_by_more_than_chance(row)) for row in rows] == [(1.0, True)]


# The control of trees shuffles columns, see the tests of that setting.
@pytest.mark.parametrize("setting", SETTINGS[1:-2])
def test_the_control_is_on_the_rows_of_the_audit(setting: str) -> None:
    made = audit(setting, WORKING[setting])
    control = made.control()
    assert control is not None
    assert control.dataset is not None
    assert made.dataset is not None
    own, planted = made.dataset.all, control.dataset.all
    assert planted.schema.names[: len(own.schema.names)] == own.schema.names
    there = {tuple(cells) for cells in own.cells.tolist()}
    assert {tuple(cells[: len(own.schema.names)]) for cells in planted.cells.tolist()} <= there
    # How well the task is learnt there says nothing of attacks.
    assert {part.kind for part in control.parts} == {"attack", "baseline"}


def _unshuffled(shuffled: bool = False) -> Meta:
    return Meta()


@pytest.mark.long
@pytest.mark.parametrize("faulty", [False, True])
def test_shuffled_shadow_models_above_the_baseline_are_a_fault(faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = audit("pooled", "meta")
    # Where shuffling leaves the shares as they are, what is read of the planted column shows it.
    planted = with_coins(noise(), 1, seed=0, strength=0.9)
    spec = made.spec.model_copy(update={"sensitive": ("planted",), "value": "heads", "shares": (0.1, 0.9), "epochs": 6})
    told = PooledAudit(spec.model_copy(update={"control": False}), planted)
    if faulty:
        register(monkeypatch, registry.attacks, "meta", _unshuffled, "pooled")
    [report] = run_all([told])
    assert report.findings is not None
    [score] = [row for row in report.rows if row.attack == pooled.SHUFFLED]
    assert (score.kind, score.baseline, score.n) == ("about", 0.5, 5)
    findings = [one for one in report.findings if one.code == "SEEP021"]
    assert [one.severity for one in findings] == ["error"] * faulty
    assert all(one.concerns(128 if score.batch_size is None else score.batch_size, "none", "meta") for one in findings)
