"""``seepage.audit`` takes tables and specs in every form that callers have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seepage.auditing import audit
from seepage.errors import BadInputError
from seepage.report.inferred import inferred_document
from seepage.report.terminal import make_console, show
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.split.spec import SplitSpec
from seepage.tabular.infer import infer

QUICK = {"batch_sizes": 2, "attacks": "dlg", "iterations": 3, "victims": 2, "control": False}


def test_a_spec_says_everything_itself() -> None:
    report = audit(make_spec(dataset="german", **QUICK))
    assert report.audit.about.dataset == "german"
    assert {row.attack for row in report.rows if row.is_attack} == {"dlg"}
    few = {"attacks": "label_norm", "baselines": "marginals", "attacked_records": 20, "control": False}
    split = audit(SplitSpec.of(dataset="german", private_columns="housing", repetitions=1, epochs=1, **few))
    assert {row.setting for row in split.rows} == {"split"}
    with pytest.raises(BadInputError, match="a spec says everything itself"):
        audit(make_spec(dataset="german"), victims=3)


def test_an_array_is_a_table_whose_columns_are_numbered() -> None:
    drawn = np.random.default_rng(0).normal(size=(60, 3))
    table = np.column_stack([drawn, drawn[:, 0] > 0])
    report = audit(table, target="x3", **QUICK)
    assert report.audit.about.columns == ("x0", "x1", "x2")
    with pytest.raises(BadInputError, match="got 1 axes"):
        audit(np.zeros(3), target="x0")


def test_no_cell_of_ones_own_table_leaves_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Extremes, dates and a category that only one person has.
    incomes = [123.4567, 987654.321, *(20000.5 + 13.25 * i for i in range(58))]
    people = pd.DataFrame(
        {
            "income": incomes,
            "job": ["cook", "nurse", "smith"] * 19 + ["cook", "nurse", "astronaut"],
            "seen": [f"20{i % 20 + 10}-05-{i % 28 + 1:02d}" for i in range(60)],
            "ill": ["yes" if i % 3 else "no" for i in range(60)],
        }
    )
    people.to_csv(tmp_path / "people.csv", index=False)
    report = audit(
        tmp_path / "people.csv",
        target="ill",
        attacks="dlg",
        batch_sizes=2,
        victims=2,
        iterations=2,
        control=False,
        out=tmp_path / "run",
    )
    report.show()
    show(make_console(stderr=True), inferred_document(infer(tmp_path / "people.csv", "ill")))
    told = "".join(capfd.readouterr())
    assert "2 discrete, 2 continuous" in " ".join(told.split())
    files = {path.name: path.read_bytes().decode(errors="replace") for path in (tmp_path / "run").iterdir()}
    assert set(files) == {"audit.sqlite", "provenance.json", "report.html", "results.csv", "results.json"}
    for place, text in {**files, "terminal": told}.items():
        found = [cell for cell in ("123.4567", "987654", "20013.75", "astronaut", "2010-05-01") if cell in text]
        assert not found, place
    assert all((tmp_path / "run" / name).stat().st_mode & 0o077 == 0 for name in files)


@pytest.mark.slow
def test_noise_beyond_all_numbers_fails_its_jobs_and_nothing_else() -> None:
    report = audit(
        "german", batch_sizes=1, attacks="dlg", iterations=2, victims=1, workers=1, control=False, baselines="mode",
        defenses=["none", {"name": "gaussian_noise", "options": {"scale": 1e39}}],
    )  # fmt: skip
    assert {run.configuration.defense for run in report.failed} == {"gaussian_noise"}
    read = report.frame().query("attack == 'dlg' and metric == 'accuracy' and column.isna()")
    assert read.dropna(subset="mean")["defense"].tolist() == ["none"]


def test_a_file_that_does_not_exist_is_no_unknown_dataset() -> None:
    with pytest.raises(BadInputError, match=r"the table 'nofile\.csv' does not exist"):
        audit("nofile.csv")
    with pytest.raises(BadInputError, match=r"the table 'nofile\.csv' does not exist"):
        audit("nofile.csv", target="ill")
    with pytest.raises(BadInputError, match="unknown dataset 'nofile'"):
        audit("nofile")
