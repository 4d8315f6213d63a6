"""Gradients of other losses than the mean of cross-entropy are read as well, and nothing of them is proved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from seepage.attacks.horizontal.exact.form_fit import factors_of, fitted_form
from seepage.attacks.horizontal.exact.record_count import count_records
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.attacks.horizontal.matching.engine import output_error
from seepage.attacks.horizontal.matching.labels import restore_labels
from seepage.datasets import Dataset, load
from seepage.learning import gradient
from seepage.models.head import Head
from seepage.models.message import PLAIN, MessageForm
from seepage.models.mlp import nn3
from seepage.models.model import Model
from seepage.tabular.align import right_cells
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess

Loss = Callable[[Tensor, Tensor], Tensor]

GERMAN = load("german")
RECORDS = 8
CLASSES = torch.tensor([1.0, 9.0])


def by_parts(outputs: Tensor, labels: Tensor) -> Tensor:
    """Gradients of four batches that are added up and not divided."""
    parts = zip(outputs.split(2), labels.split(2), strict=True)
    return sum((functional.cross_entropy(*part) for part in parts), torch.zeros(()))


def uneven(outputs: Tensor, labels: Tensor) -> Tensor:
    """The mean over a batch of two records and one of six, so that records have two factors."""
    return (functional.cross_entropy(outputs[:2], labels[:2]) + functional.cross_entropy(outputs[2:], labels[2:])) / 2


def focal(outputs: Tensor, labels: Tensor) -> Tensor:
    log = outputs.log_softmax(1).gather(1, labels[:, None])
    return (-((1 - log.exp()) ** 2) * log).mean()


FORMS: dict[str, Loss] = {
    "a factor of 8": lambda z, y: functional.cross_entropy(z, y, reduction="sum"),
    "a factor of 0.25": lambda z, y: functional.cross_entropy(z, y) / 4,
    "a factor of 4": by_parts,
    "a factor of 65536": lambda z, y: functional.cross_entropy(z, y) * 65536,
    "a factor of -1": lambda z, y: -functional.cross_entropy(z, y),
    "class weights 1 : 9": lambda z, y: functional.cross_entropy(z, y, CLASSES),
    "label smoothing 0.1": lambda z, y: functional.cross_entropy(z, y, label_smoothing=0.1),
    "label smoothing 0.2, a factor of 8": lambda z, y: functional.cross_entropy(
        z, y, reduction="sum", label_smoothing=0.2
    ),
    "focal loss with exponent 2": focal,
    "another factor each": uneven,
}


def sent(loss: Loss, data: Dataset = GERMAN, seed: int = 1) -> tuple[GradientView, Tensor, Tensor]:
    """Return the gradient of a loss by PyTorch itself, and the records behind it."""
    model = nn3(data.schema, seed=seed)
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:RECORDS]
    cells, labels = (part[0] for part in data.train.take(rows[None]))
    encoded = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(cells)
    parameters = dict(model.module.named_parameters())
    found = torch.autograd.grad(loss(model.module(encoded), labels.long()), list(parameters.values()))
    return GradientView(model, {n: g[None] for n, g in zip(parameters, found, strict=True)}), cells, labels


def attacked(view: GradientView, data: Dataset = GERMAN) -> RecordsGuess:
    knowledge = Knowledge(data.schema, data.statistics, RECORDS)
    return unmix(restarts=1, iterations=10)(view, knowledge, [0])


def whole(guess: RecordsGuess, cells: Tensor, labels: Tensor) -> int:
    """Return the number of true records that were read whole, label and all, one to one."""
    assert guess.labels is not None
    free = list(range(len(cells)))
    for cell, label in zip(cells, labels, strict=True):
        fits = [
            i
            for i in free
            if guess.labels[0, i] == label and right_cells(GERMAN.schema, guess.cells[0, i, None], cell[None]).all()
        ]
        free = [i for i in free if i not in fits[:1]]
    return len(cells) - len(free)


@pytest.mark.parametrize("form", FORMS)
def test_an_undeclared_form_is_fitted_said_and_certifies_nothing(form: str) -> None:
    view, cells, labels = sent(FORMS[form])
    guess = attacked(view)
    assert whole(guess, cells, labels) == RECORDS
    assert guess.regime is not None
    assert "fitted, not declared" in guess.regime[0]
    assert form in guess.regime[0]
    assert guess.certified is not None
    assert not guess.certified.any()


def test_the_plain_form_is_certified_as_before() -> None:
    view, cells, labels = sent(lambda z, y: functional.cross_entropy(z, y))
    guess = attacked(view)
    assert whole(guess, cells, labels) == RECORDS
    assert guess.certified is not None
    assert guess.certified.all()


@pytest.mark.parametrize(
    "declared",
    [
        MessageForm(reduction="sum"),
        MessageForm(scale=0.25),
        MessageForm(weights=(1.0, 9.0)),
        MessageForm(weights=(2.0, 1.0), smoothing=0.1, scale=3.0),
        MessageForm("focal", gamma=2.0),
    ],
    ids=lambda form: form.describe(),
)
def test_a_declared_form_is_read_without_a_fit(declared: MessageForm) -> None:
    view, cells, labels = sent(lambda z, y: declared.loss_of("softmax", z, y.double()))
    guess = attacked(replace(view, model=replace(view.model, form=declared)))
    assert whole(guess, cells, labels) == RECORDS
    assert guess.regime is not None
    assert "fitted, not declared" not in guess.regime[0]
    assert "which explains the whole message" in guess.regime[0]
    # The kernel has no rule for it.
    assert guess.certified is not None
    assert not guess.certified.any()


def test_copies_that_do_not_replay_the_message_are_not_shown() -> None:
    # A loss that no form describes: every record has a weight of its own, a whole number, as if it were copies.
    weights = torch.tensor([1.0, 2.0, 3.0, 5.0, 7.0, 2.0, 3.0, 1.0])
    view, _, _ = sent(lambda z, y: (functional.cross_entropy(z, y, reduction="none") * weights).mean())
    guess = attacked(view)
    assert len(guess.cells[0].unique(dim=0)) == RECORDS


@pytest.mark.parametrize("factor", [1.0, 8.0, 0.25, 1024.0, 0.3])
def test_records_are_counted_under_a_factor(factor: float) -> None:
    view, _, _ = sent(lambda z, y: functional.cross_entropy(z, y) * factor)
    assert count_records(view, GERMAN.schema, GERMAN.statistics) == RECORDS


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
@pytest.mark.parametrize(
    "form",
    [
        MessageForm(reduction="sum"),
        MessageForm(weights=(1.0, 5.0), scale=0.5),
        MessageForm(weights=(3.0, 1.0), smoothing=0.1),
    ],
    ids=lambda form: form.describe(),
)
def test_labels_are_restored_under_a_declared_form(form: MessageForm, head: Head) -> None:
    data, model = GERMAN, nn3(GERMAN.schema, seed=0, head=head)
    model = replace(model, form=form)
    cells, labels = data.train.take(torch.arange(64)[None])
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    view = GradientView(model, gradient(model, encoder.encode(cells), labels.float()))
    restored = restore_labels(view, Knowledge(data.schema, data.statistics, 64), encoder)
    assert abs(float(restored.sum() - labels.sum())) <= 2


@pytest.mark.parametrize(("head", "outputs"), [("softmax", 2), ("softmax", 4), ("sigmoid", 1), ("regression", 1)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_of_the_closed_form_are_derivatives_of_the_loss(
    head: Head, outputs: int, reduction: str, weighted: bool
) -> None:
    draw = torch.Generator().manual_seed(0)
    classes = max(2, outputs)
    weights = tuple(float(k + 1) for k in range(classes)) if weighted and head != "regression" else ()
    form = MessageForm(reduction=reduction, weights=weights, smoothing=0.1 * weighted, scale=3.0)  # pyright: ignore[reportArgumentType]
    values = torch.randn(10, outputs, dtype=torch.float64, generator=draw).requires_grad_()
    labels = torch.randint(classes, (10,), generator=draw).double()
    total = sum(form.loss_of(head, *part) for part in zip(values.split(5), labels.split(5), strict=True))
    assert isinstance(total, Tensor)
    [slope] = torch.autograd.grad(total, values, create_graph=True)
    direction = torch.randn(slope.shape, dtype=slope.dtype, generator=draw)
    [curved] = torch.autograd.grad((slope * direction).sum(), values)
    error, curvature = output_error(head, values.detach(), labels, 5, form)
    torch.testing.assert_close(error, slope.detach())
    torch.testing.assert_close(curvature(direction), curved)


PLANTED = [
    MessageForm(scale=0.125),
    MessageForm(scale=-2.0),
    MessageForm(weights=(1.0, 4.0, 0.5), scale=3.0),
    MessageForm(smoothing=0.15, scale=2.0),
    MessageForm(weights=(1.0, 2.0, 3.0), smoothing=0.1),
    MessageForm("focal", gamma=1.5, scale=4.0),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda form: form.describe())
def test_a_planted_form_is_found_beside_false_candidates(planted: MessageForm) -> None:
    generator = torch.Generator().manual_seed(3)
    outputs = torch.randn(24, 3, generator=generator, dtype=torch.float64)
    labels = torch.arange(24) % 3
    errors = (planted.slopes("softmax", outputs) * planted.scale)[torch.arange(24), labels] / 24
    # What is no record: errors in any direction that adds up to zero.
    false = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    errors[:4] = false - false.mean(1, keepdim=True)
    fitted = fitted_form("softmax", outputs, errors, PLAIN, 24)
    assert fitted is not None, fitted
    assert fitted.agreeing == 20, fitted
    assert fitted.form.loss == planted.loss
    assert math.isclose(fitted.form.smoothing, planted.smoothing, abs_tol=1e-4)
    assert math.isclose(fitted.form.gamma, planted.gamma, abs_tol=1e-4)
    [weights, expected] = (torch.tensor(form.weights or (1.0,) * 3) * form.scale for form in (fitted.form, planted))
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=0)
    factor, found, _ = factors_of("softmax", fitted.form, outputs[4:], errors[4:] * 24)
    assert found.tolist() == labels[4:].tolist()
    torch.testing.assert_close(factor, torch.ones_like(factor), rtol=1e-4, atol=0)


def test_errors_without_a_common_form_have_none() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    error = torch.randn(12, 1, generator=generator, dtype=torch.float64)
    assert fitted_form("softmax", outputs, torch.cat([error, -error], 1), PLAIN, 12) is None


@pytest.mark.parametrize("loss", ["cross_entropy", "focal", "squared", "squared_chance", "huber"])
@pytest.mark.parametrize(("head", "outputs"), [("softmax", 3), ("sigmoid", 1)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_slopes_are_derivatives_of_the_loss_of_a_batch(loss: str, head: Head, outputs: int, reduction: str) -> None:
    draw = torch.Generator().manual_seed(1)
    classes = max(2, outputs)
    weights = tuple(0.5 + k for k in range(classes))
    smoothing = 0.0 if loss == "focal" else 0.1
    form = MessageForm(loss, reduction, weights, smoothing, gamma=2.0 * (loss == "focal"), delta=0.3, scale=2.0)  # pyright: ignore[reportArgumentType]
    values = torch.randn(7, outputs, dtype=torch.float64, generator=draw).requires_grad_()
    labels = torch.randint(classes, (7,), generator=draw).double()
    [slope] = torch.autograd.grad(form.loss_of(head, values, labels), values)
    by_label = form.slopes(head, values.detach())[torch.arange(7), labels.long()]
    torch.testing.assert_close(by_label * form.share(head, labels), slope)


def test_a_models_form_is_that_of_its_gradient() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    form = MessageForm(weights=(1.0, 9.0), smoothing=0.1, scale=4.0)
    loss = 4 * functional.cross_entropy(net(rows), labels, CLASSES, label_smoothing=0.1)
    expected = torch.autograd.grad(loss, list(net.parameters()))
    got = gradient(Model(net, "softmax", "net", form=form), rows, labels.float())
    for mine, theirs in zip(got.values(), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
