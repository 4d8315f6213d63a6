import pandas as pd
import pytest
import torch
from torch import nn

from seepage import registry
from seepage.assessment import measure
from seepage.baselines import Likeliest, Mode, Random
from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.models.model import Model
from seepage.tabular.align import right_cells
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge
from seepage.wire.secret import RecordsSecret


def _view(victims: int, fill: float = 0.0) -> GradientView:
    model = Model(nn.Linear(1, 1, bias=False), "sigmoid", "linear")
    return GradientView(model, {"weight": torch.full((victims, 1, 1), fill)})


@pytest.fixture(scope="module")
def table() -> Table:
    schema = Schema(
        columns=(
            Discrete(name="colour", categories=("never", "red", "blue", "nor this")),
            Continuous(name="age", low=0, high=99, tolerance=2, integer=True),
            Continuous(name="weight", low=0, high=1, tolerance=0.1),
        ),
        target=Discrete(name="ill", categories=("no", "yes")),
    )
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(40, generator=generator).double().tolist()
    frame = pd.DataFrame(
        {
            "colour": ["red"] * 30 + ["blue"] * 10,
            "age": [20] * 8 + [30] * 20 + [40] * 12,
            "weight": weight,
            "ill": ["no", "yes"] * 20,
        }
    )
    return Table(schema, frame)


@pytest.fixture(scope="module")
def knowledge(table: Table) -> Knowledge:
    return Knowledge(table.schema, Statistics.of(table), batch_size=200)


def test_random_cells_follow_the_marginals(knowledge: Knowledge):
    cells = Random()(_view(20), knowledge, range(20)).cells
    assert cells.shape == (20, 200, 3)
    for i, marginal in enumerate(knowledge.statistics.marginals):
        drawn = cells[..., i].flatten()
        assert torch.isin(drawn, marginal.values[marginal.probabilities > 0]).all()
        shares = (drawn[:, None] == marginal.values).double().mean(dim=0)
        # 4000 draws: five standard errors of a share.
        error = 5 * (marginal.probabilities * (1 - marginal.probabilities) / 4000).sqrt()
        assert ((shares - marginal.probabilities).abs() <= error).all()


def test_random_rows_are_drawn_one_by_one_and_columns_independently(knowledge: Knowledge):
    cells = Random()(_view(20), knowledge, range(20)).cells
    joint = ((cells[..., 0] == 1) & (cells[..., 1] == 20)).double().mean()
    # 0.75 x 0.2 if independent; in the table itself every 20-year-old is red.
    assert float(joint) == pytest.approx(0.15, abs=0.03)
    assert (cells[:, 0] != cells[:, 1]).any()


def test_the_official_variant_repeats_continuous_draws_only(knowledge: Knowledge):
    cells = Random(one_draw_per_column=True)(_view(30), knowledge, range(30)).cells
    assert (cells[..., 1:] == cells[:, :1, 1:]).all()
    assert (cells[..., 0] != cells[:, :1, 0]).any()
    assert len(cells[:, 0, 1].unique()) == 3


def test_a_victims_guess_depends_on_its_own_seed_alone(knowledge: Knowledge):
    together = Random()(_view(3), knowledge, [5, 6, 5]).cells
    alone = Random()(_view(1, fill=7.0), knowledge, [6]).cells
    assert torch.equal(together[1], alone[0])
    assert torch.equal(together[0], together[2])
    assert not torch.equal(together[0], together[1])


def test_random_draws_share_no_stream_with_a_generator_of_the_same_seed(knowledge: Knowledge):
    plain = torch.rand(200, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    cells = Random()(_view(1), knowledge, [5]).cells[0]
    assert not torch.equal(cells[:, 0] == 2, plain[:, 0] >= 0.75)
    agree = ((cells[:, 0] == 2) == (plain[:, 0] >= 0.75)).double().mean()
    # Independent: 0.75^2 + 0.25^2.
    assert float(agree) == pytest.approx(0.625, abs=0.15)


def test_one_seed_for_each_victim_is_demanded(knowledge: Knowledge):
    with pytest.raises(BadInputError, match=r"got 2 for 3 victims"):
        Random()(_view(3), knowledge, [1, 2])


def test_a_negative_seed_is_refused(knowledge: Knowledge):
    with pytest.raises(BadInputError, match="got -2"):
        Random()(_view(2), knowledge, [1, -2])


def test_mode_repeats_the_most_frequent_row(table: Table, knowledge: Knowledge):
    guess = Mode()(_view(4), knowledge, range(4))
    weight = sorted(table.frame["weight"])[19]
    assert guess.cells.shape == (4, 200, 3)
    assert (guess.cells == torch.tensor([1.0, 30.0, weight], dtype=torch.float64)).all()


def test_both_are_registered_and_claim_neither_labels_nor_certainty(knowledge: Knowledge):
    baselines = registry.baselines.of("horizontal")
    assert {"random", "mode"} <= set(baselines.names())
    for name in ("random", "mode"):
        guess = baselines.create(name)(_view(2), knowledge, [0, 1])
        assert (guess.uncertainty, guess.labels, guess.loss) == (None, None, None)


# Accuracy of guessing on Adult in percent: rows drawn one by one, and the official code's variant.
# Both were measured once over 50 victims with an independent implementation.
_ADULT = {1: (45.0, 45.2), 8: (55.4, 52.8), 16: (58.4, 55.0), 32: (61.4, 57.2), 64: (64.2, 59.4), 128: (66.7, 61.3)}


@pytest.mark.long
@pytest.mark.parametrize("batch_size", _ADULT)
def test_guessing_scores_on_adult_what_an_independent_implementation_measured(batch_size: int):
    dataset = load("adult")
    everyone, victims = dataset.all, 50
    index = torch.randint(len(everyone), (victims, batch_size), generator=torch.Generator().manual_seed(batch_size))
    secret = RecordsSecret(everyone.cells[index], everyone.labels[index])
    granted = Knowledge(dataset.schema, dataset.statistics, batch_size)
    for one_draw, wanted in zip((False, True), _ADULT[batch_size], strict=True):
        guess = Random(one_draw_per_column=one_draw)(_view(victims), granted, range(victims))
        estimate = measure(dataset.schema, dataset.statistics, secret, guess)[0].estimate(level=0.999)
        assert estimate.mean is not None
        assert estimate.low is not None
        # Both figures carry the error of 50 victims.
        assert abs(estimate.mean - wanted / 100) <= 2**0.5 * (estimate.mean - estimate.low)


@pytest.mark.parametrize("name", ["german", "adult"])
def test_rows_that_are_not_matched_agree_as_often_as_the_marginals_say(name: str):
    dataset, victims, records = load(name), 40, 50
    index = torch.randint(len(dataset.all), (victims, records), generator=torch.Generator().manual_seed(1))
    guess = Random()(_view(victims), Knowledge(dataset.schema, dataset.statistics, records), range(victims))
    right = right_cells(dataset.schema, guess.cells, dataset.all.cells[index]).double().mean((1, 2))
    # Five standard errors, and half a point by which histograms of numbers may be off.
    assert (
        abs(float(right.mean()) - dataset.statistics.agreement(dataset.schema))
        <= 5 * float(right.std()) / 40**0.5 + 0.005
    )


def test_the_likeliest_row_is_the_best_constant_one(table: Table, knowledge: Knowledge):
    [row] = Likeliest()(_view(1), knowledge, [0]).cells[:, 0]
    assert row[:2].tolist() == [1, 30]
    tolerance = torch.tensor([0, 2, 0.1], dtype=torch.float64)
    expected = ((table.cells - row).abs() <= tolerance).double().mean(dim=0)
    for other in table.cells:
        share = ((table.cells - other).abs() <= tolerance).double().mean(dim=0)
        assert (share[:2] <= expected[:2]).all()
        # Marginals of numbers are histograms here: a window may miss what lies within a bin of its ends.
        assert share[2] <= expected[2] + 0.1


def test_the_likeliest_row_beats_the_median_where_values_lie_at_two_ends():
    schema = Schema(
        columns=(Continuous(name="gain", low=0, high=100, tolerance=5),),
        target=Discrete(name="ill", categories=("no", "yes")),
    )
    frame = pd.DataFrame({"gain": [0] * 45 + [50] * 10 + [100] * 45, "ill": ["no", "yes"] * 50})
    known = Knowledge(schema, Statistics.of(Table(schema, frame)), batch_size=1)
    assert Mode()(_view(1), known, [0]).cells.item() == 50
    assert Likeliest()(_view(1), known, [0]).cells.item() in (0, 99)
