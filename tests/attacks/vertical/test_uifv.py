from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from seepage.attacks.vertical import (
    DataPassiveAttack,
    InformedQueryAttack,
    IsolatedQueryAttack,
    QueryAttack,
    StealthAttack,
)
from seepage.baselines.vertical import Constant, OwnColumns
from seepage.defenses.feature_noise import FeatureNoise
from seepage.errors import BadInputError
from seepage.models.inverse import InverseLoss, Inverter
from seepage.models.vertical import encoder_of
from seepage.papers.uifv.images import ImagePart
from seepage.registry import Need, attacks
from seepage.wire.vertical import Queries
from tests.attacks.vertical.parts import accuracy, setting, sureness

HERE = setting()
SEEDS = [0, 1]
QUICK: dict[str, Any] = {"epochs": 10, "steps": 250}


def needs_of(attack: object) -> tuple[Need, ...]:
    return attacks.of("vertical").entry_of(attack).needs


GUESSING = accuracy(Constant()(HERE.seen.view, HERE.known).cells, HERE.seen)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["mse", "fields"])
@pytest.mark.parametrize(("made", "least"), [(QueryAttack, 0.97), (IsolatedQueryAttack, 0.9), (StealthAttack, 0.75)])
def test_cells_are_read_from_the_features_that_were_sent(
    made: type[QueryAttack | IsolatedQueryAttack | StealthAttack], least: float, loss: InverseLoss
) -> None:
    attack = made(loss=loss, **QUICK)
    known = HERE.granted().only(needs_of(attack))
    guess = attack(HERE.seen.view, known, SEEDS)
    assert accuracy(guess.cells, HERE.seen) > max(least, GUESSING + 0.2)
    assert guess.failed is not None
    assert not bool(guess.failed.any())
    assert (guess.chances is None) == (loss == "mse" and made is not QueryAttack)
    assert guess.queries == (0 if known.queries is None else known.queries.used)


def test_the_shadow_inverts_itself_but_not_the_target() -> None:
    found = DataPassiveAttack(hidden=(32,), shadow_epochs=10, **QUICK).fit_shadow(
        HERE.seen.view, HERE.granted().only(["auxiliary"]), SEEDS
    )
    honest = accuracy(found.guess(HERE.seen.view).cells, HERE.seen)
    itself = accuracy(found.self_inversion(HERE.seen.cells).cells, HERE.seen)
    assert itself > 0.9
    assert honest < itself - 0.2


def test_the_shadow_learns_the_task_through_the_top_model() -> None:
    known = HERE.granted().only(["auxiliary"])
    rows = known.auxiliary
    assert rows is not None
    attack = DataPassiveAttack(hidden=(32,), shadow_epochs=10, **QUICK)
    found = attack.fit_shadow(HERE.seen.view, known, SEEDS)
    mine = found.shadow(encoder_of(known.schema).encode(rows.cells))
    own, _ = rows.features
    assert own is not None
    said = HERE.seen.view.model.top(torch.cat([own, mine], dim=-1))[..., 0] > 0
    nothing = HERE.seen.view.model.top(torch.cat([own, torch.zeros_like(mine)], dim=-1))[..., 0] > 0
    right, without = ((one == rows.labels.bool()).double().mean() for one in (said, nothing))
    true = HERE.trained.model.probabilities(HERE.auxiliary.cells).argmax(-1) == rows.labels
    assert right > true.double().mean() - 0.05
    assert right > without + 0.02


@pytest.mark.long
@pytest.mark.parametrize("name", ["uifv_qa", "uifv_dpa", "uifv_iqa", "uifv_sa"])
def test_an_attack_uses_nothing_that_its_level_of_access_lacks(name: str) -> None:
    attack = attacks.create(name, epochs=1, steps=40)
    everything = HERE.granted()
    alone = attack(HERE.seen.view, HERE.granted().only(needs_of(attack)), SEEDS)
    assert torch.equal(attack(HERE.seen.view, everything, SEEDS).cells, alone.cells)
    with pytest.raises(BadInputError, match="needs"):
        attack(HERE.seen.view, HERE.known.only([]), SEEDS)
    if "queries" in needs_of(attack):
        with pytest.raises(BadInputError, match="budget of 0 queries"):
            attack(HERE.seen.view, HERE.granted(queries=0), SEEDS)


def test_pairs_held_out_say_how_sure_the_answers_are() -> None:
    # So few pairs and steps that some answers are wrong.
    attack = QueryAttack(epochs=1, steps=60, held_out=0.5)
    guess = attack(HERE.seen.view, HERE.granted().only(needs_of(attack)), SEEDS)
    assert guess.chances is not None
    assert guess.radii is not None
    for sure, right in sureness(guess, HERE.seen):
        assert right < 1
        assert abs(sure - right) < 0.1
    assert guess.chances[2] is None
    assert bool(guess.radii[:, :2].isnan().all())
    error = (guess.cells[..., 2] - HERE.seen.cells[..., 2]).abs()
    covered = (error <= guess.radii[:, 2, None]).double().mean(1)
    assert bool(((covered > 0.83) & (covered < 0.97)).all())
    alone = QueryAttack(epochs=1, steps=60, held_out=0)(HERE.seen.view, HERE.granted(), SEEDS)
    assert alone.radii is None


def test_own_columns_help_where_features_say_little() -> None:
    blurred = replace(HERE.protocol, features=FeatureNoise(5.0))
    seen = blurred.observe(HERE.trained, HERE.auxiliary.of(slice(0, 200)), 1, seed=0)
    rest = HERE.auxiliary.of(slice(200, 400))
    found = []
    for beside in (False, True):
        known = replace(
            HERE.known,
            queries=blurred.queries(HERE.trained, 1, 200, seed=1),
            auxiliary=blurred.auxiliary(HERE.trained, rest, 1, seed=1),
        )
        attack = QueryAttack(own_columns=beside, loss="fields", epochs=5, steps=60)
        found.append(accuracy(attack(seen.view, known, SEEDS).cells, seen))
    assert found[1] > found[0]


@pytest.mark.slow
@pytest.mark.parametrize("blur", [0.0, pytest.param(5.0, marks=pytest.mark.slow)])
def test_the_informed_attack_reads_as_much_as_each_network_by_itself(blur: float) -> None:
    blurred = replace(HERE.protocol, features=FeatureNoise(blur)) if blur else HERE.protocol
    seen = blurred.observe(HERE.trained, HERE.auxiliary.of(slice(0, 200)), 1, seed=0)

    def read(attack: QueryAttack) -> torch.Tensor:
        known = replace(
            HERE.known,
            queries=blurred.queries(HERE.trained, 1, 200, seed=1),
            auxiliary=blurred.auxiliary(HERE.trained, HERE.auxiliary.of(slice(200, 400)), 1, seed=1),
        )
        return attack(seen.view, known, SEEDS).cells

    few: dict[str, Any] = {"epochs": 5, "steps": 60, "held_out": 0.3}
    both = read(InformedQueryAttack(**few))
    alone = read(QueryAttack(**few))
    beside = read(QueryAttack(own_columns=True, loss="fields", **few))
    # 60 held-out pairs tell two shares apart that differ by more than six points.
    assert accuracy(both, seen) >= max(accuracy(alone, seen), accuracy(beside, seen)) - 0.06
    whole = {**few, "held_out": 0}
    plain = QueryAttack(own_columns=True, loss="fields", converge=True, **whole)
    assert torch.equal(read(InformedQueryAttack(**whole)), read(plain))


@pytest.mark.long
def test_a_budget_bounds_what_is_asked() -> None:
    for attack in (QueryAttack(**QUICK), IsolatedQueryAttack(**QUICK)):
        known = HERE.granted(queries=50)
        assert attack(HERE.seen.view, known, SEEDS).queries == 50
        assert known.queries is not None
        assert known.queries.left == 0
        with pytest.raises(BadInputError, match="0 of its 50 queries are left"):
            known.queries.ask(known.queries.asked[0])


def test_what_is_asked_is_kept_with_the_answers() -> None:
    channel = Queries(lambda rows: 2 * rows, 4)
    rows = torch.ones(1, 3, 2)
    assert torch.equal(channel.ask(rows), channel.answered[0])
    assert torch.equal(channel.asked[0], rows)
    for limit in (-1, True):
        with pytest.raises(BadInputError, match="budget of queries"):
            Queries(lambda rows: rows, limit)


def test_made_up_rows_are_valid_and_the_comparisons_are_not() -> None:
    for generator, numbers in ((True, (-1.0, 1.0)), (False, (0.0, 1.0))):
        known = HERE.granted()
        IsolatedQueryAttack(generator=generator, epochs=1, steps=1)(HERE.seen.view, known, SEEDS)
        assert known.queries is not None
        asked = known.queries.asked[0]
        groups = torch.stack([asked[..., block].sum(-1) for block in known.schema.blocks[:2]])
        assert bool((groups == 1).all()) == generator
        assert float(asked[..., -1].min()) == pytest.approx(numbers[0], abs=0.05)
        assert float(asked[..., -1].max()) == pytest.approx(numbers[1], abs=0.05)
    known = HERE.granted()
    IsolatedQueryAttack(stretch=2, epochs=1, steps=1)(HERE.seen.view, known, SEEDS)
    assert known.queries is not None
    assert 1.9 < float(known.queries.asked[0].max()) <= 2


@pytest.mark.slow
def test_a_network_that_diverges_fails_alone() -> None:
    known = HERE.granted()
    leaked = known.leaked
    assert leaked is not None
    broken = leaked.features.clone()
    broken[1, 0] = torch.inf
    attack = StealthAttack(**QUICK)
    guess = attack(HERE.seen.view, replace(known, leaked=replace(leaked, features=broken)), SEEDS)
    assert guess.failed is not None
    assert guess.failed.tolist() == [False, True]
    assert bool(guess.cells[1].isnan().all())
    # The networks are trained in sums of another shape, so that theirs drift apart by roundings.
    whole = attack(HERE.seen.view, known, SEEDS)
    assert (guess.cells[0, :, :2] == whole.cells[0, :, :2]).double().mean() > 0.98
    torch.testing.assert_close(guess.cells[0, :, 2], whole.cells[0, :, 2], rtol=0.05, atol=0.05)


@pytest.mark.long
def test_a_network_that_diverges_starts_again_with_a_smaller_rate() -> None:
    leaked = HERE.granted().leaked
    assert leaked is not None
    encoder = encoder_of(HERE.known.schema)
    wild = Inverter(steps=100, learning_rate=1.0)
    found = wild.fit(leaked.features, encoder.encode(leaked.cells), encoder, SEEDS)
    assert not bool(found.failed.any())
    hopeless = Inverter(steps=20, learning_rate=1e30).fit(leaked.features, encoder.encode(leaked.cells), encoder, SEEDS)
    assert bool(hopeless.failed.all())


@pytest.mark.long
def test_trainings_side_by_side_are_the_same_as_one_by_one() -> None:
    known = HERE.granted()
    leaked = known.leaked
    assert leaked is not None
    both = StealthAttack(**QUICK)(HERE.seen.view, known, SEEDS)
    for which in (0, 1):
        some = slice(which, which + 1)
        view = replace(
            HERE.seen.view, own=HERE.seen.view.own[some], features=tuple(f[some] for f in HERE.seen.view.features)
        )
        one = replace(leaked, cells=leaked.cells[some], features=leaked.features[some], own=leaked.own[some])
        alone = StealthAttack(**QUICK)(view, replace(known, leaked=one), SEEDS[some])
        assert (alone.cells[0, :, :2] == both.cells[which, :, :2]).double().mean() > 0.98
        torch.testing.assert_close(alone.cells[0, :, 2], both.cells[which, :, 2], rtol=0.05, atol=0.05)


@pytest.mark.long
def test_own_columns_tell_something_but_less_than_features() -> None:
    guess = OwnColumns(epochs=10, hidden=(50,))(HERE.seen.view, HERE.granted().only(("auxiliary",)), SEEDS)
    found = accuracy(guess.cells, HERE.seen)
    assert GUESSING < found < 0.9


@pytest.mark.parametrize(("layers", "on_table", "on_image"), [(None, 3, 2), (1, 1, 1), (2, 2, 2), (3, 3, 3)])
def test_an_inverter_has_as_many_layers_as_are_asked_for(layers: int | None, on_table: int, on_image: int) -> None:
    attack = QueryAttack(layers=layers)
    assert len(attack.inverter(None).hidden) + 1 == on_table
    made = attack.inverter(ImagePart((3, 8, 8)))._networks(0, encoder_of(HERE.known.schema), [0])
    assert len(list(made.parameters())) == 2 * on_image


@pytest.mark.parametrize(
    "made",
    [
        lambda: QueryAttack(layers=4),
        lambda: QueryAttack(rows=0),
        lambda: QueryAttack(held_out=1.0),
        lambda: StealthAttack(learning_rate=0.0),
        lambda: StealthAttack(epochs=0),
        lambda: IsolatedQueryAttack(rows=0),
        lambda: IsolatedQueryAttack(stretch=0),
        lambda: DataPassiveAttack(shadow_epochs=0),
        lambda: Inverter(hidden=(0,)),
    ],
)
def test_settings_that_cannot_be_used_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(BadInputError):
        made()
