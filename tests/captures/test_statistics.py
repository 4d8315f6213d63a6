"""Captured messages of federated statistics: sums by loops over records are read back, and others are refused."""

from __future__ import annotations

import json
import os
from collections import Counter
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seepage.attacks.statistics.counts import Counts
from seepage.attacks.statistics.differencing import Differencing
from seepage.captures.captured import attacker_statistics
from seepage.captures.statistics import StatisticsDeclaration
from seepage.errors import BadInputError
from seepage.settings.statistics.messages import read_statistics, write_statistics
from seepage.wire.statistics import (
    NewtonMessage,
    NewtonView,
    RiskSetMessage,
    StatisticsGuess,
    StatisticsKnowledge,
    TablesMessage,
    TablesView,
    totals_of,
)
from tests.commands import Run, commands

DECLARED: dict[str, Any] = {
    "columns": [
        {"name": "sex", "categories": ["f", "m"]},
        {"name": "ward", "categories": ["er", "icu", "surgery"], "reference": "icu"},
    ],
    "target": {"name": "died", "categories": ["no", "yes"]},
}
# What numpy.save writes of an array without entries.
SINGLE = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }".ljust(117) + b"\n"
AGED = {"protocol": "table", "columns": [{"name": "age", "categories": [50, 60, 70]}]}
# Names of the design's coefficients as formulaic has them.
NAMES = ["Intercept", "sex[T.m]", "ward[T.er]", "ward[T.surgery]"]


def people(rows: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    columns = {"sex": rng.choice(["f", "m"], rows), "ward": rng.choice(["er", "icu", "surgery"], rows)}
    return pd.DataFrame({**columns, "died": rng.choice(["no", "yes"], rows)})


def design_row(sex: str, ward: str) -> list[float]:
    return [1.0, float(sex == "m"), float(ward == "er"), float(ward == "surgery")]


def newton_sums(table: pd.DataFrame, beta: np.ndarray) -> dict[str, Any]:
    """Sums record by record, as the formulas are written down."""
    information, score, right = np.zeros((4, 4)), np.zeros(4), np.zeros(4)
    for sex, ward, died in table.itertuples(index=False):
        x, y = design_row(sex, ward), float(died == "yes")
        eta = sum(a * b for a, b in zip(x, beta, strict=True))
        mu = 1 / (1 + exp(-eta))
        for j in range(4):
            score[j] += x[j] * (y - mu)
            right[j] += x[j] * mu * (1 - mu) * (eta + (y - mu) / (mu * (1 - mu)))
            for k in range(4):
                information[j, k] += x[j] * x[k] * mu * (1 - mu)
    return {"information": information, "score": score, "right": right}


def iterations(table: pd.DataFrame, number: int = 5) -> list[dict[str, Any]]:
    beta, sent = np.zeros(4), []
    for _ in range(number):
        sums = newton_sums(table, beta)
        sent.append({"coefficients": beta, **sums, "records": len(table)})
        beta = beta + np.linalg.solve(sums["information"], sums["score"])
    return sent


def as_vantage6(message: dict[str, Any]) -> dict[str, Any]:
    """What the partial function of v6-glm-py returns: data frames as mappings, in an order of their own."""
    order = [2, 0, 3, 1]
    table = pd.DataFrame(message["information"], NAMES, NAMES).iloc[order, order]
    right = pd.DataFrame({"died": message["right"]}, index=NAMES).iloc[order]
    return {
        "beta_coefficients": dict(zip(NAMES, message["coefficients"], strict=True)),
        "XTX": table.to_dict(),
        "XTz": right.to_dict(),
        "dispersion": None,
        "num_observations": message["records"],
        "sum_y": 17.0,
    }


@pytest.mark.long
def test_messages_of_a_fit_are_read_back_and_attacked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seepage: Run = commands(capfd, monkeypatch, tmp_path)
    table = people()
    table.to_csv(tmp_path / "own.csv", index=False)
    write_statistics(tmp_path / "sums", DECLARED, iterations(table))
    code, out, err = seepage("attack", "sums", "--truth", "own.csv", "--out", "read")
    assert code == 0, err
    assert "40 records of 40; 100.0% of them are certified" in " ".join(out.split())
    read = pd.read_csv(tmp_path / "read" / "reconstruction.csv")
    assert Counter(read[["sex", "ward"]].itertuples(index=False)) == Counter(
        table[["sex", "ward"]].itertuples(index=False)
    )
    results = json.loads((tmp_path / "read" / "results.json").read_text())
    assert results["certified_records"] == 1.0
    alone = (table[["sex", "ward"]].value_counts() == 1).sum() / len(table)
    assert results["facts"]["proved_alone"] == alone
    page = (tmp_path / "read" / "report.html").read_text("utf-8")
    assert f"{100 * alone:.1f}% of the records are proved to be the only ones of their pattern" in page
    figures = {(row["attack"], row["metric"]): row["mean"] for row in results["rows"] if row["column"] is None}
    assert figures["counts", "whole_records"] == 1.0
    code, _, err = seepage("attack", "sums", "--out", "read")
    assert code == 2
    assert "holds" in err


def test_messages_of_other_projects_are_the_same_message(tmp_path: Path) -> None:
    sent = iterations(people(), 3)
    write_statistics(tmp_path / "ours", DECLARED, sent)
    write_statistics(tmp_path / "vantage6", DECLARED, [as_vantage6(message) for message in sent])
    # DataSHIELD's names, all iterations in one file, in another order of coefficients.
    order = [0, 3, 1, 2]
    whole = {
        f"{name}/{t}": value
        for t, message in enumerate(sent)
        for name, value in {
            "beta.vect": message["coefficients"][order],
            "info.matrix": message["information"][np.ix_(order, order)],
            "score.vect": message["score"][order][:, None],
            "numsubs": np.array(40),
        }.items()
    }
    declared = {**DECLARED, "order": ["(Intercept)", "wardsurgery", "sexm", "warder"]}
    (tmp_path / "datashield").mkdir()
    (tmp_path / "datashield" / "statistics.json").write_text(json.dumps(declared))
    np.savez(tmp_path / "datashield" / "sums.npz", **whole)
    ours = read_statistics(tmp_path / "ours")[1]
    assert isinstance(ours, NewtonMessage)
    assert ours.levels == ((0, 1), (1, 0, 2))
    for other, names in (("vantage6", ["information", "right"]), ("datashield", ["information", "score"])):
        message = read_statistics(tmp_path / other)[1]
        assert isinstance(message, NewtonMessage)
        assert message.records == 40
        for own, theirs in zip(ours.steps, message.steps, strict=True):
            for name in (*names, "coefficients"):
                np.testing.assert_allclose(getattr(own, name), getattr(theirs, name), atol=1e-12)


def test_risk_sets_of_standardised_columns_are_those_of_the_columns(tmp_path: Path) -> None:
    table, rng = people(12), np.random.default_rng(0)
    x = np.array([design_row(sex, ward) for sex, ward, _ in table.itertuples(index=False)])[:, 1:]
    centre, scale = x.mean(0), x.std(0)
    z, times, beta = (x - centre) / scale, rng.permutation(12) + 1.0, np.array([0.3, -0.2, 0.5])
    at_risk = (times[None] >= np.arange(1.0, 13)[:, None]).astype(float)
    weight = np.exp(z @ beta)
    sent = {
        "coefficients": beta,
        "agg1": at_risk @ weight,
        "agg2": at_risk @ (z * weight[:, None]),
        "agg3": np.einsum("ti,ij,ik,i->tjk", at_risk, z, z, weight),
        "times": np.arange(1.0, 13),
        "records": 12,
    }
    write_statistics(tmp_path, {**DECLARED, "protocol": "cox", "centre": list(centre), "scale": list(scale)}, [sent])
    message = read_statistics(tmp_path)[1]
    assert isinstance(message, RiskSetMessage)
    [step] = message.steps
    rows = np.concatenate([np.ones((12, 1)), x], axis=1)
    weights = np.exp(x @ step.coefficients)
    exact = np.einsum("ti,ij,ik,i->tjk", at_risk, rows, rows, weights)
    np.testing.assert_allclose(step.sums, exact, atol=1e-12)
    # What rounding leaves of sums of standardised columns grows where columns are taken back.
    rounded = {**sent, **{name: np.round(sent[name], 1) for name in ("agg1", "agg2", "agg3")}}
    wide = {"protocol": "cox", "centre": list(centre), "scale": list(scale), "rounded": 0.1}
    write_statistics(tmp_path, {**DECLARED, **wide}, [rounded])
    message = read_statistics(tmp_path)[1]
    assert isinstance(message, RiskSetMessage)
    assert 0.05 < np.abs(message.steps[0].sums - exact).max() <= message.rounded / 2


def test_arrays_in_single_precision_are_taken_for_rounded(tmp_path: Path) -> None:
    [sent] = iterations(people(), 1)
    (tmp_path / "statistics.json").write_text(json.dumps(DECLARED))
    halves: dict[str, Any] = {name: np.asarray(value, dtype=np.float16) for name, value in sent.items()}
    np.savez(tmp_path / "a.npz", **halves)
    message = read_statistics(tmp_path)[1]
    assert isinstance(message, NewtonMessage)
    assert np.abs(message.steps[0].information - sent["information"]).max() <= message.rounded / 2
    assert message.rounded > 0.01


def test_outcomes_count_in_their_declared_order(tmp_path: Path) -> None:
    def outcomes(categories: list[Any], family: str) -> tuple[float, ...] | None:
        target = {"name": "died", "categories": categories}
        write_statistics(tmp_path, {**DECLARED, "family": family, "target": target}, iterations(people(), 2))
        declared, message = read_statistics(tmp_path)
        assert isinstance(message, NewtonMessage)
        return totals_of(message, declared.table, labels=True).labels

    assert outcomes(["yes", "no"], "binomial") == (0.0, 1.0)
    assert outcomes([0, 3], "poisson") == (0.0, 3.0)


@pytest.mark.parametrize(("rounding", "proved"), [("nearest", True), ("either", False)])
def test_numbers_rounded_up_or_down_prove_less(tmp_path: Path, rounding: str, proved: bool) -> None:
    # With f joining, 4 may go up to 6 and 5 down to 3 at random, which the nearest multiple would not.
    tables = [{"before": {"sex": [6, 0]}, "after": {"sex": [3, 3]}, "records": 6}]
    declared = {**DECLARED, "protocol": "table", "columns": DECLARED["columns"][:1], "base": 3, "rounding": rounding}
    write_statistics(tmp_path, declared, tables)
    guess = differenced(tmp_path)
    assert guess.proofs is not None
    assert bool(guess.proofs[0].cells.any()) == proved
    assert any(("at most 3." if proved else "at most 4.") in line for line in guess.proofs[0].conditions)


def test_rounded_tables_that_exclude_some_outcomes_of_a_pattern_are_read(tmp_path: Path) -> None:
    tables = [{"before": {"sex|died": [[2, 4], [6, 2]]}, "after": {"sex|died": [[0, 4], [6, 4]]}, "records": 13}]
    declared = {**DECLARED, "protocol": "table", "columns": DECLARED["columns"][:1], "base": 2, "rounding": "either"}
    write_statistics(tmp_path, declared, tables)
    guess = differenced(tmp_path)
    assert guess.labels is not None
    assert (guess.cells[0, 0, 0].item(), guess.labels[0, 0].item()) == (1.0, 1.0)


def test_figures_that_contradict_each_other_are_doubted(tmp_path: Path) -> None:
    figures = {"n": 3, "mean": 60.0, "sd": 10.0, "squares": 1.0}
    write_statistics(tmp_path, {**DECLARED, **AGED}, [{"after": {"age": figures, "died": [2, 1]}}])
    guess = differenced(tmp_path)
    assert guess.proofs is not None
    assert "contradict each other" in str(guess.proofs[0].doubt)


@pytest.mark.parametrize(
    ("family", "change", "why"),
    [
        ("poisson", {"coefficients": [900.0, 0.0, 0.0, 0.0]}, "double precision"),
        ("gaussian", {"information": np.diag([1e300, 0.0, 0.0, 0.0])}, "not that of the declared records"),
        ("poisson", {"coefficients": [300.0, 9.0, 0.0, 0.0], "information": np.eye(4) * 1e-300}, ""),
    ],
)
def test_numbers_beyond_all_records_are_doubted_and_end(tmp_path: Path, family: str, change: dict, why: str) -> None:
    write_statistics(tmp_path, {**DECLARED, "family": family}, [{**iterations(people(), 1)[0], **change}])
    declared, message = read_statistics(tmp_path)
    assert isinstance(message, NewtonMessage)
    statistics, _ = attacker_statistics(declared.table, reference=None)
    guess = Counts()(NewtonView((message,)), StatisticsKnowledge(declared.table, statistics, 40), [0])
    assert guess.proofs is not None
    assert guess.proofs[0].doubt is not None
    assert why in guess.proofs[0].doubt
    assert bool(guess.cells.isfinite().all())


def differenced(folder: Path) -> StatisticsGuess:
    declared, message = read_statistics(folder)
    assert isinstance(message, TablesMessage)
    statistics, _ = attacker_statistics(declared.table, reference=None)
    knowledge = StatisticsKnowledge(declared.table, statistics, message.changed)
    return Differencing()(TablesView((message,)), knowledge, [0])


def test_tables_of_two_runs_are_read(tmp_path: Path) -> None:
    names = {"sex": ["f", "m"], "ward": ["er", "icu", "surgery"], "died": ["no", "yes"]}
    categories = {name: pd.CategoricalDtype(own) for name, own in names.items()}
    table = people(30).astype(categories)

    def run(rows: pd.DataFrame) -> dict[str, list]:
        pairs = [("sex", "ward"), ("died", "sex"), ("ward", "died")]
        return {f"{a}|{b}": pd.crosstab(rows[a], rows[b], dropna=False).to_numpy().tolist() for a, b in pairs}

    write_statistics(tmp_path, {**DECLARED, "protocol": "table"}, [{"before": run(table[:29]), "after": run(table)}])
    message = read_statistics(tmp_path)[1]
    assert isinstance(message, TablesMessage)
    assert (message.records, message.changed) == (29, 1)
    assert {key: int((message.after[key] - message.before[key]).sum()) for key in message.before} == dict.fromkeys(
        [(0, 1), (0, 2), (1, 2)], 1
    )


def test_a_patient_is_read_from_the_figures_of_two_runs_and_a_run_alone_is_read_as_far_as_it_goes(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"age": rng.integers(50, 58, 13), "sex": rng.choice(["f", "m"], 13)})
    table["died"] = rng.choice(["no", "yes"], 13)

    def run(rows: pd.DataFrame) -> dict[str, Any]:
        def figures(ages: pd.Series) -> dict[str, Any]:
            quantiles = {str(share): ages.quantile(share) for share in (0.25, 0.5, 0.75)}
            return {"n": len(ages), "mean": ages.mean(), "sd": ages.std(), "quantiles": quantiles}

        counts = {name: rows[name].value_counts().sort_index().tolist() for name in ("sex", "died")}
        groups = {f"age|died={k}": figures(own) for k, own in rows.groupby("died")["age"]}
        return {**counts, "age": figures(rows["age"]), **groups}

    columns = [{"name": "age", "categories": list(range(50, 58))}, {"name": "sex", "categories": ["f", "m"]}]
    declared = {**DECLARED, "columns": columns, "protocol": "table"}
    write_statistics(tmp_path / "two", declared, [{"before": run(table[:12]), "after": run(table)}])
    write_statistics(tmp_path / "one", declared, [{"after": run(table)}])
    messages = [read_statistics(tmp_path / name)[1] for name in ("two", "one")]
    schema = StatisticsDeclaration.model_validate(declared).table
    knowledge = StatisticsKnowledge(schema, attacker_statistics(schema)[0], 1)
    read = [Differencing(0.5)(TablesView((own,)), knowledge, [0]) for own in messages if isinstance(own, TablesMessage)]
    age, sex = read[0].cells[0, 0].tolist()
    assert (50 + age, "fm"[int(sex)]) == (table["age"].iloc[-1], table["sex"].iloc[-1])
    assert read[0].labels is not None
    assert ["no", "yes"][int(read[0].labels[0, 0])] == table["died"].iloc[-1]
    assert read[0].proofs is not None
    assert bool(read[0].proofs[0].cells.all())
    assert read[1].cells.shape == (1, 13, 2)
    assert read[1].proofs is not None
    there = Counter(map(tuple, np.stack([table["age"] - 50, table["sex"] == "m"], axis=1).astype(float).tolist()))
    proved = read[1].cells[0][read[1].proofs[0].cells.all(1)]
    assert not Counter(map(tuple, proved.tolist())) - there


def _changed(**values: Any) -> list[dict[str, Any]]:
    sent = iterations(people(), 2)
    return [sent[0], {**sent[1], **values}]


@pytest.mark.parametrize(
    ("declared", "sent", "said"),
    [
        ({}, _changed(information=np.ones((3, 3))), r"has the shape \(3, 3\), and has to have \(4, 4\)"),
        (
            {},
            _changed(information=np.triu(np.ones((4, 4)))),
            "not symmetric: 1 in row 1, column 2, and 0 the other way",
        ),
        ({}, _changed(information=None), "has no information matrix; it is called information or info.matrix"),
        ({}, _changed(coefficients=None), "no coefficients, and only the first iteration can do without"),
        ({}, _changed(score=[float("nan")] * 4), "no finite numbers, such as a site sends whose guard refuses"),
        ({}, _changed(records=39), "is of 39 records, but iteration-000.json, iteration 1 of the file says 40"),
        ({}, _changed(score="much"), "score is 'much', and has to be an array of numbers"),
        ({}, _changed(deviance="much"), "deviance is 'much', and has to be one finite number"),
        ({}, _changed(gradient=[0.0] * 4), "has score and gradient, which are the same"),
        ({"order": ["Intercept", "sexm", "warder"]}, _changed(), r"no coefficient of ward\[surgery\]"),
        ({"order": ["age", *NAMES]}, _changed(), "'age' is of no column and level of the declaration"),
        ({"offset": True}, _changed(), "says that the model has offset"),
        ({"weights": True}, _changed(), "says that the model has weights"),
        ({"columns": []}, _changed(), "columns"),
        ({"colums": []}, _changed(), "colums"),
        ({"family": "gamma"}, _changed(), "family"),
        ({"means": True}, [{"information": np.eye(4) / 4}], "give 'records' in the declaration"),
        ({"protocol": "cox"}, _changed(), "no message has 'times'"),
        ({"protocol": "cox"}, _changed(times=[1.0]), "(has the shape|no risk-set sums)"),
        ({"protocol": "table"}, [{"before": {}, "after": {}}], "no message has 'after'"),
        ({"protocol": "table"}, [{"before": 3, "after": {}}], "'before' is 3, and has to be a mapping"),
        ({"protocol": "table"}, [{"after": {"sex|age": [[1]]}}], "is of 'age', and not of a declared column"),
        ({"protocol": "table"}, [{"after": {"sex": [1, 2, 3]}}], r"has the shape \(3,\), and has to have \(2,\)"),
        ({"protocol": "table"}, [{"after": {"sex": ["many", 2]}}], "give nested lists of numbers"),
        ({"protocol": "cox", "means": True}, _changed(), "are read of a 'glm' alone"),
        ({"protocol": "cox"}, [{"times": [], "sums": []}], "one or more event times"),
        ({"columns": [{"name": "sex", "categories": ["f", "f"]}]}, _changed(), "'f' and 'f' are equal"),
        ({"columns": [{"name": "died", "categories": ["f", "m"]}]}, _changed(), "column names must be unique"),
        ({"protocol": "cox"}, [{"times": ["soon"], "sums": [[[1]]]}], "'times' are .*'soon'.*, and have to be a list"),
        ({"protocol": "cox"}, [{"times": [1], "sums": [np.ones((4, 4))], "events": [-1]}], "none below 0"),
        ({}, [{**_changed()[0], "records": 1e300}], "no whole number from 1 to 10,000,000"),
        ({"target": {"name": "died", "categories": ["no"]}}, _changed(), "has 1 categories of the target"),
        ({"protocol": "table"}, [{"after": {"sex": [0, 0]}}], "are of 0 records, and have to be of 1 to 10,000,000"),
        ({"protocol": "table"}, [{"after": {"sex": [9e8, 9e8]}}], "are of 1,800,000,000 records"),
        ({"protocol": "table"}, [{"after": {"sex": [1.5, 2]}}], "that are no numbers of records"),
        ({"protocol": "table"}, [{"after": {"sex": [-1, 2]}}], "that are no numbers of records"),
        ({"protocol": "table"}, [{"after": {"sex|sex": [[1, 2], [1, 2]]}}], "no one or two different columns"),
        ({"protocol": "table"}, [{"before": {"sex": [1, 2]}, "after": {"ward": [1, 2, 3]}}], "in one run alone"),
        ({"protocol": "table"}, [{"after": {"sex": [1, None]}}], "give 'records' in the declaration"),
        ({"protocol": "table"}, [{"after": {"sex": {"n": 3, "mean": 1}}}], "whose categories are numbers"),
        (AGED, [{"after": {"age": {"n": 3, "median": 1}}}], "age' has median and n; figures are n, and any of centre"),
        (AGED, [{"after": {"age": {"n": 3, "mean": "old"}}}], "mean of 'age' is 'old', and has to be one finite"),
        (AGED, [{"after": {"age": {"n": 2.5, "mean": 1}}}], "is of 2.5 records"),
        (AGED, [{"after": {"age": {"n": 3, "quantiles": {"2": 1}}}}], "at shares from 0 to 1"),
        (AGED, [{"after": {"age": {"n": 3, "quantiles": [1]}}}], "a mapping of shares to values"),
        ({}, [], "a declaration and no message"),
    ],
)
def test_other_messages_are_refused(tmp_path: Path, declared: dict, sent: list, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        write_statistics(tmp_path, {**DECLARED, **declared}, sent)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"\xff\xfe", "cannot be read"),
        ("a.json", b"3", "is of type int"),
        ("a.npz", b"PK\x03\x04 cut short", "no whole npz file"),
        ("a.npz", SINGLE, "holds a single array without a name"),
        ("statistics.json", b"[1]", "a JSON object is expected"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    write_statistics(tmp_path, DECLARED, iterations(people(), 1))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match=said):
        read_statistics(tmp_path)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write_statistics(tmp_path, DECLARED, iterations(people(), 1))
    os.mkfifo(tmp_path / "b.json")
    with pytest.raises(BadInputError, match=r"b.json' is no file; move it out"):
        read_statistics(tmp_path)


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    write_statistics(tmp_path, DECLARED, iterations(people(), 1))
    np.savez(tmp_path / "b.npz", coefficients=np.zeros(4), information=np.eye(4) * 1j)
    with pytest.raises(BadInputError, match="has to be an array of numbers"):
        read_statistics(tmp_path)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    write_statistics(tmp_path, DECLARED, iterations(people(), 1))
    np.savez(tmp_path / "b.npz", information=np.array([object()]), allow_pickle=True)
    with pytest.raises(BadInputError, match="it has pickled objects, which are never loaded"):
        read_statistics(tmp_path)


def test_a_certificate_that_the_truth_contradicts_names_the_declaration_first(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The site left out the level f; the declaration says that it left out m."""
    seepage: Run = commands(capfd, monkeypatch, tmp_path)
    table = people(12)
    table.to_csv(tmp_path / "own.csv", index=False)
    [sex, ward] = DECLARED["columns"]
    write_statistics(tmp_path / "sums", {**DECLARED, "columns": [{**sex, "reference": "m"}, ward]}, iterations(table))
    code, _, err = seepage("attack", "sums", "--truth", "own.csv", "--out", "read")
    assert code == 71, err
    assert "a declaration (order of columns or levels, reference, encoder, recipe) differs" in " ".join(err.split())
