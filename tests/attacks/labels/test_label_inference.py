"""Label inference against closed forms, planted answers and trainings of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
import torch

from seepage import registry
from seepage.assessment.labels import measure_labels
from seepage.attacks.labels import (
    LabelBatch,
    LabelCompletion,
    LabelDirect,
    LabelDirection,
    LabelHeads,
    LabelNorm,
)
from seepage.attacks.labels.batch import taken_apart
from seepage.baselines.labels import LabelColumns, LabelMode
from seepage.datasets.dataset import Dataset
from seepage.defenses.returned import ReturnedNoise
from seepage.errors import BadInputError
from seepage.models.vertical import vertical_mlp
from seepage.protocols.vertical import Rows, Steering, VerticalLearning
from seepage.tabular.partition import by_names
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.statistics import Marginal
from seepage.wire.labels import LabelGuess, LabelKnowledge, LogitsView, ReturnedView
from tests.attacks.vertical.parts import setting, table

HERE = setting()
VIEW = HERE.protocol.passive(HERE.trained, 1)
TRUE = HERE.trained.rows.labels
COUNT = 60
ILL = Discrete(name="ill", categories=(0, 1))
KIND = Discrete(name="kind", categories=("a", "b", "c"))


def marginal(shares: list[float]) -> Marginal:
    values = torch.arange(len(shares)).double()
    chances = torch.tensor(shares).double()
    return Marginal(values, chances, float(values @ chances), 1.0, float(chances.argmax()))


def knowing(true: torch.Tensor, target: Discrete | Continuous = ILL, count: int = COUNT) -> LabelKnowledge:
    width = target.width if isinstance(target, Discrete) else 2
    known = torch.arange(count).expand(len(true), count)
    return LabelKnowledge(target, marginal([1 / width] * width), known, true[:, :count].double())


def right(guess: LabelGuess, true: torch.Tensor, count: int = COUNT) -> float:
    return float((guess.labels == true)[:, count:].double().mean())


@pytest.mark.long
def test_labels_of_a_training_are_told_from_what_came_back() -> None:
    known = knowing(TRUE)
    assert right(LabelHeads()(VIEW, known, [0, 1]), TRUE) > 0.97
    assert right(LabelDirection()(VIEW, known), TRUE) > 0.9
    alone = right(LabelColumns()(VIEW, known, [0, 1]), TRUE)
    assert 0.6 < alone < 0.9
    assert right(LabelCompletion()(VIEW, known, [0, 1]), TRUE) > 0.6
    shares = [float(torch.eq(TRUE, code).double().mean()) for code in (0, 1)]
    mode = LabelMode()(VIEW, replace(known, marginal=marginal(shares)))
    assert right(mode, TRUE, 0) == pytest.approx(max(shares))


@pytest.mark.long
def test_completion_and_columns_never_look_at_what_came_back() -> None:
    known, blind = knowing(TRUE), replace(VIEW, gradient=torch.randn(VIEW.gradient.shape))
    for attack in (LabelCompletion(), LabelColumns()):
        first, second = attack(VIEW, known, [0, 1]), attack(blind, known, [0, 1])
        assert torch.equal(first.labels, second.labels)


@pytest.mark.long
def test_the_best_head_reads_what_no_direction_tells() -> None:
    draw = torch.Generator().manual_seed(0)
    came = torch.randn(1, 400, 2, generator=draw)
    # Labels are alike on opposite sides, as after a top model whose slope changes its sign between records.
    true = ((came[..., 0] * came[..., 1]) > 0).double()
    view = ReturnedView(torch.randn(1, 400, 2, generator=draw), came, torch.randn(1, 400, 2, generator=draw))
    assert right(LabelDirection()(view, knowing(true, count=100)), true, 100) < 0.65
    assert right(LabelHeads()(view, knowing(true, count=100), [0]), true, 100) > 0.9


@pytest.mark.long
def test_several_classes_and_numbers_are_read_too() -> None:
    draw = torch.Generator().manual_seed(1)
    true = torch.randint(0, 3, (2, 300), generator=draw).double()
    logits = torch.randn(2, 300, 3, generator=draw).softmax(-1)
    came = logits - torch.nn.functional.one_hot(true.long(), 3)
    view = LogitsView(came, came @ torch.randn(3, 3, generator=draw), torch.randn(2, 300, 3, generator=draw))
    known = knowing(true, KIND)
    for attack in (LabelHeads(), LabelDirection()):
        assert right(attack(view, known, [0, 1]), true) > 0.9
    # The derivative of the cross-entropy by the logits itself needs no known label.
    direct = LabelDirect()(replace(view, gradient=came), replace(known, known=None, labels=None))
    assert right(direct, true, 0) == 1
    cost = Continuous(name="cost", low=-3, high=3, tolerance=0.3)
    numbers = torch.randn(1, 300, generator=draw).double()
    came = (torch.randn(1, 300, 1, generator=draw) * 0.1 - numbers[..., None]).float() @ torch.ones(1, 4)
    guess = LabelHeads()(ReturnedView(came, came, came), knowing(numbers, cost), [0])
    assert guess.chances is None
    found, explained = measure_labels(cost, numbers, guess)
    assert (found.metric, explained.metric) == ("accuracy", "r2")
    assert float(found.values) > 0.9
    assert float(explained.values) > 0.9
    for attack in (LabelNorm(), LabelDirection(), LabelDirect()):
        with pytest.raises(BadInputError, match="'cost' is a number; use label_heads"):
            attack(LogitsView(came, came, came), knowing(numbers, cost))


V = TypeVar("V", bound=ReturnedView)


def seen_often(came: torch.Tensor, times: int, noise: float, kind: type[V]) -> V:
    """The same gradients in several exchanges, each with fresh noise."""
    draw = torch.Generator().manual_seed(3)
    views = [
        kind(
            came + noise * torch.randn(came.shape, generator=draw),
            came + noise * torch.randn(came.shape, generator=draw),
            torch.zeros(came.shape),
        )
        for _ in range(times)
    ]
    return replace(views[0], earlier=tuple(views[1:]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack", [LabelHeads(), LabelDirection(), LabelCompletion(), LabelDirect()], ids=lambda one: type(one).__name__
)
def test_all_messages_of_a_record_are_used(attack: LabelHeads | LabelDirection | LabelCompletion | LabelDirect) -> None:
    true = (torch.rand(1, 300, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    came = (1 - 2 * true[..., None].float()) * torch.tensor([[[1.0]]])
    often = seen_often(came, 12, 3.0, LogitsView)
    known = knowing(true, count=100)
    once, every = (right(attack(view, known, [0]), true, 100) for view in (replace(often, earlier=()), often))
    assert once < 0.75
    assert every > once + 0.1


def test_norms_of_all_messages_count() -> None:
    true = (torch.rand(1, 400, generator=torch.Generator().manual_seed(0)) < 0.2).double()
    came = (0.2 + true[..., None].float()) * torch.ones(1, 1, 4)
    often = seen_often(came, 12, 1.0, ReturnedView)
    known = LabelKnowledge(ILL, marginal([0.8, 0.2]))
    once, every = (right(LabelNorm()(view, known), true, 0) for view in (replace(often, earlier=()), often))
    assert every > once + 0.05
    assert every > 0.95


@pytest.mark.long
def test_numbers_are_regressed_on_all_messages() -> None:
    cost = Continuous(name="cost", low=-3, high=3, tolerance=0.3)
    numbers = torch.randn(1, 300, generator=torch.Generator().manual_seed(0)).double()
    often = seen_often(numbers[..., None].float(), 12, 1.0, ReturnedView)
    error = [
        float((LabelHeads()(view, knowing(numbers, cost, 100), [0]).labels - numbers)[:, 100:].square().mean())
        for view in (replace(often, earlier=()), often)
    ]
    assert error[1] < error[0] / 2


def test_a_passive_party_receives_a_gradient_in_every_epoch() -> None:
    view = HERE.protocol.passive(HERE.trained, 1, records=40, exchanges=3)
    stages = HERE.trained.earlier
    assert [one.gradient.shape for one in view.exchanges] == [VIEW.gradient[:, :40].shape] * 3
    torch.testing.assert_close(view.gradient, VIEW.gradient[:, :40])
    for one, stage in zip(view.earlier, (stages[-2], stages[-3]), strict=True):
        rows = HERE.trained.rows.of(slice(0, 40))
        features = [
            part.detach().requires_grad_(True) for part in stage.model.features(stage.model.encoded(rows.cells))
        ]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            stage.model.outputs(features)[..., 0], rows.labels.float(), reduction="none"
        )
        [expected] = torch.autograd.grad(losses.sum(), [features[1]])
        torch.testing.assert_close(one.gradient, expected, rtol=1e-3, atol=1e-6)
    many = len(stages) + 1
    with pytest.raises(BadInputError, match=f"once an epoch, {many - 1} times, got exchanges={many}"):
        HERE.protocol.passive(HERE.trained, 1, exchanges=many)
    batches = HERE.protocol.passive_batches(HERE.trained, 1, 8, seed=0, exchanges=2)
    assert len(batches.exchanges) == 2
    assert not torch.equal(batches.weight, batches.earlier[0].weight)


@pytest.mark.slow
def test_batches_of_all_exchanges_are_taken_apart() -> None:
    blurred = replace(HERE.protocol, returned=ReturnedNoise(0.6, clip=0.2))
    trained = blurred.train(HERE.trained.model, HERE.trained.rows, [0, 1])
    once, every = (blurred.passive_batches(trained, 1, 8, seed=0, exchanges=n) for n in (1, blurred.epochs))
    true = trained.rows.labels[:, : once.records]
    reads = [right(LabelBatch()(view, knowing(true), [0, 1]), true) for view in (once, every)]
    assert reads[1] > reads[0] + 0.03


def test_norms_are_cut_where_the_marginal_says() -> None:
    came = torch.arange(20.0).view(1, 20, 1)
    labels = LabelNorm()(ReturnedView(came, came, came), LabelKnowledge(KIND, marginal([0.1, 0.6, 0.3]))).labels[0]
    assert labels.tolist() == [1.0] * 12 + [2.0] * 6 + [0.0] * 2
    two = LabelNorm()(ReturnedView(came, came, came), LabelKnowledge(ILL, marginal([0.75, 0.25])))
    assert two.chances is not None
    assert torch.equal(two.labels[0], (torch.arange(20) >= 15).double())
    assert bool((two.chances[0, :, 1].diff() > 0).all())


def test_without_a_top_model_the_sign_is_the_label() -> None:
    for columns, width in ((None, 1), ("b", 4)):
        data = table()
        if columns is not None:
            schema = data.schema.model_copy(
                update={
                    "columns": tuple(c for c in data.schema.columns if c.name != columns),
                    "target": data.schema.columns[1],
                }
            )
            frame = data.all.frame.drop(columns="t")
            data = Dataset("other", type(data.all)(schema, frame), None, (), "generated", "none needed")
        rows = Rows(data.all.cells[None], data.all.labels[None]).of(slice(0, 300))
        model = vertical_mlp(by_names(data.schema, [(), ["a"]]), [0], bottom=(8,), top=None)
        protocol = VerticalLearning(epochs=2)
        view = protocol.passive(protocol.train(model, rows, [0]), 1)
        assert isinstance(view, LogitsView)
        assert view.gradient.shape[-1] == width
        guess = LabelDirect()(view, LabelKnowledge(data.schema.target, marginal([1 / 2] * 2)))
        assert torch.equal(guess.labels, rows.labels)


def test_a_batch_is_taken_apart_where_the_layer_is_as_wide() -> None:
    # 32 activations and a bias: 33 records are exactly so many equations.
    model, rows = HERE.trained.model, HERE.trained.rows
    batches = HERE.protocol.passive_batches(HERE.trained, 1, 33, seed=0)
    features = [one.detach().requires_grad_(True) for one in model.features(model.encoded(rows.cells))]
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        model.outputs(features)[..., 0], rows.labels.float(), reduction="none"
    )
    [expected] = torch.autograd.grad(losses.sum(), [features[1]])
    expected = expected[:, : batches.records].unflatten(1, (-1, 33))
    torch.testing.assert_close(batches.weight, batches.hidden.mT @ expected / 33, rtol=1e-3, atol=1e-6)
    small = HERE.protocol.passive_batches(HERE.trained, 1, 8, seed=0)
    found = taken_apart(small)
    again = small.hidden.double().mT @ found / 8
    torch.testing.assert_close(again.float(), small.weight, rtol=1e-3, atol=1e-6)
    true = rows.labels[:, : small.records]
    guess = LabelBatch()(small, knowing(true), [0, 1])
    assert right(guess, true) > 0.9
    with pytest.raises(BadInputError, match="a batch of 999 records is more than the 500"):
        HERE.protocol.passive_batches(HERE.trained, 1, 999, seed=0)


def test_steered_steps_follow_the_rule_and_only_one_party_s_change() -> None:
    one_step = VerticalLearning(epochs=1, batch_size=500)
    start, rows = HERE.trained.model, HERE.trained.rows
    usual = one_step.train(start, rows, [0, 1]).model
    first = replace(one_step, steering=Steering(1)).train(start, rows, [0, 1]).model
    # The first step has none before it.
    for honest, steered in zip(usual.bottoms[1].parameters(), first.bottoms[1].parameters(), strict=True):
        assert torch.equal(honest, steered)
    two = VerticalLearning(epochs=2, batch_size=500)
    usual, bounded = (p.train(start, rows, [0, 1]).model for p in (two, replace(two, steering=Steering(1, 1.0, 1.0))))
    torch.testing.assert_close(list(usual.bottoms[1].parameters()), list(bounded.bottoms[1].parameters()))
    steered = replace(two, steering=Steering(1, 1.0, 5.0)).train(start, rows, [0, 1]).model
    # In the second step the active party follows the protocol, on features of the same first step.
    for honest, other in zip(usual.bottoms[0].parameters(), steered.bottoms[0].parameters(), strict=True):
        assert torch.equal(honest, other)
    once, twice, scaled = (list(model.bottoms[1].parameters()) for model in (first, usual, steered))
    for before, honest, after in zip(once, twice, scaled, strict=True):
        usual_step = (honest - before).detach()
        ratio = ((after - before).detach() / usual_step)[usual_step.abs() > 1e-4]
        assert float(ratio.min()) > 0.95
        assert 1.2 < float(ratio.max()) < 5.1
    with pytest.raises(BadInputError, match=r"at least 1, got most=0\.5"):
        Steering(1, 1.0, 0.5)


def test_what_tells_nothing_apart_is_refused() -> None:
    same = torch.zeros_like(TRUE)
    for attack in (LabelHeads(), LabelDirection(), LabelCompletion(), LabelColumns()):
        with pytest.raises(BadInputError, match="known labels of a training are the same"):
            attack(VIEW, knowing(same), [0, 1])
        with pytest.raises(BadInputError, match="knows none; grant some"):
            attack(VIEW, LabelKnowledge(ILL, marginal([0.5, 0.5])), [0, 1])
    with pytest.raises(BadInputError, match="guess the records of the view"):
        measure_labels(ILL, TRUE, LabelGuess(TRUE[:, :3]))


def test_one_part_serves_two_settings() -> None:
    split, vertical = (registry.attacks.of(name)["label_heads"] for name in ("split", "vertical"))
    assert (split.setting, vertical.setting) == ("split", "vertical")
    assert registry.attacks["label_heads"].factory is LabelHeads
    for name in ("split", "vertical"):
        assert registry.attacks.of(name).entry_of(LabelHeads()).setting == name
    assert registry.attacks.of("vertical")["label_completion_active"].traits.active
