"""Pooled learning as a study, on a small planted population."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from seepage.assessment import Measurement, rows_worth
from seepage.assessment.row import ResultRow
from seepage.datasets import Dataset, load
from seepage.errors import BadInputError
from seepage.report.advice import what_to_do
from seepage.report.report import Report
from seepage.report.summary import headline
from seepage.results.rows import rows_of
from seepage.run.runner import Run
from seepage.run.store import Store
from seepage.settings.pooled.audit import PooledAudit
from seepage.settings.pooled.parts import PooledDefense
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.setting import Configuration
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from tests.audits import measured
from tests.rows import number


def people(effect: float, rows: int = 3000) -> Dataset:
    """A table in which being a smoker makes one ill, by ``effect``, and nothing else does."""
    rng = np.random.default_rng(0)
    smoker = rng.random(rows) < 0.5
    ill = rng.random(rows) < 0.5 + effect * (smoker - 0.5)
    frame = pd.DataFrame(
        {
            "smoker": np.where(smoker, "yes", "no"),
            "cough": np.where(rng.random(rows) < 0.2 + 0.6 * smoker, "yes", "no"),
            "age": rng.uniform(20, 80, rows),
            "ill": np.where(ill, "yes", "no"),
        }
    )
    binary = ("no", "yes")
    schema = Schema(
        columns=(
            Discrete(name="smoker", categories=binary, sensitive=True),
            Discrete(name="cough", categories=binary),
            Continuous(name="age", low=0, high=99, tolerance=5),
        ),
        target=Discrete(name="ill", categories=binary),
    )
    return Dataset("people", Table(schema, frame), None, (), "made up", "none")


SMALL = {
    "dataset": "people",
    "sensitive": "smoker",
    "value": "yes",
    "rows": 150,
    "auxiliary": 800,
    "queries": 40,
    "targets": 20,
    "shadows": 20,
    "epochs": 6,
    "batch_size": 64,
    "learning_rate": 0.03,
    "repetitions": 2,
}


def figures(rows: list[ResultRow]) -> dict[tuple[str, str, str, str | None], ResultRow]:
    return {(str(r.defense), str(r.attack), str(r.metric), r.column): r for r in rows}


def run(data: Dataset, **settings: object) -> dict[tuple[str, str, str, str | None], ResultRow]:
    spec = PooledSpec.of(**{**SMALL, **settings})
    return figures(measured(PooledAudit(spec, data)))


def test_a_table_of_ones_own_needs_a_sensitive_column() -> None:
    with pytest.raises(BadInputError, match=r"'own.csv' needs a sensitive column, .*; name it \(sensitive"):
        PooledSpec.of(data="own.csv", target="ill")
    assert PooledSpec.of(data="own.csv", target="ill", sensitive="smoker").secret == "smoker"


@pytest.mark.parametrize(("rows", "small"), [(639, True), (640, False)])
def test_which_tables_are_too_small_for_the_control(rows: int, small: bool) -> None:
    audit = PooledAudit(PooledSpec.of(**{**SMALL, "rows": 20, "auxiliary": 100}), people(0.8, rows))
    assert (audit.too_small_for_control, audit.control() is None) == (small, small)


@pytest.mark.long
def test_answers_give_a_share_away_and_defenses_are_measured_beside_utility() -> None:
    found = run(
        people(0.8),
        attacks=["meta", "ratio", "white_box"],
        defenses=["none", "label_only", {"label": "dp", "name": "dp_training", "clip": 0.1, "noise_multiplier": 20.0}],
    )
    for attack in ("meta", "ratio"):
        row = found["none", attack, "accuracy", None]
        assert number(row.mean) >= 0.8
        assert row.baseline == 0.5
        assert row.lift == pytest.approx(number(row.mean) - 0.5)
        assert row.n == 2
    assert found["none", "chance", "accuracy", None].mean == 0.5
    assert 0.2 <= number(found["none", "shuffled", "accuracy", None].mean) <= 0.8
    learnt = [number(found[defense, "training", "task_accuracy", None].mean) for defense in ("none", "dp")]
    assert learnt[0] > 0.8
    assert number(found["none", "training", "task_accuracy", None].lift) > 0
    assert learnt[0] - 0.02 > learnt[1]
    assert number(found["dp", "meta", "accuracy", None].mean) < number(found["none", "meta", "accuracy", None].mean)
    assert 0 < number(found["dp", "training", "epsilon", None].mean) < 10
    assert ("none", "training", "epsilon", None) not in found
    assert number(found["none", "ratio", "coverage", None].mean) >= 0.8
    assert number(found["none", "ratio", "share_error", None].mean) < 0.15
    # On the same shares as the attack that estimates them, and with nothing beside attacks that do not.
    always = found["none", "constant_share", "share_error", None]
    assert number(always.mean) == pytest.approx(0.2, abs=0.02)
    estimated = found["none", "ratio", "share_error", None]
    assert (estimated.baseline_name, estimated.baseline) == ("constant_share", always.mean)
    assert number(estimated.lift) == pytest.approx(number(always.mean) - number(estimated.mean))
    assert number(found["none", "constant_share", "width", None].mean) == pytest.approx(0.76)
    assert number(found["none", "ratio", "width", None].mean) < 0.76
    assert number(found["none", "constant_share", "coverage", None].mean) >= 0.9
    assert ("none", "chance", "share_error", None) not in found
    assert found["label_only", "meta", "accuracy", None].knowledge["defense"] == {"label_only": {}}
    assert found["none", "white_box", "accuracy", None].knowledge["queries"] == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "tells whether 33% or 67% of the rows have 'yes'"),
        (
            {"shares": [0.1, 0.5, 0.9], "targets": 18, "shadows": 60},
            "tells whether 10%, 50% or 90% of the rows have 'yes'",
        ),
        (
            {"protocol": "update", "attacks": ["joint"]},
            "tells whether 30% or 70% of the new rows have 'yes'",
        ),
    ],
)
def test_the_headline_says_which_shares_were_told_apart_in_how_many_trials(
    settings: dict[str, object], said: str
) -> None:
    audit = PooledAudit(PooledSpec.of(**{**SMALL, **settings}), people(0.8))
    values = torch.tensor([1.0, 0.5], dtype=torch.float64)
    ran = [
        Run(
            audit.configurations[0],
            part,
            [Measurement("accuracy", None, values if part.kind == "attack" else values * 0 + 0.5, True, (0.0, 1.0))],
            (0, 1),
            1.0,
            {},
            {},
            planned=2,
        )
        for part in audit.parts
        if part.label != "shuffled" and part.kind in ("attack", "baseline")
    ]
    trials = 2 * audit.spec.targets
    words = headline(Report(audit, rows_of(audit, ran), ran)).words
    assert words.startswith(
        f"A party {said} in 'smoker' in {3 * trials // 4} of {trials} trials; an informed guess is right in "
        f"{trials // 2}. "
        "Of 100 trials that an informed guess misses, 50 [0, 100] are answered right (2 attack seeds). "
    )
    assert words.endswith(
        "The attack may be no better than guessing, and up to 100 of 100 are not excluded: "
        "audit more target models (--targets)."
    )
    # What to do says the same, and no change is searched before anything is decided.
    steps = what_to_do(Report(audit, rows_of(audit, ran), ran))
    assert "more target models (--targets)" in steps.words or not steps.sentences[0].startswith("No verdict")


def test_of_a_column_of_numbers_the_question_is_which_rows_lie_above_a_value() -> None:
    for value, said in ((None, "lie above the median of 'age'"), (40, "lie above 40 in 'age'")):
        audit = PooledAudit(PooledSpec.of(**{**SMALL, "sensitive": "age", "value": value}), people(0.8))
        assert audit.about.trials is not None
        assert audit.about.trials.does == f"tells whether 33% or 67% of the rows {said}"


def test_the_worth_in_rows_is_that_of_all_attack_seeds_together() -> None:
    """A seed that is read whole is worth any number of rows, and must not be left out for that."""
    audit = PooledAudit(PooledSpec.of(**{**SMALL, "attacks": ["meta"]}), people(0.8))
    part = audit.parts[-1]
    values = torch.tensor([1.0, 0.9, 0.8], dtype=torch.float64)
    measured_ = Measurement("accuracy", None, values, True, (0.0, 1.0))
    ran = Run(audit.configurations[0], part, [measured_], (0, 1, 2), 1.0, {}, {}, planned=3)
    found = figures(rows_of(audit, [ran]))
    accuracy, worth = (found["none", "meta", metric, None] for metric in ("accuracy", "rows_worth"))
    assert number(worth.mean) == rows_worth(0.9, 0.33, 0.67)
    assert number(worth.low) == rows_worth(number(accuracy.low), 0.33, 0.67)
    # Near certainty, which the upper end of the accuracy is not quite, as the mean is not.
    assert 0.9 < number(accuracy.high) < 1.0
    assert (number(worth.high), worth.n) == (rows_worth(number(accuracy.high), 0.33, 0.67), 3)


@pytest.mark.long
def test_a_column_that_changes_nothing_is_not_read_and_left_out_columns_betray_themselves_through_others() -> None:
    nothing = run(people(0.0), attacks=["meta"], targets=40, inputs=["age"], keep=False)
    assert number(nothing["none", "meta", "accuracy", None].mean) < 0.75
    left_out = run(people(0.8), attacks=["meta"], keep=False)
    assert number(left_out["none", "meta", "accuracy", None].mean) > 0.85


@pytest.mark.long
def test_five_shares_and_further_parties() -> None:
    found = run(
        people(1.0),
        shares=[0.1, 0.5, 0.9],
        targets=18,
        shadows=60,
        parties=3,
        rows=250,
        auxiliary=1200,
        repetitions=1,
        attacks=["meta"],
    )
    each = [number(found["none", "meta", "accuracy", name].mean) for name in ("10%", "50%", "90%")]
    assert number(found["none", "meta", "accuracy", None].mean) == pytest.approx(np.mean(each))
    assert found["none", "meta", "accuracy", "50%"].baseline == pytest.approx(1 / 3)
    assert np.mean(each) > 0.6


@pytest.mark.long
def test_an_update_is_audited_by_attacks_on_both_models() -> None:
    shares = [0.1, 0.3, 0.5, 0.7, 0.9]
    found = run(
        people(0.9),
        protocol="update",
        shares=shares,
        attacks=["dominant", "joint"],
        shadows=100,
        repetitions=1,
        rows=200,
    )
    for attack in ("dominant", "joint"):
        each = [
            number(found["none", attack, "accuracy", f"{a} then {b}"].mean)
            for a in ("30%", "70%")
            for b in ("30%", "70%")
        ]
        assert number(found["none", attack, "accuracy", None].mean) == pytest.approx(np.mean(each))
    assert number(found["none", "joint", "accuracy", None].mean) > 0.7
    assert found["none", "joint", "accuracy", "30% then 70%"].baseline == 0.5


@pytest.mark.long
def test_what_was_measured_is_kept_and_the_same_whoever_measures_it() -> None:
    data = people(0.8)
    with Store(None) as store:
        spec = PooledSpec.of(**{**SMALL, "attacks": ["meta"]})
        first = measured(PooledAudit(spec, data), store)

        def refuse(configuration: Configuration, units: range) -> NoReturn:
            raise AssertionError("trained again")

        kept = PooledAudit(spec, data)
        kept.expose = refuse
        kept.forecast = refuse  # pyright: ignore[reportAttributeAccessIssue]
        assert measured(kept, store) == first
    alone = figures(measured(PooledAudit(spec, data)))
    assert {key: row.mean for key, row in alone.items()} == {key: row.mean for key, row in figures(first).items()}


def shared(data: Dataset, **settings: object) -> tuple[float, float]:
    """Return how much victims share with each other and with the attacker, from an audit without an attack."""
    audit = PooledAudit(PooledSpec.of(**{**SMALL, "repetitions": 1, "epochs": 1, **settings}), data)
    training = next(part for part in audit.parts if part.label == "training")
    measured_ = audit.expose(audit.configurations[0], range(1)).measure(training).measured
    found = {one.metric: float(one.values[0]) for one in measured_ if isinstance(one, Measurement)}
    return found["overlap"], found["duplicates"]


def test_rows_that_parties_share_are_counted_on_the_drawn_rows() -> None:
    rows, auxiliary, own = 3000, 800, 150
    overlap, duplicates = shared(people(0.8))
    # Of all rows that are left of a kind, every victim draws as many, independently of others.
    kind = (rows - auxiliary - own) / 2
    assert overlap == pytest.approx(150 * 0.67 / kind * 0.67 + 150 * 0.33 / kind * 0.33, abs=0.02)
    assert duplicates == 0.0
    twice = people(0.8, 1500)
    double = replace(twice, train=twice.train.rows([*range(1500), *range(1500)]))
    # The twin of a row went to the attacker as often as any row.
    assert shared(double)[1] == pytest.approx((auxiliary + own) / rows, abs=0.03)
    # A number of the person whose rows they are keeps them together.
    frame = double.train.frame.assign(person=[*range(1500), *range(1500)])
    person = Continuous(name="person", low=0, high=1500, tolerance=1, integer=True)
    schema = Schema(columns=(*double.schema.columns, person), target=double.schema.target)
    numbered = replace(double, train=Table(schema, frame))
    assert shared(numbered, group="person")[1] == 0.0
    audit = PooledAudit(PooledSpec.of(**{**SMALL, "group": "person"}), numbered)
    assert audit.source.rows(PooledDefense()).inputs.shape[1] == 5
    control = audit.control()
    assert isinstance(control, PooledAudit)
    assert control.source.rows(PooledDefense()).inputs.shape[1] == 7


@pytest.mark.long
def test_the_synthetic_attribute_is_the_secret_then() -> None:
    found = run(people(0.0), synthetic={"target": True, "strength": 0.9}, keep=False, attacks=["meta"], repetitions=1)
    assert number(found["none", "meta", "accuracy", None].mean) > 0.85


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sensitive": "smokr"}, "did you mean 'smoker'"),
        ({"sensitive": "ill"}, "is the target"),
        ({"value": "maybe"}, "category of 'smoker'"),
        ({"inputs": ["agee"]}, "did you mean 'age'"),
        ({"defenses": [{"name": "without_columns", "columns": "agee"}]}, "did you mean 'age'"),
        ({"rows": 1000}, "do not fit into 3000 rows|need .* rows"),
        ({"auxiliary": 180}, "auxiliary rows of 'people': .* need 100 rows"),
        ({"shares": [0.5]}, "at least two numbers"),
        ({"shares": [0.7, 0.3]}, "increasing order"),
        ({"targets": 21}, "multiple of 2"),
        ({"shadows": 5}, "as many of each of 2 shares"),
        ({"parties": 11}, "parties"),
        (
            {"attacks": ["dominant"]},
            "takes answers before and after new data .* reveals answers of the model or the model itself",
        ),
        (
            {"protocol": "update", "attacks": ["meta"]},
            "takes answers of the model .* by 'update' reveals answers before and after new data",
        ),
        (
            {"protocol": "update", "attacks": ["joint"], "targets": 20, "shares": [0.33, 0.67]},
            "at least three shares",
        ),
        ({"attacks": ["mta"]}, "did you mean 'meta'"),
        ({"group": "agee"}, "did you mean 'age'"),
        ({"group": "smoker"}, "is the sensitive column"),
        ({"group": "age", "parties": 3}, "one of two parties, got parties=3"),
        ({"group": "cough"}, "0 whole groups have too few rows"),
        ({"attacks": ["ratio"], "shadows": 22}, "give a multiple of 4"),
        ({"attacks": ["ratio"], "auxiliary": 400}, "each half of the auxiliary rows of 'people': .* need 135 rows"),
    ],
)
def test_what_cannot_be_audited_is_refused_before_anything_is_trained(settings: dict[str, object], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        PooledAudit(PooledSpec.of(**{**SMALL, **settings}), people(0.5))


def test_numbers_cannot_be_asked_for_chances() -> None:
    data = people(0.5)
    schema = Schema(columns=(*data.schema.columns[:2],), target=data.schema.columns[2])
    table = Table(schema, data.train.frame)
    with pytest.raises(BadInputError, match="chances of classes"):
        PooledAudit(PooledSpec.of(**SMALL), replace(data, train=table))


def test_adult_is_the_default() -> None:
    about = PooledAudit(PooledSpec(repetitions=1)).about
    assert (about.dataset, about.model, about.rows) == ("adult_education", "lr", len(load("adult_education").all))


@pytest.mark.slow
def test_texts_and_graphs_are_audited_as_tables_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = 1200
    subject = rng.random(count) < 0.5
    good = rng.random(count) < 0.5 + 0.45 * (subject - 0.5) * 2
    # Neither texts nor nodes show what is secret; which labels are frequent does.
    said = ["red shirt" if red else "blue shirt" for red in rng.random(count) < 0.5]
    frame = pd.DataFrame(
        {
            "Review Text": said,
            "Rating": np.where(good, 5, 1),
            "Department Name": np.where(subject, "Dresses", "Tops"),
        }
    )
    frame.to_parquet(tmp_path / "womens_reviews.parquet.brotli", compression="brotli")
    small = {**SMALL, "value": None, "data_folder": str(tmp_path), "repetitions": 1, "attacks": ["meta"], "targets": 12}
    texts = {
        **small,
        "dataset": "clothing_reviews",
        "dataset_options": {"length": 2},
        "sensitive": "Dresses",
        "rows": 100,
        "auxiliary": 300,
        "hidden": [4, 4],
        "shares": [0.1, 0.9],
        "epochs": 8,
        "batch_size": 50,
    }
    found = figures(measured(PooledAudit(PooledSpec.of(**texts))))
    assert number(found["none", "meta", "accuracy", None].mean) > 0.7
    assert found["none", "meta", "accuracy", None].model == "lstm"

    word = rng.random(700) < 0.5
    fields = np.where(rng.random(700) < 0.9, word, ~word).astype(np.int64)
    features = sparse.csr_array(np.stack([word, rng.random(700) < 0.5], axis=1).astype(np.float32))
    edges = sparse.csr_array(sparse.eye_array(700, k=1, format="csr").astype(np.float32))
    parts = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", edges), ("attr", features))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(tmp_path / "cora.npz", labels=fields, **parts)
    graphs = {
        **small,
        "dataset": "cora",
        "dataset_options": {"classes": 2},
        "sensitive": "word 0",
        "rows": 60,
        "auxiliary": 250,
        "apart": True,
        "shares": [0.1, 0.9],
        "keep": False,
        "epochs": 40,
        "batch_size": None,
    }
    found = figures(measured(PooledAudit(PooledSpec.of(**graphs))))
    assert number(found["none", "meta", "accuracy", None].mean) > 0.7
    for wrong, told in (
        ({"hidden": [4]}, "two widths"),
        ({"inputs": ["x"]}, "is no table"),
        ({"sensitive": "Shoes"}, "Shoes"),
    ):
        with pytest.raises(BadInputError, match=told):
            PooledAudit(PooledSpec.of(**{**texts, **wrong}))
    with pytest.raises(BadInputError, match="one hidden layer"):
        PooledAudit(PooledSpec.of(**{**graphs, "hidden": [4, 4]}))


def test_sizes_and_the_secret_value_fit_the_table_where_none_are_given() -> None:
    generator = np.random.default_rng(0)
    shares = {"common": 0.6, "frequent": 0.25, "some": 0.12, "rare": 0.03}
    frame = pd.DataFrame({"kind": generator.choice([*shares], 900, p=[*shares.values()]), "age": np.arange(900) % 60})
    target = Discrete(name="ill", categories=("no", "yes"))
    columns = (Discrete(name="kind", categories=tuple(shares)), Continuous(name="age", low=0, high=59, tolerance=5))
    frame["ill"] = np.where(generator.random(900) < 0.5, "yes", "no")
    data = Dataset("own", Table(Schema(columns=columns, target=target), frame), None, (), "made up", "none")
    audit = PooledAudit(PooledSpec(sensitive=("kind",)), data)
    # The rarest above a tenth; its rows are 108 of 900.
    assert any("'some' in 'kind'" in note for note in audit.about.notes)
    spec = audit.spec
    carrying = int((frame["kind"] == "some").sum())
    assert 10 <= spec.rows < 2_000
    assert spec.auxiliary / 2 + (spec.own_share + max(spec.shares)) * spec.rows <= carrying + 3
    with pytest.raises(BadInputError, match="need"):
        PooledAudit(PooledSpec(sensitive=("kind",), rows=500, auxiliary=300, queries=100), data)
    # Rows that are too few for any sizes.
    few = Dataset("own", data.train.rows(torch.arange(40)), None, (), "made up", "none")
    with pytest.raises(BadInputError, match="too few for parties of 10 rows"):
        PooledAudit(PooledSpec(sensitive=("kind",)), few)
