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
from seepage.report.summary import _certified_cells, headline, summary
from seepage.results.checks.finding import Finding, Where
from seepage.results.verdict import closed_gap
from seepage.run.runner import Run
from seepage.settings import catalogue
from seepage.text import percent, span
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
        (
            {"baseline": None, "baseline_name": None, "lift": None, "lift_low": None, "lift_high": None},
            "No verdict: there is no baseline to compare with.",
        ),
        (
            {"baseline": 1.0, "lift": 0.0, "lift_low": 0.0, "lift_high": 0.0},
            "No verdict: an informed guess is always right already.",
        ),
        (
            {"n": 1, "low": None, "high": None, "lift_low": None, "lift_high": None},
            "Of 100 cells that an informed guess misses, 40 are read (1 flip). "
            "The attack may be no better than guessing, and up to 100 of 100 are not excluded: "
            "audit more flips (--flips).",
        ),
        (
            {"n": 6, "lift_low": -0.02, "lift_high": 0.4401},
            "Of 100 cells that an informed guess misses, 40 are read (6 flips). "
            "The attack may be no better than guessing, and up to 89 of 100 are not excluded: "
            "audit more flips (--flips).",
        ),
    ],
)
def test_the_summary_says_why_there_is_no_verdict(changes: dict[str, Any], reason: str) -> None:
    text = summary(result([row(**changes)]))
    assert f"Verdict: not decided. {reason}" in text


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
    # One whole record that no baseline gets is enough.
    assert "25.0% of the records come back whole. Verdict: whole records read." in text
    assert "Furthest above the baseline: age (90%, baseline 30%)." in text
    assert "Sensitive columns by verdict: mostly read: age." in text
    assert "purpose" not in text


def test_a_lower_bound_is_named_with_its_reason_once() -> None:
    finding = Finding("SEEP024", "warning", "The exact attack was not tried", "...")
    words = "The exact attack was not tried, so this is a lower bound."
    gain = replace(result([row()]), findings=[finding])
    for text in (summary(gain), headline(gain).words):
        assert text.count(words) == 1
    assert "Verdict: gain shown." in summary(gain)
    # Where it is the reason that nothing is decided, it is said as that.
    little = replace(result([row(lift=0.01, lift_low=-0.05, lift_high=0.05)]), findings=[finding])
    for text in (summary(little), headline(little).words):
        assert "No verdict: the exact attack was not tried (SEEP024)." in text
        assert text.lower().count("the exact attack was not tried") == 1
    # A finding on another defense says nothing of this one.
    elsewhere = replace(gain, findings=[replace(finding, where=(Where(8, "noise"),))])
    assert words not in summary(elsewhere) + headline(elsewhere).words


def test_dropout_that_was_switched_off_is_named_beside_the_verdict() -> None:
    finding = Finding("SEEP025", "warning", "Dropout was switched off", "...")
    found = replace(result([row()]), findings=[finding])
    said = "Dropout was switched off: this holds for clients that train without it."
    assert headline(found).words.endswith(said)
    assert said in summary(found).split("\n\n")[0]
    assert "Dropout" not in headline(result([row()])).words


def test_an_attack_that_cannot_be_told_from_a_baseline_is_not_called_safe() -> None:
    text = summary(result([row(lift=0.01, lift_low=-0.05, lift_high=0.07)]), reading=False)
    assert (
        "Verdict: little read. No gain found by these attacks; "
        "up to 15 of 100 cells that an informed guess misses are not excluded (n = 10)." in text
    )
    # What may be a fifth is not little.
    wide = summary(result([row(lift=0.01, lift_low=-0.05, lift_high=0.1)]), reading=False)
    assert "Verdict: not decided." in wide
    assert "The attack may be no better than guessing, and up to 20 of 100 are not excluded" in wide
    worse = summary(result([row(lift=-0.05, lift_low=-0.07, lift_high=-0.03)]), reading=False)
    assert "No gain found by these attacks: they read less than an informed guess gets (n = 10)." in worse
    assert "excluded" not in worse


def test_columns_above_a_baseline_do_not_contradict_an_attack_that_is_not() -> None:
    columns = [
        row(column="age", mean=0.9, baseline=0.3, lift=0.6, lift_low=0.5, lift_high=0.63),
        # Two victims that happen to be alike.
        row(column="purpose", mean=0.5, baseline=0.3, lift=0.2, lift_low=-0.3, lift_high=0.6, lift_std=0.0, n=2),
    ]
    text = summary(result([row(lift=0.01, lift_low=-0.05, lift_high=0.17), *columns]))
    assert "Verdict: not decided." in text
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
    noisy = row(defense="noise(0.1)", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)
    rows = [row(), mode, noisy, row(defense="noise(0.1)", metric="other")]
    rows.append(row(defense="broken", attack="dlg", mean=None, lift=None, low=None, high=None))
    known = {"labels": "true", "sees": "what it sees"}
    figures = {(defense, PEEK): 0.5 for defense in ("none", "noise(0.1)", "broken")}
    report = Report(CoinAudit(**WORDS, sizes=(8,), figures=figures), [replace(one, knowledge=known) for one in rows])
    for verbose, figure in ((False, "10"), (True, "55.0%")):
        written = io.StringIO()
        report.show(Console(file=written, width=200), verbose)
        lines = [line.split() for line in written.getvalue().splitlines() if "noise(0.1)" in line]
        assert any({figure, "little"} <= {*words} for words in lines)
        assert "broken" in written.getvalue().lower()


def test_the_headline_is_about_the_configuration_in_which_most_leaks() -> None:
    rows = [row(), row(defense="noise", mean=0.55, lift=0.05, lift_low=0.01, lift_high=0.09)]
    found = headline(result(rows))
    assert found.words == (
        "At batch size 8 with no defense the server reads 70% of all cells; an informed guess gets 50%. "
        "Of 100 cells that an informed guess misses, 40 are read (10 flips)."
    )
    assert found.tier == "gain shown"
    assert found.beside == (
        (
            "little read",
            "At batch size 8 under noise the server reads 55% of all cells. "
            "Of 100 cells that an informed guess misses, 10 are read (10 flips).",
        ),
    )
    nothing = headline(result([row(mean=None, lift=None, baseline=None, status="failed")]))
    assert (nothing.record, nothing.tier) == (None, "not decided")
    assert nothing.beside == (("not reached", "Nothing was measured with no defense at batch size 8."),)
    assert "Nothing could be measured" in nothing.words


def test_the_headline_stays_with_no_defense_where_more_leaks_under_one() -> None:
    rows = [row(defense="worse", mean=0.9, lift=0.4, lift_low=0.38, lift_high=0.42), row()]
    found = headline(result(rows))
    assert found.words.startswith("At batch size 8 with no defense the server reads 70%")
    [(tier, words)] = found.beside
    assert tier == "mostly read"
    assert "under worse the server reads 90%" in words
    assert summary(result(rows)).startswith("At batch size 8 with no defense")
    alone = headline(result(rows[:1]))
    assert alone.words.startswith("At batch size 8 under worse")
    assert alone.beside == ()


def test_cells_that_a_message_determines_are_spoken_of_where_many_values_may_replay_it() -> None:
    certified = row(metric="certified_cells", column=None, mean=0.25)
    possible = replace(certified, metric="still_possible", column="age", mean=0.9)
    assert _certified_cells([certified]) == []
    assert _certified_cells([certified, possible]) == [
        "25.0% of the cells are certified: only one value replays what came back.",
        "Not determined, as many values replay what came back: age (90.0% of its values).",
    ]


@pytest.mark.parametrize(
    ("count", "low", "high", "said"),
    [
        (2, -0.7, 1.0, "37 are read (2 flips). The attack may be no better than guessing, and up to 100 of 100"),
        (5, -0.84, 0.16, "37 are read (5 flips). The attack may be no better than guessing, and up to 100 of 100"),
        (10, -0.1, 0.08, "37 are read (10 flips). The attack may be no better than guessing, and up to 50 of 100"),
        # From twenty units on the sentence has the interval, too.
        (20, -0.1, 0.08, "37 [0, 50] are read (20 flips). The attack may be no better than guessing"),
    ],
)
def test_an_interval_of_the_closed_gap_that_bounds_nothing_is_said_to(
    count: int, low: float, high: float, said: str
) -> None:
    # All is read, beside a baseline of 84%: a lift of -84 points is -525% of the gap.
    few = row(mean=0.9, low=0.4, high=1.0, n=count, baseline=0.84, lift=0.06, lift_low=low, lift_high=high)
    assert closed_gap(few, "lift_low") == 0.0
    assert said in headline(result([few])).words
    assert span(closed_gap(few, "lift_low"), closed_gap(few, "lift_high")) in ("[0.0, 100.0]", "[0.0, 50.0]")
    # An attack that does worse than guessing stands as far below 0 as it was measured.
    assert closed_gap(row(lift=-0.1, lift_low=-0.3, lift_high=0.1), "lift_low") == -0.2


def test_no_bound_of_the_closed_gap_is_above_all_of_it_and_almost_all_is_not_all() -> None:
    almost = row(n=20, mean=0.9975, low=0.99, high=1.0, lift=0.4975, lift_low=0.46, lift_high=0.53)
    assert closed_gap(almost, "lift_high") == 1.0
    words = headline(result([almost])).words
    assert "reads 99% of all cells" in words
    assert "99 [92, 100] are read (20 flips)" in words


def test_units_that_are_all_alike_have_their_interval_in_every_place() -> None:
    alike = row(n=5, mean=1.0, low=0.416, high=1.0, std=0.0, lift=0.5, lift_low=-0.12, lift_high=0.82, lift_std=0.0)
    flat = result([alike])
    for text in (summary(flat), headline(flat).words):
        assert "100 are read (5 flips). The attack may be no better than guessing, and up to 100 of 100" in text
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
    runs = [Run(audit.configurations[0], part, [], tuple(range(count)), 1.0, {}, {}, planned=10) for count in ran]
    assert AuditResult(audit, [], runs).units_run == words


def test_lists_show_no_marks_of_code() -> None:
    for setting in catalogue.settings_of(registry.attacks):
        assert not any("``" in entry.summary for entry in registry.attacks.of(setting).entries())


def test_what_was_not_reached_is_one_line_a_size_with_the_names_of_its_defenses() -> None:
    missing: dict[str, Any] = {"mean": None, "lift": None, "baseline": None, "status": "failed"}
    found = headline(result([row(), row(defense="thin", **missing), row(defense="thick", **missing)]))
    assert found.beside == (("not reached", "Nothing was measured with thin and thick at batch size 8."),)
