from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from seepage.datasets.planted import distinct
from seepage.defenses import Defense
from seepage.defenses.clipping import Clipping
from seepage.defenses.defense import check_switch, flat
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.defenses.none import Undefended
from seepage.defenses.sign import Sign
from seepage.defenses.top_k import TopK
from seepage.errors import BadInputError, positive
from seepage.models.mlp import nn1
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import defenses
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge
from tests.roundings import assert_rounded_alike

ALL = [
    Undefended(),
    GaussianNoise(0.1),
    Clipping(0.5),
    Clipping(100.0),
    TopK(0.1),
    TopK(1),
    Sign(),
    Sign(scaled=False),
]
SHAPES = {"one.weight": (4, 3), "one.bias": (4,), "two.weight": (2, 4), "two.bias": (2,)}
ENTRIES = sum(math.prod(shape) for shape in SHAPES.values())
entry = st.sampled_from([0.0, -1.0, 1.0, 2.0]) | st.floats(-1e3, 1e3, width=32)
rows = st.integers(1, 4).flatmap(
    lambda victims: st.lists(st.lists(entry, min_size=ENTRIES, max_size=ENTRIES), min_size=victims, max_size=victims)
)


def update_of(entries: list[list[float]] | Tensor) -> dict[str, Tensor]:
    whole = torch.as_tensor(entries, dtype=torch.float32)
    parts = whole.split([math.prod(shape) for shape in SHAPES.values()], dim=1)
    return {n: part.reshape(-1, *shape) for (n, shape), part in zip(SHAPES.items(), parts, strict=True)}


def random_update(victims: int, seed: int = 0) -> dict[str, Tensor]:
    return update_of(torch.randn(victims, ENTRIES, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("defense", ALL, ids=repr)
def test_a_message_depends_on_its_own_update_and_seed_alone(defense: Defense) -> None:
    update = random_update(4)
    before = {name: tensor.clone() for name, tensor in update.items()}
    state = torch.random.get_rng_state()
    whole = defense(update, seeds=[5, 6, 5, 2**62])
    assert isinstance(defense, Defense)
    assert list(whole) == list(update)
    for v, seed in enumerate([5, 6, 5, 2**62]):
        alone = defense({name: tensor[v : v + 1] for name, tensor in update.items()}, seeds=[seed])
        for name, tensor in alone.items():
            # Norm and mean magnitude are sums over the entries, which another shape may add up in another order.
            assert_rounded_alike(tensor[0], whole[name][v], roundings=ENTRIES, what=name)
            assert tensor.dtype == update[name].dtype
    assert all(torch.equal(update[name], tensor) for name, tensor in before.items())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("defense", ALL, ids=repr)
def test_one_seed_a_victim_is_asked_for(defense: Defense) -> None:
    with pytest.raises(BadInputError, match="one seed for each of 2 victims, got 3"):
        defense(random_update(2), seeds=[1, 2, 3])


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 1e-1])
def test_noise_is_normal_of_the_scale_asked_for(scale: float) -> None:
    update = {"weight": torch.zeros(3, 200, 300), "bias": torch.zeros(3, 200)}
    sent = flat(GaussianNoise(scale)(update, seeds=[1, 2, 3])).double()
    for noise in sent:
        n = len(noise)
        # Bounds that a right sample leaves with a chance of 1e-6 (chi squared, normal, Kolmogorov-Smirnov).
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], n)
        assert low < float((noise / scale).square().sum()) < high
        assert abs(float(noise.mean())) < 4.9 * scale / math.sqrt(n)
        assert stats.kstest((noise / scale).numpy(), "norm").pvalue > 1e-6
    correlation = torch.corrcoef(sent)
    assert float((correlation - torch.eye(3, dtype=torch.float64)).abs().max()) < 4.9 / math.sqrt(sent.shape[1])


def test_noise_depends_on_the_seed_of_a_victim_and_on_nothing_else() -> None:
    nothing = {"weight": torch.zeros(5, 4, 3), "bias": torch.zeros(5, 4)}
    sent = flat(GaussianNoise(0.1)(nothing, seeds=[7, 3, 7, 5, 3]))
    alone = {seed: flat(GaussianNoise(0.1)({n: t[:1] for n, t in nothing.items()}, [seed]))[0] for seed in (3, 5, 7)}
    assert [[bool((row == noise).all()) for noise in alone.values()] for row in sent] == [
        [False, False, True],
        [True, False, False],
        [False, False, True],
        [False, True, False],
        [True, False, False],
    ]


def test_noise_is_added_whatever_the_update_and_scales_linearly() -> None:
    update, nothing = random_update(3), {name: torch.zeros_like(t) for name, t in random_update(3).items()}
    seeds = [1, 2, 3]
    noise = flat(GaussianNoise(0.1)(nothing, seeds))
    torch.testing.assert_close(flat(GaussianNoise(0.1)(update, seeds)), flat(update) + noise)
    torch.testing.assert_close(flat(GaussianNoise(0.4)(nothing, seeds)), 4 * noise)


@given(rows, st.floats(1e-3, 1e5))
def test_clipping_keeps_the_direction_and_the_norm_within_its_bound(entries: list[list[float]], norm: float) -> None:
    update = update_of(entries)
    sent = Clipping(norm)(update, seeds=range(len(entries)))
    for before, after in zip(flat(update).double(), flat(sent).double(), strict=True):
        length = float(before.norm())
        assert float(after.norm()) <= norm * (1 + 1e-5)
        if length <= norm * (1 - 1e-5):
            assert torch.equal(before, after)
        else:
            torch.testing.assert_close(after, before * norm / length, rtol=1e-4, atol=1e-6)


@given(rows, st.floats(0.001, 1))
def test_the_largest_entries_are_sent_and_no_others(entries: list[list[float]], share: float) -> None:
    update = update_of(entries)
    wanted = max(1, round(Fraction(share) * ENTRIES))
    sent = flat(TopK(share)(update, seeds=range(len(entries))))
    for before, after in zip(flat(update).tolist(), sent.tolist(), strict=True):
        # Python's sort is stable: of equal magnitudes the first come first.
        kept = sorted(range(ENTRIES), key=lambda i: -abs(before[i]))[:wanted]
        assert after == [before[i] if i in kept else 0.0 for i in range(ENTRIES)]


@given(rows)
def test_signs_are_those_of_the_entries_and_the_scale_their_mean_magnitude(entries: list[list[float]]) -> None:
    update = update_of(entries)
    seeds = range(len(entries))
    plain, scaled = flat(Sign(scaled=False)(update, seeds)), flat(Sign()(update, seeds))
    for before, signs, after in zip(flat(update).tolist(), plain.tolist(), scaled, strict=True):
        assert signs == [(x > 0) - (x < 0) for x in before]
        mean = sum(map(abs, before)) / ENTRIES
        torch.testing.assert_close(after, torch.tensor(signs) * mean, rtol=1e-5, atol=1e-30)


@given(rows)
def test_an_update_that_is_sent_whole_is_the_update(entries: list[list[float]]) -> None:
    update = update_of(entries)
    seeds = range(len(entries))
    for defense in (Undefended(), TopK(1), Clipping(1e9)):
        assert torch.equal(flat(defense(update, seeds)), flat(update))
    assert torch.equal(Clipping(1.0)({"zero": torch.zeros(1, 5)}, [0])["zero"], torch.zeros(1, 5))


def test_arguments_out_of_range_are_refused() -> None:
    for bad in (0, -1, math.nan, math.inf):
        with pytest.raises(BadInputError, match="scale is a number above 0, got scale="):
            GaussianNoise(bad)
        with pytest.raises(BadInputError, match="norm is a number above 0, got norm="):
            Clipping(bad)
    with pytest.raises(BadInputError, match=r"share is a number above 0 and at most 1, got share=1\.5"):
        TopK(1.5)
    # Constructors check types too in tests, so what comes from a file is tried where it is judged.
    for worse in ("much", None, True, [1]):
        with pytest.raises(BadInputError, match="scale is a number above 0, got scale="):
            positive("scale", worse)
        if worse is not True:
            with pytest.raises(BadInputError, match="scaled is true or false, got scaled="):
                check_switch("scaled", worse)


def test_what_yaml_reads_as_text_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(
        BadInputError, match=r"got scale='1e-3'; write it without quotes and with a point, as in 0\.001"
    ):
        positive("scale", "1e-3")


def test_defenses_are_made_by_name() -> None:
    assert {"none", "gaussian_noise", "clipping", "top_k", "sign"} <= set(defenses.names())
    assert defenses.create("gaussian_noise", scale=1) == GaussianNoise(1.0)
    with pytest.raises(BadInputError, match="did you mean 'scale'"):
        defenses.create("gaussian_noise", scael=1)
    with pytest.raises(BadInputError, match="defense 'clipping' needs norm, which has no default"):
        defenses.create("clipping")


@pytest.mark.parametrize("defense", ALL, ids=repr)
def test_what_the_attacker_is_told_is_the_defense(defense: Defense) -> None:
    known = defense.describe()
    assert defenses.create(known.name, **known.arguments) == defense
    data = distinct()
    told = Knowledge(data.schema, data.statistics, 4, defense=known).describe()
    assert told["defense"] == {"name": known.name, **known.arguments}
    assert (known == Undefended().describe()) == (known.name == "none")


@pytest.mark.parametrize("defense", ALL, ids=repr)
def test_a_client_defends_what_it_sends_and_nothing_else(defense: Defense) -> None:
    data = distinct(rows=20)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model, seeds, draws = nn1(data.schema, seed=1), [3, 4, 5], [7, 8, 9]
    bare = FedSGD(4).run(model, data.train, encoder, seeds)
    sent = FedSGD(4, defense=defense).run(model, data.train, encoder, seeds, draws)
    assert torch.equal(sent.secret.cells, bare.secret.cells)
    assert torch.equal(sent.secret.labels, bare.secret.labels)
    assert list(sent.view.gradient) == list(bare.view.gradient)
    expected = defense(bare.view.gradient, draws)
    assert all(torch.equal(sent.view.gradient[name], tensor) for name, tensor in expected.items())
    alone = FedSGD(4, defense=defense).run(model, data.train, encoder, seeds[1:2], draws[1:2])
    # The error of a sum grows as the root of the number of its terms.
    roundings = 4 * math.sqrt(sum(tensor[1].numel() for tensor in expected.values()))
    for name, tensor in expected.items():
        assert_rounded_alike(alone.view.gradient[name][0], tensor[1], roundings, what=name)


def test_a_defense_without_seeds_is_refused() -> None:
    data = distinct(rows=20)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    with pytest.raises(BadInputError, match="one seed for each of 2 victims, got 0"):
        FedSGD(4, defense=Sign()).run(nn1(data.schema, seed=1), data.train, encoder, [0, 1])
