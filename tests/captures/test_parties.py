"""Transcripts of several passive parties, and what the alignment of their tables tells."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from seepage import PartyTranscripts
from seepage.assessment.alignment import alignment
from seepage.captures.transcripts import read_transcript
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.integrations.secretflow import capture_callback
from seepage.report.captured import captured_document, captured_sections
from seepage.report.document import Grid
from seepage.report.page import page
from seepage.tabular.schema import Continuous, Discrete
from tests.captures.attacked import attacked

DATA = telling(rows=100)
PARTIES = {"alice": ["cause"], "carol": ["noise_0", "noise_1"]}
OWN = DATA.train.frame[["noise_2", "label"]].assign(id=range(100))


@dataclass(frozen=True)
class Device:
    """A device of SecretFlow by its documented attribute; not hashed by value."""

    party: str


@dataclass
class ForwardData:
    """The message of a base model by SecretFlow's documented fields."""

    hidden: Any
    losses: Any = None


def drawn(width: int, seed: int, records: int = 4) -> Tensor:
    return torch.randn(records, width, generator=torch.Generator().manual_seed(seed))


def test_messages_of_secretflow_by_its_documented_format_are_written(tmp_path: Path) -> None:
    """Devices as keys, ``ForwardData`` with tensors, arrays or lists; gradients as lists. Not run with SecretFlow."""
    transcripts = PartyTranscripts(tmp_path, DATA.schema, PARTIES, OWN)
    alice, bob, carol = Device("alice"), Device("bob"), Device("carol")
    first, second = drawn(3, 0), drawn(2, 1)
    features = {
        alice: ForwardData(first),
        # The active party has a base model of its own, whose output does not cross the wire.
        bob: ForwardData(drawn(3, 2)),
        carol: ForwardData([second[:, :1].numpy(), second[:, 1:].numpy()]),
    }
    gradients = {alice: [drawn(3, 3)], bob: drawn(3, 4), carol: [drawn(1, 5), np.asarray(drawn(1, 6))]}
    transcripts.exchange(pd.Series([3, 1, 4, 0]), features, gradients)
    [messages] = read_transcript(tmp_path / "alice").rounds
    assert messages.ids == ("3", "1", "4", "0")
    torch.testing.assert_close(messages.activations, first)
    torch.testing.assert_close(messages.gradients, drawn(3, 3))
    training = read_transcript(tmp_path / "carol")
    torch.testing.assert_close(training.rounds[0].activations, second)
    assert training.about.private == ("noise_0", "noise_1")
    # The columns of the other passive party are in no transcript of this one.
    assert training.schema.names == ("noise_0", "noise_1", "noise_2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice", "carol"]


class Callback:
    """The base class of SecretFlow's callbacks: calls that are not overridden do nothing."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *values, **named: None


@pytest.mark.parametrize("behind", [0, 1])
def test_a_callback_of_secretflow_writes_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """The calls of ``SLModel.fit`` in their order, with a pipeline that lags behind or none; SecretFlow is not run."""
    for name, holds in (("secretflow_fl.ml.nn.callbacks.callback", Callback), ("secretflow.device", lambda held: held)):
        module = ModuleType(name)
        setattr(module, "Callback" if holds is Callback else "reveal", holds)
        monkeypatch.setitem(sys.modules, name, module)
    transcripts = PartyTranscripts(tmp_path, DATA.schema, {"alice": ["cause"]}, OWN)
    callback = capture_callback(transcripts, [7, 3, 5, 1, 0], batch_size=2)
    alice, sizes = Device("alice"), (2, 2, 1)
    features = [drawn(3, step, records) for step, records in enumerate(sizes)]
    for epoch in range(2):
        callback.on_epoch_begin(epoch=epoch)
        waiting: list[Any] = [None] * behind
        for step in range(3 + behind):
            if step < 3:
                callback.on_train_batch_begin(step)
                waiting.append({alice: ForwardData(features[step])})
            if (sent := waiting.pop(0)) is None:
                continue
            callback.on_agglayer_forward_begin(hiddens=sent)
            callback.on_agglayer_backward_end({alice: [-sent[alice].hidden]})
            callback.on_train_batch_end(step)
        # Validation calls it with aggregated features, which belong to no batch.
        callback.on_agglayer_forward_begin([drawn(3, 9)])
    rounds = read_transcript(tmp_path / "alice").rounds
    assert [one.ids for one in rounds] == 2 * [("7", "3"), ("5", "1"), ("0",)]
    for one, sent in zip(rounds, 2 * features, strict=True):
        assert one.gradients is not None
        torch.testing.assert_close(one.activations, sent)
        torch.testing.assert_close(one.gradients, -sent)
    callback.on_train_batch_begin(3)
    callback.on_agglayer_forward_begin(hiddens={alice: drawn(3, 0)})
    with pytest.raises(BadInputError, match="batch 3 begins after the last of 5 ids"):
        callback.on_agglayer_backward_end({alice: drawn(3, 0)})


def test_parties_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    transcripts = PartyTranscripts(tmp_path / "one", DATA.schema, PARTIES, OWN)
    with pytest.raises(BadInputError, match="'carol' gets a gradient and sent no features"):
        transcripts.exchange([1, 2, 3, 4], {"alice": drawn(2, 0)}, {"carol": drawn(2, 0)})
    with pytest.raises(BadInputError, match="did you mean 'alice'"):
        transcripts.exchange([1, 2, 3, 4], {"alise": drawn(2, 0)}, {"alise": drawn(2, 0)})
    with pytest.raises(BadInputError, match=r"the party '\.\./out' gives its name to a folder"):
        PartyTranscripts(tmp_path / "two", DATA.schema, {"../out": ["cause"]}, OWN)
    assert not (tmp_path / "two").exists()


SMOKES = Discrete(name="smokes", categories=("no", "yes"))
AGE = Continuous(name="age", low=0, high=100, tolerance=1)


def test_shares_within_and_without_have_the_intervals_of_newcombe() -> None:
    """56 of 70 and 48 of 80: 0.0524 to 0.3339 by Newcombe (Statistics in Medicine 1998, table II, method 10)."""
    smokes = torch.cat([torch.arange(70) < 56, torch.arange(80) < 48]).double()
    aligned = alignment(smokes[:, None], [SMOKES], torch.arange(150) < 70)
    [no, yes] = aligned.rates
    assert (aligned.records, aligned.shared) == (150, 70)
    assert (yes.value, yes.shared.mean, yes.others.mean) == ("yes", 0.8, pytest.approx(0.6))
    assert yes.difference.low == pytest.approx(0.0524, abs=5e-5)
    assert yes.difference.high == pytest.approx(0.3339, abs=5e-5)
    assert no.difference.mean == pytest.approx(-0.2)


def test_what_own_columns_predict_of_membership_is_planted() -> None:
    generator = torch.Generator().manual_seed(0)
    smokes = torch.randint(2, (400,), generator=generator).double()
    age = 100 * torch.rand(400, generator=generator).double()
    cells = torch.stack([smokes, age], dim=1)
    known = alignment(cells, [SMOKES, AGE], smokes.bool())
    assert known.predicted is not None
    assert known.predicted.mean == 1.0
    assert next(rate for rate in known.rates if rate.value == "yes").shared.mean == 1.0
    random = alignment(cells, [SMOKES, AGE], torch.rand(400, generator=generator) < 0.5)
    assert random.predicted is not None
    assert abs((random.predicted.mean or 0.0) - 0.5) < 0.08
    [mean] = [rate for rate in random.rates if rate.column == "age"]
    assert mean.value is None
    assert (mean.difference.low or 0.0) < 0 < (mean.difference.high or 0.0)


@pytest.mark.parametrize("shared", [100, 95, 3])
def test_too_few_records_within_or_without_have_counts_alone(shared: int) -> None:
    aligned = alignment(DATA.train.cells[:, :1], [SMOKES], torch.arange(100) < shared)
    assert (aligned.records, aligned.shared, aligned.predicted, aligned.rates) == (100, shared, None, ())


@pytest.mark.parametrize("shared", [60, 100])
def test_the_report_says_what_alignment_gave_away(tmp_path: Path, shared: int) -> None:
    transcripts = PartyTranscripts(tmp_path, DATA.schema, PARTIES, OWN)
    sent = {"alice": drawn(2, 0, shared), "carol": drawn(2, 1, shared)}
    transcripts.exchange(range(shared), sent, sent)
    findings = attacked(tmp_path / "carol").findings
    [section] = [section for section in captured_sections(findings) if section.name == "alignment"]
    assert f"{shared} of its 100 records are with the attacked party" in str(section.blocks[0])
    assert "What alignment gives away" in page(captured_document(findings))
    tables = [block for block in section.blocks if isinstance(block, Grid)]
    plain = findings.figures["alignment"]
    assert isinstance(plain, dict)
    assert plain["shared"] == shared
    if shared == 100:
        assert not tables
        assert "records that the other party lacks" in str(section.blocks[1])
    else:
        assert {row[0].text for row in tables[0].rows} == {"noise_2", "label"}
        assert "Its own columns predict" in str(section.blocks[1])
