"""Sentences that carry the verdict, and the terminal that shows them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from seepage import registry
from seepage.assessment.row import ResultRow
from seepage.report.grids import interval
from seepage.report.report import Report
from seepage.report.result import AuditResult
from seepage.report.summary import _of_cells, headline, summary
from seepage.results.checks.finding import Finding
from seepage.results.verdict import closed_gap
from seepage.run.runner import Run
from seepage.text import UNBOUNDED, percent, span_of_gap
from tests.report.parts import PEEK, CoinAudit, CoinSpec
from tests.results.test_verdict import row

WORDS: dict[str, Any] = {"attacker": "The server", "secret": "all cells", "message": "the gradient", "columns": ()}


def result(rows: Sequence[ResultRow], sensitive: Sequence[str] = ()) -> AuditResult:
    defenses = dict.fromkeys(one.defense for one in rows)
    figures = {(defense, PEEK): 0.5 for defense in defenses}
    return AuditResult(CoinAudit(**WORDS, sizes=(8,), figures=figures, sensitive=tuple(sensitive)), rows)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"baseline": None, "baseline_name": None, "lift": None, "lift_low": None, "lift_high": None}, "No baseline"),
        (
            {"baseline": 1.0, "lift": 0.0, "lift_low": 0.0, "lift_high": 0.0},
            "The best baseline is always right already.",
        ),
        (
            {"n": 1, "low": None, "high": None, "lift_low": None, "lift_high": None},
            "One flip allows no verdict: audit 5 or more",
        ),
        ({"n": 3}, "3 flips allow no verdict: audit 5 or more"),
        ({"n": 6, "lift_low": 0.2, "lift_high": 0.2}, "All 6 flips are alike"),
    ],
)
def test_the_summary_says_why_there_is_no_tier(changes: dict[str, Any], reason: str) -> None:
    text = summary(result([row(**changes)]))
    assert f"Leakage: inconclusive. {reason}" in text


def test_the_summary_says_what_was_read_and_what_baselines_get() -> None:
    rows = [
        row(),
        row(metric="exact_match", mean=0.25),
        row(column="age", mean=0.9, baseline=0.3, lift=0.6, lift_low=0.5, lift_high=0.63),
        row(column="purpose", mean=0.3, baseline=0.29, lift=0.01, lift_low=-0.2, lift_high=0.02),
    ]
    text = summary(result(rows, ["age"]))
    assert "At batch size 8 the server reads 70.0% of all cells" in text
    assert "20.0 points more than the best baseline (random, 50.0%)" in text
    assert "25.0% of the records come back whole. Leakage: moderate." in text
    assert "Furthest above the baseline: age (90%, baseline 30%)." in text
    assert "Sensitive columns by leakage: high to total: age." in text
    assert "purpose" not in text


def test_an_open_verdict_gives_both_ends_and_a_lower_bound_its_reason() -> None:
    wide = row(lift=0.2, lift_low=0.01, lift_high=0.49)
    assert (
        "Leakage: inconclusive. The flips differ so much that more than two tiers are possible: audit more flips."
        in summary(result([wide]))
    )
    finding = Finding("SEEP024", "warning", "The exact attack was not tried", "...")
    fell = replace(result([row()]), findings=[finding])
    assert "Leakage: at least moderate (95% interval 32% to 48% of the gap). It is a lower bound: the exact" in summary(
        fell
    )
    assert "The exact attack was not tried, so this is a lower bound." in headline(fell).words


def test_dropout_that_was_switched_off_is_named_beside_the_verdict() -> None:
    finding = Finding("SEEP025", "warning", "Dropout was switched off", "...")
    found = replace(result([row()]), findings=[finding])
    said = "Dropout was switched off: this holds for clients that train without it."
    assert headline(found).words.endswith(said)
    assert said in summary(found).split("\n\n")[0]
    assert "Dropout" not in headline(result([row()])).words


def test_an_attack_that_cannot_be_told_from_a_baseline_is_not_called_safe() -> None:
    text = summary(result([row(lift=0.01, lift_low=-0.05, lift_high=0.07)]))
    assert "do not tell the attack from the baseline. That does not show that nothing leaks" in text
    worse = summary(result([row(lift=-0.05, lift_low=-0.07, lift_high=-0.03)]))
    assert "includes zero" not in worse
    assert "The baseline does better than this attack, which does not show that nothing leaks" in worse


def test_columns_above_a_baseline_do_not_contradict_an_attack_that_is_not() -> None:
    columns = [
        row(column="age", mean=0.9, baseline=0.3, lift=0.6, lift_low=0.5, lift_high=0.63),
        # Two victims that happen to be alike.
        row(column="purpose", mean=0.5, baseline=0.3, lift=0.2, lift_low=0.2, lift_high=0.2),
    ]
    text = summary(result([row(lift=0.01, lift_low=-0.05, lift_high=0.07), *columns]))
    assert "Furthest above the baseline" not in text
    assert "Single columns lie above the baseline all the same: age (90%, baseline 30%); 2 columns" in text
    assert "purpose" not in text


def test_every_defense_has_a_paragraph_of_its_own() -> None:
    rows = [row(), row(defense="noise(0.1)", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    text = summary(result(rows))
    assert "At batch size 8 with no defense the server reads 70.0%" in text
    assert "At batch size 8 under noise(0.1) the server reads 55.0%" in text


def test_the_terminal_shows_every_defense_and_what_has_no_figure() -> None:
    mode = row(
        attack="mode", kind="baseline", seconds_per_victim=None, mean=0.5, lift=None, lift_low=None, lift_high=None
    )
    rows = [row(), mode, row(defense="noise(0.1)", mean=0.55, lift=0.05), row(defense="noise(0.1)", metric="other")]
    rows.append(row(defense="broken", attack="dlg", mean=None, lift=None, low=None, high=None))
    written = io.StringIO()
    console = Console(file=written, width=200)
    known = {"labels": "true", "sees": "what it sees"}
    Report(CoinAudit(**WORDS), [replace(one, knowledge=known) for one in rows]).show(console)
    assert "noise(0.1)" in written.getvalue()
    assert "broken" in written.getvalue()
    assert "55.0" in written.getvalue()


def test_the_headline_is_about_the_configuration_in_which_most_leaks() -> None:
    rows = [row(), row(defense="noise", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    found = headline(result(rows))
    assert found.words == (
        "At batch size 8 with no defense the server reads 70% of all cells; guessing without the gradient gets "
        "50%. Of 100 cells that guessing misses, 40 are read (10 flips, 95% interval 32 to 48)."
    )
    assert found.tier == "moderate"
    assert found.beside == (
        ("none to low", "At batch size 8 under noise the server reads 55% of all cells (guessing: 50%)."),
    )
    nothing = headline(result([row(mean=None, lift=None, baseline=None, status="failed")]))
    assert (nothing.record, nothing.tier) == (None, "inconclusive")
    assert nothing.beside == (("not reached", "No defense at batch size 8: nothing was measured."),)
    assert "Nothing could be measured" in nothing.words


def test_the_headline_stays_with_no_defense_where_more_leaks_under_one() -> None:
    rows = [row(defense="worse", mean=0.9, lift=0.4, lift_low=0.38, lift_high=0.42), row()]
    found = headline(result(rows))
    assert found.words.startswith("At batch size 8 with no defense the server reads 70%")
    [(tier, words)] = found.beside
    assert tier == "high"
    assert "under worse the server reads 90%" in words
    assert summary(result(rows)).startswith("At batch size 8 with no defense")
    alone = headline(result(rows[:1]))
    assert alone.words.startswith("At batch size 8 under worse")
    assert alone.beside == ()


def test_cells_that_a_message_determines_are_spoken_of_where_many_values_may_replay_it() -> None:
    certified = row(metric="certified_cells", column=None, mean=0.25)
    possible = replace(certified, metric="still_possible", column="age", mean=0.9)
    assert _of_cells([certified]) == []
    assert _of_cells([certified, possible]) == [
        "25.0% of the cells are certified: only one value replays what came back.",
        "Not determined, as many values replay what came back: age (90.0% of its values).",
    ]


@pytest.mark.parametrize(
    ("count", "low", "high", "said"),
    [
        (2, -0.7, 1.0, "2 flips, too few to bound it"),
        (5, -0.84, 0.16, "5 flips, too few to bound it"),
        (10, -0.1, 0.08, "10 flips, 95% interval 0 to 50"),
    ],
)
def test_an_interval_of_the_closed_gap_that_bounds_nothing_is_said_to(
    count: int, low: float, high: float, said: str
) -> None:
    # All is read, beside a baseline of 84%: a lift of -84 points is -525% of the gap.
    few = row(mean=0.9, low=0.4, high=1.0, n=count, baseline=0.84, lift=0.06, lift_low=low, lift_high=high)
    assert closed_gap(few, "lift_low") == 0.0
    assert said in headline(result([few])).words
    assert span_of_gap(closed_gap(few, "lift_low"), closed_gap(few, "lift_high")) in (UNBOUNDED, "[0.0, 50.0]")
    # An attack that does worse than guessing stands as far below 0 as it was measured.
    assert closed_gap(row(lift=-0.1, lift_low=-0.3, lift_high=0.1), "lift_low") == -0.2


def test_no_bound_of_the_closed_gap_is_above_all_of_it_and_almost_all_is_not_all() -> None:
    almost = row(mean=0.9975, low=0.99, high=1.0, lift=0.4975, lift_low=0.46, lift_high=0.53)
    assert closed_gap(almost, "lift_high") == 1.0
    words = headline(result([almost])).words
    assert "reads 99% of all cells" in words
    assert "99 are read (10 flips, 95% interval 92 to 100)" in words


def test_units_that_are_all_alike_have_their_interval_in_every_place() -> None:
    alike = row(n=5, mean=1.0, low=0.416, high=1.0, std=0.0, lift=0.5, lift_low=-0.12, lift_high=0.82, lift_std=0.0)
    flat = result([alike])
    assert "95% interval 41.6% to 100.0%" in summary(flat)
    assert "100 are read (5 flips, too few to bound it)" in headline(flat).words
    cells = interval("95% interval").cell({"low": 0.416, "high": 1.0, "n": 5})
    errors = interval("95% interval", scale=1.0).cell({"low": 0.416, "high": 1.0, "n": 5})
    assert (cells.text, errors.text) == ("[41.6, 100.0]", "[0.416, 1]")


@pytest.mark.parametrize(("rate", "shown"), [(0.9999, "99.9%"), (1e-5, "0.1%"), (1.0, "100.0%"), (0.0, "0.0%")])
def test_a_share_is_not_rounded_to_all_or_nothing(rate: float, shown: str) -> None:
    assert percent(rate) == shown


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        ((10, 10), "10 flips in each configuration"),
        ((1, 8), "1 to 8 of 10 flips"),
        ((10, 4, 0), "4 to 10 of 10 flips"),
        ((57, 57), "57 flips in each configuration"),
        ((0,), "none of 10 flips"),
    ],
)
def test_the_head_says_how_many_units_were_run(ran: Sequence[int], words: str) -> None:
    audit = CoinAudit(CoinSpec(flips=10))
    part = next(part for part in audit.parts if part.kind == "attack")
    runs = [Run(audit.configurations[0], part, [], tuple(range(count)), 1.0, {}, {}) for count in ran]
    assert AuditResult(audit, [], runs).units_run == words


def test_lists_show_no_marks_of_code() -> None:
    for setting in registry.attacks.settings():
        assert not any("``" in entry.summary for entry in registry.attacks.of(setting).entries())
