"""Messages whose loss is not the declared one, by PyTorch's own losses: what is fitted, read, and not claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from seepage.attacks.horizontal.exact.form_fit import factors_of, fitted_form
from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.networks import Network
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets import load
from seepage.learning import gradient
from seepage.models.message import PLAIN, MessageForm
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess

GERMAN = load("german")
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
Loss = Callable[[Tensor, Tensor], Tensor]


def graded() -> Schema:
    """Return a schema with three classes."""
    target = Discrete(name="grade", categories=("low", "middle", "high"))
    return GERMAN.schema.model_copy(update={"target": target})


def attacked(model: Model, schema: Schema, labels: Tensor, loss: Loss) -> RecordsGuess:
    """Attack the gradient of a loss of the first rows, taken for that of the mean cross-entropy."""
    cells = GERMAN.train.cells[: len(labels)]
    encoder = Encoder(schema, GERMAN.statistics, dtype=torch.float32)
    value = loss(model.module(encoder.encode(cells)), labels)
    sent = torch.autograd.grad(value, list(model.module.parameters()))
    view = GradientView(model, {name: part[None] for name, part in zip(model.parameters, sent, strict=True)})
    return unmix(restarts=2, iterations=2)(view, Knowledge(schema, GERMAN.statistics, len(labels)), [0])


def assert_all_read(guess: RecordsGuess, labels: Tensor | None) -> None:
    """All rows are read, with their labels if given, and nothing is certified."""
    assert guess.labels is not None
    assert guess.certified is not None
    count = len(guess.cells[0])
    found = torch.cdist(guess.cells[0], GERMAN.train.cells[:count]).argmin(1)
    assert sorted(found.tolist()) == list(range(count))
    torch.testing.assert_close(guess.cells[0], GERMAN.train.cells[:count][found], rtol=1e-5, atol=1e-2)
    assert not bool(guess.certified.any())
    if labels is not None:
        assert torch.equal(guess.labels[0].long(), labels[found])


@pytest.mark.long
def test_class_weights_and_label_smoothing_of_several_classes_are_fitted_together() -> None:
    weights = torch.tensor([1.0, 9.0, 3.0])
    model = mlp(graded(), (60, 50), seed=0)
    guess = attacked(model, graded(), LABELS, lambda o, y: cross_entropy(o, y, weight=weights, label_smoothing=0.1))
    assert_all_read(guess, LABELS)
    assert guess.regime is not None
    assert "class weights 1 : 9 : 3, label smoothing 0.1" in guess.regime[0]
    assert "not sure" not in guess.regime[0]


@pytest.mark.long
@pytest.mark.parametrize("bias", [True, False])
def test_weights_of_records_are_no_usual_form_and_the_records_are_read_all_the_same(bias: bool) -> None:
    weights = torch.tensor([0.3, 5.0, 1.7, 2.2, 0.9, 4.1, 3.3, 0.6])
    model = mlp(graded(), (60, 50), seed=0, bias=bias)
    guess = attacked(model, graded(), LABELS, lambda o, y: (weights * cross_entropy(o, y, reduction="none")).mean())
    assert_all_read(guess, None)
    assert guess.regime is not None
    assert "no usual form of the loss explains the message" in guess.regime[0]
    assert "the labels are not sure" in guess.regime[0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_a_form_is_fitted_where_the_network_is_sure_so_that_signs_do_not_tell_labels(classes: int, sign: float) -> None:
    """Under label smoothing, a record whose chance is above its soft label is pushed away from its label."""
    draw = torch.Generator().manual_seed(classes)
    outputs = 4 * torch.randn(32, classes, generator=draw, dtype=torch.float64)
    outputs.requires_grad_()
    if classes == 1:
        labels = torch.bernoulli(outputs.detach().sigmoid()[:, 0], generator=draw).long()
        weight = torch.tensor(9.0, dtype=torch.float64)
        soft = labels * 0.9 + 0.05
        loss = binary_cross_entropy_with_logits(outputs[:, 0], soft, pos_weight=weight)
    else:
        labels = torch.multinomial(outputs.detach().softmax(1), 1, generator=draw)[:, 0]
        weights = torch.tensor([1.0, 9.0, 3.0, 3.0, 3.0][:classes], dtype=torch.float64)
        loss = cross_entropy(outputs, labels, weight=weights, label_smoothing=0.1)
    [errors] = torch.autograd.grad(sign * loss, outputs)
    head = "sigmoid" if classes == 1 else "softmax"
    fitted = fitted_form(head, outputs.detach(), errors, PLAIN, 32)
    assert fitted is not None
    assert fitted.tells_labels
    assert fitted.form.smoothing == pytest.approx(0.1, abs=1e-3)
    assert fitted.form.weights[1] == pytest.approx(9.0, rel=1e-3)
    assert torch.equal(factors_of(head, fitted.form, outputs.detach(), errors * 32)[1], labels)


def test_as_many_fitted_numbers_as_records_do_not_tell_labels() -> None:
    outputs = torch.tensor([[0.3]], dtype=torch.float64)
    fitted = fitted_form("sigmoid", outputs, torch.tensor([[-0.7]], dtype=torch.float64), PLAIN, 1)
    assert fitted is not None
    assert not fitted.tells_labels


def test_roundings_grow_with_the_factor_of_a_message() -> None:
    model = mlp(GERMAN.schema, (50, 40), seed=3)
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    cells, labels = GERMAN.train.cells[:9], GERMAN.train.labels[:9]
    sent = list(gradient(model, encoder.encode(cells), labels.float()).values())
    layers = [torch.cat([w, b[:, None]], 1) for w, b in zip(sent[::2], sent[1::2], strict=True)]
    network = Network.of_parameters([p.double() for p in model.parameters.values()])
    rows = encoder.encode(cells).double()
    counts = torch.nn.functional.one_hot(labels.long(), 2).double()

    def lengths(factor: float) -> list[Tensor]:
        form = MessageForm(scale=factor)
        held = Gradient(network, "softmax", [factor * layer.double() for layer in layers], 9, 1e-7, form)
        return held.roundings(rows, counts)

    for once, tiny in zip(lengths(1.0), lengths(1e-6), strict=True):
        torch.testing.assert_close(tiny, 1e-6 * once)


@pytest.mark.parametrize("loss", ["focal", "squared", "squared_chance"])
def test_gradients_of_other_losses_are_computed_for_several_batches(loss: str) -> None:
    form = MessageForm(loss=loss, gamma=2.0 if loss == "focal" else 0.0, weights=(1.0, 2.0))  # type: ignore[arg-type]
    model = replace(mlp(GERMAN.schema, (5,), seed=0), form=form)
    rows = torch.randn(3, 4, GERMAN.schema.width, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0.0, 1, 1, 0]] * 3)
    together = gradient(model, rows, labels)
    value = form.loss_of("softmax", model.module(rows[1]), labels[1])
    for sent, part in zip(together.values(), torch.autograd.grad(value, list(model.module.parameters())), strict=True):
        torch.testing.assert_close(sent[1], part)


LIKELY, UNLIKELY = ((GERMAN.train.labels == label).nonzero()[:, 0].tolist() for label in (0, 1))


def attacked_rows(rows: list[int], loss: Loss) -> tuple[RecordsGuess, Tensor]:
    """Attack the gradient of a loss of some rows; return the guess, and which true row each guessed one equals."""
    cells = GERMAN.train.cells[rows]
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    model = mlp(GERMAN.schema, (60, 60), seed=0)
    value = loss(model.module(encoder.encode(cells)), GERMAN.train.labels[rows].long())
    sent = torch.autograd.grad(value, list(model.module.parameters()))
    view = GradientView(model, {name: part[None] for name, part in zip(model.parameters, sent, strict=True)})
    guess = unmix(restarts=2, iterations=2)(view, Knowledge(GERMAN.schema, GERMAN.statistics, len(rows)), [0])
    apart = (guess.cells[0][:, None] - GERMAN.train.cells[rows]).abs().amax(2)
    return guess, torch.where(apart.amin(1) < 1e-2, torch.tensor(rows)[apart.argmin(1)], -1)


def sure(guess: RecordsGuess) -> list[bool]:
    """Return which records have no doubt in any category."""
    assert guess.uncertainty is not None
    return (guess.uncertainty[0][:, list(GERMAN.schema.discrete)] == 0).all(1).tolist()


@pytest.mark.parametrize("seen", [4, 2, 1])
def test_copies_that_only_fill_up_a_batch_are_not_sure(seen: int) -> None:
    weight = torch.tensor([0.0, 1.0])
    # One class has a weight of 0, and what is left of the batch of 8 looks as if each record were there several times.
    rows = UNLIKELY[:seen] + LIKELY[: 8 - seen]
    guess, equal = attacked_rows(rows, lambda o, y: cross_entropy(o, y, weight=weight))
    assert sorted(row for row, certain in zip(equal.tolist(), sure(guess), strict=True) if certain) == rows[:seen]
    assert guess.regime is not None
    assert "up the batch and not sure" in guess.regime[0]
    assert guess.certified is not None
    assert not guess.certified.any()


def test_copies_of_some_records_are_sure_where_the_form_is_declared() -> None:
    rows = UNLIKELY[:1] * 2 + LIKELY[:6]
    guess, equal = attacked_rows(rows, cross_entropy)
    assert sorted(equal.tolist()) == sorted(rows)
    assert all(sure(guess))


@pytest.mark.parametrize("factor", [4.0, *(pytest.param(factor, marks=pytest.mark.slow) for factor in (0.01, -3.0))])
@pytest.mark.parametrize("copies", [(2, 1, 1, 1, 1, 1, 1), (3, 3, 1, 1)])
def test_copies_under_an_unknown_factor_are_read_where_they_make_the_batch(
    factor: float, copies: tuple[int, ...]
) -> None:
    kinds = [*UNLIKELY[:2], *LIKELY[:5]][: len(copies)]
    rows = [row for row, count in zip(kinds, copies, strict=True) for _ in range(count)]
    guess, equal = attacked_rows(rows, lambda o, y: factor * cross_entropy(o, y))
    assert sorted(equal.tolist()) == sorted(rows)
    # The first of each is sure; the others depend on the form, which is fitted.
    assert sorted(row for row, certain in zip(equal.tolist(), sure(guess), strict=True) if certain) == sorted(kinds)
    assert guess.regime is not None
    assert f"a factor of {factor:g}" in guess.regime[0]
