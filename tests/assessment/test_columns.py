from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

from seepage.assessment import auc, calibration_error, f1, measure_columns
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.protocols.split import SplitLearning
from seepage.tabular.schema import Discrete
from seepage.wire.split import CutGuess
from tests.attacks.split.test_exact import table


@given(st.integers(2, 5), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_f1_is_scikit_learns(classes: int, seed: int, records: int) -> None:
    generator = np.random.default_rng(seed)
    # Sorted order is not the order of the codes.
    names = generator.permutation([f"c{i}" for i in range(classes)]).tolist()
    column = Discrete(name="x", categories=tuple(names))
    true, said = generator.integers(classes, size=(2, records))
    found = f1(column, torch.tensor(true).double(), torch.tensor(said).double())
    texts = [[names[i] for i in codes] for codes in (true, said)]
    if classes == 2:
        positive = max(names)
        if positive not in texts[0] + texts[1]:
            assert found is None
            return
        assert found == pytest.approx(f1_score(*texts, pos_label=positive))
    else:
        assert found == pytest.approx(f1_score(*texts, average="macro"))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_auc_is_scikit_learns(pairs: list[tuple[int, bool]]) -> None:
    scores, positive = torch.tensor([float(s) for s, _ in pairs]), torch.tensor([p for _, p in pairs])
    found = auc(scores, positive)
    if bool(positive.all()) or not bool(positive.any()):
        assert found is None
    else:
        assert found == pytest.approx(roc_auc_score(positive.numpy(), scores.numpy()))


def test_calibration_is_the_gap_between_chance_and_share() -> None:
    chances = torch.tensor([[0.9, 0.1]] * 10 + [[0.4, 0.6]] * 10)
    right = torch.tensor([1.0] * 5 + [0.0] * 5 + [1.0] * 6 + [0.0] * 4)
    assert calibration_error(chances, right) == pytest.approx(0.2)
    assert calibration_error(chances[:0], right[:0]) is None


def test_figures_of_the_truth_are_full_and_those_of_another_number_of_records_are_refused() -> None:
    data = table(2)
    model = deepfm(data.schema, ("a", "n"), seed=0, hidden=(8,))
    learning = SplitLearning(epochs=1)
    seen = learning.observe(learning.train(model, data.train, seed=0), data.train.rows(range(40)), seed=0)
    measured = measure_columns(data.schema, model.private, seen, CutGuess(seen.cells, seen.labels))
    figures = {(figure.metric, figure.column): figure.values.item() for figure in measured}
    assert {len(records) for figure in measured for records in figure.clusters or ()} == {len(seen.labels)}
    assert set(figures.values()) == {1.0}
    assert ("f1", "n") not in figures
    near = seen.cells.clone()
    near[:20, 1] += 0.29
    near[20:, 1] += 0.31
    measured = measure_columns(data.schema, model.private, seen, CutGuess(near, 1 - seen.labels))
    figures = {(figure.metric, figure.column): figure.values.item() for figure in measured}
    for figure in measured:
        for records in figure.clusters or ():
            assert figure.values.item() == pytest.approx(float(records.mean()))
    assert figures["accuracy", "n"] == 0.5
    assert figures["accuracy", None] == 0.75
    assert figures["accuracy", "t"] == figures["f1", "t"] == figures["exact_match", None] == 0
    with pytest.raises(BadInputError, match="a guess of 1 records"):
        measure_columns(data.schema, model.private, seen, CutGuess(near[:1], seen.labels[:1]))
