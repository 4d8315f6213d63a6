"""The form of messages at the cut: slopes of losses against PyTorch's own, and what a number format leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.models.head import Head
from seepage.models.message import PLAIN, MessageForm, format_of

Loss = Callable[[Tensor, Tensor], Tensor]


def one_logit(logits: Tensor, label: Tensor, smoothing: float = 0.0, weight: float = 1.0) -> Tensor:
    soft = label.to(logits) * (1 - smoothing) + smoothing / 2
    return functional.binary_cross_entropy_with_logits(logits[:, 0], soft, pos_weight=logits.new_tensor(weight))


def focal(logits: Tensor, label: Tensor) -> Tensor:
    """Focal loss as in Lin et al. (2017), from the chance of the label."""
    chance = (-functional.cross_entropy(logits, label, reduction="none")).exp()
    return (-((1 - chance) ** 2) * chance.log()).mean()


def several(logits: Tensor, label: Tensor) -> Tensor:
    # A sum, as a mean would be divided by the weights of the labels.
    weight = logits.new_tensor([1.0, 3.0, 0.5])
    return functional.cross_entropy(logits, label, weight, label_smoothing=0.2, reduction="sum")


CASES: list[tuple[Head, MessageForm, Loss]] = [
    ("sigmoid", PLAIN, one_logit),
    ("sigmoid", MessageForm(smoothing=0.1), lambda z, y: one_logit(z, y, 0.1)),
    ("sigmoid", MessageForm(weights=(1.0, 3.0), smoothing=0.2), lambda z, y: one_logit(z, y, 0.2, 3.0)),
    ("sigmoid", MessageForm("squared"), lambda z, y: functional.mse_loss(z[:, 0], y.to(z))),
    ("sigmoid", MessageForm("squared_chance"), lambda z, y: functional.mse_loss(z[:, 0].sigmoid(), y.to(z))),
    ("sigmoid", MessageForm("huber", delta=0.7), lambda z, y: functional.huber_loss(z[:, 0], y.to(z), delta=0.7)),
    ("sigmoid", MessageForm("focal", gamma=2.0), lambda z, y: focal(torch.cat([torch.zeros_like(z), z], 1), y)),
    ("softmax", PLAIN, functional.cross_entropy),
    ("softmax", MessageForm(weights=(1.0, 3.0, 0.5), smoothing=0.2), several),
    ("softmax", MessageForm("focal", gamma=2.0), focal),
    (
        "softmax",
        MessageForm("squared_chance", smoothing=0.3),
        lambda z, y: (z.softmax(1) - 0.1 - 0.7 * functional.one_hot(y, 3).to(z)).square().sum(),
    ),
]


@pytest.mark.parametrize(("head", "form", "loss"), CASES)
def test_slopes_are_those_of_pytorch(head: Head, form: MessageForm, loss: Loss) -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20, 1 if head == "sigmoid" else 3, dtype=torch.float64, generator=draw)
    slopes = form.slopes(head, logits)
    for label in range(slopes.shape[-2]):
        for row in range(len(logits)):
            one = logits[row : row + 1].clone().requires_grad_()
            [expected] = torch.autograd.grad(loss(one, torch.tensor([label])), one)
            assert torch.allclose(slopes[row, label], expected[0], rtol=1e-9, atol=1e-12)


def test_a_focal_loss_is_exact_far_from_zero() -> None:
    form, logits = MessageForm("focal", gamma=2.0), torch.tensor([[-30.0], [30.0]])
    single, double = form.slopes("sigmoid", logits), form.slopes("sigmoid", logits.double())
    assert torch.allclose(single.double(), double, rtol=1e-4, atol=0)
    assert bool((single != 0).all())


@pytest.mark.parametrize("form", [PLAIN, *(form for head, form, _ in CASES[1:3] if head == "sigmoid")])
def test_logits_follow_from_slopes(form: MessageForm) -> None:
    logits = torch.linspace(-5, 5, 30, dtype=torch.float64)[:, None]
    for label in (0, 1):
        slopes = form.slopes("sigmoid", logits)[:, label, 0]
        right = (slopes < 0).long() == label
        assert int(right.sum()) > 15
        assert torch.allclose(form.logits_of(slopes)[right], logits[right, 0], atol=1e-6)


def test_formats_are_seen_in_the_numbers_themselves() -> None:
    numbers = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    assert format_of(numbers) == "float32"
    assert format_of((1024 * numbers).half().float() / 1024) == "float16"
    assert format_of(numbers.bfloat16().float()) == "bfloat16"
    step = numbers.abs().max() / 127
    assert format_of((numbers / step).round() * step) == "int8"


def test_what_is_no_form_is_refused() -> None:
    with pytest.raises(BadInputError, match="smoothing of the messages is a number from 0 and below 1"):
        MessageForm(smoothing=1.0)
    with pytest.raises(BadInputError, match="2 classes have 3 weights"):
        MessageForm(weights=(1.0, 2.0, 3.0)).slopes("sigmoid", torch.zeros(1, 1))
