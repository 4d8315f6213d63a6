"""``seepage capture`` and ``seepage attack`` from the command line."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional

from seepage import capture, cli
from seepage.captures.captured import Description, save_capture
from seepage.learning import LocalTraining
from seepage.models.making import make_model
from seepage.results.rows import read_results
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from tests.commands import Run, commands

NETWORKS = """
import torch
from torch import nn

class Tables(nn.Module):
    def __init__(self, cardinalities, numbers, outputs):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 4) for n in cardinalities)
        self.hidden = nn.Linear(4 * len(cardinalities) + numbers, 32)
        self.out = nn.Linear(32, outputs)

    def forward(self, codes, numbers):
        found = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.out(torch.relu(self.hidden(torch.cat([*found, numbers], dim=1))))

class Dropping(nn.Sequential):
    def __init__(self, inputs, outputs):
        between = nn.Sequential(nn.ReLU(), nn.Dropout(0.5))
        super().__init__(nn.Linear(inputs, 50), between, nn.Linear(50, outputs))

def fails():
    raise RuntimeError("no licence")

def narrow():
    return nn.Linear(3, 2)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one client leaves behind: made once, changed by nobody."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "ownnets.py").write_text(NETWORKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, model in (("plain", "nn1"), ("tables", "ownnets.py:Tables")):
            arguments = ["--dataset", "german", "--model", model, "--batch-size", "1", "--out", name, "--reference"]
            patch.setattr(sys, "argv", ["seepage", "capture", "example", *arguments])
            with pytest.raises(SystemExit) as stopped:
                cli.main()
            assert not stopped.value.code
    return folder


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, client: Path, tmp_path: Path) -> Run:
    return commands(capfd, monkeypatch, client)


def files_of(folder: str, model: str = "nn1") -> list[str]:
    return [
        f"{folder}/update.safetensors",
        *("--model", model, "--weights", f"{folder}/model.safetensors", "--schema", f"{folder}/schema.yaml"),
    ]


TINY = ["--restarts", "2", "--iterations", "3"]


def overall(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The accuracies of the attack over all cells."""
    rows = [row for row in results["rows"] if row["is_attack"]]
    return [row for row in rows if (row["metric"], row["column"]) == ("accuracy", None)]


def test_what_a_client_leaves_is_private_and_whole(client: Path) -> None:
    names = {"update.safetensors", "model.safetensors", "schema.yaml", "encoder.json", "truth.csv", "reference.csv"}
    assert {path.name for path in (client / "plain").iterdir()} == names
    assert stat.S_IMODE((client / "plain").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (client / "plain").iterdir()} == {0o600}
    with safe_open(client / "plain" / "update.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["seepage"])
    assert (about["format"], about["batch_size"], about["model"], "labels" in about) == (2, 1, "nn1", False)


@pytest.mark.parametrize(("folder", "model"), [("plain", "nn1"), ("tables", "ownnets.py:Tables")])
def test_an_update_of_one_record_gives_it_away(seepage: Any, tmp_path: Path, folder: str, model: str) -> None:
    out = tmp_path / "read"
    status, text, _ = seepage(
        *("attack", *files_of(folder, model), "--truth", f"{folder}/truth.csv", "--data", f"{folder}/reference.csv"),
        *("--restarts", 4, "--iterations", 250, "--verbose", "--out", out),
    )
    assert status == 0
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == dict.fromkeys(
        ("reconstruction.csv", "confidence.csv", "results.json", "results.csv", "report.html"), 0o600
    )
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    results = json.loads((out / "results.json").read_text())
    [score] = overall(results)
    assert score["mean"] > 0.9
    assert score["lift"] > 0.15
    read, truth = pd.read_csv(out / "reconstruction.csv"), pd.read_csv(f"{folder}/truth.csv")
    assert list(read.columns) == list(truth.columns)
    discrete = [name for name in truth if truth[name].dtype != "int64"]
    same = sum(bool(read[name][0] == truth[name][0]) for name in discrete)
    assert same >= 0.9 * len(discrete)
    sure = pd.read_csv(out / "confidence.csv")
    assert len(sure) == len(truth.columns) - 1
    assert sure["certainty"].between(0, 1).all()
    assert set(sure[sure["spread"].notna()]["column"]) <= set(truth.columns) - set(discrete)
    assert "What was read" in text
    assert "Read of all cells" in text
    assert results["knowledge"]["statistics"] == "marginals and moments of the reference rows"


def test_a_scored_update_has_the_report_and_the_gate_of_an_audit(seepage: Any, tmp_path: Path) -> None:
    out = tmp_path / "read"
    given = [*files_of("plain"), "--attack", "single_activation", "--data", "plain/reference.csv"]
    gate = ["--fail-above", 0.2, "--out", out]
    status, _, err = seepage("attack", *given, *gate)
    assert (status, "give it with --truth" in err, out.exists()) == (2, True, False)
    status, text, err = seepage("attack", *given, *gate, "--truth", "plain/truth.csv")
    assert status == 1
    assert "gate failed: single_activation at batch size 1: whole records are read (100.0% of the cells)." in err
    assert "WHOLE RECORDS READ" in text
    assert "Read of all cells" not in text
    assert "Audit of captured update" in text
    page = (out / "report.html").read_text()
    for title in ("What the server learns", "Threat model and attacks that apply", "Checks of this audit", "Columns"):
        assert title in page
    # Nothing can be changed any more about what was captured.
    assert "What to change" not in page
    assert "No positive control was run" not in text
    truth = pd.read_csv("plain/truth.csv")
    assert not any(str(value) in page for value in truth.iloc[0] if isinstance(value, str) and len(value) > 12)
    rows = read_results(out / "results.json")
    [own] = [row for row in rows if row.is_attack and (row.metric, row.column) == ("accuracy", None)]
    assert (own.setting, own.attack, own.batch_size, own.n) == ("horizontal", "single_activation", 1, 1)
    assert {row.attack for row in rows if row.kind == "baseline"} == {"stereotypes", "likeliest", "mode", "random"}


def test_without_the_truth_nothing_is_scored_and_assumptions_are_said(seepage: Any, tmp_path: Path) -> None:
    path = tmp_path / "bare.safetensors"
    with safe_open("plain/update.safetensors", framework="pt") as file:
        save_file({name: file.get_tensor(name) for name in file.keys()}, path)  # noqa: SIM118
    given = [path, "--model", "nn1", "--schema", "plain/schema.yaml", "--batch-size", 1]
    status, text, _ = seepage("attack", *given, *TINY, "--out", tmp_path / "read")
    assert status == 0
    results = json.loads((tmp_path / "read" / "results.json").read_text())
    assert results["rows"] == []
    assert results["knowledge"]["statistics"].startswith("assumed")
    assert "assumed: every category" in text
    assert "initialisation with seed 0" in text
    assert "Read of all cells" not in text


def test_an_update_of_a_network_with_dropout_is_attacked_with_and_without_it(seepage: Any, tmp_path: Path) -> None:
    given = [*files_of("plain", "ownnets.py:Dropping"), *TINY, "--out", tmp_path / "read"]
    status, text, _ = seepage("attack", *given)
    assert status == 0
    assert "dropout is switched off" not in text
    given[-1] = tmp_path / "off"
    status, text, _ = seepage("attack", *given, "--dropout", "off")
    assert status == 0
    assert "dropout is switched off" in text
    [note] = json.loads((tmp_path / "off" / "results.json").read_text())["notes"]
    assert note.startswith("dropout is switched off: an update of a client that drops values")


def test_check_says_what_is_known(seepage: Any) -> None:
    status, text, _ = seepage("capture", "check", *files_of("tables", "ownnets.py:Tables"))
    assert status == 0
    assert "tables.0.weight" in text
    assert "records: 1" in text
    assert "The update fits the model." in text


def test_help_documents_the_form(seepage: Any) -> None:
    status, text, _ = seepage("capture", "--help")
    assert status == 0
    for word in ("safetensors", "batch_size", "encoding", "labels", "named_parameters", "mean"):
        assert word in text


def broken(path: Path, **changes: Any) -> Path:
    """The update of the plain client with some tensors replaced, or its description."""
    about = changes.pop("about", None)
    with safe_open("plain/update.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        said = Description.model_validate_json(file.metadata()["seepage"])
    tensors |= changes
    save_file(tensors, path, metadata={"seepage": about or said.model_dump_json()})
    return path


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda p: p, [], "does not exist"),
        (lambda p: p.write_bytes(b"PK\x03\x04") and p, [], "no whole safetensors file"),
        (lambda p: p.with_suffix(".pt").write_bytes(b"PK\x03\x04") and p.with_suffix(".pt"), [], "are never opened"),
        (
            lambda p: p.with_suffix(".txt").write_text("tree\n") and p.with_suffix(".txt"),
            [],
            "LightGBM's files are not",
        ),
        (lambda p: broken(p, **{"0.wight": torch.ones(2)}), [], "did you mean '0.weight'"),
        (lambda p: broken(p, **{"0.bias": torch.ones(3)}), [], "of shape (3,)"),
        (lambda p: broken(p, **{"0.bias": torch.full((50,), torch.nan)}), [], "holds nan (50 of its 50"),
        (lambda p: broken(p, **{"0.bias": torch.ones(50, dtype=torch.int32)}), [], "of type int32"),
        (lambda p: broken(p, about='{"format": 99}'), [], "format 99"),
        (lambda p: broken(p, about="{}"), [], "--batch-size"),
        (lambda p: broken(p), ["--batch-size", 2], "of 1 records, --batch-size says 2"),
        (lambda p: broken(p, about="{}"), ["--batch-size", -1], "whole number from 1 up"),
        (
            lambda p: broken(p, about="{}"),
            ["--batch-size", 10**9],
            "or 67,108,864 numbers an attack may take more memory",
        ),
        (lambda p: broken(p, about='{"batch_size": 1048576}'), [], "or allow it: --allow-large."),
        (lambda p: broken(p), ["--model", "nn2"], "'0.weight' of shape (50, "),
        (lambda p: broken(p), ["--model", "nn11"], "did you mean 'nn1'"),
        (lambda p: broken(p), ["--model", "ownnets.py:fails"], "raised RuntimeError: no licence"),
        (lambda p: broken(p), ["--model", "ownnets.py:narrow"], "does not take rows of 63 encoded columns"),
        (lambda p: broken(p), ["--model", "ownnets.py:Table"], "did you mean 'Tables'"),
        (lambda p: broken(p), ["--weights", "tables/model.safetensors"], "which the model has not"),
        (lambda p: broken(p), ["--weights", "plain/truth.csv"], "no whole safetensors file"),
        (lambda p: broken(p), ["--schema", "plain/truth.csv"], "schema"),
        (lambda p: broken(p), ["--schema", "none.yaml"], "cannot be read"),
        (lambda p: broken(p), ["--truth", "plain/reference.csv"], "the truth has 1000 rows"),
        (lambda p: broken(p), ["--truth", "plain/schema.yaml"], "schema.yaml"),
        (lambda p: broken(p), ["--data", "plain/truth.csv"], "at least two rows"),
        (lambda p: broken(p), ["--attack", "tabelak"], "did you mean 'tableak'"),
        (lambda p: broken(p), ["--head", "softmaxx"], "did you mean 'softmax'"),
        (lambda p: broken(p), ["--head", "regression"], "regression head does not fit"),
        (lambda p: broken(p), ["--profile", "fast"], "Known: default, faithful"),
        (lambda p: broken(p), ["--iterations", 0], "iterations=0: must be greater than or equal to 1"),
        (lambda p: broken(p), ["--device", "gpu"], "unknown device"),
    ],
)
def test_rubbish_gets_one_paragraph_and_leaves_nothing(
    seepage: Any, tmp_path: Path, make: Any, options: list[Any], message: str
) -> None:
    path = make(tmp_path / "update.safetensors")
    model, weights = ["--model", "nn1"], ["--weights", "plain/model.safetensors"]
    schema = ["--schema", "plain/schema.yaml"]
    given = [] if options and options[0] == "--model" else [*model, *([] if "--weights" in options else weights)]
    given += [] if "--schema" in options else schema
    status, out, err = seepage("attack", path, *given, *options, *TINY[:2], "--out", tmp_path / "read")
    assert status == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not (tmp_path / "read").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.pkl", b"\x80\x04}.", "is in no format that is read"),
        ("lightgbm.txt", b"tree\nversion=v4\n", "LightGBM's files are not read"),
        ("lightgbm.json", b'{"name": "tree", "version": "v4"}', "so it is no model of xgboost"),
        ("pickled.safetensors", b"\x80\x04}.", "no whole safetensors file"),
        ("half.json", b"{", "is no JSON"),
        ("gone.safetensors", None, "does not exist"),
        ("gone.json", None, "does not exist"),
        ("folder", None, "there is no captured update"),
        ("transcript", b'{"format": 99}', "format 99"),
        ("statistics", b'{"format": 99}', "format 99"),
    ],
)
def test_a_file_that_cannot_be_read_is_said_before_options(
    seepage: Any, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if name in ("folder", "transcript", "statistics"):
        path.mkdir()
    if content is not None:
        (path / f"{name}.json" if path.is_dir() else path).write_bytes(content)
    # Nothing given, an option of another kind of capture, a gate without truth, and one of several that are needed.
    for options in ([], ["--open"], ["--fail-above", "0.5"], ["--schema", "plain/schema.yaml"]):
        status, out, err = seepage("attack", path, *options)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err, (options, err)


def test_missing_options_are_said_together_and_after_files_that_others_name(seepage: Any, tmp_path: Path) -> None:
    status, _, err = seepage("attack", "plain/update.safetensors")
    assert (status, "Missing options '--model', '--schema', '--out'" in err) == (2, True)
    status, _, err = seepage("attack", *files_of("plain"))
    assert (status, "Missing option '--out': results are written to a folder." in err) == (2, True)
    status, _, err = seepage("attack", "plain/update.safetensors", "--schema", "none.yaml", "--out", tmp_path / "read")
    assert (status, "'none.yaml' of --schema does not exist" in err) == (2, True)


def test_results_are_never_replaced(seepage: Any, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("mine")
    status, _, err = seepage("attack", *files_of("plain"), *TINY, "--out", tmp_path)
    assert status == 2
    assert "holds results.json already" in err
    assert (tmp_path / "results.json").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_labels_are_used_where_granted(seepage: Any, tmp_path: Path) -> None:
    status, *_ = seepage(
        *("capture", "example", "--dataset", "german", "--model", "nn1", "--batch-size", 2, "--labels", "--seed", 4),
        *("--out", tmp_path / "client"),
    )
    assert status == 0
    said = {}
    for name, option in (("granted", []), ("restored", ["--restore-labels"])):
        given = files_of(str(tmp_path / "client"))
        assert seepage("attack", *given, *TINY, *option, "--out", tmp_path / name)[0] == 0
        said[name] = json.loads((tmp_path / name / "results.json").read_text())["knowledge"]["labels"]
    assert said == {"granted": "those in the update", "restored": "restored"}
    truth = pd.read_csv(tmp_path / "client" / "truth.csv").iloc[:, -1]
    read = pd.read_csv(tmp_path / "granted" / "reconstruction.csv").iloc[:, -1]
    assert sorted(read) == sorted(truth)


def test_a_regression_without_labels_is_refused(seepage: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": range(20, 50), "pay": [i * 0.5 for i in range(30)]})
    frame.to_csv(tmp_path / "own.csv", index=False)
    own = ["--data", tmp_path / "own.csv", "--target", "pay", "--model", "linear", "--out", tmp_path / "client"]
    assert seepage("capture", "example", *own)[0] == 0
    given = files_of(str(tmp_path / "client"), "linear")
    status, _, err = seepage("attack", *given, *TINY, "--out", tmp_path / "read")
    assert status == 2
    assert "regression head" in err
    assert not (tmp_path / "read").exists()


def test_a_client_of_another_kind_is_seen_by_the_width_of_its_rows(seepage: Any, tmp_path: Path) -> None:
    about = Description.model_validate({"batch_size": 1, "encoding": {"mean": [0, 0], "std": [1, 1]}})
    save_capture(tmp_path / "u.safetensors", {"weight": torch.ones(2, 2)}, about)
    status, _, err = seepage("attack", tmp_path / "u.safetensors", *files_of("plain")[1:], "--out", tmp_path / "read")
    assert status == 2
    assert "2 means and 2 standard deviations where the schema takes 63" in err


def test_a_change_by_local_training_is_checked_and_read(seepage: Any, tmp_path: Path, client: Path) -> None:
    """The two states of a step of the client's network, through files, into the records."""
    schema = Schema.load(client / "plain" / "schema.yaml")
    rows = Table.read(client / "plain" / "reference.csv", schema)
    statistics = Statistics.of(rows)
    model, _ = make_model("nn3", schema, statistics, seed=1)
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    encoder = Encoder(schema, statistics, dtype=torch.float32)
    loss = functional.cross_entropy(model.module(encoder.encode(rows.cells[:4])), rows.labels[:4].long())
    loss.backward()
    torch.optim.SGD(model.module.parameters(), lr=0.1).step()
    save_file(before, tmp_path / "before.safetensors")
    training = LocalTraining(epochs=1, batch_size=4, learning_rate=0.1)
    update = tmp_path / "update.safetensors"
    after = model.module.state_dict()
    capture(tmp_path / "before.safetensors", after, update, training=training, batch_size=4, statistics=statistics)
    rows.frame.iloc[:4].to_csv(tmp_path / "truth.csv", index=False)
    files = [update, "--model", "nn3", "--weights", tmp_path / "before.safetensors", "--schema", "plain/schema.yaml"]
    status, text, _ = seepage("capture", "check", *files)
    assert status == 0
    assert "the change of the model in 1 epoch, 4 records a batch, SGD at a learning rate of 0.1" in " ".join(
        text.split()
    )
    status, _, _ = seepage(
        *("attack", *files, "--truth", tmp_path / "truth.csv", "--out", tmp_path / "read"),
        *("--data", "plain/reference.csv", "--restarts", 1, "--iterations", 1),
    )
    assert status == 0
    results = json.loads((tmp_path / "read" / "results.json").read_text())
    [score] = overall(results)
    assert score["mean"] == 1
    assert results["settings"]["protocol"] == "fedavg"
