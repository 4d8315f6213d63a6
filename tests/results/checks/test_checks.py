"""Every check fires on a planted case and stays silent on its twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tests.rows
from seepage import datasets, protocols, registry
from seepage.assessment import interval
from seepage.assessment.evidence import Evidence
from seepage.assessment.intervals import student
from seepage.assessment.row import ResultRow
from seepage.auditing import prepare_all
from seepage.datasets import Dataset
from seepage.datasets.planted import distinct
from seepage.results.checks.every import CHECKS, run_checks
from seepage.results.checks.facts import Facts, Gap, exceeds_by_more_than_chance
from seepage.results.checks.finding import SEVERITIES, Finding, Where, explanation
from seepage.results.checks.strength import _by_place
from seepage.results.rows import rows_of
from seepage.results.verdict import verdict
from seepage.run.runner import Run, run_audits
from seepage.run.store import Failure, Store
from seepage.seeds import seeded
from seepage.settings.catalogue import setting
from seepage.settings.horizontal.audit import HorizontalAudit, control_of
from seepage.settings.horizontal.spec import HorizontalSpec, make_spec
from seepage.settings.horizontal.subject import Subject, prepare
from seepage.settings.setting import Configuration, PartKind, PlannedPart, Probe
from seepage.settings.spec import Part
from seepage.tabular.infer import infer_schema
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.horizontal import Knowledge
from tests.tables import twins, uniform

SPEC: dict[str, Any] = {"dataset": "german", "model": "nn1", "batch_sizes": 8, "attacks": "tableak", "victims": 10}


@cache
def german() -> Dataset:
    return datasets.load("german")


@cache
def german_subject() -> Subject:
    return prepare(make_spec(**SPEC))


def row(**changes: Any) -> ResultRow:
    """An attack's accuracy over all cells: guessing scores 0.5, it 0.65, so that a gain is shown."""
    plain: dict[str, Any] = {
        "mean": 0.65,
        "n": 10,
        "baseline": 0.5,
        "baseline_name": "mode",
        "lift": 0.15,
        "lift_low": 0.12,
        "lift_high": 0.18,
        "knowledge": {"labels": "restored"},
    }
    return tests.rows.row(**{**plain, **changes})


def facts(
    made: Sequence[ResultRow] | None = None,
    control: Sequence[ResultRow] | None = (),
    subject: Subject | None = None,
    **changes: Any,
) -> Facts:
    spec = make_spec(**{**SPEC, **changes})
    # Unless said otherwise the control leaks.
    control = [row(mean=1.0, low=1.0)] if control == () else control
    return Facts(HorizontalAudit(spec, subject or german_subject()), [row()] if made is None else made, [], control)


def horizontal(given: Facts) -> HorizontalAudit:
    assert isinstance(given.audit, HorizontalAudit)
    return given.audit


def probe_of(given: Facts) -> Probe:
    assert given.probe is not None
    return given.probe


def found(code: str, given: Facts) -> list[Finding]:
    return [finding for finding in run_checks(given) if finding.code == code]


def of_module(module: nn.Module, dataset: Dataset | None = None, **changes: Any) -> Facts:
    spec = make_spec(**{**SPEC, **changes})
    return facts(subject=prepare(spec, dataset or german(), module), **changes)


def of_table(table: Table, name: str = "own") -> Facts:
    dataset = Dataset(name, table, None, (), "made up", "none")
    return facts(subject=prepare(make_spec(**SPEC), dataset))


def test_a_sound_audit_raises_no_finding() -> None:
    # One attack of those that apply is no complete audit.
    assert [(finding.code, finding.severity) for finding in run_checks(facts())] == [("SEEP030", "note")]


def test_an_incomplete_audit_is_a_warning_where_little_is_shown() -> None:
    [warned] = found("SEEP030", facts(made=[row(mean=0.52, lift=0.02, lift_low=-0.03, lift_high=0.05)]))
    assert warned.severity == "warning"


def test_worse_than_guessing() -> None:
    lost = row(lift=-0.1, lift_low=-0.15, lift_high=-0.01)
    [finding] = found("SEEP001", facts([lost]))
    assert (finding.severity, finding.where) == ("error", (Where(8, "none", "tableak"),))
    assert "-10.0 points of accuracy against mode" in finding.message
    assert found("SEEP001", facts([row(lift=-0.1, lift_low=-0.21)])) == []
    assert verdict(lost, findings=[finding]).tier == "not decided"
    assert verdict(lost).tier == "little read"


def test_worse_than_guessing_under_a_defense_is_a_warning_if_the_control_shows_that_the_attack_works() -> None:
    lost = row(defense="noise", lift=-0.1, lift_low=-0.15, lift_high=-0.01)
    works, broken = row(mean=0.9, low=0.8), row(mean=0.9, low=0.7)
    assert [finding.severity for finding in found("SEEP001", facts([lost], [works]))] == ["warning"]
    assert [finding.severity for finding in found("SEEP001", facts([lost], [broken]))] == ["error"]
    assert [finding.severity for finding in found("SEEP001", facts([lost], None))] == ["error"]
    both = [lost, replace(lost, defense="none")]
    assert [finding.severity for finding in found("SEEP001", facts(both, [works]))] == ["error", "warning"]


def test_what_the_control_leaves_out_may_lose_beside_an_attack_that_works() -> None:
    lost = row(attack="dlg", defense="noise", lift=-0.1, lift_low=-0.15, lift_high=-0.01)
    beside, works = row(defense="noise", lift=0.0, lift_low=-0.1, lift_high=0.1), row(mean=0.9, low=0.8)
    [finding] = found("SEEP001", facts([lost, beside], [works]))
    assert (finding.severity, finding.where) == ("warning", (Where(8, "noise", "dlg"),))
    elsewhere = replace(beside, defense="more noise")
    broken = row(mean=0.9, low=0.7)
    for others, control in ([elsewhere], [works]), ([beside], [broken]), ([beside], None):
        assert [finding.severity for finding in found("SEEP001", facts([lost, *others], control))] == ["error"]


def a_run(
    label: str = "tableak", kind: PartKind = "attack", batch_size: int = 8, defense: str = "none", **changes: Any
) -> Run:
    plain: dict[str, Any] = {
        "measured": [],
        "units": tuple(range(10)),
        "seconds": 1.0,
        "settings": {},
        "knowledge": {},
        "planned": 10,
    }
    part = PlannedPart(Part(name=label), kind)
    return Run(Configuration(defense, batch_size), part, **{**plain, **changes})


def test_certificates_are_shown_with_their_conditions() -> None:
    """Also those of which an attack without any has nothing to say."""
    cells = np.zeros((3, 1, 1))
    sentences = ("The message is the mean gradient over exactly 8 records.",) * 2 + ("",)
    regimes = ("all 8 records proved", "all 8 records proved", "not tried: no hidden layer")
    evidence = Evidence(("a",), cells > 0, None, cells[..., 0], {}, None, None, None, None)
    evidence = replace(evidence, regime=regimes, conditions=sentences)
    known = replace(facts(), runs=[a_run("unmix", evidence=evidence)])
    [told] = found("SEEP020", known)
    assert "all 8 records proved (2 of 3 victims); not tried: no hidden layer (1 of 3 victims)" in told.message
    assert f"What is certified is so on these conditions: {sentences[0]}" in told.message
    bare = replace(facts(), runs=[a_run(evidence=replace(evidence, conditions=None))])
    assert "conditions" not in found("SEEP020", bare)[0].message


def with_course(course: np.ndarray, **changes: Any) -> Run:
    cells = np.zeros((len(course), 1, 1))
    evidence = Evidence(("a",), cells > 0, None, cells[..., 0], {}, None, course, None, None)
    return a_run(evidence=evidence, **changes)


def on_course(*courses: tuple[float, float, float], defense: str = "none") -> Facts:
    return replace(facts(), runs=[with_course(np.array(courses), defense=defense)])


def test_a_job_that_failed() -> None:
    failure = Failure(range(8, 10), "out of memory", "...")
    broken = a_run(units=tuple(range(8)), failures=(failure,))
    [finding] = found("SEEP015", replace(facts(), runs=[broken]))
    assert (finding.severity, finding.where) == ("error", (Where(8, "none", "tableak"),))
    assert "tableak at batch size 8, 2 of 10 victims (out of memory)" in finding.message
    assert found("SEEP015", replace(facts(), runs=[a_run()])) == []
    [finding] = found(
        "SEEP015", replace(facts(), runs=[a_run("mode", "baseline", units=tuple(range(8)), failures=(failure,))])
    )
    assert finding.concerns(8, "none", "tableak")


def test_victims_for_whom_there_was_no_time() -> None:
    [finding] = found("SEEP017", replace(facts(), runs=[a_run(units=(0, 1, 2))]))
    assert "7 of 10 victims" in finding.message
    assert found("SEEP017", replace(facts(), runs=[a_run()])) == []


def test_a_control_for_which_there_was_no_time_is_no_broken_one() -> None:
    left_out = row(mean=None, status="left_out", baseline=None)
    assert found("SEEP004", facts(control=[left_out])) == []
    assert len(found("SEEP005", facts(control=[left_out]))) == 1
    [both] = found("SEEP005", facts([row(), row(attack="dlg")], control=[left_out]))
    assert both.message.startswith(f"There was no time for it ({left_out.attack}). It plants nothing that the attack")
    assert "could read (dlg)." in both.message


@pytest.mark.parametrize(
    ("end", "defense", "fires"),
    [
        (0.49, "none", False),
        (0.5, "none", True),
        (1.2, "none", True),
        (float("nan"), "none", True),
        (0.99, "noise", False),
        (1.0, "noise", True),
        (float("nan"), "noise", True),
    ],
)
def test_an_attack_that_does_not_converge(end: float, defense: str, fires: bool) -> None:
    other = (1.0, 0.01, 0.01)
    findings = found("SEEP002", on_course((2.0, 2 * end, 2 * end), (1.0, end, end), other, defense=defense))
    assert [(finding.severity, finding.where) for finding in findings] == [
        ("error", (Where(8, defense, "tableak"),))
    ] * fires
    # One victim of three does not decide.
    assert found("SEEP002", on_course((1.0, end, end), other, other, defense=defense)) == []


@pytest.mark.parametrize(("before", "fires"), [(0.1, False), (0.14, False), (0.16, True), (0.09, False)])
def test_an_attack_that_was_stopped_early(before: float, fires: bool) -> None:
    assert len(found("SEEP003", on_course((1.1, before, 0.1), (2.2, 2 * before, 0.2)))) == fires


def test_what_is_missing_is_said_of_each_configuration() -> None:
    gaps = [Gap(8, "none", "unmix", "on 4 victims"), Gap(32, "noise", "unmix", "on 1 victim")]
    assert _by_place(gaps, "batch size") == (
        "Batch size 8 with no defense, unmix: on 4 victims. Batch size 32 under noise, unmix: on 1 victim"
    )
    assert _by_place([gap._replace(why="not run") for gap in gaps], "batch size") == "unmix not run"


def test_an_attack_that_got_nowhere_is_not_said_to_be_stopped_early_too() -> None:
    assert [finding.code for finding in run_checks(on_course((1.0, 0.9, 0.8)))] == ["SEEP002", "SEEP030"]


@pytest.mark.parametrize(
    "attack", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("tableak", "inverting_gradients")), "dlg"]
)
@pytest.mark.parametrize(("iterations", "codes"), [(2, {"SEEP002"}), (400, set())])
def test_attacks_that_are_given_time_converge_and_others_do_not(attack: str, iterations: int, codes: set[str]) -> None:
    subject, victims = german_subject(), range(3)
    protocol = protocols.create("fedsgd", batch_size=4)
    ran = protocol.run(subject.model, subject.dataset.train, subject.encoder, victims)
    known = Knowledge(german().schema, german().statistics, 4, ran.secret.labels)
    options = {"restarts": 2} if attack == "tableak" else {}
    guess = registry.attacks.create(attack, iterations=iterations, **options)(ran.view, known, victims)
    given = replace(facts(), runs=[with_course(guess.course.numpy(), label=attack, batch_size=4)])
    assert {finding.code for finding in run_checks(given)} & {"SEEP002", "SEEP003"} == codes


@pytest.mark.parametrize(
    ("control", "fires"),
    [
        ({"mean": 0.74, "low": 0.74}, True),
        ({"mean": 0.76, "low": 0.76}, False),
        # A mean of few units may be luck; of one, nothing is wrong but the number.
        ({"mean": 0.95, "low": 0.74}, True),
        ({"mean": 0.95, "low": 0.75}, True),
        ({"mean": 0.95, "low": None, "n": 1}, False),
        ({"mean": 0.5, "low": 0.4}, True),
        ({"mean": 0.9, "low": 0.9, "baseline": 1.0}, True),
        ({"mean": 1.0, "low": 1.0, "baseline": 1.0}, False),
        ({"mean": None}, True),
    ],
)
def test_a_control_that_did_not_leak(control: dict[str, Any], fires: bool) -> None:
    findings = found("SEEP004", facts(control=[row(**control)]))
    assert [finding.severity for finding in findings] == ["error"] * fires
    assert all(verdict(row(), findings=findings).tier == "not decided" for _ in findings)
    # Another attack is not blamed, and what was read whole was read.
    assert verdict(row(attack="dlg"), findings=findings).tier == "gain shown"
    assert verdict(row(), row(metric="exact_match", mean=0.6, baseline=0.0), findings).tier == "whole records read"


def test_no_control() -> None:
    [finding] = found("SEEP005", facts(control=None))
    assert finding.severity == "note"
    # A gate lets something through because little was found.
    [beside_gate] = found("SEEP005", facts(control=None, gate=0.2))
    assert beside_gate.severity == "warning"
    assert finding.severity == "note"
    assert found("SEEP005", facts(control=[row(mean=1.0, low=1.0)])) == []


def test_a_table_too_small_for_the_control_shows_no_little_leakage(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [row(attack=name) for name in ("unmix", "inverting_gradients")]
    without = {"made": usual, "control": None, "attacks": [each.attack for each in usual]}
    # A setting that has no control cannot pass one.
    assert found("SEEP030", facts(**without)) == []
    monkeypatch.setattr(HorizontalAudit, "too_small_for_control", True)
    [finding] = found("SEEP030", facts(**without))
    assert "unmix and inverting_gradients: the table is too small for the positive control" in finding.message
    [missing] = found("SEEP005", facts(**without))
    assert missing.message.startswith("The table has too few rows for it (unmix; inverting_gradients)")


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({"lift_low": -0.02}, True),
        ({"lift_low": 0.0}, True),
        ({"lift_low": 0.02}, False),
        ({"lift_low": -0.02, "lift_high": 0.09}, False),
        ({"lift": -0.25, "lift_low": -0.4, "lift_high": 0.05}, False),
        ({"lift": 0.5, "lift_low": 0.5, "lift_high": 0.5}, False),
        ({"lift_low": None, "lift_high": None}, False),
        ({"baseline": 1.0}, False),
    ],
)
def test_an_interval_too_wide_to_decide(changes: dict[str, Any], fires: bool) -> None:
    assert len(found("SEEP006", facts([row(**changes)]))) == fires


def test_an_interval_of_another_than_the_strongest_attack_or_of_whole_records_decides_nothing() -> None:
    wide = row(lift_low=0.0, lift_high=0.3)
    assert found("SEEP006", facts([wide, row(attack="dlg", mean=0.7)])) == []
    assert found("SEEP006", facts([wide, row(metric="exact_match", mean=0.5, baseline=0.0)])) == []
    assert len(found("SEEP006", facts([wide, row(metric="exact_match", mean=0.0, baseline=0.0)]))) == 1
    guessed = row(metric="exact_match", mean=0.6, baseline=0.5, lift_low=-0.1)
    assert len(found("SEEP006", facts([wide, guessed]))) == 1


def test_wide_intervals_of_sensitive_columns_are_counted() -> None:
    marked = [column.name for column in german().schema.columns if column.sensitive]
    wide = [row(column=name, lift_low=0.0, lift_high=0.3) for name in marked[:2]]
    [finding] = found("SEEP006", facts([row(), *wide]))
    assert f"2 of {len(marked)} sensitive columns" in finding.message
    plain = next(column.name for column in german().schema.columns if not column.sensitive)
    assert found("SEEP006", facts([row(), row(column=plain, lift_low=0.0, lift_high=0.3)])) == []


@given(st.floats(0, 0.95), st.floats(-1, 1), st.floats(0, 1), st.integers(2, 20))
def test_too_few_units_are_said_exactly_where_the_verdict_is_open(
    baseline: float, low: float, width: float, n: int
) -> None:
    made = row(baseline=baseline, lift=low + width, lift_low=low, lift_high=low + 2 * width, n=n)
    assert len(found("SEEP006", facts([made]))) == (verdict(made).tier == "not decided")


def test_few_victims() -> None:
    assert "as few as 4" in found("SEEP007", facts([row(n=4)]))[0].message
    assert "no interval" in found("SEEP007", facts([row(n=1)]))[0].message
    assert found("SEEP007", facts([row(n=5)])) == []
    # In split learning intervals are over records, and one training has one.
    split = replace(facts([row(n=1)]), audit=prepare_all([setting("split").spec.of(dataset="german")])[0])
    [finding] = found("SEEP007", split)
    assert "The intervals are over their records" in finding.message
    assert "no interval" not in finding.message


def two_layers(activation: nn.Module, width: int = 63) -> nn.Sequential:
    made = seeded(lambda: nn.Sequential(nn.Linear(width, 16), activation, nn.Linear(16, 2)), seed=0)
    assert isinstance(made, nn.Sequential)
    return made


def linear(module: nn.Sequential, index: int) -> nn.Linear:
    layer = module[index]
    assert isinstance(layer, nn.Linear)
    return layer


def test_a_gradient_of_zero() -> None:
    # Logits so far apart that in float32 the loss is exactly 0 for the class that always wins.
    class Sure(nn.Module):
        def __init__(self, sure: float) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([sure, 0.0]))

        def forward(self, encoded: torch.Tensor) -> torch.Tensor:
            return encoded[..., :2] * 0 + self.bias

    findings = found("SEEP008", of_module(Sure(1000.0), batch_sizes=1))
    assert [finding.severity for finding in findings] == ["error"]
    labels = german().train.labels
    assert bool((labels == 0).any())
    assert found("SEEP008", of_module(Sure(1.0), batch_sizes=1)) == []


def test_a_gradient_that_does_not_depend_on_the_records() -> None:
    dead = two_layers(nn.ReLU())
    with torch.no_grad():
        linear(dead, 0).bias.fill_(-1000.0)
    [finding] = found("SEEP009", of_module(dead, batch_sizes=[1, 8]))
    assert (finding.severity, finding.where) == ("error", (Where(1), Where(8)))
    assert found("SEEP009", of_module(two_layers(nn.ReLU()), batch_sizes=[1, 8])) == []


def test_batches_that_cannot_differ_have_no_constant_gradient() -> None:
    same, everyone = uniform(rows=8, columns=4), distinct(rows=8)
    for table, fires in ((same, False), (everyone, True)):
        dead = two_layers(nn.ReLU(), table.schema.width)
        with torch.no_grad():
            linear(dead, 0).bias.fill_(-1000.0)
        assert bool(found("SEEP009", of_module(dead, table, batch_sizes=8))) is fires
    # The same eight rows in another order, each with another's label, are another batch.
    assert found("SEEP009", of_module(two_layers(nn.ReLU(), everyone.schema.width), everyone, batch_sizes=8)) == []


def test_a_saturated_model() -> None:
    sure, unsure = two_layers(nn.Tanh()), two_layers(nn.Tanh())
    with torch.no_grad():
        linear(sure, 2).bias.copy_(torch.tensor([20.0, 0.0]))
    assert "100% of 800" in found("SEEP010", of_module(sure))[0].message
    assert found("SEEP010", of_module(unsure)) == []


def test_a_sigmoid_head_is_saturated_on_either_side() -> None:
    for bias, fires in ((20.0, 1), (-20.0, 1), (0.0, 0)):
        one = nn.Linear(63, 1)
        with torch.no_grad():
            one.weight.zero_()
            one.bias.fill_(bias)
        assert len(found("SEEP010", of_module(one, head="sigmoid"))) == fires


def test_a_regression_cannot_be_saturated() -> None:
    frame = pd.DataFrame({"age": [20.0, 40.0, 60.0, 80.0] * 5, "pay": [1000.0, 2000.0, 3000.0, 4000.0] * 5})
    schema = Schema(
        columns=(Continuous(name="age", low=0, high=99, tolerance=5),),
        target=Continuous(name="pay", low=0, high=9999, tolerance=10),
    )
    dataset = Dataset("own", Table(schema, frame), None, (), "made up", "none")
    one = seeded(lambda: nn.Linear(1, 1), seed=0)
    assert probe_of(of_module(one, dataset, labels="true")).certain is None


@pytest.mark.parametrize(("activation", "bias"), [(nn.ReLU(), -1000.0), (nn.Tanh(), 1000.0), (nn.Sigmoid(), -1000.0)])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_stuck_units(activation: nn.Module, bias: float, share: float) -> None:
    module = two_layers(activation)
    # Weights of 0 let no other unit be stuck.
    with torch.no_grad():
        linear(module, 0).weight.mul_(0.01)
        linear(module, 0).bias.fill_(0.5)
        linear(module, 0).bias[: int(16 * share)] = bias
    findings = found("SEEP011", of_module(module))
    assert len(findings) == (share >= 0.5)
    assert all(f"8 of the 16 {type(activation).__name__} units of layer '1'" in finding.message for finding in findings)


def test_dropout_that_was_switched_off_is_named() -> None:
    module = nn.Sequential(*two_layers(nn.ReLU()), nn.Dropout(0.2))
    given = of_module(module, dropout="off")
    [finding] = found("SEEP025", given)
    assert finding.severity == "warning"
    assert f"Dropout at '{len(module) - 1}'" in finding.message
    assert "not always lower" in finding.message
    [sentence] = [line for line in given.audit.threat_model() if "dropout" in line]
    assert sentence.startswith("Clients train without dropout, by choice (dropout: off): the network drops values (")
    assert not found("SEEP025", of_module(two_layers(nn.ReLU()), dropout="off"))


def test_probing_a_model_leaves_it_as_it_is() -> None:
    module = two_layers(nn.ReLU())
    given = of_module(module)
    assert probe_of(given).layers
    for layer in (*module.modules(), *horizontal(given).subject.model.module.modules()):
        assert not layer._forward_hooks


def copies(rows: int, distinct_rows: int) -> Table:
    schema = Schema(
        columns=(Discrete(name="a", categories=tuple(range(1000))), Continuous(name="b", low=-9, high=9, tolerance=1)),
        target=Discrete(name="label", categories=(0, 1)),
    )
    codes = [i % distinct_rows for i in range(rows)]
    frame = pd.DataFrame({"a": codes, "b": [0.0] * rows, "label": [i % 2 for i in range(rows)]})
    return Table(schema, frame)


@pytest.mark.parametrize(("copied", "severities"), [(0, []), (1, ["note"]), (10, ["warning"]), (100, ["warning"])])
def test_duplicates(copied: int, severities: list[str]) -> None:
    # Each of `copied` rows occurs twice.
    findings = found("SEEP012", of_table(copies(200, 200 - copied)))
    assert [finding.severity for finding in findings] == severities
    assert all(f"{copied}% of the client's 200 rows" in finding.message for finding in findings)


def test_planted_twins_are_all_duplicates_and_distinct_rows_none() -> None:
    assert "100% of" in found("SEEP012", of_table(twins(pairs=8).train))[0].message
    assert found("SEEP012", of_table(distinct(rows=16).train)) == []


def test_zeros_of_either_sign_are_the_same() -> None:
    schema = Schema(
        columns=(Continuous(name="b", low=-9, high=9, tolerance=1),),
        target=Discrete(name="label", categories=(0, 1)),
    )
    frame = pd.DataFrame({"b": [0.0, -0.0, *range(1, 9)], "label": [0, 1] * 5})
    assert "20%" in found("SEEP012", of_table(Table(schema, frame)))[0].message


def tied(**columns: Any) -> Table:
    """A table whose columns are independent of each other and of the target, and further columns."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.integers(20, 80, 300),
            "pay": draw.normal(3000, 900, 300).round(2),
            "job": draw.choice(["cook", "nurse", "smith"], 300),
            "ill": draw.choice(["no", "yes"], 300),
        }
    )
    frame = frame.assign(**{name: make(frame) for name, make in columns.items()})
    return Table(infer_schema(frame, "ill", keep_dummies=True), frame)


@pytest.mark.parametrize(
    ("make", "fires"),
    [
        pytest.param(lambda frame: (frame["ill"] == "no").astype(int), True, id="complement"),
        pytest.param(lambda frame: frame["ill"].map({"no": "a", "yes": "b"}) + frame["job"], True, id="finer"),
        pytest.param(lambda frame: (frame["ill"] == "no") * 9 + frame["pay"] / 10**4, True, id="bound"),
        pytest.param(lambda frame: (frame["ill"] == "no") ^ (frame.index == 7), False, id="all rows but one"),
        # Each value occurs once, which tells nothing of the target.
        pytest.param(lambda frame: np.random.default_rng(1).normal(size=300), False, id="different in every row"),
        pytest.param(lambda frame: (frame.index == 3).astype(int), False, id="constant but in one row"),
    ],
)
def test_a_column_that_determines_the_target(make: Any, fires: bool) -> None:
    findings = found("SEEP028", of_table(tied(x=make)))
    assert [finding.severity for finding in findings] == ["warning"] * fires
    assert all("The target 'ill' follows from 1 column alone: 'x'." in finding.message for finding in findings)


def test_a_column_that_determines_a_target_of_numbers() -> None:
    frame = tied().frame
    draw = np.random.default_rng(2)
    for x, fires in ((frame["pay"] * 1.95583 + 3, True), (frame["pay"] + draw.normal(0, 100, 300), False)):
        table = frame.assign(x=x.round(2))
        assert bool(found("SEEP028", of_table(Table(infer_schema(table, "pay"), table)))) == fires


@pytest.mark.parametrize(
    ("make", "of"),
    [
        pytest.param(lambda frame: frame["job"].map({"cook": 1, "nurse": 2, "smith": 2}), "'job'", id="coarser"),
        pytest.param(lambda frame: (frame["age"] > 50).astype(int), "'age'", id="range"),
        pytest.param(lambda frame: frame["pay"] - 12 * frame["age"], "'age' and 'pay'", id="sum"),
        pytest.param(lambda frame: (frame["pay"] / 1.1).round(1), "'pay'", id="another unit"),
        pytest.param(lambda frame: frame["age"].clip(30, 70) + frame.index % 2, None, id="noise"),
        pytest.param(lambda frame: np.random.default_rng(1).normal(size=300), None, id="independent"),
        pytest.param(lambda frame: (frame.index == 3).astype(int), None, id="constant but in one row"),
    ],
)
def test_a_column_that_is_a_function_of_others(make: Any, of: str | None) -> None:
    findings = found("SEEP029", of_table(tied(x=make)))
    assert [finding.severity for finding in findings] == ["note"] * (of is not None)
    assert all(f"1 column is a function of others: 'x' of {of}." in finding.message for finding in findings)


@pytest.mark.parametrize(("rare", "severities"), [(4, []), (30, ["note"]), (120, ["warning"])])
def test_rare_values_taken_together(rare: int, severities: list[str]) -> None:
    codes = ["(other)"] * rare + ["a", "b"] * ((200 - rare) // 2)
    schema = Schema(
        columns=(Discrete(name="zip", categories=("a", "b", "(other)"), other="(other)"),),
        target=Discrete(name="label", categories=(0, 1)),
    )
    findings = found("SEEP018", of_table(Table(schema, pd.DataFrame({"zip": codes, "label": [0, 1] * 100}))))
    assert [finding.severity for finding in findings] == severities
    assert all(f"'zip': {rare} of 200" in finding.message for finding in findings)
    assert all("--most-categories" in finding.message and finding.columns == ("zip",) for finding in findings)
    # The same cells as a value that was meant.
    plain = schema.model_copy(update={"columns": (Discrete(name="zip", categories=("a", "b", "(other)")),)})
    assert found("SEEP018", of_table(Table(plain, pd.DataFrame({"zip": codes, "label": [0, 1] * 100})))) == []


@pytest.mark.parametrize(
    ("overlap", "duplicates", "said"),
    [
        (0.42, 0.17, "two victims with the same share have 42% of their rows in common. Victims"),
        (0.1, 0.25, "25% of a victim's rows equal a row that the attacker holds"),
        (0.3, 0.3, "30% of their rows in common and 30% of a victim's"),
        (0.2, 0.2, None),
        (None, 0.1, None),
    ],
)
def test_parties_that_hold_the_same_rows(overlap: float | None, duplicates: float, said: str | None) -> None:
    measured = {"overlap": overlap, "duplicates": duplicates}
    rows = [row(attack="training", kind="about", metric=name, mean=mean) for name, mean in measured.items()]
    findings = found("SEEP022", facts([row(), *rows]))
    assert [finding.severity for finding in findings] == ["warning"] * (said is not None)
    assert all(str(said) in finding.message for finding in findings)


def test_labels_granted() -> None:
    assert found("SEEP013", facts([row(knowledge={"labels": "true"})]))[0].severity == "note"
    assert found("SEEP013", facts([row()])) == []
    baseline = row(attack="mode", kind="baseline", knowledge={"labels": "true"})
    assert found("SEEP013", facts([row(), baseline])) == []


def test_a_partial_dataset() -> None:
    whole = german_subject()
    part = replace(whole, dataset=replace(german(), train=german().train.rows(range(700))))
    assert "900 of the 1000 rows" in found("SEEP014", facts(subject=part))[0].message
    assert found("SEEP014", facts(subject=whole)) == []
    # A table of one's own may be called as a known one is; a generated one has as many rows as asked for.
    assert found("SEEP014", facts(subject=replace(part, own=True))) == []
    few = prepare(make_spec(dataset="synthetic", dataset_options={"rows": 50}))
    assert found("SEEP014", facts(subject=few)) == []


def test_nothing_to_compare_with() -> None:
    alone = row(baseline=None, baseline_name=None, lift=None, lift_low=None, lift_high=None)
    assert found("SEEP016", facts([alone]))[0].where == (Where(8, "none"),)
    assert found("SEEP016", facts()) == []


def test_errors_come_first() -> None:
    many = [row(n=2, lift=-0.2, lift_low=-0.3, knowledge={"labels": "true"})]
    findings = run_checks(facts(many, control=[row(mean=0.1)]))
    assert [finding.code for finding in findings] == ["SEEP001", "SEEP004", "SEEP006", "SEEP007", "SEEP030", "SEEP013"]
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)


def test_every_check_is_documented_under_its_code() -> None:
    document = Path(__file__).parents[3] / "docs" / "checks.md"
    headings = [line.removeprefix("## ") for line in document.read_text().splitlines() if line.startswith("## SEEP")]
    assert headings == sorted(CHECKS)
    for code, check in CHECKS.items():
        assert f"**{check.title}** ({check.severity})" in document.read_text(), code
        first, *rest = explanation(code)
        assert first.startswith(f"{check.title} ({check.severity}).")
        assert [words.split(". ")[0] for words in rest[-2:]] in (["Why it matters", "What to do"], [])


def ran(audit: HorizontalAudit) -> list[ResultRow]:
    [runs] = run_audits([audit], Store(None))
    return rows_of(audit, runs)


def controlled(spec: HorizontalSpec, subject: Subject | None = None) -> HorizontalAudit:
    return control_of(HorizontalAudit(spec, subject or german_subject()))


@pytest.mark.parametrize(("iterations", "fires"), [(400, False), (2, True)])
def test_the_control_tells_an_attack_that_works_from_one_that_was_crippled(iterations: int, fires: bool) -> None:
    spec = make_spec(**{**SPEC, "victims": 2, "restarts": 3, "iterations": iterations})
    control = controlled(spec)
    assert (control.own, control.spec.batch_sizes, control.spec.attacks) == (False, (1,), spec.attacks)
    made = ran(control)
    assert len(found("SEEP004", facts(control=made))) == fires


def test_a_table_of_few_columns_gets_more_victims() -> None:
    spec = make_spec(**SPEC)
    control = controlled(spec, prepare(spec, distinct(rows=40, continuous=2, discrete=1)))
    assert (control.spec.victims, control.own) == (20, True)


def test_the_control_has_a_network_of_its_own(tmp_path: Path) -> None:
    spec = make_spec(**{**SPEC, "weights": tmp_path / "trained.safetensors"})
    assert controlled(spec).subject.model.name == "wide"


def test_a_crafted_network_is_its_own_control() -> None:
    options = {"clients": 2, "bins": 40}
    spec = make_spec(
        **{
            **SPEC,
            "attacks": "loki",
            "model": "loki",
            "model_options": options,
            "protocol_options": {"clients": 2},
            "victims": 2,
        }
    )
    control = controlled(spec, prepare(spec))
    found_ = (control.spec.model_options, control.spec.batch_sizes, control.subject.model.name)
    assert found_ == (options, (1,), "loki")
    made = ran(control)
    assert not found("SEEP004", facts(control=made))


def test_the_control_of_a_dataset_with_options_takes_its_rows_as_they_are() -> None:
    spec = make_spec(**{**SPEC, "dataset": "synthetic", "dataset_options": {"rows": 60}, "baselines": ()})
    subject = prepare(spec)
    control = controlled(spec, subject)
    assert control.dataset is subject.dataset
    assert control.subject.model.name == "wide"
    assert control.own is subject.own is False
    assert len(control.spec.baselines) == 3


@pytest.mark.parametrize(
    ("lift", "low", "n", "fires"),
    [
        # One interval in forty of attacks that find nothing lies above zero.
        (0.1, 0.001, 10, False),
        (0.3, 0.1, 5, False),
        (0.3, 0.2, 5, True),
        (0.3, 0.2, 3, False),
        (0.3, 0.3, 3, True),
        (0.3, None, 1, False),
        (-0.3, -0.3, 5, False),
        (None, None, 5, False),
    ],
)
def test_an_attack_that_finds_what_is_not_there_does_so_beyond_chance(
    lift: float | None, low: float | None, n: int, fires: bool
) -> None:
    nothing = row(lift=lift, lift_low=low, n=n)
    findings = found("SEEP021", replace(facts(), negative=[nothing]))
    assert [finding.where for finding in findings] == [(Where(attack="tableak"),)] * fires
    # A baseline or another metric is no attack's accuracy.
    others = [replace(nothing, kind="baseline"), replace(nothing, metric="rmse"), replace(nothing, column="age")]
    assert found("SEEP021", replace(facts(), negative=others)) == []


@pytest.mark.parametrize("units", [3, 5, 20])
def test_sound_audits_are_hardly_ever_taken_for_faulty_ones(units: int) -> None:
    """Of attacks that guess 20 records a unit, where one interval in forty lies above zero."""
    rng = np.random.default_rng(0)
    fired = above = 0
    for _ in range(2000):
        gained = torch.from_numpy(rng.binomial(20, 0.5, units) / 20 - 0.5)
        estimate = interval(gained)
        fired += exceeds_by_more_than_chance(row(lift=estimate.mean, lift_std=estimate.std, n=units))
        ends = student(estimate.mean, estimate.std, units)
        above += ends is not None and ends[0] > 0
    assert above > 30
    assert fired <= 10


@pytest.mark.slow
def test_the_negative_control_reads_nothing_and_one_that_is_read_is_a_fault() -> None:
    spec = make_spec(**{**SPEC, "victims": 2, "restarts": 3, "iterations": 300})
    audit = HorizontalAudit(spec, german_subject())
    made = ran(audit.negative())
    assert found("SEEP021", Facts(audit, [row()], [], [row(mean=1.0)], made)) == []
    # What a working attack reads of the positive control is above every baseline, beyond chance.
    assert found("SEEP021", Facts(audit, [row()], [], [row(mean=1.0)], ran(control_of(audit))))
