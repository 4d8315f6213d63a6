from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from seepage.datasets.planted import telling
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.errors import BadInputError, NotFiniteError
from seepage.learning import cut_step
from seepage.models.deepfm import deepfm
from seepage.models.message import MessageForm
from seepage.models.split import SplitModel
from seepage.protocols.split import SplitLearning
from seepage.seeds import seeded
from tests.oracles.split import loss_gradient
from tests.tables import uniform

DATA = telling(rows=120)
MODEL = deepfm(DATA.schema, ["cause", "noise_0"], seed=0, hidden=(16, 8))
PROTOCOLS = [SplitLearning(epochs=2, batch_size=32), SplitLearning(epochs=2, rows_each=8, clients=4)]


def parameters(model: SplitModel) -> list[torch.Tensor]:
    return [p.detach() for part in (model.server, model.client) for p in part.parameters()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_replaying_the_true_records_gives_the_view_bit_for_bit(protocol: SplitLearning) -> None:
    trained = protocol.train(MODEL, DATA.train, seed=3)
    seen = protocol.observe(trained, DATA.train.rows(range(32)), seed=4)
    model, size = trained.model, protocol.rows_each or 32
    for start in range(0, 32, size):
        some = slice(start, start + size)
        own = seen.cells[some].float()
        again = cut_step(model, seen.view.cut[some], own, seen.labels[some], seen.view.behind[some])
        assert torch.equal(again.sent, seen.view.gradient[some])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_record_gets_the_gradient_of_its_own_loss(protocol: SplitLearning) -> None:
    trained = protocol.train(MODEL, DATA.train, seed=3)
    seen = protocol.observe(trained, DATA.train.rows(range(20)), seed=4)
    for i in range(20):
        expected = loss_gradient(trained.model, seen.view.cut[i], seen.cells[i].float(), int(seen.labels[i]))
        torch.testing.assert_close(seen.view.own_gradient[i], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_training_depends_on_its_seed_alone_and_leaves_the_network_as_it_was(protocol: SplitLearning) -> None:
    before = [p.clone() for p in parameters(MODEL)]
    first, again, other = (protocol.train(MODEL, DATA.train, seed=seed) for seed in (3, 3, 9))
    assert all(map(torch.equal, parameters(first.model), parameters(again.model)))
    assert not all(map(torch.equal, parameters(first.model), parameters(other.model)))
    assert all(map(torch.equal, parameters(MODEL), before))
    assert first.losses[-1] < first.losses[0]


class Server(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = seeded(lambda: nn.Linear(2, 4), seed=0)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(cells))


class Client(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = seeded(lambda: nn.Linear(6, 1), seed=1)

    def forward(self, cut: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([cut, cells], dim=1))


def test_both_parts_train_as_one_network_does() -> None:
    model = SplitModel(Server(), Client(), DATA.schema, (0, 1), "sigmoid", "mine")
    trained = SplitLearning(epochs=3, batch_size=120).train(model, DATA.train, seed=0)
    server, client = Server(), Client()
    optimiser = torch.optim.Adagrad([*server.parameters(), *client.parameters()], lr=0.01)
    cells, labels = DATA.train.cells.float(), DATA.train.labels.float()
    for _ in range(3):
        optimiser.zero_grad()
        logits = client(server(cells[:, 2:]), cells[:, :2])[:, 0]
        nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        optimiser.step()
    expected = [*server.parameters(), *client.parameters()]
    for own, other in zip(parameters(trained.model), expected, strict=True):
        torch.testing.assert_close(own, other.detach(), rtol=1e-5, atol=1e-6)


def test_clients_with_one_batch_each_train_as_one_client_does() -> None:
    one = SplitLearning(epochs=3, batch_size=120).train(MODEL, DATA.train, seed=0)
    many = SplitLearning(epochs=3, rows_each=10, clients=12).train(MODEL, DATA.train, seed=0)
    for own, other in zip(parameters(one.model), parameters(many.model), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_a_defense_changes_no_batch_and_messages_are_what_it_makes_of_gradients() -> None:
    rows = DATA.train.rows(range(30))
    plain, noisy = SplitLearning(epochs=1), SplitLearning(epochs=1, noise=CutNoise(0.0, rate=0.0, start=1e9))
    first, second = (p.train(MODEL, DATA.train, seed=0) for p in (plain, noisy))
    # Nothing is that long, and there is no noise.
    for own, other in zip(parameters(first.model), parameters(second.model), strict=True):
        torch.testing.assert_close(own, other)
    clipping = SplitLearning(epochs=1, noise=CutNoise(0.0, rate=0.0, start=0.05))
    bounded = clipping.observe(clipping.train(MODEL, DATA.train, seed=0), rows, seed=0).view
    assert bounded.clip == 0.05
    assert float(bounded.own_gradient.norm(dim=1).max()) == pytest.approx(0.05, rel=1e-4)


def test_messages_that_are_not_finite_are_refused() -> None:
    trained = PROTOCOLS[0].train(MODEL, DATA.train, seed=0)
    loud = replace(PROTOCOLS[0], noise=CutNoise(1e39))
    with pytest.raises(NotFiniteError, match="in its gradients at the cut"):
        loud.observe(trained, DATA.train, seed=0)


def test_labels_are_flipped_before_training_and_in_the_view_and_true_in_the_secret() -> None:
    protocol = SplitLearning(epochs=1, flip=LabelFlip(0.4))
    seen = protocol.observe(protocol.train(MODEL, DATA.train, seed=0), DATA.train, seed=0)
    assert torch.equal(seen.labels, DATA.train.labels)
    # The last coordinate is the derivative by the logit, negative where the label used is 1.
    used = (seen.view.gradient[:, -1] < 0).double()
    assert 0.25 < float((used != seen.labels).double().mean()) < 0.55


def test_an_older_client_part_can_be_granted() -> None:
    trained = PROTOCOLS[0].train(MODEL, DATA.train, seed=0)
    seen = PROTOCOLS[0].observe(trained, DATA.train, seed=0, granted=trained.earlier[-1])
    assert seen.view.model.server is trained.model.server
    assert seen.view.model.client is trained.earlier[-1].client


def test_what_cannot_be_trained_is_refused() -> None:
    data = uniform(rows=20)
    with pytest.raises(BadInputError, match="the same in all"):
        SplitLearning().train(MODEL, DATA.train.rows([0] * 20), seed=0)
    with pytest.raises(BadInputError, match="learning_rate is a number"):
        SplitLearning(learning_rate=0)
    with pytest.raises(BadInputError, match="rows_each is a whole number"):
        SplitLearning(rows_each=0)
    with pytest.raises(BadInputError, match="smaller learning_rate"):
        SplitLearning(learning_rate=1e30, epochs=3).train(deepfm(data.schema, ["column_0"], seed=0), data.train, seed=0)


FORMS = [
    MessageForm(reduction="sum", scale=4.0),
    MessageForm(weights=(1.0, 9.0), smoothing=0.1),
    MessageForm(weights=(0.0, 2.0)),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("behind", [[6.0] * 6, [4.0] * 4 + [2.0] * 2])
def test_a_client_sends_the_gradient_of_the_loss_that_pytorch_computes(form: MessageForm, behind: list[float]) -> None:
    model = replace(MODEL, form=form)
    own, labels = model.scaled(DATA.train.cells[:6], model.private), torch.tensor([0.0, 1, 1, 0, 1, 0])
    cut = model.cut(DATA.train.cells[:6]).requires_grad_(True)
    step = cut_step(model, cut, own, labels, torch.tensor(behind))
    weights = torch.tensor(form.weights or (1.0, 1.0))[labels.long()]
    outputs, soft = model.client(cut, own)[:, 0], labels * (1 - form.smoothing) + form.smoothing / 2
    if form.smoothing:
        no, yes = form.weights
        losses = -(yes * soft * outputs.sigmoid().log() + no * (1 - soft) * (1 - outputs.sigmoid()).log())
    else:
        losses = weights * nn.functional.binary_cross_entropy_with_logits(outputs, soft, reduction="none")
    total = form.scale * (losses.sum() if form.reduction == "sum" else (losses / torch.tensor(behind)).sum())
    [expected] = torch.autograd.grad(total, cut)
    torch.testing.assert_close(step.sent, expected, rtol=1e-4, atol=1e-8)


def test_records_are_clipped_and_blurred_by_their_own_loss_whatever_is_taken_of_the_batch() -> None:
    learning = SplitLearning(epochs=1, batch_size=8, noise=CutNoise(noise_multiplier=0.1))
    trained = learning.train(MODEL, DATA.train, seed=3)
    some = DATA.train.rows(range(20))
    plain = learning.observe(trained, some, seed=4).view
    form = FORMS[0]
    summed = learning.observe(replace(trained, model=replace(trained.model, form=form)), some, seed=4).view
    torch.testing.assert_close(
        summed.gradient * form.own_factor(summed.behind)[:, None], plain.own_gradient, rtol=1e-4, atol=1e-7
    )
