from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from seepage.assessment.features import measure_features, middle_tolerance, within
from seepage.errors import BadInputError
from seepage.models.vertical import vertical_mlp
from seepage.tabular.partition import Partition
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureView

SCHEMA = Schema(
    columns=(
        Discrete(name="d", categories=(0, 1, 2)),
        Continuous(name="c", low=-5, high=15, tolerance=1.5),
        Continuous(name="flat", low=0, high=9, tolerance=0.5),
    ),
    target=Discrete(name="t", categories=(0, 1)),
)


def made(seed: int, rows: int = 200) -> tuple[FeatureTranscript, FeatureGuess]:
    generator = np.random.default_rng(seed)
    true = np.stack(
        [generator.choice(3, (2, rows), p=[0.7, 0.2, 0.1]), generator.exponential(2, (2, rows)), np.full((2, rows), 3)],
        axis=-1,
    )
    said = true + np.stack([generator.integers(0, 2, (2, rows)), *generator.normal(0, 2, (2, 2, rows))], axis=-1)
    said[..., 0] %= 3
    own, features = torch.zeros(2, rows, 1), (torch.zeros(2, rows, 4),) * 2
    # The view is not read by the assessment.
    view = FeatureView(vertical_mlp(Partition(SCHEMA, ((2,), (0, 1))), [0]).active, 1, own, features)
    seen = FeatureTranscript(view, torch.tensor(true).double(), torch.zeros(2, rows))
    return seen, FeatureGuess(torch.tensor(said))


def values(seen: FeatureTranscript, guess: FeatureGuess) -> dict[tuple[str, str | None], list[float]]:
    return {(one.metric, one.column): one.values.tolist() for one in measure_features(SCHEMA, seen, guess)}


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_counting_cell_by_cell(seed: int) -> None:
    seen, guess = made(seed)
    found = values(seen, guess)
    for k in range(2):
        right, macro = np.zeros((200, 3)), []
        for i in range(200):
            true, said = seen.cells[k, i].tolist(), guess.cells[k, i].tolist()
            right[i] = [true[0] == said[0], abs(true[1] - said[1]) <= 2, abs(true[2] - said[2]) <= 0.9]
        assert found["accuracy", None][k] == pytest.approx(right.mean())
        assert found["accuracy_discrete", None][k] == pytest.approx(right[:, 0].mean())
        assert found["accuracy_continuous", None][k] == pytest.approx(right[:, 1:].mean())
        assert found["accuracy", "c"][k] == pytest.approx(right[:, 1].mean())
        assert found["exact_match", None][k] == pytest.approx(right.min(1).mean())
        low, high = np.quantile(seen.cells[k, :, 1], [0.05, 0.95])
        middle = (seen.cells[k, :, 1] - guess.cells[k, :, 1]).abs() <= (high - low) / 10
        flat = (seen.cells[k, :, 2] - guess.cells[k, :, 2]).abs() <= 0.5
        assert found["middle_accuracy", "c"][k] == pytest.approx(float(middle.double().mean()))
        assert found["middle_accuracy", "flat"][k] == pytest.approx(float(flat.double().mean()))
        for code in range(3):
            held = seen.cells[k, :, 0] == code
            macro.append(right[held.numpy(), 0].mean())
        expected = (np.mean(macro) + float(middle.double().mean()) + float(flat.double().mean())) / 3
        assert found["macro_accuracy", None][k] == pytest.approx(expected)
        assert found["failed", None] == [0, 0]


def test_a_long_tail_makes_a_constant_good_by_range_alone() -> None:
    true = torch.tensor([*range(100), 10_000], dtype=torch.float64)[None]
    column = Continuous(name="c", low=0, high=10_000, tolerance=1)
    constant = torch.full_like(true, 50.0)
    assert float(within(true, constant, 0.1 * (column.high - column.low)).double().mean()) > 0.99
    assert float(within(true, constant, middle_tolerance(column, true)[:, None]).double().mean()) < 0.25


def test_what_diverged_is_a_failure_and_no_protection() -> None:
    seen, guess = made(0)
    broken = guess.cells.clone()
    broken[1] = torch.nan
    found = values(seen, FeatureGuess(broken))
    assert found["failed", None] == [0, 1]
    for key, figures in found.items():
        if key != ("failed", None):
            assert not np.isnan(figures[0])
            assert np.isnan(figures[1])
    said = values(seen, replace(guess, failed=torch.tensor([True, False])))
    assert said["failed", None] == [1, 0]
    assert np.isnan(said["accuracy", None][0])
    only = next(one for one in measure_features(SCHEMA, seen, FeatureGuess(broken)) if one.metric == "accuracy")
    assert only.clusters is not None
    means = torch.stack([scores.mean() for scores in only.clusters])
    torch.testing.assert_close(means, only.values, equal_nan=True)
    assert only.estimate().n == 1


def test_a_guess_of_other_records_is_refused() -> None:
    seen, guess = made(0)
    with pytest.raises(BadInputError, match="guess the records of the view"):
        measure_features(SCHEMA, seen, FeatureGuess(guess.cells[:, 1:]))
