from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.datasets.planted import telling
from seepage.defenses.feature_noise import FeatureNoise
from seepage.defenses.returned import ReturnedNoise
from seepage.errors import BadInputError, NotFiniteError
from seepage.learning import vertical_step
from seepage.models.vertical import Stack, VerticalModel, vertical_mlp
from seepage.protocols.vertical import Rows, TrainedVertical, VerticalLearning, leak
from seepage.tabular.partition import by_shares
from tests.oracles.vertical import layers, trained
from tests.tables import uniform

DATA = telling(rows=120)
SPLIT = by_shares(DATA.schema, [0.5, 0.25, 0.25])
MODEL = vertical_mlp(SPLIT, seeds=[0, 1], bottom=(16,), features=6, top=(8,))
TRAIN = Rows(
    torch.stack([DATA.train.cells[:80], DATA.train.cells[40:]]),
    torch.stack([DATA.train.labels[:80], DATA.train.labels[40:]]),
)
TEST = TRAIN.of(slice(0, 30))
PROTOCOL = VerticalLearning(epochs=3, batch_size=32)


def parameters(model: VerticalModel) -> list[torch.Tensor]:
    return [p.detach() for part in (*model.bottoms, model.top) for p in part.parameters()]


def done(protocol: VerticalLearning = PROTOCOL) -> TrainedVertical:
    return protocol.train(MODEL, TRAIN, seeds=[3, 4])


def test_replaying_the_true_records_gives_the_view_bit_for_bit() -> None:
    made = done()
    for target in (1, 2):
        seen = PROTOCOL.observe(made, TEST, target, seed=0)
        encoder = made.model.encoders[target]
        assert torch.equal(made.model.bottoms[target](encoder.encode(seen.cells)), seen.view.received)
        asked = PROTOCOL.queries(made, target, limit=30, seed=0).ask(encoder.encode(seen.cells))
        assert torch.equal(asked, seen.view.received)


def test_what_was_sent_in_training_is_what_the_parties_computed_then() -> None:
    once = VerticalLearning(epochs=1, batch_size=80)
    seen = once.observe(once.train(MODEL, TRAIN, seeds=[3, 4]), TEST, target=1, seed=0)
    earlier = seen.view.earlier
    assert earlier is not None
    assert earlier.labels is not None
    assert torch.equal(earlier.labels, TRAIN.labels)
    for sent, computed in zip(earlier.features, MODEL.features(MODEL.encoded(TRAIN.cells)), strict=True):
        torch.testing.assert_close(sent, computed)


@pytest.mark.parametrize("which", [0, 1])
def test_training_is_that_of_one_network_over_all_columns(which: int) -> None:
    made = done()
    parts = trained(MODEL, which, TRAIN.cells[which], TRAIN.labels[which], 3, 32, 1e-3, seed=3 + which)
    for stack, expected in zip((*made.model.bottoms, made.model.top), parts, strict=True):
        assert isinstance(stack, Stack)
        for got, wanted in zip(layers(stack, which).parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_gradients_that_go_back_are_those_of_the_mean_loss() -> None:
    features = MODEL.features(MODEL.encoded(TEST.cells))
    step = vertical_step(MODEL.active, features, TEST.labels)
    for which in (0, 1):
        leaves = [one[which].detach().requires_grad_(True) for one in features]
        logits = layers(MODEL.top, which)(torch.cat(leaves, dim=-1))[:, 0]  # pyright: ignore[reportArgumentType]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, TEST.labels[which].float())
        for got, wanted in zip(step.returned, torch.autograd.grad(loss, leaves), strict=True):
            torch.testing.assert_close(got[which], wanted)


def test_training_depends_on_its_seeds_alone_and_leaves_the_network_as_it_was() -> None:
    before = [p.clone() for p in parameters(MODEL)]
    first, again = done(), done()
    other = PROTOCOL.train(MODEL, TRAIN, seeds=[9, 10])
    assert all(map(torch.equal, parameters(first.model), parameters(again.model)))
    assert not all(map(torch.equal, parameters(first.model), parameters(other.model)))
    assert all(map(torch.equal, parameters(MODEL), before))
    assert bool((first.losses[:, -1] < first.losses[:, 0]).all())


@pytest.mark.long
def test_noise_on_features_has_the_spread_of_what_is_sent_and_leaves_the_active_party_alone() -> None:
    noisy = replace(PROTOCOL, features=FeatureNoise(0.5))
    made = done()
    plain = PROTOCOL.send(made, TEST, torch.Generator())
    sent = torch.stack([noisy.send(made, TEST, torch.Generator().manual_seed(i))[1] for i in range(400)])
    assert torch.equal(noisy.send(made, TEST, torch.Generator())[0], plain[0])
    spread = (sent - plain[1]).std(0).mean(1)
    torch.testing.assert_close(spread, 0.5 * made.spread[1][:, 0], rtol=0.05, atol=1e-6)
    asked = noisy.queries(made, 1, 30, seed=0).ask(made.model.encoders[1].encode(TEST.cells[..., [*SPLIT.columns[1]]]))
    assert not torch.equal(asked, plain[1])


def test_noise_on_gradients_changes_what_passive_parties_learn() -> None:
    strong = replace(PROTOCOL, returned=ReturnedNoise(1.0))
    assert not all(map(torch.equal, parameters(done().model), parameters(done(strong).model)))
    # So weak that only the bound is left, which no gradient here reaches.
    faint = replace(PROTOCOL, returned=ReturnedNoise(1e-12, clip=1e3))
    for got, wanted in zip(parameters(done(faint).model), parameters(done().model), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    assert strong.known().describe() == {"returned_noise": {"scale": 1.0, "clip": 1.0}}


def test_messages_that_are_not_finite_are_refused() -> None:
    loud = replace(PROTOCOL, features=FeatureNoise(1e39))
    with pytest.raises(NotFiniteError, match="in its features of party 1"):
        loud.observe(done(), TEST, target=1, seed=0)


def test_leaked_records_are_not_attacked() -> None:
    seen = PROTOCOL.observe(done(), TEST, target=1, seed=0)
    rest, leaked = leak(seen, 8)
    assert leaked.records == 8
    assert rest.view.records == 22
    assert torch.equal(torch.cat([leaked.cells, rest.cells], dim=1), seen.cells)
    assert torch.equal(torch.cat([leaked.features, rest.view.received], dim=1), seen.view.received)
    for many, message in ((30, "30 records of the target are to leak"), (-1, "from 0 up")):
        with pytest.raises(BadInputError, match=message):
            leak(seen, many)


def test_rows_and_settings_that_cannot_be_used_are_refused() -> None:
    rows = uniform(rows=40)
    same = Rows(rows.train.cells[None], torch.zeros(1, 40))
    model = vertical_mlp(by_shares(rows.schema, [0.5, 0.5]), [0])
    with pytest.raises(BadInputError, match="the same in all 40 rows"):
        PROTOCOL.train(model, same, seeds=[0])
    with pytest.raises(BadInputError, match="not finite"):
        replace(PROTOCOL, learning_rate=1e30).train(MODEL, TRAIN, seeds=[0, 1])
    with pytest.raises(BadInputError, match="attacker itself"):
        PROTOCOL.observe(done(), TEST, target=0, seed=0)
    with pytest.raises(BadInputError, match="attacker itself"):
        PROTOCOL.queries(done(), target=0, limit=1, seed=0)
    for settings in ({"epochs": 0}, {"batch_size": True}, {"learning_rate": 0.0}):
        with pytest.raises(BadInputError):
            replace(PROTOCOL, **settings)
    for made in (lambda: FeatureNoise(0.0), lambda: ReturnedNoise(1.0, clip=-1.0)):
        with pytest.raises(BadInputError, match="above 0"):
            made()
