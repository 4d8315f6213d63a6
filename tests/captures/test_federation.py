"""Captured updates of two clients in two rounds: what each gives away, and what all of a client do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seepage import registry
from seepage.assessment.measurement import Measurement
from seepage.attacking.federation import FederationAttack
from seepage.attacking.findings import AttackedFederation, ClientFinding, UpdateFinding
from seepage.attacking.run import _joined
from seepage.attacking.updates import Recovered
from seepage.attacks import create
from seepage.auditing import captured_report
from seepage.captures.captured import Description, encoding_of, save_capture
from seepage.captures.folder import find_captures
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.mlp import nn3
from seepage.models.states import state_digest
from seepage.report.captured import captured_document
from seepage.report.page import page
from seepage.run.runner import Listener, Run
from seepage.settings.part import Part
from seepage.settings.setting import Configuration, PlannedPart
from seepage.settings.spec import Gate
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, RecordsGuess, View
from tests.commands import commands
from tests.parts import register

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
RECORDS = 4


def gradient(module: nn.Module, records: slice) -> dict[str, Tensor]:
    module.zero_grad()
    rows, labels = ENCODER.encode(DATA.train.cells[records]), DATA.train.labels[records].long()
    nn.functional.cross_entropy(module(rows), labels).backward()
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}


def description(round: int, module: nn.Module, **more: object) -> Description:
    sent = state_digest(module.state_dict())
    values = {"batch_size": RECORDS, "sent": sent, "encoding": encoding_of(DATA.statistics), "round": round, **more}
    return Description.model_validate(values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Client a: records 0 to 3, then 2 to 5. Client b: a file that was cut short, then one of another network."""
    made = tmp_path_factory.mktemp("captured")
    for round, begin in ((1, 0), (2, 2)):
        place = made / f"round-{round:04d}"
        place.mkdir()
        module = nn3(DATA.schema, seed=round).module
        save_file(dict(module.state_dict()), place / "model.safetensors")
        about = description(round, module, client="a")
        update = gradient(module, slice(begin, begin + RECORDS))
        save_capture(place / "client-a.safetensors", update, about)
        if round == 1:
            whole = (place / "client-a.safetensors").read_bytes()
            (place / "client-b.safetensors").write_bytes(whole[: len(whole) // 2])
        else:
            about = about.model_copy(update={"client": "b"})
            save_capture(place / "client-b.safetensors", {"0.weight": torch.ones(3, 5)}, about)
    DATA.train.frame.iloc[:6].to_csv(made / "a.csv", index=False)
    return made


@pytest.fixture(scope="module")
def kept() -> dict[str, Recovered]:
    return {}


@pytest.fixture(scope="module")
def findings(folder: Path, kept: dict[str, Recovered]) -> AttackedFederation:
    attack = FederationAttack.of("nn3", DATA.schema, proofs_only=True, reference=DATA.train, truth=folder)
    return attack.run(folder, keep=kept.__setitem__)


def of(findings: AttackedFederation, client: str, round: int) -> UpdateFinding:
    [found] = [update for update in findings.updates if (update.client, update.round) == (client, round)]
    return found


def test_each_update_of_a_client_is_proved(findings: AttackedFederation) -> None:
    for round in (1, 2):
        found = of(findings, "a", round)
        assert (found.outcome, found.records, found.proved_records) == ("proved", RECORDS, RECORDS)
        assert found.proved_cells == RECORDS * len(DATA.schema.columns)


def test_records_seen_in_two_rounds_count_once(findings: AttackedFederation) -> None:
    """Six different records are behind two updates of four, no more are left to guess, and a proof is of one update."""
    [together] = [client for client in findings.clients if client.client == "a"]
    assert (together.rounds, together.records, together.proved_records) == (2, 6, RECORDS), together.why
    assert together.score is not None
    assert together.score.mean == 1
    assert together.score.lift is not None
    assert together.score.lift > 0.2


def test_without_the_rows_equal_records_are_linked_too(folder: Path) -> None:
    attack = FederationAttack.of("nn3", DATA.schema, proofs_only=True, reference=DATA.train)
    together = attack.run(folder).clients[0]
    assert (together.client, together.records, together.proved_records) == ("a", 2 * RECORDS, RECORDS)
    assert together.score is None


def test_an_update_of_other_rows_than_the_truth_is_not_scored_by_itself(findings: AttackedFederation) -> None:
    found = of(findings, "a", 1)
    assert found.score is None
    assert "the client's own rows are 6, the update is of 4 records" in found.notes[-1]


def test_a_broken_file_and_one_of_another_network_do_not_end_the_others(findings: AttackedFederation) -> None:
    cut, other = of(findings, "b", 1), of(findings, "b", 2)
    assert {cut.outcome, other.outcome} == {"not tried"}
    assert "no whole safetensors file" in cut.why
    assert "'0.weight' of shape (3, 5)" in other.why
    assert findings.counts == {"proved": 2, "estimated": 0, "nothing": 0, "not tried": 2, "failed": 0}
    [together] = [client for client in findings.clients if client.client == "b"]
    assert together == ClientFinding("b", 0, None, 0, 0, 0, "not linked: 0 of the client's updates could be attacked")


class Breaking:
    """An attack of another package, which breaks on an update with a large entry."""

    def __call__(self, view: View, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        if bool(view.message["0.bias"].max() > 100):
            raise MemoryError("no place for so large a bias")
        return create("unmix", restarts=1, iterations=1)(view, knowledge, seeds)


def test_an_update_on_which_the_attack_breaks_is_a_row_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, registry.attacks, "breaking", Breaking, "horizontal")
    module = nn3(DATA.schema, seed=1).module
    save_file(dict(module.state_dict()), tmp_path / "model.safetensors")
    update = gradient(module, slice(0, RECORDS))
    for round, factor in ((1, 1e6), (2, 1.0)):
        about = description(round, module, client="a")
        scaled = {name: factor * part for name, part in update.items()}
        save_capture(tmp_path / f"round-{round}.safetensors", scaled, about)
    found = FederationAttack.of("nn3", DATA.schema, attacks=["breaking"]).run(tmp_path)
    assert [update.outcome for update in found.updates] == ["failed", "proved"]
    assert found.updates[0].why == "MemoryError: no place for so large a bias"
    assert found.counts["failed"] == 1
    assert found.incomplete
    assert found.findings.sections[0].words[-1] == "An update that was not tried, or failed, is not known to be safe."


def test_rounds_whose_linking_breaks_are_a_row(folder: Path, tmp_path: Path) -> None:
    """The client's own rows are deleted once both of its updates were read."""
    own = tmp_path / "own.csv"
    DATA.train.frame.iloc[:6].to_csv(own, index=False)
    shutil.copytree(folder, tmp_path / "captured", ignore=shutil.ignore_patterns("client-b*"))

    def keep(name: str, found: Recovered) -> None:
        if name.startswith("round-0002"):
            own.unlink()
            own.mkdir()

    attack = FederationAttack.of("nn3", DATA.schema, proofs_only=True, reference=DATA.train, truth=own)
    found = attack.run(tmp_path / "captured", keep=keep)
    assert [update.outcome for update in found.updates] == ["proved", "proved"]
    assert found.clients[0].why.startswith("not linked: ")
    assert found.incomplete


def test_an_update_that_contradicts_its_description_is_not_tried(folder: Path, tmp_path: Path) -> None:
    """Four records are said to be two; nothing found there is not nothing."""
    shutil.copy(folder / "round-0001" / "model.safetensors", tmp_path)
    module = nn3(DATA.schema, seed=1).module
    about = description(1, module, batch_size=2)
    save_capture(tmp_path / "update.safetensors", gradient(module, slice(0, RECORDS)), about)
    [found] = FederationAttack.of("nn3", DATA.schema, proofs_only=True).run(tmp_path).updates
    assert (found.outcome, found.records) == ("not tried", 2)
    assert "gradients of rank 4 are more than 2 records leave" in found.why


def test_names_that_are_no_path_or_no_text_are_read_all_the_same(folder: Path, tmp_path: Path) -> None:
    """A client's name is not looked for as a file, and what is not UTF-8 is escaped in reports."""
    shutil.copy(folder / "round-0001" / "model.safetensors", tmp_path)
    module = nn3(DATA.schema, seed=1).module
    about = description(1, module, client="../../a\0b")
    save_capture(tmp_path / "update.safetensors", gradient(module, slice(0, RECORDS)), about)
    with open(os.fsencode(tmp_path) + b"/client-\xff.safetensors", "wb") as odd:
        odd.write(b"nothing")
    found = FederationAttack.of("nn3", DATA.schema, proofs_only=True).run(tmp_path)
    assert {update.client: update.outcome for update in found.updates} == {
        "../../a\0b": "proved",
        r"\udcff": "not tried",
    }
    json.dumps(found.findings.figures, ensure_ascii=False).encode()
    page(captured_document(found.findings)).encode()


def test_what_was_read_is_handed_over_by_name(findings: AttackedFederation, kept: dict[str, Recovered]) -> None:
    assert findings.updates
    assert list(kept) == ["round-0001/client-a", "round-0002/client-a"]


def test_one_update_with_the_rows_of_its_batch_is_scored(folder: Path, tmp_path: Path) -> None:
    for name in ("client-a.safetensors", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / "round-0001" / name).read_bytes())
    DATA.train.frame.iloc[:RECORDS].to_csv(tmp_path / "own.csv", index=False)
    attack = FederationAttack.of("nn3", DATA.schema, proofs_only=True, reference=DATA.train, truth=tmp_path / "own.csv")
    [found] = attack.run(tmp_path).updates
    assert found.score is not None
    assert found.score.mean == 1


def test_scored_updates_are_the_units_of_one_audit(tmp_path: Path) -> None:
    """Five clients with a record each, and a file that cannot be read: a verdict on five, and a gate that refuses."""
    module = nn3(DATA.schema, seed=1).module
    save_file(dict(module.state_dict()), tmp_path / "model.safetensors")
    (tmp_path / "own").mkdir()
    for place in range(5):
        about = description(1, module, batch_size=1, client=f"c{place}")
        save_capture(tmp_path / f"{place}.safetensors", gradient(module, slice(place, place + 1)), about)
        DATA.train.frame.iloc[place : place + 1].to_csv(tmp_path / "own" / f"c{place}.csv", index=False)
    (tmp_path / "5.safetensors").write_bytes(b"nothing")
    limit = Gate(above=0.2)
    attack = FederationAttack.of(
        "nn3", DATA.schema, attacks=["single_activation"], reference=DATA.train, gate=limit, truth=tmp_path / "own"
    )
    found = attack.run(tmp_path)
    assert found.attacked is not None
    row = found.attacked.row()
    assert row is not None
    assert (row.mean, row.n, row.status) == (1.0, 5, "failed")
    assert row.lift is not None
    report = captured_report(found.attacked)
    assert report.overviews[0]["tier"] == "whole records read"
    assert report.decision is not None
    assert report.decision.outcome == "failed"
    assert "Threat model" in page(captured_document(found.findings, report))


def test_the_model_of_another_round_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "client-a.safetensors").write_bytes((folder / "round-0001" / "client-a.safetensors").read_bytes())
    weights = folder / "round-0002" / "model.safetensors"
    attack = FederationAttack.of("nn3", DATA.schema, proofs_only=True, weights=weights)
    [found] = attack.run(tmp_path).updates
    assert found.outcome == "not tried"
    assert "is not the model that the server sent" in found.why
    [found] = FederationAttack.of("nn3", DATA.schema, proofs_only=True).run(tmp_path).updates
    assert "there is no model.safetensors beside the update" in found.why


def test_restarts_that_agree_are_an_estimate(folder: Path, tmp_path: Path) -> None:
    """A single record, read by matching gradients, which proves nothing."""
    module = nn3(DATA.schema, seed=1).module
    save_file(dict(module.state_dict()), tmp_path / "model.safetensors")
    about = description(0, module, batch_size=1)
    save_capture(tmp_path / "client-c.safetensors", gradient(module, slice(0, 1)), about)
    options = {"restarts": 3, "iterations": 150}
    [found] = (
        FederationAttack.of("nn3", DATA.schema, attacks=[{"name": "tableak", "options": options}]).run(tmp_path).updates
    )
    assert (found.outcome, found.proved_records, found.estimated_records) == ("estimated", 0, 1)


def test_each_update_of_a_folder_is_attacked_from_starts_of_its_own(tmp_path: Path) -> None:
    module, read = nn3(DATA.schema, seed=0).module, dict[str, Recovered]()
    save_file(dict(module.state_dict()), tmp_path / "model.safetensors")
    for client in ("a", "b"):
        about = description(0, module, batch_size=1, client=client)
        save_capture(tmp_path / f"client-{client}.safetensors", gradient(module, slice(0, 1)), about)
    attack = FederationAttack.of("nn3", DATA.schema, attacks=["dlg"], iterations=1)
    attack.run(tmp_path, keep=read.__setitem__)
    alone = attack.update(tmp_path / "client-a.safetensors", tmp_path / "model.safetensors")
    first, second = read["client-a"].guess.cells, read["client-b"].guess.cells
    assert torch.allclose(first, alone.guess.cells)
    assert not torch.allclose(first, second)


def test_rounds_of_the_same_batch_are_matched_together(tmp_path: Path) -> None:
    for round in (1, 2):
        module = nn3(DATA.schema, seed=round).module
        (tmp_path / f"round-{round}").mkdir()
        save_file(dict(module.state_dict()), tmp_path / f"round-{round}" / "model.safetensors")
        about = description(round, module, batch_size=1, client="c")
        save_capture(tmp_path / f"round-{round}" / "update.safetensors", gradient(module, slice(0, 1)), about)
    options = {"restarts": 1, "iterations": 1}
    [together] = (
        FederationAttack.of("nn3", DATA.schema, attacks=[{"name": "tableak", "options": options}], holds=1)
        .run(tmp_path)
        .clients
    )
    assert (together.rounds, together.records) == (2, 1)
    assert together.why == "all rounds matched together, as of the same records"
    [together] = (
        FederationAttack.of("nn3", DATA.schema, attacks=[{"name": "tableak", "options": options}]).run(tmp_path).clients
    )
    assert together.why == "rounds attacked one by one, equal records linked"


def test_what_could_not_be_searched_is_never_nothing(folder: Path, tmp_path: Path) -> None:
    """The exact search has no multiplications to spend: that nothing was proved says nothing."""
    for name in ("client-a.safetensors", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / "round-0001" / name).read_bytes())
    [found] = (
        FederationAttack.of(
            "nn3", DATA.schema, proofs_only=True, attacks=[{"name": "unmix", "options": {"operations": 1.0}}]
        )
        .run(tmp_path)
        .updates
    )
    assert (found.outcome, found.records) == ("not tried", RECORDS)
    assert "multiplications" in found.why


@pytest.mark.parametrize(
    ("name", "client", "round"),
    [
        ("round-0012/client-7", "7", 12),
        ("client_7-round_3", "7", 3),
        ("client-north-east/round-2", "north-east", 2),
        ("hospital-round-5", "hospital", 5),
        ("alone", "alone", None),
        (f"client-7-round-{'9' * 40}", "7", None),
        ("hospital-a/round-0/update", "hospital-a", 0),
        ("round-3/north/gradients", "north", 3),
        ("updates/round-2/south", "south", 2),
        ("client-updates/round-2/south", "south", 2),
        ("round-4/update", "update", 4),
    ],
)
def test_client_and_round_are_read_from_the_name(tmp_path: Path, name: str, client: str, round: int | None) -> None:
    path = tmp_path / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"weight": torch.ones(1)}, path)
    [found] = find_captures(tmp_path)
    assert (found.client, found.round) == (client, round)


@pytest.mark.parametrize(
    ("names", "clients"),
    [
        (["a/round-0/update", "a/round-1/update", "b/round-0/update"], ["a", "a", "b"]),
        (["run/round-0/a", "run/round-0/b", "run/round-1/a"], ["run-a", "run-a", "run-b"]),
        # A single client each round, and files that say no round.
        (["run/round-0/a", "run/round-1/b"], ["run-a", "run-b"]),
        (["run/a", "run/b"], ["run/a", "run/b"]),
        (["client-1/round-0/x", "client-1/round-0/y"], ["client-1-x", "client-1-y"]),
        (["a-b/round-0/c", "a-b/round-0/d", "a/round-0/b-c", "a/round-0/e"], None),
    ],
)
def test_updates_of_different_clients_are_never_those_of_one(
    tmp_path: Path, names: list[str], clients: list[str] | None
) -> None:
    for name in names:
        path = tmp_path / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"weight": torch.ones(1)}, path)
    found = find_captures(tmp_path)
    assert clients is None or [file.client for file in found] == clients
    assert len({(file.client, file.round) for file in found}) == len(names)
    apart = "a" not in {file.client for file in found}
    assert all(("kept apart by its path" in "".join(file.notes)) == apart for file in found)


def test_files_that_say_the_same_client_and_round_are_kept_apart(tmp_path: Path) -> None:
    for name in ("x", "y"):
        about = Description(client="north", round=2)
        save_capture(tmp_path / f"{name}.safetensors", {"weight": torch.ones(1)}, about)
    assert [file.client for file in find_captures(tmp_path)] == ["x", "y"]


def test_the_description_goes_before_the_name(tmp_path: Path) -> None:
    for round, client in ((10, "y"), (2, "y"), (1, "x")):
        about = Description(client=client, round=round)
        save_capture(tmp_path / f"client-0-round-{round}{client}.safetensors", {"weight": torch.ones(1)}, about)
    assert [(one.client, one.round) for one in find_captures(tmp_path)] == [("x", 1), ("y", 2), ("y", 10)]


def test_figures_of_updates_are_joined_without_correlations_across_the_victims_of_one() -> None:
    part = PlannedPart(Part(name="tableak"), "attack")
    runs = {}
    for unit, rate in ((0, 0.25), (2, 0.75)):
        values = torch.tensor([rate], dtype=torch.float64)
        measured = [
            Measurement("accuracy", None, values),
            Measurement("kendall_discrete", None, values, bounds=(-1.0, 1.0), entropy=values),
        ]
        runs[unit] = Run(Configuration("none", 4), part, measured, (0,), 1.0, {}, {}, planned=1)
    whole = _joined(runs, ())
    assert whole.units == (0, 2)
    assert [(figure.metric, figure.values.tolist()) for figure in whole.measured] == [("accuracy", [0.25, 0.75])]
    assert whole.measured[0].estimate().mean == 0.5


def test_a_table_of_one_client_is_not_taken_for_several(folder: Path) -> None:
    attack = FederationAttack.of("nn3", DATA.schema, truth=folder / "a.csv")
    with pytest.raises(BadInputError, match="the updates are of 2 clients; give a folder"):
        attack.run(folder)


class Shares(Listener):
    def __init__(self) -> None:
        self.jobs, self.work, self.failures = 0, 0.0, 0

    def begin(self, work: float, jobs: int) -> None:
        self.jobs = jobs

    def advance(self, work: float) -> None:
        self.work += work

    def failed(self, what: str, why: str) -> None:
        self.failures += 1


def test_progress_ends_with_all_work_done(folder: Path) -> None:
    shares = Shares()
    FederationAttack.of("nn3", DATA.schema, attacks=["single_activation"]).run(folder, shares)
    assert shares.jobs == 4
    assert shares.work == pytest.approx(4)
    assert shares.failures >= 2


def test_the_page_holds_every_update_and_no_markup_of_a_file_name() -> None:
    one = UpdateFinding("<b>x</b>", "<script>alert(1)</script>", 3, None, "not tried", "it is broken")
    found = AttackedFederation((one,), (), "unmix")
    text = page(captured_document(found.findings))
    assert "<script>alert" not in text
    assert "it is broken" in text
    assert '<span class="tier open">not tried</span>' in text
    assert "not known to be safe" in found.findings.sections[0].words[-1]


def test_the_command_writes_prints_and_tells_failures_by_its_status(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seepage = commands(capfd, monkeypatch, tmp_path)
    (tmp_path / "schema.yaml").write_text(DATA.schema.to_yaml())
    DATA.train.frame.to_csv(tmp_path / "public.csv", index=False)
    given = ["--model", "nn3", "--schema", "schema.yaml", "--data", "public.csv", "--proofs-only"]
    status, text, _ = seepage("attack", folder, *given, "--truth", folder, "--out", "read")
    assert status == 3
    assert "What all rounds of a client give away together" in text
    assert "2 proved, 0 estimated, 0 nothing, 2 not tried, 0 failed" in text
    results = json.loads((tmp_path / "read" / "results.json").read_text())
    assert [update["outcome"] for update in results["updates"]] == ["proved", "proved", "not tried", "not tried"]
    assert results["clients"][0]["score"]["mean"] == 1
    assert (tmp_path / "read" / "round-0001" / "client-a" / "reconstruction.csv").is_file()
    assert "What each update gives away" in (tmp_path / "read" / "report.html").read_text()
    status, _, err = seepage("attack", folder, *given, "--out", "read")
    assert status == 2
    assert "holds results.json already" in err
    (tmp_path / "empty").mkdir()
    status, _, err = seepage("attack", "empty", *given, "--out", "other")
    assert status == 2
    assert "there is no captured update" in err
    assert not (tmp_path / "other").exists()
    status, text, _ = seepage("attack", folder, *given, "--out", "third", "--json")
    assert status == 3
    assert json.loads(text)["counts"]["proved"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--proofs-only", "--restarts", 2], "--proofs-only estimates nothing"),
        (["--certificate", "proof.json"], "--certificate is of one update"),
        (["--holds", 0], "whole number from 1 up"),
        (["--truth", "nobody"], "has no table of any client; name them ID.csv, such as a.csv"),
    ],
)
def test_options_that_a_folder_cannot_have_are_refused(
    folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[object],
    message: str,
) -> None:
    (tmp_path / "schema.yaml").write_text(DATA.schema.to_yaml())
    (tmp_path / "nobody").mkdir()
    seepage = commands(capfd, monkeypatch, tmp_path)
    given = ["--model", "nn3", "--schema", "schema.yaml", *options]
    status, _, err = seepage("attack", folder, *given, "--out", "read")
    assert status == 2
    assert message in err
    assert not (tmp_path / "read").exists()
