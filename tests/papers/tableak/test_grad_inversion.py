from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seepage import attacks, models
from seepage.attacks.horizontal.matching.engine import match
from seepage.attacks.horizontal.matching.matching import Cosine
from seepage.attacks.horizontal.matching.priors import Guided
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import batch_statistics
from seepage.models.model import Model
from seepage.papers.tableak.attacks.grad_inversion import BatchStatistics, Squares
from seepage.protocols.fedsgd import FedSGD
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.settings.setting import Configuration, PlannedPart
from seepage.tabular.align import match as matching_of
from seepage.tabular.align import pairwise_error, reorder, right_cells
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge
from seepage.wire.secret import Transcript
from tests.roundings import assert_guessed_alike

DATA = distinct(rows=12, continuous=2, discrete=3)


def scene(
    name: str, records: int, victims: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Transcript, Knowledge, Tensor]:
    made = models.create(name, schema=DATA.schema, seed=1)
    model = Model(made.module.to(dtype), made.head, made.name)
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=dtype)
    transcript = FedSGD(records).run(model, DATA.train, encoder, seeds=range(victims))
    true = encoder.encode(transcript.secret.cells)
    known = batch_statistics(model, true)
    labels = transcript.secret.labels
    return transcript, Knowledge(DATA.schema, DATA.statistics, records, labels, batch_statistics=known), true


def penalty_by_hand(module: nn.Module, rows: Tensor, true: Tensor) -> Tensor:
    """Run one batch after the other through the layers and compare what enters each normalisation."""

    def entering(batch: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        handles = [
            layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
            for layer in own.modules()
            if type(layer).__name__ == "BatchNorm"
        ]
        own(batch)
        for handle in handles:
            handle.remove()
        return found

    own = copy.deepcopy(module)
    total = torch.zeros((), dtype=rows.dtype)
    for mine, theirs in zip(entering(rows), entering(true), strict=True):
        flat, other = (t.movedim(1, 0).flatten(1) for t in (mine, theirs))
        total = total + ((flat.mean(1) - other.mean(1)) ** 2).sum()
        total = total + ((flat.var(1, correction=1) - other.var(1, correction=1)) ** 2).sum()
    return total


@pytest.mark.parametrize("name", ["cnn_bn", "resnet_bn"])
def test_priors_are_their_formulas_and_have_their_derivatives(name: str) -> None:
    transcript, knowledge, true = scene(name, records=4)
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(2, 3, 4, DATA.schema.width, generator=generator, dtype=torch.float64)
    terms = [prior.on(transcript.view, knowledge) for prior in (Squares(0.3), BatchStatistics(0.7))]
    engine, labels = match(transcript.view, Cosine()), transcript.secret.labels
    plain, guided = engine(rows, labels), Guided(engine, terms)(rows, labels)
    torch.testing.assert_close(Guided(engine, terms).loss(rows, labels), plain[0], rtol=1e-12, atol=0)
    for v in range(2):
        for r in range(3):
            batch = rows[v, r].clone().requires_grad_()
            module = transcript.view.model.module
            expected = 0.3 * (batch**2).sum() + 0.7 * penalty_by_hand(module, batch, true[v])
            torch.testing.assert_close(guided[0][v, r] - plain[0][v, r], expected.detach(), rtol=1e-9, atol=1e-12)
            by_rows = torch.autograd.grad(expected, batch)[0]
            torch.testing.assert_close(guided[1][v, r] - plain[1][v, r], by_rows, rtol=1e-8, atol=1e-10)
    loss, derivative = terms[1](true[:, None])
    assert float(loss.max()) < 1e-25
    assert float(derivative.abs().max()) < 1e-12


def test_without_weights_it_is_inverting_gradients() -> None:
    transcript, knowledge, _ = scene("resnet_bn", records=4)
    options = {"iterations": 40, "profile": "faithful"}
    own = attacks.create("grad_inversion", l1=0.0, l2=0.0, **options)(transcript.view, knowledge, [3, 4])
    other = attacks.create("inverting_gradients", **options)(transcript.view, knowledge, [3, 4])
    assert torch.equal(own.cells, other.cells)
    guided = attacks.create("grad_inversion", l1=0.1, l2=0.1, **options)(transcript.view, knowledge, [3, 4])
    assert not torch.equal(own.cells, guided.cells)


def accuracy(transcript: Transcript, cells: Tensor) -> float:
    true = transcript.secret.cells
    aligned = reorder(cells, matching_of(pairwise_error(DATA.schema, cells, true)))
    return float(right_cells(DATA.schema, aligned, true).double().mean())


@pytest.mark.parametrize("records", [1, 2])
def test_a_small_batch_behind_a_normalised_convolution_is_read(records: int) -> None:
    transcript, knowledge, _ = scene("cnn_bn", records, dtype=torch.float32)
    attack = attacks.create("grad_inversion", l1=0.0, l2=0.1, iterations=150, step=0.1)
    guess = attack(transcript.view, knowledge, [0, 1])
    assert accuracy(transcript, guess.cells) > 0.9


# Of two records batch normalisation leaves +1 and -1; from six up a batch says something.
def test_a_batch_behind_a_normalised_residual_network_is_read_nearly_whole() -> None:
    transcript, knowledge, _ = scene("resnet_bn", records=8, dtype=torch.float32)
    guess = attacks.create("tableak", restarts=3, iterations=250)(transcript.view, knowledge, [0, 1])
    assert accuracy(transcript, guess.cells) > 0.8


def test_victims_keep_their_own_statistics_when_split_into_chunks() -> None:
    transcript, knowledge, _ = scene("cnn_bn", records=3, victims=3)
    options = {"iterations": 5, "l2": 0.1}
    whole, split = (
        attacks.create("grad_inversion", rows_at_once=size, **options)(transcript.view, knowledge, [0, 1, 2])
        for size in (1000, 3)
    )
    assert_guessed_alike(whole.cells, split.cells)


def test_statistics_that_are_not_granted_are_missed_only_where_there_are_some() -> None:
    transcript, knowledge, _ = scene("resnet_bn", records=4)
    hidden = replace(knowledge, batch_statistics=None)
    with pytest.raises(BadInputError, match=r"not granted for model 'resnet_bn'; grant them .* \(l2=0 of grad_inv"):
        attacks.create("grad_inversion", iterations=1)(transcript.view, hidden, [0, 1])
    attacks.create("grad_inversion", iterations=1, l2=0.0)(transcript.view, hidden, [0, 1])
    transcript, knowledge, _ = scene("nn1", records=4)
    hidden = replace(knowledge, batch_statistics=None)
    own, other = (
        attacks.create("grad_inversion", iterations=9, l2=l2)(transcript.view, hidden, [0, 1]) for l2 in (0.0, 1.0)
    )
    assert torch.equal(own.cells, other.cells)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_that_are_none_are_refused(weight: float) -> None:
    for name in ("l1", "l2"):
        with pytest.raises(BadInputError, match="must be 0 or a positive number, got"):
            attacks.create("grad_inversion", **{name: weight})


def test_running_statistics_grant_a_batchs_where_they_are_sent() -> None:
    def prepared(**options: Any) -> tuple[HorizontalAudit, Configuration, PlannedPart]:
        asked = {"dataset": "german", "model": "resnet_bn", "batch_sizes": 4, "attacks": "unmix", **options}
        spec = make_spec(**asked)
        audit = HorizontalAudit(spec, prepare(spec))
        return audit, audit.configurations[0], audit.parts[-1]

    (sent, place, part), (exact, _, _) = prepared(), prepared(batch_statistics="granted")
    assert sent.identity(place, part)["batch_statistics"] == "sent"
    assert "batch_statistics" in sent.granted(place, part)
    found, true = (one.expose(place, range(2)).knowledge.batch_statistics for one in (sent, exact))
    assert found is not None
    assert true is not None
    for name, moments in true.items():
        # A tenth of the batch's is in the running ones, so that their rounding is ten times as large.
        torch.testing.assert_close(found[name], moments, rtol=1e-4, atol=1e-4)
    for other in ({"protocol": "fedavg"}, {"model": "nn1"}):
        audit, place, part = prepared(**other)
        assert audit.identity(place, part)["batch_statistics"] == "hidden"
        assert audit.expose(place, range(1)).knowledge.batch_statistics is None


def test_an_audit_grants_true_statistics_only_if_told_to() -> None:
    def prepared(**options: str) -> tuple[HorizontalAudit, Configuration, PlannedPart]:
        spec = make_spec(dataset="german", model="resnet_bn", batch_sizes=4, attacks="grad_inversion", **options)
        audit = HorizontalAudit(spec, prepare(spec))
        return audit, audit.configurations[0], audit.parts[-1]

    (hidden, place, part), (granted, _, _) = (prepared(batch_statistics=said) for said in ("hidden", "granted"))
    assert hidden.identity(place, part) != granted.identity(place, part)
    exposure = granted.expose(place, range(2))
    assert hidden.expose(place, range(2)).knowledge.batch_statistics is None
    assert "batch_statistics" not in hidden.granted(place, part)
    assert granted.granted(place, part)["batch_statistics"] == "mean and variance of each batch where it is normalised"
    assert exposure.plainly.batch_statistics is None
    found = exposure.knowledge.batch_statistics
    assert found is not None
    subject = granted.subject
    cells = exposure.transcript.secret.cells
    first = subject.encoder.encode(cells)[1] @ subject.model.parameters["0.branch.0.weight"].T
    first = first + subject.model.parameters["0.branch.0.bias"]
    torch.testing.assert_close(found["0.branch.1"].mean[1], first.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["0.branch.1"].variance[1], first.var(0), rtol=1e-4, atol=1e-5)
    spec = make_spec(dataset="german", batch_sizes=4, attacks="dlg", batch_statistics="granted")
    plain = HorizontalAudit(spec, prepare(spec))
    assert "batch_statistics" not in plain.granted(plain.configurations[0], plain.parts[-1])
