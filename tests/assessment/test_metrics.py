import math

import pytest
import torch

from seepage.assessment import (
    Entropy,
    Kendall,
    Measurement,
    Metric,
    Quarters,
    match_records,
    measure,
)
from seepage.errors import BadInputError
from seepage.kernel import Certified
from seepage.registry import metrics
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Marginal, Statistics
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.secret import RecordsSecret
from tests.oracles.assessment import expected_quarter, least_matching, right, scores, small_schema, tau_b

SCHEMA = small_schema()
SCALE = [math.nan, math.nan, 2.0, 0.5]


def statistics_of(schema: Schema, std: float | None = None) -> Statistics:
    """Statistics whose continuous columns have the standard deviations of SCALE, or ``std``."""
    one = torch.ones(1, dtype=torch.float64)
    marginal = Marginal(0 * one, one, 0.0, 0.0, 0.0)
    scale = torch.ones(schema.width, dtype=torch.float64)
    for i in schema.continuous:
        scale[schema.blocks[i]] = SCALE[i] if std is None else std
    return Statistics((marginal,) * len(schema.columns), marginal, torch.zeros_like(scale), scale)


def draw(victims: int, records: int, seed: int, discrete: int = 2, continuous: int = 2) -> torch.Tensor:
    """Random cells of ``small_schema``."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(3, (victims, records, discrete), generator=generator).double()
    values = torch.rand(victims, records, continuous, generator=generator, dtype=torch.float64) * 10
    return torch.cat([codes, values], dim=-1)


def secret_of(cells: torch.Tensor) -> RecordsSecret:
    """A secret whose labels are all 0."""
    return RecordsSecret(cells, torch.zeros(cells.shape[:2], dtype=torch.float64))


def values_of(
    true: torch.Tensor,
    guess: torch.Tensor,
    uncertainty: torch.Tensor | None = None,
    schema: Schema = SCHEMA,
    metrics: list[Metric] | None = None,
) -> dict[tuple[str, str | None], torch.Tensor]:
    """Measure, and key the values of each victim by metric and column."""
    measured = measure(
        schema, statistics_of(schema), secret_of(true), RecordsGuess(guess, uncertainty=uncertainty), metrics
    )
    return {(m.metric, m.column): m.values for m in measured if isinstance(m, Measurement)}


@pytest.mark.parametrize("records", [1, 3, 5])
def test_scores_equal_those_of_trying_all_permutations(records: int):
    true, guess = draw(6, records, seed=0), draw(6, records, seed=1)
    guess[:3] += torch.tensor([0, 0, 0.5, 0.2])
    guess[:3, :, :2] = true[:3, :, :2].roll(1, dims=1)
    found = values_of(true, guess)
    for victim in range(6):
        wanted = scores(SCHEMA, SCALE, guess[victim].tolist(), true[victim].tolist())
        assert set(wanted) == set(found)
        for key, value in wanted.items():
            assert float(found[key][victim]) == pytest.approx(value), key


def test_surplus_guessed_records_are_left_unmatched():
    true, guess = draw(2, 3, seed=0), draw(2, 5, seed=1)
    found = values_of(true, guess)
    wanted = scores(SCHEMA, SCALE, guess[1].tolist(), true[1].tolist())
    assert float(found["accuracy", None][1]) == pytest.approx(wanted["accuracy", None])
    assert float(found["rmse", None][1]) == pytest.approx(wanted["rmse", None])


def test_the_truth_in_another_order_scores_perfectly():
    true = draw(4, 16, seed=2)
    found = values_of(true, true.flip(1))
    for (metric, _), values in found.items():
        assert (values == (0 if metric == "rmse" else 1)).all(), metric


def test_planted_errors_are_counted():
    true = draw(1, 10, seed=3)
    guess = true.clone()
    guess[0, 0, 0] = (guess[0, 0, 0] + 1) % 3
    guess[0, 1, 2] += 1.5
    guess[0, 2, 3] += 0.999
    found = values_of(true, guess)
    assert found["accuracy", None].item() == pytest.approx(38 / 40)
    assert found["accuracy_discrete", None].item() == pytest.approx(19 / 20)
    assert found["accuracy_continuous", None].item() == pytest.approx(19 / 20)
    assert [found["accuracy", name].item() for name in SCHEMA.names] == pytest.approx([0.9, 1, 0.9, 1])
    assert found["exact_match", None].item() == pytest.approx(0.8)
    errors = [math.sqrt((1.5 / 2) ** 2 / 10), math.sqrt((0.999 / 0.5) ** 2 / 10)]
    assert [found["rmse", name].item() for name in ("c0", "c1")] == pytest.approx(errors)
    assert found["rmse", None].item() == pytest.approx(sum(errors) / 2)


def test_ties_go_to_the_nearest_matching_and_never_cost_a_cell():
    # Every pair has both continuous cells wrong and the discrete ones right: all matchings tie.
    true = torch.tensor([[[0, 0, 1.0, 1.0], [0, 0, 8.0, 8.0]]], dtype=torch.float64)
    guess = torch.tensor([[[0, 0, 5.5, 5.5], [0, 0, 3.5, 3.5]]], dtype=torch.float64)
    matched = match_records(SCHEMA, statistics_of(SCHEMA), secret_of(true), RecordsGuess(guess))
    assert matched.guess[0, :, 2].tolist() == [3.5, 5.5]
    assert least_matching(SCHEMA, SCALE, guess[0].tolist(), true[0].tolist()) == (1, 0)


def test_scores_of_a_victim_do_not_depend_on_the_others():
    true, guess = draw(5, 6, seed=4), draw(5, 6, seed=5)
    together = values_of(true, guess)
    for victim in range(5):
        alone = values_of(true[victim : victim + 1], guess[victim : victim + 1])
        for key, values in together.items():
            assert alone[key].item() == values[victim].item()


def test_cells_that_were_not_guessed_are_wrong_and_have_no_error_in_units():
    true = draw(2, 3, seed=6)
    guess = true.clone()
    guess[1, 2, 2] = math.nan
    found = values_of(true, guess)
    assert found["accuracy", None].tolist() == pytest.approx([1, 11 / 12])
    assert found["rmse", "c0"][0] == 0
    assert found["rmse", "c0"][1].isnan()
    assert found["rmse", "c1"].tolist() == [0, 0]


@pytest.mark.parametrize(("discrete", "continuous", "absent"), [(3, 0, "continuous"), (0, 3, "discrete")])
def test_figures_of_a_kind_that_the_table_lacks_are_left_out(discrete: int, continuous: int, absent: str):
    schema = small_schema(discrete, continuous)
    true = draw(5, 4, 0, discrete, continuous)
    guess = RecordsGuess(draw(5, 4, 1, discrete, continuous), uncertainty=torch.rand_like(true))
    measured = measure(schema, statistics_of(schema, 1.0), secret_of(true), guess)
    assert measured
    assert not [m.metric for m in measured if m.metric.endswith(absent)]
    assert ("rmse" in {m.metric for m in measured}) == bool(continuous)


def test_without_uncertainty_nothing_is_said_about_it():
    true = draw(2, 3, seed=0)
    assert {metric for metric, _ in values_of(true, true)} == {
        "accuracy",
        "accuracy_discrete",
        "accuracy_continuous",
        "exact_match",
        "rmse",
    }


def test_entropy_is_the_mean_over_finite_cells():
    true = draw(3, 2, seed=0)
    uncertainty = torch.zeros(3, 2, 4, dtype=torch.float64)
    uncertainty[0, :, :2] = torch.tensor([[0.2, 0.4], [0.6, 0.8]])
    uncertainty[0, :, 2:] = torch.tensor([[-1.0, -math.inf], [2.0, 5.0]])
    uncertainty[1, :, 2:] = -math.inf
    found = values_of(true, true, uncertainty, metrics=[Entropy()])
    assert found["entropy_discrete", None].tolist() == pytest.approx([0.5, 0, 0])
    assert found["entropy_discrete", "d1"][0] == pytest.approx(0.6)
    assert found["entropy_continuous", None][0] == pytest.approx(2)
    assert found["entropy_continuous", "c1"][0] == pytest.approx(5)
    assert found["entropy_continuous", None][1].isnan()
    assert found["entropy_continuous", None][2] == 0


def test_uncertainty_follows_its_record_through_the_matching():
    true = draw(1, 4, seed=7)
    uncertainty = torch.arange(16, dtype=torch.float64).reshape(1, 4, 4)
    guess = RecordsGuess(true.flip(1), uncertainty=uncertainty.flip(1))
    matched = match_records(SCHEMA, statistics_of(SCHEMA), secret_of(true), guess)
    assert matched.uncertainty is not None
    assert torch.equal(matched.uncertainty, uncertainty)


@pytest.mark.parametrize("official", [False, True])
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_quarters_average_over_the_orders_of_tied_cells(levels: int, official: bool):
    schema = small_schema(discrete=2, continuous=1)
    true, guess = draw(3, 4, 0, 2, 1), draw(3, 4, 1, 2, 1)
    generator = torch.Generator().manual_seed(levels)
    uncertainty = torch.randint(levels, (3, 4, 3), generator=generator).double()
    uncertainty[0, 0, 2] = -math.inf
    measured = measure(
        schema,
        statistics_of(schema, 1.0),
        secret_of(true),
        RecordsGuess(guess, uncertainty=uncertainty),
        [Quarters(official_count=official)],
    )
    found = {m.metric: m.values for m in measured if isinstance(m, Measurement)}
    for victim in range(3):
        order = least_matching(schema, [math.nan, math.nan, 1.0], guess[victim].tolist(), true[victim].tolist())
        rows = [right(schema, guess[victim, g].tolist(), true[victim, t].tolist()) for t, g in enumerate(order)]
        # Cells: 8 discrete and 4 continuous; the official code sizes both kinds' quarters by the latter.
        # Continuous ones it sizes as described, so they are measured once.
        kinds = (("discrete", (0, 1), 1),) if official else (("discrete", (0, 1), 2), ("continuous", (2,), 1))
        for kind, columns, count in kinds:
            cells = [row[i] for row in rows for i in columns]
            certainty = [float(uncertainty[victim, g, i]) for g in order for i in columns]
            for end in ("top", "bottom"):
                wanted = expected_quarter(certainty, cells, count, end == "top")
                name = f"{end}_quarter_{kind}" + ("_as_coded" if official else "")
                assert float(found[name][victim]) == pytest.approx(wanted)
    assert all(name.endswith("_discrete_as_coded") for name in found) == official


def test_a_quarter_is_rounded_up_and_unranked_cells_have_no_part_in_it():
    schema = small_schema(discrete=0, continuous=1)
    true = torch.arange(6, dtype=torch.float64).mul(1.7).reshape(1, 6, 1)
    guess = true.clone()
    guess[0, 0] += 5
    nan = math.nan
    uncertainty = torch.tensor([5.0, 0.0, 1.0, 2.0, 3.0, nan], dtype=torch.float64).reshape(1, 6, 1)
    matched = match_records(
        schema, statistics_of(schema, 1.0), secret_of(true), RecordsGuess(guess, uncertainty=uncertainty)
    )
    wrong = ~matched.right[0, :, 0]
    assert wrong.sum() == 1
    top, bottom = Quarters()(matched)
    # Five ranked cells: two a quarter; the wrong cell is the least certain of them.
    assert top.values.item() == 1
    assert bottom.values.item() == 0.5


def test_a_victim_without_any_ranked_cell_has_no_quarters():
    true = draw(2, 3, seed=0)
    uncertainty = torch.zeros(2, 3, 4, dtype=torch.float64)
    uncertainty[1] = math.nan
    for values in values_of(true, true, uncertainty, metrics=[Quarters()]).values():
        assert values[0] == 1
        assert values[1].isnan()


def test_kendall_correlates_accuracy_and_entropy_of_victims():
    true = draw(8, 6, seed=0)
    wrong = torch.arange(8)[:, None] > torch.arange(6)[None, :]
    guess = true.clone()
    guess[..., 3] += 1.5 * wrong
    uncertainty = torch.zeros_like(true)
    uncertainty[..., 3] = torch.tensor([0.0, 1, 1, 3, 2, 5, 4, 6]).double()[:, None]
    measured = measure(
        SCHEMA, statistics_of(SCHEMA), secret_of(true), RecordsGuess(guess, uncertainty=uncertainty), [Kendall()]
    )
    discrete, continuous = measured
    assert continuous.entropy is not None
    assert (discrete.metric, continuous.metric) == ("kendall_discrete", "kendall_continuous")
    wanted = tau_b(continuous.values.tolist(), continuous.entropy.tolist())
    assert wanted < -0.5
    assert continuous.estimate().mean == pytest.approx(wanted)
    # The discrete cells are all right: a constant has no rank correlation.
    assert discrete.estimate().mean is None


def test_every_registered_metric_is_measured_by_default():
    assert metrics.names() == ["accuracy", "certified", "entropy", "exact_match", "kendall", "quarters", "rmse"]
    true = draw(3, 4, seed=0)
    guess = RecordsGuess(true, uncertainty=torch.zeros_like(true))
    measured = measure(SCHEMA, statistics_of(SCHEMA), secret_of(true), guess)
    assert {m.metric for m in measured} == {
        *("accuracy", "accuracy_discrete", "accuracy_continuous", "exact_match", "rmse"),
        *("entropy_discrete", "entropy_continuous", "kendall_discrete", "kendall_continuous"),
        *("top_quarter_discrete", "bottom_quarter_discrete", "top_quarter_continuous", "bottom_quarter_continuous"),
    }
    keys = [(m.metric, m.column) for m in measured]
    assert len(set(keys)) == len(keys)


def test_another_number_of_victims_is_refused():
    with pytest.raises(BadInputError, match=r"3 victims but the guess 2"):
        measure(SCHEMA, statistics_of(SCHEMA), secret_of(draw(3, 2, 0)), RecordsGuess(draw(2, 2, 0)))


def test_too_few_guessed_records_are_refused():
    with pytest.raises(BadInputError, match="got 2 for 3"):
        measure(SCHEMA, statistics_of(SCHEMA), secret_of(draw(1, 3, 0)), RecordsGuess(draw(1, 2, 0)))


def test_what_is_certified_is_counted_and_what_is_wrong_of_it():
    """Two records; the first is certain and right but for one cell, of the second nothing is certain."""
    true = draw(2, 2, seed=0)
    cells = true.clone()
    cells[:, 0, 0] += 50
    certain, part = torch.zeros_like(true, dtype=torch.bool), torch.zeros(true.shape[1:], dtype=torch.bool)
    certain[0, 0], part[1] = True, True
    guess = RecordsGuess(cells, proofs=tuple(Certified(one, part) for one in certain))
    found = {m.metric: m for m in measure(SCHEMA, statistics_of(SCHEMA), secret_of(true), guess)}
    columns = true.shape[-1]
    assert found["certified"].values.tolist() == [0.5, 0.0]  # pyright: ignore[reportAttributeAccessIssue]
    assert found["certified_cells"].values.tolist() == [0.5, 0.0]  # pyright: ignore[reportAttributeAccessIssue]
    assert found["certified_given"].values.tolist() == [0.5, 0.5]  # pyright: ignore[reportAttributeAccessIssue]
    wrong = found["certified_wrong"].values  # pyright: ignore[reportAttributeAccessIssue]
    assert wrong[0] == pytest.approx(1 / columns)
    assert wrong[1].isnan()
