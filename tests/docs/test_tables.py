"""Pages and counts of measured tables, against the files read and judged another way."""

from __future__ import annotations

import csv
import math
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from scipy import stats

import results_figures
import results_summary
import site_figures
import site_hook
import site_tables
from seepage.datasets.about import card_of
from seepage.reproduce.causes import FAR, SOMETHING_ELSE, causes
from seepage.reproduce.compare import judged_anew
from seepage.reproduce.table import tables

ROOT = Path(__file__).resolve().parents[2]
TABLES = tables()
FILES = sorted(path for path in (ROOT / site_tables.FOLDER).glob("*.csv") if path.stem.replace("_", "/", 1) in TABLES)
HEAD = (
    "run,defense,method,unit,ours,ours_std,ours_low,ours_high,n,published,published_std,published_n,difference,low,high,"
    "margin,agreement,guess,guess_name,lift,seconds_per_victim,rows,commit"
)
LINE = "{run},none,{method},percent,0.5,0.1,,,{n},{printed},,,,,{stored},0.4,mode,0.1,1,45222,abc"


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def parts(text: str) -> dict[str, list[list[str]]]:
    """Return the table below each second-level heading."""
    _, *found = re.split(r"^## (.+)$", text, flags=re.M)
    return {
        head: [cells(line) for line in body.splitlines() if line.startswith("|") and "| --- |" not in line]
        for head, body in zip(found[::2], found[1::2], strict=True)
    }


def outcome(line: dict[str, str]) -> tuple[str, str]:
    """Return the outcome and direction of a rate by the formula with quantiles, from the line's own columns."""
    n, published = int(line["n"]), float(line["published"])
    if n < 2 or not line["ours_std"]:
        return "open", ""
    one, two, freedom, margin = float(line["ours_std"]) ** 2 / n, 0.0, float(n - 1), 0.05
    if line["basis"] != "at its word":
        printed = int(line["published_n"])
        share = (published * printed + 2) / (printed + 4)
        variance = share * (1 - share) if line["basis"] == "binomial" else float(line["published_std"]) ** 2
        two = variance / (printed - 1)
        freedom = (one + two) ** 2 / (one**2 / (n - 1) + two**2 / (printed - 1)) if one + two else 1.0
        margin = 0.02 if math.sqrt(one + two) * (stats.norm.ppf(0.95) + stats.norm.ppf(0.9)) <= 0.02 else 0.05
    away, reach = float(line["ours"]) - published, float(stats.t.ppf(0.95, freedom)) * math.sqrt(one + two)
    if abs(away) + reach < margin:
        return ("agrees" if line["basis"] != "at its word" else "shown within"), ""
    if abs(away) - reach > margin:
        side = "below" if away < 0 else "above"
        return ("differs" if line["basis"] != "at its word" else f"shown {side}"), side
    alone = float(stats.t.ppf(0.95, int(line["published_n"]) - 1)) * math.sqrt(two) if two else 0.0
    return ("open" if alone < margin else "not judgeable"), ""


def judged(paper: str) -> list[dict[str, str]]:
    """Return the lines of a paper's files that stand beside a printed figure."""
    return [line for path in FILES if path.stem.startswith(f"{paper}_") for line in lines_of(path) if line["agreement"]]


def rounded(line: dict[str, str]) -> str:
    if not line["ours"]:
        return "–"
    value = float(line["ours"])
    shown = f"{value:.2f}" if line["unit"] == "plain" else f"{100 * value:.1f}"
    return shown.removeprefix("-") if float(shown) == 0 and line["unit"] != "plain" else shown.replace("-", "−")


def figures(printed: object) -> int:
    """Return the number of figures in what a table prints: means, most of them with a deviation."""
    return sum(map(figures, printed.values())) if isinstance(printed, dict) else 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / site_tables.FOLDER
    made.mkdir(parents=True)
    return made


def test_the_page_of_results_is_short_and_its_counts_are_what_the_files_say() -> None:
    text = (ROOT / results_summary.PAGE).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert results_summary.fill(text, ROOT) == text, "run: python tools/results_summary.py"
    assert results_summary.main(["--check"]) == 0
    for paper in site_tables.PAPERS:
        lines = judged(paper)
        wanted = Counter((line["agreement"], line["direction"]) for line in lines)
        near = [
            line
            for line in lines
            if line["unit"] == "percent" and line["difference"] and abs(float(line["difference"])) <= 0.05
        ]
        begin = text.index(f"<!-- counts: {paper} -->")
        head, *_, total = [
            cells(row) for row in text[begin : text.index("<!-- end of counts -->", begin)].splitlines() if "|" in row
        ]
        shown = dict(zip(head, total, strict=True))
        assert shown.pop("table") == "**all**"
        printed = sum(figures(table.published) for name, table in TABLES.items() if name.startswith(f"{paper}/"))
        wanted["not run", ""] = printed - len(lines)
        counts = {name: int(shown[name]) for name in site_tables.OUTCOMES if name in shown}
        assert counts == {name: wanted[at] for name, at in site_tables.OUTCOMES.items() if wanted[at]}
        assert int(shown["cells"]) == sum(counts.values()) == printed
        assert int(shown["within 5 points"]) == len(near)
        away = [100 * float(line["difference"]) for line in lines if line["unit"] == "percent" and line["difference"]]
        signed = f"{sum(away) / len(away):+.1f}".replace("-", "−")
        assert shown["mean difference, points"] == signed


def test_each_printed_cell_is_counted_once_and_tableak_prints_as_many_as_its_tables_have() -> None:
    for path in FILES:
        table = TABLES[path.stem.replace("_", "/", 1)]
        places = [tuple(line[axis] for axis in table.axes) for line in lines_of(path) if line["agreement"]]
        assert len(places) == len(set(places)), path.name
        printed = [tuple(place.get(axis, "") for axis in table.axes) for place in table.cells()]
        assert len(printed) == len(set(printed)) == figures(table.published)
        assert set(places) <= set(printed), path.name
    # Counted in the paper: tables 6, 9 to 34.
    assert sum(figures(table.published) for name, table in TABLES.items() if name.startswith("tableak/")) == 1022


def test_the_page_lists_every_cell_that_is_shown_to_read_less_with_its_cause() -> None:
    text = (ROOT / results_summary.PAGE).read_text(encoding="utf-8")
    begin = text.index("<!-- counts: below -->")
    rows = [cells(row) for row in text[begin : text.index("<!-- end of counts -->", begin)].splitlines() if "|" in row]
    below = [line for paper in site_tables.PAPERS for line in judged(paper) if line["direction"] == "below"]
    wanted = Counter((line["cause"], f"{100 * float(line['difference']):.1f}".replace("-", "−")) for line in below)
    shown = Counter((row[0][:2], distance) for row in rows[2:] for distance in re.findall(r"−[\d.]+", row[2]))
    assert shown == wanted
    assert {row[0][:2]: int(row[1]) for row in rows[2:]} == Counter(line["cause"] for line in below)
    pages = {
        which: site_tables.fill(f"<!-- cells: {which} -->", ROOT, str).splitlines()[2:] for which in ("below", "far")
    }
    far = [
        line
        for paper in site_tables.PAPERS
        for line in judged(paper)
        if line["unit"] == "percent" and line["difference"] and abs(float(line["difference"])) > FAR
    ]
    assert len(pages["below"]) == len(below)
    assert len(pages["far"]) == sum(line["direction"] != "below" for line in far)
    with pytest.raises(site_figures.FigureError):
        site_tables.fill("<!-- cells: other -->", ROOT, str)


def test_no_cell_differs_or_is_far_off_without_a_cause_that_a_page_describes() -> None:
    described = set(re.findall(r"^\| ([TEUP]\d) \|", (ROOT / "docs" / "discrepancies.md").read_text("utf-8"), re.M))
    assert described == set(causes().names) >= {cause.code for cause in causes().cells}
    for paper in site_tables.PAPERS:
        for line in judged(paper):
            far = line["unit"] == "percent" and line["difference"] and abs(float(line["difference"])) > FAR
            assert (line["cause"] in described) == (line["agreement"] == "differs" or bool(line["direction"] or far)), (
                line
            )
            assert line["cause"] in ("", *described)
            assert (line["reason"] != "") == (line["agreement"] == "not judgeable")


def test_figures_that_speak_for_a_cause_are_those_of_the_files() -> None:
    rows = dict(
        re.findall(r"^\| ([TEUP]\d) \| (.+) \|$", (ROOT / "docs" / "discrepancies.md").read_text("utf-8"), re.M)
    )

    def shown(name: str, column: str, **at: str) -> list[str]:
        lines = lines_of(ROOT / site_tables.FOLDER / f"{name}.csv")
        kept = [100 * float(line[column]) for line in lines if all(line[axis] == v for axis, v in at.items())]
        return [f"{value:.1f}" for value in (min(kept), max(kept))]

    low, high = shown("uifv_table5", "ours", run="faithful", method="uifv_dpa")
    assert f"{float(low):.0f} to {float(high):.0f}% of cells" in rows["U1"]
    low, high = shown("uifv_table5", "ours", run="self_inversion")
    assert f"{float(low):.0f} to {float(high):.0f}%" in rows["U1"]
    assert shown("uifv_table3", "published", dataset="bank_additional", figure="auc")[0] in rows["U9"]
    low, high = shown("uifv_table9", "published", dataset="bank_additional", method="auc")
    assert f"{low} to {high} in table 9" in rows["U9"]
    for choice in ("5 epochs", "60 epochs"):
        [reading, _] = shown("uifv_sensitivity", "ours", choice=choice, method="uifv_sa")
        assert f"{reading}% after {choice.removesuffix(' epochs')}" in rows["U4"]
    for rows_held, name in ((58, "tableak_table19"), (78, "tableak_table20")):
        table = TABLES[name.replace("_", "/", 1)]
        card = card_of(str(table.spec["dataset"]))
        assert card is not None
        [held] = {int(line["rows"]) for line in lines_of(ROOT / site_tables.FOLDER / f"{name}.csv") if line["rows"]}
        assert f"{100 * held / card.rows:.0f}" == str(rows_held)
        assert f"{rows_held}%" in rows["T2"]


def test_a_stale_count_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (ROOT / results_summary.PAGE).read_text(encoding="utf-8")
    (tmp_path / "benchmarks").mkdir()
    shutil.copytree(ROOT / site_tables.FOLDER, tmp_path / site_tables.FOLDER)
    copied = tmp_path / site_tables.FOLDER / "tableak_table6.csv"
    page = tmp_path / results_summary.PAGE
    page.write_text(re.sub(r"\| \*\*all\*\* \|  \|  \| \d+", "| **all** |  |  | 1", text), encoding="utf-8")
    line = copied.read_text(encoding="utf-8")
    copied.write_text(line.replace(",agrees,", ",differs,").replace(",direction,", ",side,"), encoding="utf-8")
    monkeypatch.setattr(results_summary, "ROOT", tmp_path)
    assert results_summary.main(["--check"]) == 1
    assert results_summary.main([]) == 0
    assert page.read_text(encoding="utf-8") == text
    assert copied.read_bytes() == (ROOT / site_tables.FOLDER / copied.name).read_bytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_line_is_judged_by_its_own_columns_and_the_stored_outcome_is_that(path: Path) -> None:
    table = TABLES[path.stem.replace("_", "/", 1)]
    for line in lines_of(path):
        assert (line["agreement"] != "") == (line["published"] != "")
        forged = {**line, "agreement": "agrees", "margin": "1", "difference": "0", "cause": "T2", "reason": "none"}
        assert judged_anew(table, forged) == line
        if line["unit"] == "percent" and line["difference"]:
            assert (line["agreement"], line["direction"]) == outcome(line)
            if line["needed"] and int(line["n"]) > 1:
                # At so many units the outcome is another one by the same figures, and not at one less.
                units = int(line["needed"])
                assert {outcome({**line, "n": str(n)})[0] for n in (int(line["n"]), units - 1)} == {"open"}
                assert outcome({**line, "n": str(units)})[0] != "open"
        # A prior, a stronger attack or a control stands beside no printed figure.
        if line["run"] != table.first:
            assert (line["published"], line["difference"], line["agreement"]) == ("", "", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_line_of_a_file_is_on_its_page_once(path: Path) -> None:
    table, lines = TABLES[path.stem.replace("_", "/", 1)], lines_of(path)
    made = parts(site_tables.page(path.stem, table, lines, "../../files"))
    shown: Counter[tuple[str, ...]] = Counter()
    for head, (names, *rows) in made.items():
        for row in rows:
            at = dict(zip(names, row, strict=True))
            assert ("outcome" in at) == ("cause" in at) == (head == "Ours beside the print")
            assert ("printed" in at) == (head == "Ours beside the print")
            axes = [at[axis.replace("_", " ")] for axis in table.axes]
            shown[at.get("run") or table.first, *axes, at["n"], at["ours"].split()[0]] += 1
    wanted = Counter(
        (line["run"], *(line[axis] or "–" for axis in table.axes), line["n"], rounded(line)) for line in lines
    )
    assert shown == wanted


def test_a_page_says_what_was_measured_and_keeps_other_attackers_apart(folder: Path) -> None:
    rows = [
        LINE.format(run="faithful", method="tableak", n=3, printed="0.793,0.045,50", stored="agrees"),
        LINE.format(run="default", method="tableak", n=3, printed=",,", stored=""),
    ]
    (folder / "tableak_table6.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    table, lines = site_tables.measured(folder.parents[1])["tableak_table6"]
    text = site_tables.page("tableak_table6", table, lines, "../../files")
    assert "Command: `seepage reproduce tableak/table6 --victims 3`." in text
    assert "Measured at commit abc." in text
    made = parts(text)
    [head, row] = made["Ours beside the print"]
    # The stored outcome is not what is shown: a difference of 29 points with a deviation of 10 over 3 victims.
    assert row[head.index("outcome")] == "differs"
    [head, row] = made["Other attackers and settings"]
    assert row[0] == "default"
    assert "printed" not in " ".join(head)


def test_what_is_partial_is_told(folder: Path) -> None:
    head = HEAD.replace("defense,method", "labels,method,batch_size")
    line = LINE.format(run="faithful", method="tableak,8", n=3, printed="0.793,0.045,50", stored="")
    line = line.replace("none,", "true,").replace("45222", "56117")
    (folder / "tableak_table19.csv").write_text(f"{head}\n{line}\n")
    table, lines = site_tables.measured(folder.parents[1])["tableak_table19"]
    assert "Partial data: 56,117 of the 96,584 rows of `lawschool`." in site_tables.page("x", table, lines, "..")


def test_a_table_that_is_run_in_part_says_which(folder: Path) -> None:
    head = HEAD.replace("defense,method", "dataset,restarts")
    (folder / "tableak_table33.csv").write_text(f"{head}\nfaithful,adult,5,percent,0.7,,,,1,,,,,,,,,,,,2,45222,abc\n")
    table, lines = site_tables.measured(folder.parents[1])["tableak_table33"]
    made = site_tables.page("tableak_table33", table, lines, "..")
    assert "`seepage reproduce tableak/table33 --victims 1 --only dataset=adult`" in made
    [head, row] = parts(made)["Ours beside the print"]
    assert row[:4] == ["adult", "5", "1", "70.0"]
    # One victim has no deviation.
    assert row[head.index("outcome")] == "open, n = 3 would tell"


def test_printed_figures_of_something_else_get_no_verdict() -> None:
    table, lines = site_tables.measured(ROOT)["uifv_table5"]
    made = parts(site_tables.page("uifv_table5", table, lines, ".."))
    [head, *rows] = made["Beside a print of something else"]
    assert {row[head.index("method")] for row in rows} == {"loki"}
    assert "loki" not in {row[1] for row in made["Ours beside the print"]}
    assert {line["reason"] for line in lines if line["method"] == "loki" and line["published"]} == {SOMETHING_ELSE}
    # What an open cell needs is said.
    [head, *rows] = made["Ours beside the print"]
    assert any(re.fullmatch(r"open, n = \d+ would tell", row[head.index("outcome")]) for row in rows)


def test_a_page_may_ask_for_counts_lists_and_data(folder: Path) -> None:
    (folder / "speed.csv").write_text("how,victims,accuracy,empty\none process,1000,0.871,\n")
    root, link = folder.parents[1], "../tables/{}.md".format
    assert cells(site_tables.fill("<!-- data: speed -->", root, link).splitlines()[2]) == [
        "one process",
        "1,000",
        "87.1",
    ]
    text = site_tables.fill("<!-- summary: exact -->\n\n<!-- own: exact -->", ROOT, link)
    assert "[table 2](../tables/exact_table2.md)" in text
    assert "[`exact/table4`](../tables/exact_table4.md)" in text
    for asked in ("summary: nothing", "data: nothing", "data: tableak_gains dataset=other"):
        with pytest.raises(site_figures.FigureError):
            site_tables.fill(f"<!-- {asked} -->", ROOT, link)


def test_a_table_of_data_has_intervals_beside_figures_and_says_once_what_never_changes() -> None:
    head, _, *rows = site_tables.fill("<!-- data: unmix_batch dataset=adult -->", ROOT, str).splitlines()
    names, first = cells(head), cells(rows[0])
    assert names[:5] == ["batch size", "attack", "n", "accuracy [95%]", "exact match [95%]"]
    assert first[:4] == ["4", "unmix", "10", "100.0 [66.4, 100.0]"]
    [row] = [cells(row) for row in rows if row.startswith("| 32 | tableak")]
    assert row[2:4] == ["20", "86.2 [85.4, 87.0]"]
    assert rows[-3].startswith("In all lines: dataset adult, network mlp")
    assert rows[-1].startswith("Measured at commit ")
    # A count is no rate.
    [line, *_] = lines_of(ROOT / site_tables.FOLDER / "falsify.csv")
    named, _, shown, *_ = map(cells, site_tables.data([line, {**line, "cells": "20000"}]).splitlines())
    assert shown[named.index("cells")] == f"{int(line['cells']):,}"


def test_a_measured_paper_without_a_place_is_told() -> None:
    with pytest.raises(site_figures.FigureError, match="no place for 'tableak'"):
        results_summary.fill("# Results\n", ROOT)


def test_every_file_has_a_page_and_is_linked_from_one() -> None:
    pages = site_hook.results()
    names = {path.stem for path in (ROOT / site_tables.FOLDER).glob("*.csv")}
    assert {Path(place).stem for place in pages} == names
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "results").glob("*.md")]
    filled = [site_tables.fill(text, ROOT, "{}.md".format) for text in texts]
    everything = "\n".join([*texts, *filled, (ROOT / results_summary.PAGE).read_text(encoding="utf-8")])
    missing = {
        name
        for name in names
        if not any(way in everything for way in (f"({name}.md)", f"{name}.csv)", f"<!-- data: {name} -->"))
    }
    assert missing == set()


def test_counts_of_the_falsifier_are_the_sums_of_its_forms_and_none_is_false() -> None:
    lines = lines_of(ROOT / site_tables.FOLDER / "falsify.csv")
    [every] = [line for line in lines if (line["rule"], line["form"]) == ("all", "all")]
    for column in ("victims", "certified", "cells", "false", "given"):
        assert int(every[column]) == sum(int(line[column]) for line in lines if line["form"] != "all")
    assert int(every["false"]) == 0
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert f"None of {int(every['victims']):,} victims had a false cell among {int(every['cells']):,} certified" in text


def test_shares_of_certified_cells_are_means_over_tables() -> None:
    lines = lines_of(ROOT / site_tables.FOLDER / "certified.csv")
    sent = {"gradient, untrained network": "gradient", "gradient, network trained for 200 steps": "trained"}
    sent |= {"update of one step": "one step", "update of five steps": "five steps"}
    text, message = (ROOT / "docs" / "results" / "benchmarks.md").read_text(encoding="utf-8"), ""
    shown = [row for row in parts(text)["Certificates"] if len(row) == 5 and row[1].isdigit()]
    assert len(shown) == 14
    for name, records, *figures in shown:
        message = sent[name] if name else message
        own = [line for line in lines if (line["sent"], line["records"]) == (message, records)]
        for figure, column in zip(figures, ("before", "cells", "given"), strict=True):
            mean = 100 * math.fsum(float(line[column]) for line in own) / len(own)
            assert float(figure) == pytest.approx(mean, abs=0.051)


def test_error_rates_of_the_gate_are_those_of_its_file() -> None:
    looks = [("gate", "every one to 400"), *(("t", victims) for victims in ("5", "10", "20", "5, 10, 20, 40, 80"))]
    lines = lines_of(ROOT / site_tables.FOLDER / "gate.csv")
    victims = lines_of(ROOT / site_tables.FOLDER / "gate_leaks.csv")

    def rates(lifts: str, limit: str) -> list[str]:
        found = {
            (line["rule"], line["victims"]): line["value"]
            for line in lines
            if (line["figure"], line["lifts"], line["limit"]) == ("false_pass", lifts, limit)
        }
        return [f"{100 * float(found[look]):.1f}" for look in looks]

    text = (ROOT / "docs" / "results" / "benchmarks.md").read_text(encoding="utf-8")
    shown = parts(text)["Gate"]
    simulated = [row for row in shown if len(row) == 6][1:]
    real = [row for row in shown if len(row) == 9][1:]
    names = {line["lifts"] for line in lines if line["figure"] == "false_pass"}
    assert names == {row[0] for row in simulated} | {f"unmix, batch size {row[0]}" for row in real}
    for lifts, *found in simulated:
        assert found == rates(lifts, "0.1")
    for size, number, whole, mean, *found in real:
        pool = [line for line in victims if line["batch_size"] == size]
        assert (len(pool), sum(line["score"] == "1.0" for line in pool)) == (int(number), int(whole))
        lift = math.fsum(float(line["lift"]) for line in pool) / len(pool)
        assert mean == f"{100 * lift:.1f}"
        assert found == rates(f"unmix, batch size {size}", f"{round(lift, 5):g}")
    gate = {
        line["lifts"]: float(line["high"]) for line in lines if (line["figure"], line["rule"]) == ("false_pass", "gate")
    }
    assert max(gate.values()) < 0.035


def test_coverage_of_intervals_is_that_of_its_file() -> None:
    lines = lines_of(ROOT / site_tables.FOLDER / "coverage.csv")
    by_place = {tuple(line[key] for key in ("figure", "units", "n", "rule")): line for line in lines}
    text = (ROOT / "docs" / "results" / "benchmarks.md").read_text(encoding="utf-8")
    _, *rows = [row for row in parts(text)["Intervals"] if len(row) == 11]
    assert {(row[0], row[1]) for row in rows} == {(line["figure"], line["units"]) for line in lines}
    for figure, units, *shown in rows:
        covered = [by_place[figure, units, n, "student"]["covered"] for n in ("2", "3", "5", "20")]
        least = min(float(by_place[figure, units, n, "ours"]["covered"]) for n in ("2", "3", "5", "10", "20"))
        widths = [by_place[figure, units, n, rule]["median_width"] for n in ("5", "20") for rule in ("student", "ours")]
        wanted = [
            *(f"{100 * float(share):.1f}" for share in (*covered, least)),
            *(f"{100 * float(w):.0f}" for w in widths),
        ]
        assert shown == wanted
        assert least >= 0.94


def test_accusations_by_canaries_are_those_of_their_file() -> None:
    lines = lines_of(ROOT / site_tables.FOLDER / "epsilon.csv")
    above = {tuple(line[key] for key in ("mechanism", "epsilon", "fault", "bound")): line["above"] for line in lines}
    text = (ROOT / "docs" / "results" / "benchmarks.md").read_text(encoding="utf-8")
    _, *rows = parts(text)["Epsilon of a message"]
    assert {(row[0], row[1]) for row in rows} == {(line["mechanism"], line["epsilon"]) for line in lines}
    for mechanism, epsilon, *shown in rows:
        faults, bounds = ("none", "half", "none at all"), ("any", "gaussian")
        assert shown == [above[mechanism, epsilon, fault, bound] for fault in faults for bound in bounds]
        assert int(above[mechanism, epsilon, "none", "any"]) <= 15


def test_intervals_of_measured_tables_are_students_t_over_units() -> None:
    # A rank correlation over all batches has an interval of its own.
    lines = [line for path in FILES for line in lines_of(path) if line["ours_low"] and line["ours_std"]]
    assert len(lines) > 1000
    for line in lines:
        n, mean, std = int(line["n"]), float(line["ours"]), float(line["ours_std"])
        half = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
        low, high = (0.0, 1.0) if line["unit"] == "percent" else (-math.inf, math.inf)
        assert float(line["ours_low"]) == pytest.approx(max(low, mean - half), abs=2e-5)
        assert float(line["ours_high"]) == pytest.approx(min(high, mean + half), abs=2e-5)


def test_the_figures_are_what_the_files_say_and_small() -> None:
    assert results_figures.main(["--check"]) == 0, "run: python tools/results_figures.py"
    for name in results_figures.FIGURES:
        path = ROOT / results_figures.DRAWN / f"{name}.svg"
        text = path.read_text(encoding="utf-8")
        assert path.stat().st_size < 30_000
        assert "http://www.w3.org/2000/svg" in text
        if name == "dataset-properties-splits":
            assert f"({name}.svg)" in (ROOT / "docs/results/dataset-properties.md").read_text(encoding="utf-8")
            continue
        for page in (results_summary.PAGE, "docs/index.md"):
            assert f"results/{name}.svg)" in (ROOT / page).read_text(encoding="utf-8"), page


def test_each_table_that_is_drawn_is_on_the_page_of_figures() -> None:
    page = (ROOT / results_figures.DRAWN / "figures.md").read_text(encoding="utf-8")
    named = {path.stem for path in FILES if TABLES[path.stem.replace("_", "/", 1)].drawn is not None}
    assert set(re.findall(r"\(figures/(\w+)\.svg\)", page)) == named
    assert {path.stem for path in (ROOT / results_figures.DRAWN / "figures").iterdir()} == named


def test_a_figure_shows_the_points_of_its_file() -> None:
    text = results_figures.uifv(ROOT)
    lines = [line for line in lines_of(ROOT / site_tables.FOLDER / "uifv_table6.csv") if line["run"] == "faithful"]
    places = [240 + (760 - 240 - 28) * float(line["ours"]) for line in lines if line["kind"] == "all"]
    drawn = [float(x) for x in re.findall(r"<circle cx='([\d.]+)'", text)]
    assert len(places) == 12
    for place in places:
        assert min(abs(place - x) for x in drawn) < 0.06
