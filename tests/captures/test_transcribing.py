"""What the hook writes in two processes is what the simulation gives, and is read as such."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from seepage import TranscriptWriter, write_weights
from seepage.attacks.split import Exact
from seepage.captures.transcript_attacks import TranscriptAttack
from seepage.captures.transcripts import read_transcript
from seepage.errors import BadInputError
from seepage.protocols.split import SplitLearning
from seepage.tabular.schema import Discrete
from seepage.tabular.statistics import uniform_statistics
from seepage.wire.split import CutKnowledge
from tests.captures import two_parties as job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transcript of a training in two processes that talk over the loopback interface."""
    folder = tmp_path_factory.mktemp("training")
    root = Path(__file__).parents[2]
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    parties = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.captures.two_parties", str(folder), str(rank)],
            env=variables,
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [party.communicate(timeout=120)[1] for party in parties]
    assert [party.returncode for party in parties] == [0, 0], said
    return folder / "transcript"


def test_messages_of_two_processes_are_those_of_the_simulation(folder: Path) -> None:
    rows, model = job.both()
    learning = SplitLearning(job.EPOCHS, job.ROWS, job.RATE, decay=0)
    trained = SplitLearning(job.EPOCHS, job.BATCH, job.RATE, decay=0).train(model, rows, job.SEED)
    seen = learning.observe(trained, rows, seed=0)
    training = read_transcript(folder)
    last = training.rounds[-1]
    assert last.ids == tuple(map(str, range(job.ROWS)))
    assert last.gradients is not None
    assert torch.equal(last.activations, seen.view.cut)
    assert torch.equal(last.gradients, seen.view.gradient)
    knowledge = CutKnowledge(rows.schema, uniform_statistics(rows.schema))
    expected = Exact()(seen.view, knowledge)
    found = TranscriptAttack(training, attacks=["exact"]).run()
    assert not found.not_tried
    assert not found.notes
    answers = found.tried[0].answers.set_index("id").loc[[str(i) for i in range(job.ROWS)]]
    schema = rows.schema
    for k, name in enumerate(job.PRIVATE):
        column = schema.column(name)
        assert isinstance(column, Discrete)
        assert [column.categories.index(value) for value in answers[name]] == expected.cells[:, k].tolist()
    assert found.tried[0].shown["certified_cells", None] == 1.0
    # The answers are the truth, too.
    assert torch.equal(expected.cells, seen.cells)
    assert torch.equal(expected.labels, seen.labels)


def test_earlier_rounds_of_the_two_processes_count(folder: Path) -> None:
    training = read_transcript(folder)
    attack = TranscriptAttack(training, attacks=["posterior"])
    # Batches are drawn anew in each epoch, so that records were in rounds of different weights.
    found = attack.run()
    assert [one.attack for one in found.tried] == ["posterior"]
    rows, _ = job.both()
    answers = found.tried[0].answers
    wanted = rows.frame.loc[answers["id"].astype(int)]
    for name in job.PRIVATE:
        assert (answers[name].to_numpy() == wanted[name].to_numpy()).all()


def test_a_writer_refuses_what_does_not_fit(tmp_path: Path) -> None:
    rows, _ = job.both()
    schema = rows.schema
    with pytest.raises(BadInputError, match="did you mean 'cause'"):
        TranscriptWriter(tmp_path / "a", schema, ["causes"])
    with pytest.raises(BadInputError, match="did you mean 'loss'"):
        TranscriptWriter(tmp_path / "a", schema, ["cause"], los="sum")
    with pytest.raises(BadInputError, match="the attacker's own columns lack 'id'"):
        TranscriptWriter(tmp_path / "a", schema, ["cause"], own=rows.frame)
    writer = TranscriptWriter(tmp_path / "b", schema, ["cause"])
    with pytest.raises(BadInputError, match="holds a transcript already"):
        TranscriptWriter(tmp_path / "b", schema, ["cause"])
    for ids, cut, came, said in (
        ([1], torch.ones(2, 3), None, "has 1 ids for activations of shape"),
        ([1, 2], torch.ones(2, 3), None, "call exchange before the backward pass"),
        ([1, 2], torch.ones(2, 3), torch.ones(2, 2), "gradients of shape"),
        (torch.tensor([1.5, 2.0]), torch.ones(2, 3), torch.ones(2, 3), "ids are whole numbers or texts"),
        ([], torch.ones(0, 3), torch.ones(0, 3), "there is at least one"),
    ):
        with pytest.raises(BadInputError, match=said):
            writer.exchange(ids, cut, came)
    with pytest.raises(BadInputError, match="number of the round"):
        write_weights(torch.nn.Linear(1, 1), tmp_path, -1)


def test_texts_serve_as_ids_and_inference_has_no_gradients(tmp_path: Path) -> None:
    rows, _ = job.both()
    own = pd.DataFrame({"id": ["ä1", "b"], **{name: rows.frame[name][:2] for name in rows.schema.names[1:]}})
    writer = TranscriptWriter(tmp_path / "a", rows.schema, ["cause"], "vertical", own)
    writer.inference(["ä1", "b"], torch.ones(2, 3))
    training = read_transcript(tmp_path / "a")
    assert training.ids == ("ä1", "b")
    assert training.rounds[0].gradients is None
    assert training.own is not None
    assert training.own[0] == {"ä1": 0, "b": 1}
