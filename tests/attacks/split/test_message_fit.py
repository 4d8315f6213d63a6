"""The form of messages where it is not declared: planted losses, weights, scales and formats, and what is read then."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from seepage.attacks.split import Exact, Posterior
from seepage.attacks.split.parts.masked import _Units
from seepage.attacks.split.parts.message_fit import RIGHT, _form_by_lines, _Points, fitted_messages
from seepage.attacks.split.parts.responder import responder
from seepage.attacks.split.parts.space import Space
from seepage.models.batch_norm import Moments, by_batch, normalisations
from seepage.models.message import PLAIN, MessageForm
from seepage.seeds import seeded
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutKnowledge, CutView
from tests.attacks.split.test_exact import PLAIN as LEARNING
from tests.attacks.split.test_exact import exchange, table

TWO, THREE = table(2, rows=400), table(3, rows=400)
SEEN = {2: exchange(TWO, LEARNING, records=80)[1], 3: exchange(THREE, LEARNING, records=80)[1]}
KNOWN = {classes: CutKnowledge(data.schema, data.statistics, form=None) for classes, data in ((2, TWO), (3, THREE))}


def planted(seen: CutTranscript, form: MessageForm, factor: Tensor | float = 1.0) -> CutView:
    """Return the view of clients whose loss has a form, computed from the truth."""
    view = seen.view
    cells = torch.zeros(len(seen.cells), len(view.model.schema.columns), dtype=torch.float64)
    cells[:, list(view.model.private)] = seen.cells
    respond = responder(view.model)
    logits, jacobian = respond.responses(
        respond.of_cut(view.cut), respond.of_cells(view.model.scaled(cells, view.model.private))
    )
    slopes = form.slopes(view.model.head, logits)[torch.arange(len(cells)), seen.labels.long()]
    gradient = (slopes[:, None] @ jacobian)[:, 0] * factor
    return replace(view, gradient=gradient / view.behind[:, None])


FORMS = [
    (2, PLAIN, 1.0),
    (2, PLAIN, 1024.0),
    (2, MessageForm(weights=(1.0, 3.0)), 1.0),
    (2, MessageForm(smoothing=0.1), 0.25),
    pytest.param(2, MessageForm(smoothing=0.1234), 1.0, marks=pytest.mark.long),
    pytest.param(2, MessageForm(weights=(1.0, 3.0), smoothing=0.1), 1.0, marks=pytest.mark.long),
    (2, MessageForm("focal", gamma=2.0), 1.0),
    (2, MessageForm("squared_chance"), 1.0),
    (3, MessageForm(weights=(1.0, 2.0, 0.5)), 1.0),
    (3, MessageForm(smoothing=0.2), 7.0),
    (3, MessageForm("focal", gamma=2.0), 1.0),
]


@pytest.mark.parametrize(("classes", "form", "factor"), FORMS)
def test_a_planted_form_is_found_and_read(classes: int, form: MessageForm, factor: float) -> None:
    seen, knowledge = SEEN[classes], KNOWN[classes]
    view = planted(seen, form, factor)
    [found] = fitted_messages([view], Space.of(view.model, knowledge), None)
    assert found.replayed >= RIGHT
    assert found.form.loss == form.loss
    assert float(found.form.smoothing) == pytest.approx(float(form.smoothing), abs=2e-4)
    assert float(found.form.gamma) == pytest.approx(float(form.gamma), abs=2e-3)
    if form.weights:
        assert found.form.weights == pytest.approx(form.weights, rel=1e-3)
    assert found.factors[0] == pytest.approx(factor, rel=1e-3)
    assert found.form.estimated == (form != PLAIN or factor != 1)
    guess = Exact()(view, knowledge)
    assert torch.equal(guess.cells, seen.cells)
    assert torch.equal(guess.labels, seen.labels)
    assert torch.equal(Posterior()(view, knowledge).cells, seen.cells)


def test_declared_forms_are_taken_at_their_word() -> None:
    form = MessageForm(weights=(1.0, 3.0), scale=64.0)
    view = planted(SEEN[2], form, 64.0)
    guess = Exact()(view, replace(KNOWN[2], form=form))
    assert torch.equal(guess.cells, SEEN[2].cells)
    undeclared = Exact()(view, replace(KNOWN[2], form=PLAIN))
    assert float((undeclared.cells == SEEN[2].cells).double().mean()) < 0.9


def test_rounds_have_factors_of_their_own() -> None:
    """As with a mean that is divided by the weights of the labels in the batch."""
    form = MessageForm(weights=(1.0, 3.0))
    factor = torch.tensor([0.7, 1.3]).repeat_interleave(40)
    view = planted(SEEN[2], form, factor[:, None])
    view = replace(view, gradient=view.gradient * view.behind[:, None] / 40, behind=torch.full((80,), 40.0))
    [found] = fitted_messages([view], Space.of(view.model, KNOWN[2]), None)
    assert found.form.scale_of == "round"
    assert found.form.weights == pytest.approx((1.0, 3.0), rel=1e-4)
    assert torch.allclose(found.factors, factor.double(), rtol=1e-4)
    assert torch.equal(Exact()(view, KNOWN[2]).cells, SEEN[2].cells)


def test_one_logit_is_certified_by_direction_whatever_the_loss() -> None:
    """Directions do not depend on the loss; of several logits, an estimated loss certifies nothing."""
    draw = torch.Generator().manual_seed(0)
    factor = 0.2 + 3 * torch.rand(80, 1, generator=draw)
    view = planted(SEEN[2], MessageForm(smoothing=0.1), factor)
    guess = Exact()(view, KNOWN[2])
    assert guess.certified is not None
    assert float(guess.certified.double().mean()) > 0.5
    assert bool((guess.cells == SEEN[2].cells)[guess.certified].all())
    several = Exact()(planted(SEEN[3], MessageForm(smoothing=0.1)), KNOWN[3])
    assert several.certified is not None
    assert not bool(several.certified.any())


class Dropping(nn.Module):
    """A client part that drops a fifth of its units in training."""

    def __init__(self, cut: int, columns: int, units: int = 16) -> None:
        super().__init__()
        self.layers = seeded(
            lambda: nn.Sequential(nn.Linear(cut + columns, units), nn.ReLU(), nn.Dropout(0.2), nn.Linear(units, 1)), 3
        )

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the logit."""
        return self.layers(torch.cat([cut, cells.to(cut)], 1))


def test_masks_of_dropout_are_averaged_over() -> None:
    base = SEEN[2].view.model
    client = Dropping(4, len(base.private))
    model = replace(base, client=client.eval())
    draw, records = torch.Generator().manual_seed(5), 12
    truth = torch.stack([torch.randint(width, (records,), generator=draw) for width in (3, 4, 2)], 1).double()
    cut = torch.randn(records, 4, generator=draw).requires_grad_()
    labels = torch.randint(2, (records,), generator=draw)
    # Masks by hand: the layers without dropout, with the units that stay scaled up.
    first, last = client.layers[0], client.layers[3]
    stays = (torch.rand(records, 16, generator=draw) >= 0.2) / 0.8
    logits = last(first(torch.cat([cut, truth.float()], 1)).relu() * stays)[:, 0]
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
    [gradient] = torch.autograd.grad(loss, cut)
    features = SEEN[2].view.features[:records]
    view = CutView(model, features, cut.detach(), gradient, torch.ones(records))
    ignoring, averaged = (Exact()(view, replace(KNOWN[2], form=form)) for form in (PLAIN, MessageForm(training=True)))
    right = [float((guess.cells == truth).double().mean()) for guess in (ignoring, averaged)]
    assert right[1] > 0.9
    assert right[1] > right[0] + 0.1
    assert averaged.certified is None
    [seen] = fitted_messages([view], Space.of(model, KNOWN[2]), None)
    assert seen.form.training
    assert torch.equal(Posterior()(view, replace(KNOWN[2], form=seen.form)).labels, labels.double())


def test_listed_masks_are_all_masks_with_their_chances() -> None:
    base = SEEN[2].view.model
    client = Dropping(4, len(base.private), units=6)
    draw, width = torch.Generator().manual_seed(5), torch.tensor(0.05).double()
    cut, message = (torch.randn(1, 4, generator=draw) for _ in range(2))
    view = CutView(replace(base, client=client.eval()), SEEN[2].view.features[:1], cut, message, torch.ones(1))
    space = Space.of(view.model, KNOWN[2])
    units = _Units.of(view, space, 2**6)
    assert units is not None
    found = units.scored(view, message[0].double(), width)
    assert found is not None
    # By hand: every mask of six units with its chance, and the gradient of each label's loss.
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6).double()
    chances = (torch.where(masks > 0, 0.8, 0.2).log()).sum(1)
    first, last = client.double().layers[0], client.layers[3]
    for place, cells in enumerate(space.cells(torch.arange(space.size)).double()):
        for label in (0, 1):
            received = cut.double().repeat(64, 1).requires_grad_()
            hidden = first(torch.cat([received, cells.expand(64, -1)], 1)).relu()
            logits = last(hidden * masks / 0.8)[:, 0]
            truth = torch.full_like(logits, label)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
            apart = (torch.autograd.grad(loss, received)[0] - message).square().sum(1)
            expected = (chances - apart / (2 * width**2)).logsumexp(0) - 4 * width.log()
            torch.testing.assert_close(found[0][place, label], expected.detach())
    assert float(found[1].abs().max()) < 1e-12


def test_outputs_that_are_no_sums_over_units_are_not_listed() -> None:
    base = SEEN[2].view.model

    class Deeper(Dropping):
        def __init__(self, cut: int, columns: int) -> None:
            super().__init__(cut, columns)
            kept = list(self.layers.children())[:3]
            self.layers = nn.Sequential(*kept, seeded(lambda: nn.Linear(16, 8), 4), nn.Tanh(), nn.Linear(8, 1))

    view = replace(SEEN[2].view.of(slice(0, 1)), model=replace(base, client=Deeper(SEEN[2].view.cut.shape[1], 3)))
    space = Space.of(view.model, KNOWN[2])
    units = _Units.of(view, space, 2**10)
    assert units is not None
    assert units.scored(view, view.own_gradient[0].double(), torch.tensor(1e-6).double()) is None


def test_what_no_form_explains_is_not_explained() -> None:
    view = SEEN[2].view
    noise = torch.randn(view.gradient.shape, generator=torch.Generator().manual_seed(0))
    noisy = replace(view, gradient=view.gradient + 0.05 * view.gradient.norm(dim=1, keepdim=True) * noise)
    [found] = fitted_messages([noisy], Space.of(view.model, KNOWN[2]), None)
    assert found.replayed < 0.2
    assert 0.02 < found.form.noise < 0.1
    proof = Exact()(noisy, KNOWN[2]).proof
    assert proof is not None
    assert not bool(proof.cells.any())


def test_weights_and_smoothing_together_are_lines_of_slopes() -> None:
    """With a cut of one number every combination has a slope, and the true ones lie on a line for each label."""
    draw = torch.Generator().manual_seed(0)
    records, places = 60, 40
    logits = 4 * torch.randn(records * places, 1, generator=draw).double()
    labels = torch.rand(records, generator=draw) < 0.3
    form = MessageForm(weights=(1.0, 3.0), smoothing=0.1, scale=2.0)
    # By hand: 2 (w (1 - t) p - v t (1 - p)) with t of 0.05 and 0.95.
    chance = logits[:, 0].sigmoid()
    soft = torch.where(labels, 0.95, 0.05).double()
    slope = 2 * ((1 - soft) * chance[::places] - 3 * soft * (1 - chance[::places]))
    # Other combinations reach the same message at other chances by chance.
    message = slope.repeat_interleave(places) * torch.exp(torch.randn(records * places, generator=draw).double())
    message[::places] = slope
    number = torch.arange(records).repeat_interleave(places)
    nothing, one = torch.zeros_like(number), torch.ones(len(number), 1, 1).double()
    points = _Points(number, nothing, logits, one, message[:, None], 0 * message, records, "sigmoid", 1)
    found = _form_by_lines(points, PLAIN)
    assert found is not None
    assert found.weights == pytest.approx(form.weights, rel=1e-6)
    assert found.smoothing == pytest.approx(form.smoothing, rel=1e-6)
    assert found.scale == pytest.approx(form.scale, rel=1e-6)


class Normalising(nn.Module):
    """A client part that normalises by the batch in training."""

    def __init__(self, cut: int, columns: int) -> None:
        super().__init__()
        self.layers = seeded(
            lambda: nn.Sequential(nn.Linear(cut + columns, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1)), seed=3
        )

    def forward(self, cut: Tensor, cells: Tensor) -> Tensor:
        """Return the logit."""
        return self.layers(torch.cat([cut, cells.to(cut)], 1))


def test_records_are_found_with_the_statistics_of_their_batch() -> None:
    base, records = SEEN[2].view.model, 24
    client = Normalising(4, len(base.private)).train()
    draw = torch.Generator().manual_seed(5)
    truth = torch.stack([torch.randint(width, (records,), generator=draw) for width in (3, 4, 2)], 1).double()
    cut = torch.randn(records, 4, generator=draw).requires_grad_()
    labels = torch.randint(2, (records,), generator=draw)
    own = by_batch(client, "planted")
    entering = client.layers[0](torch.cat([cut, truth.float()], 1)).detach()
    loss = nn.functional.binary_cross_entropy_with_logits(client(cut, truth)[:, 0], labels.float(), reduction="mean")
    [gradient] = torch.autograd.grad(loss, cut)
    model = replace(base, client=client.eval())
    features, behind = SEEN[2].view.features[:records], torch.full((records,), float(records))
    moments = dict.fromkeys(normalisations(own), Moments(entering.mean(0), entering.var(0)))
    view = CutView(model, features, cut.detach(), gradient, behind, moments=moments)
    ignoring = Exact()(view, replace(KNOWN[2], form=PLAIN))
    assert float((ignoring.cells == truth).double().mean()) < 0.7
    read = Exact()(view, KNOWN[2])
    assert torch.equal(read.cells, truth)
    assert torch.equal(read.labels, labels.double())
    assert read.certified is None
    assert torch.equal(Posterior()(view, KNOWN[2]).cells, truth)
    # Nothing is known of the moments of records that are no whole batch.
    assert view.of(torch.arange(8)).moments is None
