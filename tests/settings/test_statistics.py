"""Audits of federated statistics: figures, defenses with their cost, controls, and input that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import seepage
from seepage.assessment.row import ResultRow
from seepage.attacks.statistics.blurred import poisson_mode
from seepage.attacks.statistics.risk_sets import leavers
from seepage.datasets import Dataset, read_table
from seepage.errors import BadInputError
from seepage.report.report import Report
from seepage.report.summary import headline
from seepage.results.checks.facts import Facts, run_checks
from seepage.results.checks.finding import Finding
from seepage.results.rows import rows_of
from seepage.run.runner import run_audits
from seepage.run.store import Store
from seepage.settings.setting import Configuration
from seepage.settings.statistics.audit import StatisticsAudit
from seepage.settings.statistics.design import coarse, model_levels
from seepage.settings.statistics.spec import StatisticsSpec
from seepage.wire.statistics import RiskSetMessage


def frame(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    area, age = rng.integers(0, 4, rows), rng.normal(50, 15, rows).round(1).clip(18, 95)
    ward = np.where(rng.uniform(size=rows) < 0.6, area, rng.integers(0, 3, rows))
    ill = rng.uniform(size=rows) < 1 / (1 + np.exp(1 - 0.8 * area + 0.02 * age))
    columns = {"area": [f"a{k}" for k in area], "ward": [f"w{k}" for k in ward], "age": age}
    return pd.DataFrame({**columns, "smoker": rng.choice(["no", "yes"], rows), "ill": np.where(ill, "yes", "no")})


def data(rows: int = 600) -> Dataset:
    return read_table(frame(rows), target="ill")


def audit(of: int = 600, **options: Any) -> StatisticsAudit:
    small = {"rows": 60, "sites": 3, "repetitions": 2, "workers": 1}
    return StatisticsAudit(StatisticsSpec.of(**{**small, **options}), data(of))


def rows(made: StatisticsAudit) -> dict[tuple[str, str, str], ResultRow]:
    with Store(None) as store:
        [runs] = run_audits([made], store)
    return {(row.attack, row.defense, row.metric): row for row in rows_of(made, runs) if row.column is None}


def figures(made: StatisticsAudit) -> dict[tuple[str, str, str], float | None]:
    return {key: row.mean for key, row in rows(made).items()}


def test_a_site_that_sends_its_own_fit_is_read_from_the_covariance() -> None:
    # Wards, and smokers or not: their patterns are as many as the different entries of the covariance.
    made = audit(rows=200, repetitions=1, columns=["ward", "smoker"], defenses=["one_shot"], attacks=["counts"])
    found = figures(made)
    assert found["counts", "one_shot", "whole_table"] == 1.0
    assert found["counts", "one_shot", "certified"] == 0.0
    assert (found["likeliest_table", "one_shot", "exact_match"] or 0.0) < 1.0


def test_a_tenth_of_a_small_table_tests_the_model_and_fewer_than_twenty_rows_test_nothing() -> None:
    made = StatisticsAudit(StatisticsSpec.of(repetitions=1, attacks="counts", columns=["ward"]), data(200))
    assert made.spec.rows == (60,)
    tested = ("training", "none", "task_accuracy")
    assert rows(made)[tested].baseline_name == "constant"
    # Two rows are of no site.
    assert tested not in figures(audit(rows=[198], sites=1, repetitions=1, attacks="counts", columns=["ward"], of=200))


@pytest.mark.long
def test_a_site_is_read_whole_and_certified_and_noise_hides_it_at_a_cost() -> None:
    noise = {"name": "sum_noise", "multiplier": 5, "label": "noise"}
    digits = {"name": "rounded_sums", "digits": 4, "label": "digits"}
    found = figures(audit(repetitions=1, defenses=["none", digits, noise, "one_shot"]))
    assert (found["training", "one_shot", "coefficient_error"] or 0.0) > 0.01
    guessed, alone = found["likeliest_table", "one_shot", "exact_match"], found["counts", "one_shot", "exact_match"]
    assert alone is not None
    assert guessed is not None
    assert guessed < alone < 1.0
    assert found["counts", "one_shot", "certified"] == 0.0
    for label in ("none", "digits"):
        assert found["counts", label, "exact_match"] == 1.0
        assert found["counts", label, "whole_table"] == 1.0
    assert found["counts", "none", "certified"] == 1.0
    assert not found.get(("counts", "none", "certified_wrong"))
    alone, certified = found["counts", "none", "proved_alone"], found["counts", "noise", "certified"]
    assert alone is not None
    assert 0 < alone < 1
    assert certified == 0.0
    read, best = found["counts", "noise", "accuracy"], found["likeliest_table", "none", "exact_match"]
    assert read is not None
    assert best is not None
    assert read < 1.0
    assert best < 1.0
    assert found["training", "none", "coefficient_error"] == pytest.approx(0.0, abs=1e-6)
    cost, rounded = found["training", "noise", "coefficient_error"], found["training", "digits", "coefficient_error"]
    assert cost is not None
    assert rounded is not None
    assert cost > 1 > rounded
    assert (found["training", "noise", "epsilon"] or 0.0) > 0


@pytest.mark.slow
def test_little_noise_is_read_through_and_much_leaves_what_the_marginals_tell() -> None:
    weak, strong = ({"name": "sum_noise", "multiplier": m, "label": str(m)} for m in (0.05, 50))
    found = figures(audit(repetitions=3, defenses=[weak, strong]))

    def lift(label: str) -> float:
        return (found["counts", label, "exact_match"] or 0.0) - (found["likeliest_table", label, "exact_match"] or 0.0)

    assert lift("0.05") > 0.2
    assert abs(lift("50")) < 0.1
    assert not found["counts", "0.05", "certified"]


def test_rounded_tables_of_two_runs_still_tell_of_the_record_that_joined() -> None:
    made = audit(
        protocol="table", repetitions=12, columns=["area", "ward"], defenses=[{"name": "rounded_counts", "base": 2}]
    )
    [label] = made.defenses
    found = figures(made)
    guessed = max(found[name, label, "accuracy"] or 0.0 for name in ("likeliest_table", "cross_tables", "random"))
    assert (found["differencing", label, "accuracy"] or 0.0) > guessed + 0.1


def test_the_likeliest_numbers_are_the_minimum_that_a_general_method_finds() -> None:
    rng = np.random.default_rng(5)
    for equations, patterns in ((3, 6), (9, 5)):
        matrix, expected = rng.normal(size=(equations, patterns)), rng.uniform(0.5, 4, patterns)
        values = matrix @ rng.poisson(expected) + rng.normal(size=equations)

        def cost(x: np.ndarray, matrix: Any = matrix, values: Any = values, expected: Any = expected) -> float:
            return float((x * np.log(x / expected) - x).sum() + ((matrix @ x - values) ** 2).sum() / 2)

        found = minimize(cost, expected, bounds=[(1e-9, None)] * patterns, options={"ftol": 1e-14, "gtol": 1e-9})
        assert np.allclose(poisson_mode(matrix, values, expected), found.x, atol=2e-4)


def test_a_headline_counts_the_columns_of_the_model_and_says_that_numbers_are_ranges() -> None:
    assert audit(columns=["area", "ward"]).about.secret == "the cells of 2 of 4 columns"
    assert audit(columns=["area", "age"]).about.secret == "the cells of 2 of 4 columns, numbers as ranges"
    assert audit().about.secret == "all cells, numbers as ranges"
    # What a whole record is: its columns, each at its resolution.
    made = audit(columns=["area", "age"], bins=3)
    assert made.about.record == "area and age in 3 ranges"
    assert audit(columns=["area", "ward", "smoker"]).about.record == "area, ward and smoker"
    with Store(None) as store:
        [runs] = run_audits([made], store)
    shown = Report(made, rows_of(made, runs), runs)
    assert "Whole records (area and age in 3 ranges): " in headline(shown).words


def of_duplicates(made: StatisticsAudit) -> list[Finding]:
    return [finding for finding in run_checks(Facts(made, [], [])) if finding.code == "SEEP012"]


def test_duplicates_are_whole_rows_and_not_ranges_of_some_columns() -> None:
    spec = audit(columns=["area", "ward"]).spec
    apart = frame().assign(age=np.linspace(18, 95, 600))
    assert apart[["area", "ward"]].duplicated(keep=False).all()
    assert of_duplicates(StatisticsAudit(spec, read_table(apart, target="ill"))) == []
    twice = pd.concat([frame(300), frame(300)], ignore_index=True)
    [doubted] = of_duplicates(StatisticsAudit(spec, read_table(twice, target="ill")))
    assert doubted.message.startswith("100% of the client's 600 rows")
    assert "by their 4 columns" in doubted.message


def test_sums_of_two_sites_are_read_as_the_table_of_both() -> None:
    made = audit(summed=2, project="vantage6", repetitions=1)
    exposure = made.expose(made.configurations[0], range(1))
    assert exposure.federations[0].cells.shape == (120, 2)
    assert exposure.federations[0].message.records == 120
    assert figures(made)["counts", "none", "whole_table"] == 1.0


def test_the_three_questions_are_asked_of_records_that_were_read() -> None:
    found = figures(audit(repetitions=1, quasi_identifiers=["area", "ward"]))
    for question in ("singled_out", "linked"):
        # All records are read, so that guesses succeed as often as right ones would, and not against other records.
        right = found["counts", "none", f"{question}_possible"]
        assert found["counts", "none", question] == pytest.approx(right)
        control = found["counts", "none", f"{question}_control"]
        assert control is not None
        assert control <= (right or 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_other_families_are_audited(family: str) -> None:
    made = audit(
        family=family, repetitions=1, columns=["area", "ward", "smoker"], project="vantage6", parameter_ratio=1
    )
    found = figures(made)
    assert (found["training", "none", "task_rmse"] or 0.0) > 0
    assert found["counts", "none", "accuracy"] is not None
    # Gaussian weights never change, so that the cross tables are all that the sums tell of the columns.
    rank, patterns = found["counts", "none", "rank"], found["counts", "none", "patterns"]
    assert rank is not None
    assert patterns is not None
    assert (rank < patterns) == (family == "gaussian")
    # So they are what leaks there, and no baseline has them.
    assert (("likeliest_table", "none", "accuracy") in found) == (family == "poisson")
    control = made.planted(swapped=False)
    assert control is not None
    planted = figures(control)
    read, guessed = (planted[name, "none", "accuracy"] or 0.0 for name in ("counts", "own_marginals"))
    assert read - guessed > 0.6 * (1 - guessed)


@pytest.mark.slow
def test_records_that_leave_a_risk_set_are_read_and_coarser_times_cost_hazard_ratios() -> None:
    changes = [{"name": "coarser_times", "width": 400, "label": "times"}, {"name": "jump_guard", "label": "jumps"}]
    found = figures(audit(protocol="cox", repetitions=1, defenses=["none", *changes]))
    for label in ("none", "jumps"):
        assert (found["risk_sets", label, "exact_match"] or 0.0) > 0.95
        assert not found.get(("risk_sets", label, "certified_wrong"))
    alone, together = found["risk_sets", "none", "left_alone"], found["risk_sets", "jumps", "left_alone"]
    assert (alone or 0.0) > 10
    assert together == 0.0
    assert (found["training", "times", "hazard_ratio_error"] or 0.0) > 0.001
    assert found["training", "none", "hazard_ratio_error"] == pytest.approx(0.0, abs=1e-6)


def test_times_of_a_column_are_used_and_ties_leave_together() -> None:
    table = frame()
    table["days"] = np.random.default_rng(1).integers(1, 40, len(table)).astype(float)
    spec = StatisticsSpec.of(rows=60, sites=3, repetitions=1, protocol="cox", time="days")
    made = StatisticsAudit(spec, read_table(table, target="ill"))
    assert "days" not in made.data.schema.names
    [federation] = made.expose(made.configurations[0], range(1)).federations
    assert isinstance(federation.message, RiskSetMessage)
    sizes = [number for _, number, _, _ in leavers(federation.message)]
    assert max(sizes) > 1
    assert sum(sizes) <= 60


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time": "month"}, "column of times"),
        ({"time": "area"}, "is a category"),
        ({"family": "poisson"}, "has no family"),
        ({"defenses": ["sum_noise"]}, "has no place in the protocol 'cox'"),
        ({"columns": ["age"], "time": "age"}, "is no column of the design as well"),
        ({"attacks": ["counts"]}, "takes sums of Newton steps"),
    ],
)
def test_survival_models_that_cannot_be_fitted_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        audit(protocol="cox", **options)


def test_rare_levels_are_taken_together_as_the_guard_asks() -> None:
    table = coarse(data(), ["area", "age"], bins=3)
    codes = np.array([[0, 0], [0, 1], [1, 2], [0, 0], [0, 1], [0, 2], [2, 2]])
    design = model_levels(table.schema, codes, np.array([0, 0, 0, 0, 1, 1, 1]), least=2)
    assert design.levels[0] == (0,)
    assert design.codes[:, 0].tolist() == [0] * 7
    assert design.recoded(np.array([[1, 0]])).tolist() == [[0, design.taken[1][0]]]


def test_the_control_is_read_whole_and_messages_of_others_are_not() -> None:
    made = audit()
    control, nothing = made.planted(swapped=False), made.planted(swapped=True)
    assert control is not None
    assert nothing is not None
    scores = []
    for one in (control, nothing):
        exposure = one.expose(one.configurations[0], range(2))
        measured = exposure.measure(next(part for part in one.parts if part.label == "counts")).measured
        scores.append(next(m for m in measured if (m.metric, m.column) == ("exact_match", None)).values)
    assert scores[0].tolist() == [1.0, 1.0]
    assert float(scores[1].max()) < 1.0


def test_numbers_of_rows_are_swept_and_every_change_of_the_search_makes_an_audit() -> None:
    made = audit(rows=[50, 60])
    assert made.configurations == (Configuration("none", 50), Configuration("none", 60))
    first, second = (made.identity(one, made.parts[0]) for one in made.configurations)
    assert first != second
    for lever in made.levers():
        for strength in (lever.weakest, lever.strongest):
            assert StatisticsAudit(lever.applied(made.spec, strength), data()).configurations


def test_python_and_a_folder_take_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rows": [50], "repetitions": 2, "workers": 1, "control": False}
    report = seepage.audit(frame(), setting="statistics", target="ill", out=tmp_path, **options)
    assert {row.setting for row in report.rows} == {"statistics"}
    assert report.findings is not None
    assert "SEEP015" not in {finding.code for finding in report.findings}
    again = seepage.audit(frame(), setting="statistics", target="ill", out=tmp_path, **options)
    assert again.rows == report.rows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 400}, "3 sites with 400 rows each hold 1,200 rows"),
        ({"summed": 4}, "there are 3"),
        ({"rows": 5, "project": "vantage6"}, "refuses with fewer than 10 rows"),
        ({"columns": ["size"]}, "column of the design"),
        ({"start": "outcome"}, "start from coefficients of zero"),
        ({"defenses": [{"name": "sum_noise", "multiplier": 0}]}, "above 0"),
        ({"defenses": [{"name": "rounded_sums", "digits": -1}]}, "digits"),
        ({"defenses": ["sum_noise"], "family": "poisson"}, "has no bound in a poisson model"),
        ({"attacks": ["anchor"]}, "anchor"),
        ({"device": "cuda"}, "CPU alone"),
        ({"protocol": "glm", "time": "age"}, "use protocol cox"),
        ({"defenses": ["jump_guard"]}, "has no place in the protocol 'glm'"),
        ({"parameter_ratio": 0.01}, "no column fits"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        audit(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"columns": ["area", "ward", "age"], "bins": 20, "minimum_level": 1},
            "more than 33% as many coefficients",
        ),
        ({"columns": ["area", "twin"]}, "has 7 coefficients but rank 4"),
    ],
)
def test_models_that_guards_or_designs_rule_out_are_named(options: dict[str, Any], said: str) -> None:
    table = frame()
    table["twin"] = table["area"].str.replace("a", "t")
    small = {"rows": 60, "sites": 3, "repetitions": 1}
    made = StatisticsAudit(StatisticsSpec.of(**small, **options), read_table(table, target="ill"))
    with pytest.raises(BadInputError, match=said):
        made.expose(made.configurations[0], range(1))


def test_outcomes_that_no_model_takes_are_refused() -> None:
    table = frame()
    table["ill"] = np.random.default_rng(0).choice(["a", "b", "c"], len(table))
    with pytest.raises(BadInputError, match="has 3 classes"):
        StatisticsAudit(StatisticsSpec.of(rows=60, sites=3), read_table(table, target="ill"))


@pytest.mark.slow
def test_a_patient_who_joined_is_read_from_two_runs_of_tables() -> None:
    changes = [{"name": "minimum_count", "count": 3, "label": "few"}, {"name": "rounded_counts", "label": "fives"}]
    found = figures(audit(protocol="table", repetitions=2, defenses=["none", *changes]))
    assert found["differencing", "none", "exact_match"] == found["differencing", "none", "with_label"] == 1.0
    assert found["differencing", "none", "certified"] == 1.0
    for label in ("few", "fives"):
        assert not found.get(("differencing", label, "certified_wrong"))
        assert found["differencing", label, "accuracy"] is not None
    assert (found["training", "few", "left_out"] or 0.0) > 0
    assert found["differencing", "fives", "certified"] == 0.0
    several = figures(audit(protocol="table", repetitions=2, changed=3))
    assert (several["differencing", "none", "accuracy"] or 0.0) > (
        several["likeliest_table", "none", "accuracy"] or 0.0
    )


def test_counts_of_single_columns_tell_one_patient_and_not_several() -> None:
    """One record's counts are the record; of three records columns stay apart, so that nothing follows whole."""
    options: dict[str, Any] = {"protocol": "table", "published": "histograms"}
    one = figures(audit(repetitions=2, **options))
    assert one["differencing", "none", "exact_match"] == one["differencing", "none", "with_label"] == 1.0
    assert one["differencing", "none", "certified"] == 1.0
    assert figures(audit(repetitions=2, changed=3, **options))["differencing", "none", "certified"] < 1.0  # pyright: ignore[reportOptionalOperand]


@pytest.mark.parametrize("project", ["datashield", "vantage6"])
def test_a_patient_s_number_follows_from_figures_of_two_runs(project: str) -> None:
    # Of ages in tenths a sum in whole numbers leaves some twenty, and a sum of squares one.
    digits = {"name": "rounded_sums", "digits": 0, "label": "whole"}
    options: dict[str, Any] = {"published": "summaries", "columns": ["age", "area"], "project": project}
    found = figures(audit(protocol="table", repetitions=1, defenses=["none", digits], rows=50, **options))
    for label in ("none", "whole"):
        assert found["differencing", label, "exact_match"] == found["differencing", label, "certified"] == 1.0


def test_of_one_run_all_records_are_attacked() -> None:
    made = audit(protocol="table", changed=0, repetitions=1, rows=12, columns=["area", "smoker"])
    [federation] = made.expose(made.configurations[0], range(1)).federations
    assert federation.cells.shape == (12, 2)
    assert federation.message.records == 0
    found = figures(made)
    assert found["differencing", "none", "whole_table"] == found["differencing", "none", "certified"] == 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"published": "summaries", "columns": ["age", "weight"]}, "'weight' .* of which there are 2,400, more than"),
        ({"family": "gaussian"}, "tables have no family"),
        ({"defenses": ["sum_noise"]}, "has no place in the protocol 'table'"),
        ({"rows": 599}, "rows each hold 601 rows"),
        ({"attacks": ["counts"]}, "takes sums of Newton steps"),
    ],
)
def test_tables_that_cannot_be_made_are_refused(options: dict[str, Any], said: str) -> None:
    table = frame(2400 if "columns" in options else 600)
    table["weight"] = np.random.default_rng(0).uniform(40, 120, len(table))
    known, small = read_table(table, target="ill"), {"rows": 60, "repetitions": 1, "protocol": "table"}
    with pytest.raises(BadInputError, match=said):
        StatisticsAudit(StatisticsSpec.of(**{**small, **options}), known)
