"""The command line keeps its contract, and answers mistakes with one paragraph and exit status 2."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from seepage import cli, registry
from seepage.cli.app import load, settings_by_command
from seepage.cli.exits import Exit
from seepage.config.document import presets, read_preset, read_text_document
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.option import fields_of
from seepage.tabular.schema import Schema
from tests.stores import jobs_done, measurements

TINY = ["--restarts", "2", "--iterations", "3"]
# For tests that are not about attacks: one cheap attack, no control and no defense.
PLAIN = ["--no-control", "--defense", "none", *TINY]
CHEAP = ["--attack", "dlg", *PLAIN]
CONTRACT = [
    *("audit", "--dataset", "adult", "--protocol", "fedsgd", "--batch-size", "8", "--attack", "tableak"),
    *("--victims", "4", "--seed", "0"),
]


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["seepage", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capfd.readouterr()
        code = stopped.value.code
        return Ran(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


def results(folder: Path) -> list[dict[str, Any]]:
    document = json.loads((folder / "results.json").read_text())
    assert document["schema_version"] == 1
    return document["rows"]


def test_the_contract_of_scripts(seepage: Any, tmp_path: Path) -> None:
    ran = seepage(*CONTRACT, *PLAIN, "--verbose", "--out", "run")
    assert ran.status == 0
    rows = results(tmp_path / "run")
    fields = {
        *("dataset", "protocol", "model", "batch_size", "attack", "defense", "metric", "column", "mean", "low", "high"),
        *("n", "baseline", "lift", "seconds_per_victim", "status", "seed", "settings", "knowledge"),
    }
    for row in rows:
        assert fields <= row.keys()
        assert isinstance(row["settings"], dict)
        assert isinstance(row["knowledge"], dict)
        assert (row["dataset"], row["protocol"], row["model"]) == ("adult", "fedsgd", "nn3")
        # What a baseline gets on average is known from more draws than the attacks see.
        units = {4} if row["kind"] == "attack" else {4, 1000}
        assert (row["batch_size"], row["defense"], row["seed"]) == (8, "none", 0) or row["mean"] is None
        assert row["n"] in units or row["mean"] is None
        if row["metric"].startswith(("accuracy", "exact_match", "top_quarter", "bottom_quarter")):
            assert 0 <= row["low"] <= row["mean"] <= row["high"] <= 1
    assert {row["attack"] for row in rows} == {"tableak", "stereotypes", "mode", "random"}
    [score] = [r for r in rows if (r["attack"], r["metric"], r["column"]) == ("tableak", "accuracy", None)]
    assert score["lift"] == pytest.approx(score["mean"] - score["baseline"])
    assert score["seconds_per_victim"] > 0
    assert score["knowledge"]["labels"] == "restored"
    with (tmp_path / "run" / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows)
    assert [float(r["mean"]) if r["mean"] else None for r in table] == [r["mean"] for r in rows]
    assert json.loads(table[0]["settings"]) == rows[0]["settings"]
    assert "At batch size 8 the server reads" in ran.out
    assert "Truth 1" in ran.out


def test_options_repeat_and_sweep(seepage: Any, tmp_path: Path) -> None:
    swept = ["--dataset", "german", "--batch-size", 1, "--batch-size", 2, "--attack", "dlg", "--attack", "tableak"]
    ran = seepage("audit", *swept, "--model", "nn1", "--model", "linear", "--victims", 1, *PLAIN, "--out", "run")
    assert ran.status == 0
    found = {(r["model"], r["batch_size"], r["attack"]) for r in results(tmp_path / "run")}
    parts = ("dlg", "tableak", "stereotypes", "mode", "random")
    assert found == {(m, b, a) for m in ("nn1", "linear") for b in (1, 2) for a in parts}


def test_json_on_the_terminal_is_the_results_file(seepage: Any, tmp_path: Path) -> None:
    ran = seepage("audit", "--dataset", "german", "--batch-size", 1, "--victims", 2, *CHEAP, "--out", "run", "--json")
    assert json.loads(ran.out)["rows"] == results(tmp_path / "run")


@pytest.mark.slow
def test_without_out_a_folder_is_made(seepage: Any, tmp_path: Path) -> None:
    assert seepage("audit", "--dataset", "german", "--batch-size", 1, "--victims", 2, *CHEAP).status == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("german-")
    assert (folder / "results.json").exists()


def own_table(path: Path, **changes: Any) -> Path:
    columns: dict[str, Any] = {
        "age": [20 + i for i in range(30)],
        "job": ["cook", "nurse", "clerk"] * 10,
        "pay": [i * 7 % 11 + 0.5 for i in range(30)],
        "ill": ["no", "yes", "no"] * 10,
    }
    pd.DataFrame({**columns, **changes}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables that have a mistake each, and schemas."""
    folder = tmp_path_factory.mktemp("tables")
    own = own_table(folder / "own.csv")
    constant = own_table(folder / "constant-target.csv", ill=["no"] * 30)
    own_table(folder / "missing-cell.csv", pay=[None, *range(29)])
    own_table(folder / "unseen.csv", job=["baker", *["cook"] * 29])
    for table, more, out in (
        (own, [], "own.yaml"),
        (constant, ["--override", "ill={categories: ['no']}"], "one-category.yaml"),
    ):
        command = ["seepage", "schema", str(table), "--target", "ill", *more, "--out", str(folder / out)]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "argv", command)
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        assert not stopped.value.code
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "adlut"], "did you mean 'adult'"),
        (["--model", "nn33"], "did you mean 'nn3'"),
        (["--attack", "tabelak"], "did you mean 'tableak'"),
        (["--attack", "dlg", "--attack", "tabelak"], "did you mean 'tableak'"),
        (["--protocol", "fedsdg"], "did you mean 'fedsgd'"),
        (["--baseline", "mod"], "did you mean 'mode'"),
        (["--dataset", "german", "--batch-size", "801"], "larger than the client's 800 rows"),
        (["--dataset", "german", "--batch-size", "2", "--batch-size", "801"], "larger than the client's 800 rows"),
        (["--batch-size", "0"], "greater than or equal to 1"),
        (["--batch-size", "eight"], "Invalid value for '--batch-size'"),
        (["--victims", "0"], "greater than or equal to 1"),
        (["--seed", "-1"], "--seed: must be greater"),
        (["--labels", "guessed"], "Known: ordered, restored, true"),
        (["--profile", "faithfull"], "did you mean 'faithful'"),
        (["--preset", "fast"], "fast"),
        (["--device", "gpu"], "unknown device"),
        (["--bacth-size", "8"], "--bacth-size"),
        (["--dataset", "lawschool", "--data-folder", "nowhere"], "nowhere"),
        (["--data", "none.csv", "--target", "ill"], "does not exist"),
        (["--data", "own.csv"], "needs a target"),
        (["--data", "own.csv", "--target", "ll"], "did you mean 'ill'"),
        (["--data", "own.csv", "--target", "ill", "--dataset", "adult"], "leave one of the two out"),
        (["own.csv"], "give it with --data own.csv --target COLUMN"),
        (["--data", "own.csv", "--target", "ill", "--batch-size", "64"], "larger than the client's 30 rows"),
        (["--data", "constant-target.csv", "--target", "ill"], "nothing to learn"),
        (["--data", "missing-cell.csv", "--target", "ill"], "missing cells"),
        (["--data", "unseen.csv", "--schema", "own.yaml"], "none of its 3 categories"),
        (["--data", "own.csv", "--schema", "own.yaml", "--target", "age"], "unknown target"),
        (["--data", "own.csv", "--schema", "none.yaml"], "none.yaml"),
        (["--target", "income"], "no data file"),
        (
            ["--data", "own.csv", "--target", "ill", "--separator", ";;"],
            "at most 1 character, got ;;",
        ),
        (["--separator", ";"], "no data file"),
        (["--data", "constant-target.csv", "--schema", "own.yaml"], "is the same in all 30 rows"),
        (["--data", "constant-target.csv", "--schema", "one-category.yaml"], "has one category in its schema"),
        (["--head", "softmx"], "did you mean 'softmax'"),
        (["--dataset", "german", "--head", "regression"], "regression head does not fit"),
        (["--model-seed", "-1"], "--model-seed: must be greater"),
        (["--dataset-option", "missing"], "takes NAME=VALUE"),
        (["--dataset-option", "mising=drop"], "did you mean 'missing'"),
        (["--dataset-option", "missing=keep"], "missing must be 'drop'"),
        (["--dataset", "german", "--dataset", "synthetic", "--batch-size", "900"], "larger than the client's 800 rows"),
        (["--dataset", "synthetic", "--dataset", "german", "--batch-size", "900"], "larger than the client's 800 rows"),
    ],
)
def test_mistakes_are_one_paragraph_status_2_and_nothing_written(
    seepage: Any, tmp_path: Path, tables: Path, arguments: list[str], message: str
) -> None:
    shutil.copytree(tables, tmp_path, dirs_exist_ok=True)
    before = sorted(path.name for path in tmp_path.iterdir())
    ran = seepage("audit", *arguments, *TINY, "--out", "run")
    assert ran.status == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    if ran.err.startswith("seepage: "):
        assert ran.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_advice_about_separators_can_be_followed(seepage: Any, tmp_path: Path) -> None:
    own = own_table(tmp_path / "own.csv")
    own.with_name("semicolons.csv").write_text(own.read_text().replace(",", ";"))
    settings = ["--target", "ill", "--batch-size", 2, "--victims", 2, *CHEAP]
    assert seepage("audit", "--data", "own.csv", *settings, "--out", "commas").status == 0
    assert seepage("audit", "--data", "semicolons.csv", *settings, "--out", "semicolons").status == 0
    rates = [
        [(r["attack"], r["metric"], r["mean"]) for r in results(tmp_path / name)] for name in ("commas", "semicolons")
    ]
    assert rates[0] == rates[1]
    own.with_name("bars.csv").write_text(own.read_text().replace(",", "|"))
    advised = seepage("schema", "bars.csv", "--target", "ill")
    assert (advised.status, "--separator '|'" in advised.err) == (2, True)
    drafted = seepage("schema", "bars.csv", "--target", "ill", "--separator", "|")
    assert drafted.out == seepage("schema", "own.csv", "--target", "ill").out


def test_head_model_seed_and_dataset_options_reach_the_audit(seepage: Any, tmp_path: Path) -> None:
    base = ["audit", "--dataset", "adult", "--batch-size", 1, "--victims", 2, *CHEAP]
    options = ["--head", "sigmoid", "--model-seed", 7, "--dataset-option", "missing=category"]
    assert seepage(*base, *options, "--out", "run").status == 0
    [told] = json.loads((tmp_path / "run" / "provenance.json").read_text())
    [audited] = told["audits"]
    assert audited["model"]["head"] == "sigmoid"
    assert audited["spec"]["model_seed"] == 7
    assert any("category of its own" in note for note in audited["dataset"]["notes"])
    other = seepage(*base, *options[:-1], "missing=drop", "--out", "run")
    assert other.status == 2
    assert "holds an audit with" in other.err


def test_gaps_are_answered_with_what_to_say_where_it_was_said(seepage: Any, tmp_path: Path) -> None:
    own_table(tmp_path / "own.csv", pay=[None, *range(29)])
    settings = ["--batch-size", 2, "--victims", 2, *CHEAP, "--out", "run"]
    refused = seepage("audit", "--data", "own.csv", "--target", "ill", *settings)
    assert refused.status == 2
    assert "add --missing category" in refused.err
    (tmp_path / "audit.yaml").write_text("data: own.csv\ntarget: ill\n")
    for command in (["audit", "audit.yaml", *settings], ["spec", "check", "audit.yaml"]):
        refused = seepage(*command)
        assert refused.status == 2
        assert "add missing: category" in refused.err
        assert "--" not in refused.err
    (tmp_path / "audit.yaml").write_text("data: own.csv\ntarget: ill\nmissing: category\n")
    assert seepage("audit", "audit.yaml", *settings).status == 0


def test_a_document_is_run_with_options_over_it_and_kept(seepage: Any, tmp_path: Path) -> None:
    text = "dataset: german\nprotocol: {batch_size: [1, 2]}\nattacks: {name: dlg, iterations: [2, 3]}\nvictims: 3\n"
    text += "control: false\ndefenses: none\n"
    (tmp_path / "audit.yaml").write_text(text)
    assert seepage("audit", "audit.yaml", "--victims", 2, "--out", "run").status == 0
    rows = results(tmp_path / "run")
    found = {(row["batch_size"], row["attack"]) for row in rows if row["attack"].startswith("dlg")}
    assert found == {(size, f"dlg(iterations={n})") for size in (1, 2) for n in (2, 3)}
    accuracies = [row for row in rows if row["metric"] == "accuracy"]
    assert {(row["kind"], row["n"]) for row in accuracies} == {("attack", 2), ("baseline", 1000)}
    assert (tmp_path / "run" / "audit.yaml").read_text() == text


def test_a_starter_is_written_once_and_can_be_run(seepage: Any, tmp_path: Path) -> None:
    own_table(tmp_path / "own.csv")
    assert seepage("spec", "new", "--data", "own.csv", "--target", "ill", "--out", "own.yaml").status == 0
    settings = ["--batch-size", 2, "--victims", 2, *CHEAP]
    assert seepage("audit", "own.yaml", *settings, "--out", "run").status == 0
    copy = tmp_path / "run" / "audit.yaml"
    assert copy.read_text() == (tmp_path / "own.yaml").read_text()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    for bad in (["--out", "own.yaml"], ["--target", "ill"], ["--dataset", "adlut"], ["--data", "own.csv"]):
        assert seepage("spec", "new", *bad).status == 2
    assert not (tmp_path / "audit.yaml").exists()


def test_a_document_is_checked_and_nothing_is_kept(seepage: Any, tmp_path: Path) -> None:
    text = "dataset: german\nprotocol: {batch_size: [1, 2]}\nattacks: {name: dlg, iterations: [2, 3]}\nvictims: 3\n"
    (tmp_path / "audit.yaml").write_text(text + "baselines: mode\ncontrol: false\n")
    ran = seepage("spec", "check", "audit.yaml")
    assert ran.status == 0
    assert "4 attacks and 2 baselines in their configurations" in " ".join(ran.out.split())
    assert "dlg(iterations=3)" in ran.out
    assert [path.name for path in tmp_path.iterdir()] == ["audit.yaml"]
    (tmp_path / "audit.yaml").write_text("dataset: german\nprotocol: {batch_size: 801}\n")
    assert "larger than the client's 800 rows" in seepage("spec", "check", "audit.yaml").err
    (tmp_path / "audit.yaml").write_text("datset: german\nvictims: 0\n")
    ran = seepage("spec", "check", "audit.yaml")
    assert (ran.status, len(ran.err.splitlines())) == (2, 2)


@pytest.mark.long
def test_a_check_and_an_epsilon_take_what_an_audit_takes(seepage: Any, tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{'ab'[i % 2]},{i * 1.5}" for i in range(60))
    (tmp_path / "p.csv").write_text(f"n,job,pay\n{rows}\n")
    few = "repetitions: 1\ntrees: 2\nworkers: 1\ncontrol: false\n"
    text = f"setting: trees\nprotocol: secureboost\ndata: p.csv\ntarget: pay\n{few}"
    (tmp_path / "audit.yaml").write_text(text)
    ran = seepage("spec", "check", "audit.yaml")
    assert ran.status == 0
    assert "node_clusters is not tried: the attack 'node_clusters' tells classes apart" in ran.err
    assert "node_clusters" not in ran.out
    (tmp_path / "audit.yaml").write_text(f"{text}attacks: [node_heads, node_clusters]\n")
    assert seepage("spec", "check", "audit.yaml").status == 2
    few = ["--dataset", "german", "--canaries", "20", "--epochs", "1", "--batch-size", "32"]
    assert "n=20" in seepage("epsilon", *few, "--model", "nn1", "--protocol", "fedsgd").out
    assert "got 2 of them" in seepage("epsilon", *few, "--model", "nn1", "--model", "nn3").err


def test_code_of_a_document_runs_only_with_consent_and_never_in_a_check(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from pathlib import Path\nfrom torch import nn\nPath('imported').touch()\n\n"
        "def build(inputs, outputs):\n    Path('called').touch()\n    return nn.Linear(inputs, outputs)\n"
    )
    rest = "dataset: german\nprotocol: {batch_size: 1}\nattacks: dlg\niterations: 2\nvictims: 2\n"
    (tmp_path / "own.yaml").write_text(f"model: nets.py:build\n{rest}control: false\nworkers: 1\n")
    (tmp_path / "shell.yaml").write_text("model: {name: 'os:system', command: 'touch called'}\n")
    for command in (
        ["spec", "check", "own.yaml"],
        ["audit", "own.yaml", "--out", "run"],
        ["spec", "check", "shell.yaml"],
    ):
        ran = seepage(*command)
        assert (ran.status, ran.out) == (2, "")
        assert "is code, which a document may run only with your consent" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nets.py", "own.yaml", "shell.yaml"]
    assert seepage("spec", "check", "shell.yaml", "--allow-code").status == 2
    ran = seepage("spec", "check", "own.yaml", "--allow-code")
    assert (ran.status, (tmp_path / "imported").exists()) == (0, True)
    assert "1 audits of nets.py:build, which a check does not call" in " ".join(ran.out.split())
    assert not (tmp_path / "called").exists()
    assert seepage("audit", "own.yaml", "--out", "run", "--allow-code", "--quiet").status == 0
    assert (tmp_path / "called").exists()
    # A run folder that is continued holds a document, too.
    (tmp_path / "run" / "nets.py").write_text((tmp_path / "nets.py").read_text())
    assert seepage("audit", "run/audit.yaml", "--out", "run", "--quiet").status == 2


def test_mistakes_of_a_document_are_a_line_each(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "audit.yaml").write_text("datset: german\nattacks: [dlg,\n  tabelak]\nvictims: 0\n")
    ran = seepage("audit", "audit.yaml", "--seed", -1, "--out", "run")
    assert ran.status == 2
    places = ["--seed: ", "audit.yaml:1: datset: ", "audit.yaml:3: attacks[1]: ", "audit.yaml:4: victims: "]
    lines = ran.err.splitlines()
    assert len(lines) == len(places)
    assert all(line.startswith(f"seepage: {place}") for line, place in zip(lines, places, strict=True))
    assert not (tmp_path / "run").exists()
    assert "not both" in seepage("audit", "audit.yaml", "--preset", "quick").err


@pytest.mark.slow
def test_a_gate_and_defenses_may_stand_in_the_document_or_on_the_command_line(seepage: Any, tmp_path: Path) -> None:
    text = "dataset: german\nprotocol: {batch_size: 1}\nattacks: dlg\niterations: 2\nvictims: 2\n"
    (tmp_path / "audit.yaml").write_text(f"{text}control: false\ngate: 0.2\n")
    ran = seepage(
        "audit", "audit.yaml", "--defense", "none", "--defense", "gaussian_noise:{scale: 100.0}", "--out", "run"
    )
    # Two victims show nothing.
    assert ran.status in (1, 4)
    assert "gate undecided" in ran.err or "gate failed" in ran.err
    assert {row["defense"] for row in results(tmp_path / "run")} >= {"none"}
    assert seepage("audit", "audit.yaml", "--fail-column", "agee").status == 2
    assert (
        "either with options such as NAME:{option: value}, got 'gaussian_noise:3'"
        in seepage("audit", "--defense", "gaussian_noise:3").err
    )


@pytest.mark.slow
def test_the_faithful_preset_shows_the_published_random_baseline(seepage: Any, tmp_path: Path) -> None:
    settings = ["--dataset", "german", "--attack", "dlg", "--batch-size", 8, "--victims", 2, "--iterations", 3]
    assert seepage("audit", "--preset", "faithful", *settings, "--out", "run").status == 0
    rows = results(tmp_path / "run")
    assert {row["attack"] for row in rows} == {"dlg", "likeliest", "mode", "random", "random_one_draw"}
    assert {row["settings"]["configuration"].get("one_draw_per_column") for row in rows} == {True, False, None}


@pytest.mark.slow
def test_the_attack_of_the_contributors_guide_runs_with_every_preset(
    seepage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [example] = [block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "class FirstLayer" in block]
    others = {key: entry for key, entry in registry.attacks._entries.items() if key != ("horizontal", "first_layer")}
    monkeypatch.setattr(registry.attacks, "_entries", others)
    exec(example, {"__name__": "contributed"})
    for preset in presets():
        # It reads a single record, and an aggregate holds more.
        settings = [
            "--preset",
            preset,
            "--attack",
            "first_layer",
            "--batch-size",
            1,
            "--victims",
            3,
            "--defense",
            "none",
            "--no-control",
        ]
        ran = seepage("audit", *settings, "--out", preset)
        assert ran.status == 0, ran.err
        [score] = [
            row
            for row in results(tmp_path / preset)
            if (row["attack"], row["metric"], row["column"]) == ("first_layer", "accuracy", None)
        ]
        assert score["mean"] == 1.0


def test_a_run_folder_of_another_audit_is_refused(seepage: Any, tmp_path: Path) -> None:
    base = ["audit", "--dataset", "german", "--victims", 2, *CHEAP, "--out", "run"]
    assert seepage(*base, "--batch-size", 1).status == 0
    kept = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for other in (["--seed", 1], ["--model", "nn1"], ["--labels", "true"], ["--batch-size", 2]):
        ran = seepage(*base, *([] if other[0] == "--batch-size" else ["--batch-size", 1]), *other)
        assert ran.status == 2
        assert "holds an audit with" in ran.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == kept
    assert seepage(*base, "--batch-size", 1, "--batch-size", 2).status == 0
    assert {row["batch_size"] for row in results(tmp_path / "run")} == {1, 2}


@pytest.mark.slow
def test_fewer_victims_into_the_same_folder_show_those_of_before_and_more_add_to_them(
    seepage: Any, tmp_path: Path
) -> None:
    base = ["audit", "--dataset", "german", "--batch-size", 2, *CHEAP, "--out", "run"]
    first = seepage(*base, "--victims", 4)
    assert re.search(r"seepage: \d+ jobs, about ", first.err)
    assert "Kept from before" not in first.err
    kept = results(tmp_path / "run")
    done = jobs_done(tmp_path / "run")
    fewer = seepage(*base, "--victims", 2)
    assert results(tmp_path / "run") == kept
    assert jobs_done(tmp_path / "run") == done
    said = " ".join(fewer.err.split())
    assert re.search(r"everything is measured already\. Kept from before: 4 victims in (\d) of \1 settings?\.", said)
    assert "Asked for 2 victims a setting; those of before, up to 4, are shown too." in said
    assert "4 victims in each configuration" in fewer.out
    more = seepage(*base, "--victims", 20)
    # Groups are attacked whole, so there are more than were asked for.
    assert re.search(r"Kept from before: \d+( to \d+)? victims in (\d) of \2 settings?\.", " ".join(more.err.split()))
    accuracies = [row for row in results(tmp_path / "run") if row["metric"] == "accuracy"]
    assert {(row["kind"], row["n"]) for row in accuracies} == {("attack", 20), ("baseline", 1000)}


def test_a_folder_of_something_else_is_left_alone(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text("{}")
    ran = seepage("audit", "--dataset", "german", "--batch-size", 1, *TINY, "--out", "run")
    assert ran.status == 2
    assert "something else" in ran.err
    (tmp_path / "file").write_text("")
    assert seepage("audit", "--dataset", "german", "--batch-size", 1, *TINY, "--out", "file").status == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit on the size of files")
def test_no_room_for_the_report_loses_nothing_that_was_measured(seepage: Any, tmp_path: Path) -> None:
    audit = ["audit", "--batch-size", "1", "--victims", "2", *CHEAP, "--out", "run"]
    resource = import_module("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond this: the store does not, the page does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (220_000, hard))
    try:
        ran = seepage(*audit)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ran.status == 2
    assert "report.html' cannot be written" in ran.err.replace("\n", " ")
    assert "Traceback" not in ran.err
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert "audit.sqlite" in left
    assert "report.html" not in left
    assert not [name for name in left if name.startswith(".")]
    before = jobs_done(tmp_path / "run")
    assert before
    assert seepage(*audit).status == 0
    assert jobs_done(tmp_path / "run") == before
    assert (tmp_path / "run" / "report.html").is_file()


def test_python_runs_the_package(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-m", "seepage", "--version"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert ran.stdout.startswith("seepage ")


def test_own_data_are_not_stored_and_files_are_private(seepage: Any, tmp_path: Path) -> None:
    path = own_table(tmp_path / "own.csv", job=["embalmer", "nurse", "clerk"] * 10)
    arguments = ["--target", "ill", "--sensitive", "job", "--batch-size", 2, "--victims", 2, "--attack", "dlg", *TINY]
    ran = seepage("audit", "--data", path, *arguments, "--out", "run")
    assert ran.status == 0
    jobs = ("embalmer", "nurse", "clerk")
    assert not any(job in ran.out for job in jobs)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    for file in (tmp_path / "run").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        # Rates by category of a sensitive column are kept and shown, so its categories have names there.
        if file.name not in ("audit.sqlite", "report.html"):
            assert not any(job in file.read_text() for job in jobs)
    for _, _, about, _ in measurements(tmp_path / "run")["evidence"]:
        assert {"true", "guess"}.isdisjoint(json.loads(str(about))["layout"])
    assert seepage("audit", "--data", path, *arguments, "--keep-records", "--out", "kept").status == 0
    layouts = [
        json.loads(str(about))["layout"].keys() for _, _, about, _ in measurements(tmp_path / "kept")["evidence"]
    ]
    # No more victims are attacked than were asked for; the control keeps none.
    assert sum({"true", "guess"} <= layout for layout in layouts) == 2


def test_text_of_a_table_is_shown_and_not_obeyed(seepage: Any, tmp_path: Path) -> None:
    jobs = ["[red]cook[/red]", "\x1b[31mnurse", "[/nonsense]"] * 10
    path = tmp_path / "[bold]own.csv"
    own_table(path, job=jobs, **{"[link=x]pay\x1b]0;title\x07": [i * 7 % 11 + 0.5 for i in range(30)]})
    arguments = ["--target", "ill", "--batch-size", 3, "--victims", 2, *CHEAP]
    ran = seepage(
        "audit", "--data", path, *arguments, "--sensitive", "job", "--keep-records", "--verbose", "--out", "run"
    )
    assert ran.status == 0
    assert "\x1b" not in ran.out
    assert "[link=x]pay\\x1b]0;title\\x07" in ran.out
    assert any(job in ran.out for job in ("[red]cook[/red]", "\\x1b[31mnurse", "[/nonsense]"))
    wrong = seepage("audit", "--data", path, "--target", "\x1b[31mll", "--out", "other")
    assert wrong.status == 2
    assert "\x1b" not in wrong.err


@pytest.mark.parametrize("command", ["datasets", "attacks", "defenses", "models", "reproduce"])
def test_lists_name_what_can_be_named(seepage: Any, command: str) -> None:
    ran = seepage(command)
    assert ran.status == 0
    known = {
        **{"datasets": "adult", "attacks": "tableak", "defenses": "gaussian_noise", "models": "nn3"},
        "reproduce": "tableak/table17",
    }
    assert known[command] in ran.out


def test_the_help_says_what_a_command_does_without_an_option(seepage: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def help_of(*command: str) -> str:
        return " ".join(seepage(*command, "--help").out.replace("│", " ").split())

    [decided] = read_text_document(read_preset("decide"), "", Path(), {}, allow_code=False)
    assert isinstance(decided, HorizontalSpec)
    audit = help_of("audit")
    usual = audit.partition("Each is audited. Repeatable. Default: ")[2].partition(";")[0]
    for part in decided.defenses:
        assert part.name in usual
        assert str(part.options.get("epsilon", "")) in usual
    assert f"Default: {decided.batch_sizes[0]} with the default defenses" in audit
    assert fields_of(HorizontalSpec)["defenses"].default != decided.defenses
    assert "exactly one. Default: sex." in help_of("pooled")
    assert "Victims are added" not in help_of("split")
    assert f"{Exit.WRONG_PROOF.value} a certificate that the truth contradicts" in help_of()


def test_the_help_of_an_audit_is_short_and_all_options_are_one_step_away(seepage: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = seepage("audit", "--help").out, seepage("audit", "--help-all").out
    assert len(short.splitlines()) <= 120
    assert "--data " in short
    assert "--fail-above " in short
    assert "--most-categories" not in short
    assert "--most-categories" in whole


@pytest.mark.parametrize("command", ["audit", "datasets", "attacks", "defenses", "models", "schema", "reproduce"])
def test_every_command_explains_itself(seepage: Any, command: str) -> None:
    ran = seepage(command, "--help")
    assert ran.status == 0
    assert "Usage: seepage" in ran.out


def test_a_schema_is_drafted_corrected_and_used(seepage: Any, tmp_path: Path) -> None:
    own_table(tmp_path / "own.csv")
    overrides = ["--override", "age={low: 0, high: 120, unit: years}", "--override", "pay=continuous"]
    assert seepage("schema", "own.csv", "--target", "ill", *overrides, "--out", "own.yaml").status == 0
    schema = Schema.load(tmp_path / "own.yaml")
    assert (schema.columns[0].name, schema.columns[0].unit) == ("age", "years")
    printed = seepage("schema", "own.csv", "--target", "ill", *overrides)
    assert Schema.from_yaml(printed.out) == schema
    used = ["--data", "own.csv", "--schema", "own.yaml", "--batch-size", 2, "--victims", 2, *CHEAP, "--out", "run"]
    assert seepage("audit", *used).status == 0
    for bad in ("age", "age=dicrete", "age=[1", "agee=discrete", "age={lo: 3}"):
        ran = seepage("schema", "own.csv", "--target", "ill", "--override", bad)
        assert (ran.status, ran.err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_published_table_is_run_in_parts(seepage: Any, tmp_path: Path) -> None:
    part = ["tableak/table18", "--victims", 2, "--batch-size", 1, "--attack", "dlg", "--out", "run"]
    ran = seepage("reproduce", *part)
    assert ran.status == 0
    assert "printed ± sd" in ran.out
    with (tmp_path / "run" / "comparison.csv").open(newline="") as file:
        cells = {(cell["method"], cell["batch_size"]): cell for cell in csv.DictReader(file)}
    assert set(cells) == {("dlg", "1"), ("random", "1")}
    assert cells["dlg", "1"]["n"] == "2"
    assert "Comparison: run/comparison.csv" in ran.out
    again = seepage("reproduce", "tableak/table18", "--compare-only", "--out", "run")
    assert "dlg" in again.out
    # It writes nothing, and says nothing of a file.
    assert "Comparison:" not in again.out


def test_a_quick_look_at_one_value_of_an_axis_takes_three_batches(seepage: Any, tmp_path: Path) -> None:
    part = ["--attack", "inverting_gradients", "--only", "iterations=10", "--only", "dataset=german"]
    ran = seepage("reproduce", "tableak/table16", "--quick", *part, "--out", "run")
    assert ran.status == 0
    assert "iterations 10" in ran.out
    with (tmp_path / "run" / "comparison.csv").open(newline="") as file:
        [cell] = csv.DictReader(file)
    where = [cell[name] for name in ("run", "dataset", "method", "iterations", "n", "published")]
    assert where == ["faithful", "german", "inverting_gradients", "10", "3", "0.62"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tableak/tabel17"], "'tableak/table17'"),
        (["tableak/table17", "--batch-size", "7"], "unknown batch size of tableak/table17"),
        (["tableak/table17", "--attack", "dgl"], "did you mean 'dlg'"),
        (["tableak/table17", "--part", "faithfull"], "did you mean 'faithful'"),
        (["tableak/table17", "--labels", "tru"], "did you mean 'true'"),
        (["tableak/table17", "--part", "default", "--attack", "dlg"], "no cell"),
        (["tableak/table17", "--victims", "0"], "victims=0"),
        (["tableak/table17", "--victims", "2", "--quick"], "give one of the two"),
        (["tableak/table16", "--only", "dataset"], "such as dataset=adult; got 'dataset'"),
        (["tableak/table16", "--only", "dateset=adult"], "did you mean 'dataset'"),
        (["tableak/table16", "--only", "dataset=adlut"], "did you mean 'adult'"),
    ],
)
def test_mistakes_about_tables_are_answered(seepage: Any, tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = seepage("reproduce", *arguments, "--out", "run")
    assert ran.status == 2
    assert message in ran.err
    assert not (tmp_path / "run").exists()


GATED = ["audit", "--dataset", "german", "--model", "nn1", "--batch-size", 1, "--attack", "inverting_gradients"]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (
            ["--victims", 4, "--restarts", 2, "--iterations", 300, "--fail-above", 0.1],
            1,
            "gate failed: inverting_gradients",
        ),
        (["--victims", 4, *TINY, "--fail-above", 0.6], 4, "gate undecided: "),
        pytest.param(
            ["--iterations", 300, "--defense", "gaussian_noise:{scale: 1e4}", "--fail-above", 0.5],
            4,
            "gate undecided: incomplete: unmix not run.",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_gate_decides_by_its_exit_status_and_says_why_in_one_line(
    seepage: Any, tmp_path: Path, options: list[Any], status: int, said: str
) -> None:
    files = ("--junit", "out/gate.xml", "--sarif", "gate.sarif")
    ran = seepage(*GATED, *options, "--out", "run", "--json", *files)
    assert ran.status == status, ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("seepage: gate ")]) == 1
    assert f"seepage: {said}" in ran.err
    assert json.loads(ran.out)["rows"]
    suites = ElementTree.parse(tmp_path / "out" / "gate.xml").getroot()
    assert (suites.get("failures") == suites.get("errors") == "0") is (status == 0)
    [log] = json.loads((tmp_path / "gate.sarif").read_text())["runs"]
    assert log["invocations"][0]["exitCode"] == status
    pointed = {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in log["results"]}
    assert pointed <= {"run/report.html"}


def test_every_setting_s_command_writes_a_gate_s_answer() -> None:
    for name in settings_by_command():
        assert {"--junit", "--sarif"} <= {option for parameter in load(name).params for option in parameter.opts}


def test_a_gate_on_a_column_looks_at_that_column(seepage: Any) -> None:
    ran = seepage(*GATED, "--victims", 4, *TINY, "--fail-above", 0.1, "--fail-column", "purpose", "--out", "run")
    assert "column purpose" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-above", 20], "0.2 is 20 points"),
        (["--fail-above", 0.2, "--fail-column", "agee"], "did you mean 'age'"),
        (["--fail-column", "age"], "needs --fail-above"),
        (["--fail-above", 0.2, "--deployed", "gaussian_noise"], "unknown deployed defense 'gaussian_noise'"),
        (["--fail-above", 0.2, "--fail-worst", "0.1"], "written SHARE:LIFT"),
        (["--junit", "gate.xml"], "this audit has no gate; give --fail-above"),
        (["--sarif", "gate.sarif"], "this audit has no gate; give --fail-above"),
        (["--fail-above", 0.2, "--junit", "audit.yaml"], "ends in .xml, got 'audit.yaml'"),
        (["--fail-above", 0.2, "--sarif", "results.json"], "ends in .sarif, got 'results.json'"),
        (["--fail-above", 0.2, "--sarif", "/dev/null/gate.sarif"], "'/dev/null/gate.sarif' cannot be written"),
    ],
)
def test_a_gate_that_no_audit_could_answer_stops_it(
    seepage: Any, tmp_path: Path, arguments: list[Any], message: str
) -> None:
    ran = seepage(*GATED, *arguments, "--out", "run")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert message in ran.err
    assert not (tmp_path / "run").exists()


def test_what_was_guessed_of_a_table_is_said_with_the_option_that_changes_it(seepage: Any, tmp_path: Path) -> None:
    rows = [
        {
            "icd_code": 4_000 + i * 7 % 23 * 131,
            "seen": f"2020{1 + i % 12:02}{1 + i % 28:02}",
            "dose": i % 9 / 4,
            "ill": i % 2,
        }
        for i in range(120)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    words = ("codes by the word 'code' in its name", "--override icd_code=continuous", "dates by their digits")
    ran = seepage("schema", "rows.csv", "--target", "ill", "--out", "rows.yaml")
    assert ran.status == 0
    assert all(part in " ".join(ran.err.split()) for part in words)
    options = ("--batch-size", 1, "--victims", 1, "--attack", "tableak", "--restarts", 1, "--iterations", 2)
    ran = seepage("audit", "--data", "rows.csv", "--target", "ill", *options, "--no-control", "--quiet", "--out", "run")
    assert ran.status == 0
    assert ran.out == ""
    assert all(part in ran.err for part in words)
    assert [line for line in ran.err.splitlines() if "column 'icd_code': discrete" in line]


def test_a_run_folder_that_cannot_be_used_is_refused_before_the_table_is_shown(seepage: Any, tmp_path: Path) -> None:
    pd.DataFrame({"glucose": [*range(20, 60)], "ill": [0, 1] * 20}).to_csv(tmp_path / "own.csv", index=False)
    for out, why in (("own.csv", "is a file"), ("own.csv/run", "which is a file")):
        ran = seepage("audit", "--data", "own.csv", "--target", "ill", "--attack", "dlg", "--out", out)
        assert ran.status == 2
        assert why in " ".join(ran.err.split())
        assert "glucose" not in ran.out + ran.err


def test_a_file_without_a_header_shows_no_cell(seepage: Any, tmp_path: Path) -> None:
    rows = "".join(f"Ann{i} Lee,19{50 + i % 40}-04-0{1 + i % 9},{('er', 'icu')[i % 2]},{i % 2}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(rows)
    for arguments in (
        ("schema", "rows.csv", "--target", "ill"),
        ("audit", "--data", "rows.csv", "--target", "3", "--out", "run"),
        ("correlate", "--data", "rows.csv", "--target", "ill", "--sensitive", "age"),
        ("spec", "new", "--data", "rows.csv", "--target", "ill"),
        ("recommend", "--data", "rows.csv", "--target", "ill", "--below", "0.2", "--out", "advice"),
    ):
        ran = seepage(*arguments)
        assert ran.status == 2, arguments
        assert "so it seems to have no header" in " ".join(ran.err.split()), arguments
        assert not any(cell in ran.out + ran.err for cell in ("Ann0", "1950-04")), arguments
