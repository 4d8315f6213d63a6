"""Two runs side by side."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from seepage.auditing import audit
from seepage.cli.app import program
from seepage.errors import BadInputError
from seepage.report.comparing import comparison_document
from seepage.report.page import page
from seepage.results.compare import compare_runs, judge, load_run, overall
from tests.report.parts import IMAGE, SCRIPT

TINY: dict[str, Any] = {"batch_sizes": [1, 2], "attacks": "tableak", "restarts": 2, "victims": 4, "control": False}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    audit("german", out=folder / "short", iterations=3, **TINY)
    audit("german", "linear", out=folder / "long", iterations=40, **TINY)
    return folder / "short", folder / "long"


def test_a_run_differs_from_itself_in_nothing(runs: tuple[Path, Path]) -> None:
    found = compare_runs(load_run(runs[0]), load_run(runs[0]))
    assert found.differing == []
    assert found.only == (0, 0)
    assert found.same_victims
    assert all(one["difference"] in (0, None) and not one["clear"] for one in found.records)
    assert found.names == ("short (1)", "short (2)")


def test_runs_of_different_models_are_compared_and_what_differs_is_listed(runs: tuple[Path, Path]) -> None:
    first, second = map(load_run, runs)
    found = compare_runs(first, second)
    assert {"audits 1.spec.model", "audits 1.spec.iterations"} <= {name for name, _, _ in found.differing}
    assert "time" not in {name for name, _, _ in found.differing}
    rows = {path: json.loads((path / "results.json").read_text(encoding="utf-8"))["rows"] for path in runs}
    for one in overall(found):
        means = [
            row["mean"]
            for path in runs
            for row in rows[path]
            if (row["batch_size"], row["attack"], row["metric"], row["column"])
            == (one["batch_size"], one["attack"], "accuracy", None)
        ]
        assert [one["a"]["mean"], one["b"]["mean"]] == means
        assert one["difference"] == pytest.approx(means[1] - means[0])
    backwards = compare_runs(second, first)
    assert [one["difference"] for one in overall(backwards)] == pytest.approx(
        [-one["difference"] for one in overall(found)]
    )


def edited(folder: Path, target: Path, change: Any) -> Path:
    """A copy of a run folder with other rows."""
    target.mkdir()
    document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    document["rows"] = change(document["rows"])
    (target / "results.json").write_text(json.dumps(document), encoding="utf-8")
    (target / "provenance.json").write_bytes((folder / "provenance.json").read_bytes())
    return target


def test_a_planted_difference_is_found_clear(runs: tuple[Path, Path], tmp_path: Path) -> None:
    def worse(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            if row["metric"] == "accuracy" and row["column"] is None and row["attack"] == "tableak":
                row |= {"mean": 0.99, "std": 0.005, "low": 0.98, "high": 1.0}
        return rows

    found = compare_runs(load_run(runs[0]), load_run(edited(runs[0], tmp_path / "worse", worse)))
    assert [(one["batch_size"], one["attack"]) for one in overall(found) if one["clear"]] == [
        (1, "tableak"),
        (2, "tableak"),
    ]


def test_figures_of_one_run_only_are_counted(runs: tuple[Path, Path], tmp_path: Path) -> None:
    fewer = edited(runs[0], tmp_path / "fewer", lambda rows: [row for row in rows if row["column"] is None])
    whole = json.loads((runs[0] / "results.json").read_text(encoding="utf-8"))["rows"]
    found = compare_runs(load_run(runs[0]), load_run(fewer))
    assert found.only == (sum(row["column"] is not None for row in whole), 0)


def test_only_figures_of_the_same_point_are_paired(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """Two runs of one batch size each must not be matched for want of a second, nor a defense with none."""

    def only(size: int) -> Any:
        return lambda rows: [row for row in rows if row["batch_size"] == size]

    def more(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row["batch_size"] == 2] + [
            {**row, "defense": "noise"} for row in rows if row["batch_size"] == 1
        ]

    one, two = (edited(runs[0], tmp_path / str(size), only(size)) for size in (1, 2))
    with pytest.raises(BadInputError, match=r"at batch size 1 tableak.*at batch size 2 tableak"):
        compare_runs(load_run(one), load_run(two))
    found = compare_runs(load_run(runs[0]), load_run(edited(runs[0], tmp_path / "more", more)))
    assert {one["batch_size"] for one in found.records} == {2}
    assert "tableak, batch 1" in found.points_only[0]
    assert "tableak, batch 1, noise" in found.points_only[1]
    done = CliRunner().invoke(program, ["compare", str(runs[0]), str(tmp_path / "more")])
    assert "Only in short: " in done.output
    assert "Only in more: " in done.output


def test_settings_that_are_lists_and_mappings_are_compared_as_they_are(runs: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {"profile": ["faithful"], "replacement": {"of": [1]}}
    both = [edited(runs[0], tmp_path / name, lambda rows: [{**r, "settings": settings} for r in rows]) for name in "ab"]
    assert compare_runs(*map(load_run, both)).only == (0, 0)


def test_runs_without_anything_in_common_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = edited(runs[0], tmp_path / "other", lambda rows: [{**row, "metric": f"my_{row['metric']}"} for row in rows])
    with pytest.raises(BadInputError, match="no figure in common") as raised:
        compare_runs(load_run(runs[0]), load_run(other))
    # Each batch size once, with its attacks and baselines behind it.
    assert str(raised.value).count("at batch size 1 ") == str(raised.value).count("at batch size 2 ") == 2


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("results.json", None, "cannot be read"),
        ("provenance.json", None, "cannot be read"),
        ("results.json", "[", "not what an audit writes"),
        ("results.json", "[" * 100_000, "not what an audit writes"),
        ("results.json", '{"rows": []}', "not written by this version"),
        ("results.json", '[{"dataset": "german"}]', "not written by this version"),
        ("results.json", "[]", "holds no entries"),
        ("provenance.json", "[]", "holds no entries"),
        ("provenance.json", "[1]", "not written by this version"),
        ("provenance.json", '[{"audits": ["x"]}]', "audits.0"),
        ("provenance.json", '[{"audits": [{"spec": "x"}]}]', "audits.0.spec"),
        ("results.json", "[NaN]", "NaN is no figure"),
        ("results.json", b"\xff\xfe", "not what an audit writes"),
    ],
)
def test_what_is_no_run_folder_is_refused(
    runs: tuple[Path, Path], tmp_path: Path, file: str, content: str | bytes | None, reason: str
) -> None:
    bad = edited(runs[0], tmp_path / "bad", lambda rows: rows)
    if content is None:
        (bad / file).unlink()
    else:
        (bad / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInputError, match=reason):
        load_run(bad)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no run folder"):
        load_run(tmp_path / "nowhere")


def test_the_command_prints_tables_and_writes_a_private_page(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    done = CliRunner().invoke(program, ["compare", str(runs[0]), str(runs[1]), "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "figures in common" in done.output
    assert "audits 1.spec.model" in done.output
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text(encoding="utf-8")
    assert "figure-overall" in text
    as_json = CliRunner().invoke(program, ["compare", str(runs[0]), str(runs[1]), "--json"])
    assert json.loads(as_json.output)["names"] == ["short", "long"]


def planted_change(tmp_path: Path, runs: tuple[Path, Path], change: Any) -> tuple[Path, Path]:
    """Two copies of a run with 200 victims of lifts about 0.3; those of the second copy are changed."""
    noise = np.random.default_rng(0)
    before = noise.uniform(0.2, 0.4, 200)
    folders = []
    for name, lifts in (("old", before), ("new", change(noise.uniform(0.2, 0.4, 200)))):
        folder = edited(runs[0], tmp_path / name, lambda rows: rows)
        document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        assert document["lifts"]
        for entry in document["lifts"]:
            entry["lifts"] = lifts.tolist()
        (folder / "results.json").write_text(json.dumps(document), encoding="utf-8")
        folders.append(folder)
    return folders[0], folders[1]


@pytest.mark.parametrize(
    ("change", "status", "line"),
    [
        (lambda lifts: lifts + 0.2, 1, "shown to be more than before"),
        (lambda lifts: lifts, 0, "are shown to rise by less than 10.0 points"),
        (lambda lifts: lifts - 0.2, 0, "are shown to rise by less than 10.0 points"),
        (lambda lifts: lifts[:20], 4, "more units would show it"),
        # A rise of the mean that chance explains is no failure.
        (lambda lifts: lifts[:5] + 0.15, 4, "not shown to be below"),
    ],
)
def test_a_planted_change_of_leakage_ends_with_its_status(
    runs: tuple[Path, Path], tmp_path: Path, change: Any, status: int, line: str
) -> None:
    old, new = map(str, planted_change(tmp_path, runs, change))
    done = CliRunner().invoke(program, ["compare", old, new, "--fail-if-worse"])
    assert (done.exit_code, line in " ".join(done.output.split())) == (status, True), done.output
    assert line in (tmp_path / "new" / "compare.html").read_text(encoding="utf-8")
    assert CliRunner().invoke(program, ["compare", old, new]).exit_code == 0


def test_what_shows_nothing_passes_no_comparison(runs: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = map(load_run, planted_change(tmp_path, runs, lambda lifts: lifts))
    assert judge(old, new, 0.1).outcome == "passed"
    same = judge(old, old, 0.1)
    assert " did not change (n=" in same.line
    assert "rose" not in same.line
    gone = {figure: lifts for figure, lifts in new.lifts.items() if figure.batch_size == 1}
    assert judge(old, replace(new, lifts=gone), 0.1).outcome == "undecided"
    assert judge(old, replace(new, incomplete={"none": "the control is missing"}), 0.1).outcome == "undecided"
    stopped = [replace(row, status="failed") for row in new.figures]
    assert judge(old, replace(new, figures=stopped), 0.1).outcome == "refused"
    row = next(row for row in new.figures if row.metric == "accuracy" and row.is_attack)
    proved = replace(row, metric="certified", column=None, mean=0.5)
    assert judge(old, replace(new, figures=[*new.figures, proved]), 0.1).outcome == "failed"
    both = replace(old, figures=[*old.figures, proved]), replace(new, figures=[*new.figures, proved])
    assert judge(*both, 0.1).outcome == "passed"
    with pytest.raises(BadInputError, match="margin"):
        judge(old, new, 0.0)
    with pytest.raises(BadInputError, match="no lifts of single units"):
        judge(old, replace(new, lifts={}), 0.1)


def test_names_from_files_are_text_in_the_page(runs: tuple[Path, Path], tmp_path: Path) -> None:
    def renamed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**row, "column": SCRIPT if row["column"] == "age" else row["column"], "defense": IMAGE} for row in rows
        ]

    hostile = load_run(edited(runs[0], tmp_path / "a", renamed))
    text = page(comparison_document(compare_runs(hostile, hostile)))
    assert SCRIPT not in text
    assert IMAGE not in text
    assert "&lt;/script&gt;" in text
