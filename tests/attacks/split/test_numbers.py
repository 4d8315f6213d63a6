from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seepage.assessment import measure_columns
from seepage.attacks.split import Exact, Posterior
from seepage.attacks.split.parts.messages import rounding
from seepage.attacks.split.parts.number_prior import NumberPrior, bin_edges
from seepage.attacks.split.parts.numbers import Region, likeliest, region_samples
from seepage.datasets.dataset import Dataset
from seepage.models.deepfm import deepfm
from seepage.models.split import SplitModel
from seepage.protocols.split import SplitLearning
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.secret import CutTranscript
from seepage.wire.split import Auxiliary, CutKnowledge
from tests.oracles.split import loss_gradient

NUMBERS = ("n", "m", "k")


def table(classes: int = 2, rows: int = 600, seed: int = 0, whole: int | None = None) -> Dataset:
    """Return two categories, three numbers that depend on them, whole ones up to a bound where it is given."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=rows)
    frame = {
        name: np.clip((hidden + generator.normal(size=rows) + 2) / 4 * width, 0, width - 1).astype(int)
        for name, width in (("a", 3), ("s", 5), ("b", 4))
    }
    for k, name in enumerate(NUMBERS):
        value = 1 / (1 + np.exp(-(hidden + (k + 1) * generator.normal(size=rows))))
        frame[name] = np.round(value * whole).astype(int) if whole else value
    score = hidden + 0.3 * frame["a"] + (frame["n"] - frame["m"]) / (whole or 1) + 0.5 * generator.normal(size=rows)
    frame["t"] = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))
    schema = Schema(
        columns=(
            *(Discrete(name=name, categories=tuple(range(width))) for name, width in (("a", 3), ("s", 5), ("b", 4))),
            *(
                Continuous(name=name, low=0, high=whole or 1, tolerance=0.06 * (whole or 1), integer=whole is not None)
                for name in NUMBERS
            ),
        ),
        target=Discrete(name="t", categories=tuple(range(classes))),
    )
    return Dataset("made", Table(schema, pd.DataFrame(frame)), None, (), "generated", "none needed")


def exchange(
    data: Dataset, private: tuple[str, ...], records: int = 20, hidden: tuple[int, ...] = (16, 8), logit: bool = True
) -> tuple[SplitModel, CutTranscript, CutKnowledge]:
    model = deepfm(data.schema, private, seed=0, hidden=hidden, logit=logit)
    protocol = SplitLearning(epochs=4, batch_size=32)
    trained = protocol.train(model, data.train, seed=0)
    seen = protocol.observe(trained, data.train.rows(range(records)), seed=1)
    rest = data.train.rows(range(records, len(data.train)))
    known = CutKnowledge(data.schema, data.statistics, protocol.known(), Auxiliary(rest.cells, rest.labels))
    return trained.model, seen, known


def scaled_truth(model: SplitModel, seen: CutTranscript) -> Tensor:
    full = torch.zeros(len(seen.cells), len(model.schema.columns), dtype=torch.float64)
    full[:, list(model.private)] = seen.cells
    return model.scaled(full, model.private)


@pytest.mark.parametrize(("classes", "logit"), [(2, True), (2, False), (3, True)])
def test_all_sampled_numbers_replay_the_message_by_autograd(classes: int, logit: bool) -> None:
    model, seen, known = exchange(table(classes), NUMBERS, records=6, logit=logit)
    truth, gradient = scaled_truth(model, seen), seen.view.own_gradient
    region = Region.of(model, seen.view.cut, gradient, truth, seen.labels.long())
    prior = NumberPrior.of(model, known, seen.view.features)
    samples = region_samples(region, prior, torch.Generator().manual_seed(0))
    spread = (samples.high - samples.low).amax(1)
    assert float(spread.min()) > 0.05
    assert bool(((samples.low <= truth + 1e-5) & (samples.high >= truth - 1e-5)).all())
    for r in range(6):
        for numbers in samples.numbers[r, ::101]:
            found = loss_gradient(model, seen.view.cut[r], numbers.float(), int(seen.labels[r]))
            assert float((found - gradient[r]).norm()) <= 4 * float(rounding(gradient)[r])


def naive_shares(model: SplitModel, seen: CutTranscript, r: int, prior: NumberPrior, bins: int) -> Tensor:
    """Return the posterior of the first of two numbers in equal bins, by walking over both on a grid."""
    grid = torch.linspace(0, 1, 301)
    cut, received, label = seen.view.cut[r], seen.view.own_gradient[r], int(seen.labels[r])
    with torch.no_grad():
        wanted = float(model.client(cut[None], scaled_truth(model, seen)[r][None])[0, 0])
    shares = torch.zeros(bins, dtype=torch.float64)
    for value in (torch.arange(80 * bins) + 0.5) / (80 * bins):
        points = torch.stack([value.expand(len(grid)), grid], 1)
        with torch.no_grad():
            apart = model.client(cut.expand(len(grid), -1), points)[:, 0] - wanted
        for at in (apart[1:].sign() != apart[:-1].sign()).nonzero()[:, 0].tolist():
            # The logit is a straight line within a region, so that the crossing is found by interpolation.
            slope = (apart[at + 1] - apart[at]) / (grid[at + 1] - grid[at])
            crossing = grid[at] - apart[at] / slope
            found = loss_gradient(model, cut, torch.stack([value, crossing]), label)
            if float((found - received).norm()) <= 1e-3 * float(received.norm()):
                density = sum(
                    float(prior.log_density(c, one.double().view(1, 1))[0, 0])
                    for c, one in enumerate((value, crossing))
                )
                shares[int(value * bins)] += np.exp(density) / abs(float(slope))
    return shares / shares.sum()


@pytest.mark.long
def test_the_posterior_is_that_of_a_naive_enumeration() -> None:
    model, seen, known = exchange(table(), ("n", "m"), records=3, hidden=(8, 4))
    prior = NumberPrior.of(model, known, seen.view.features)
    region = Region.of(model, seen.view.cut, seen.view.own_gradient, scaled_truth(model, seen), seen.labels.long())
    samples = region_samples(region, prior, torch.Generator().manual_seed(0))
    for r in range(3):
        expected = naive_shares(model, seen, r, prior.rows(torch.tensor([r])), 8)
        found = torch.histc(samples.numbers[r, :, 0], 8, 0, 1) / samples.numbers.shape[1]
        assert float((found - expected).abs().sum()) / 2 < 0.08


@pytest.mark.long
@pytest.mark.parametrize("private", [NUMBERS, ("a", "n", "m")])
@pytest.mark.parametrize("attack", [Exact(), Posterior()])
def test_numbers_are_read_no_worse_than_by_the_prior_and_categories_exactly(
    attack: Exact | Posterior, private: tuple[str, ...]
) -> None:
    model, seen, known = exchange(table(), private, records=80)
    guess, before = attack(seen.view, known), Posterior(observed=False)(seen.view, known)
    figures, baseline = (
        {(figure.metric, figure.column): figure.values.item() for figure in measured}
        for measured in (
            measure_columns(model.schema, model.private, seen, guess),
            measure_columns(model.schema, model.private, seen, before),
        )
    )
    assert figures["accuracy", None] > baseline["accuracy", None] + 0.03
    assert torch.equal(guess.labels, seen.labels)
    if "a" in private:
        assert figures["accuracy", "a"] == 1.0
    assert guess.mass is not None
    assert bool(((guess.mass[~guess.mass.isnan()] >= 0) & (guess.mass[~guess.mass.isnan()] <= 1)).all())
    assert not math.isnan(figures["still_possible", private[-1]])


@pytest.mark.long
def test_as_many_messages_as_numbers_determine_them() -> None:
    data = table()
    protocol = SplitLearning(epochs=4, batch_size=32)
    trained = protocol.train(deepfm(data.schema, NUMBERS, seed=0, hidden=(16, 8)), data.train, seed=0)
    rest = data.train.rows(range(60, len(data.train)))
    known = CutKnowledge(data.schema, data.statistics, protocol.known(), Auxiliary(rest.cells, rest.labels))
    stages = [(stage, None) for stage in reversed(trained.stages[1:])]
    seen = protocol.observe_all(stages, data.train.rows(range(60)), 1)
    right, left = [], []
    for views in (seen.view.exchanges[:1], seen.view.exchanges):
        guess = Posterior()(list(views), known)
        right.append(float(((guess.cells - seen.cells).abs() <= 0.06).double().mean()))
        assert guess.mass is not None
        left.append(float(guess.mass.nanmean()))
    assert right[1] > right[0] + 0.2
    assert left[1] < left[0]
    assert torch.equal(Posterior()(seen.view, known).cells, guess.cells)


def test_one_number_alone_is_read() -> None:
    model, seen, known = exchange(table(), ("b", "m"), records=60)
    guess = Exact()(seen.view, known)
    assert bool((guess.cells[:, 0] == seen.cells[:, 0]).all())
    assert float(((guess.cells[:, 1] - seen.cells[:, 1]).abs() < 0.01).double().mean()) > 0.9
    assert model.private_names == ("b", "m")


def test_categories_beside_numbers_are_found_where_not_all_combinations_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seepage.attacks.split.parts.replay._MOST_TRIED", 16)
    _, seen, known = exchange(table(), ("a", "b", "n"), records=60)
    guess = Exact(search="meet", most=1)(seen.view, known)
    assert float((guess.cells[:, :2] == seen.cells[:, :2]).all(1).double().mean()) > 0.9


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(bound=st.integers(2, 7), seed=st.integers(0, 3), private=st.sampled_from([("n", "m"), ("a", "k"), NUMBERS]))
def test_few_whole_numbers_are_gone_through_one_by_one(bound: int, seed: int, private: tuple[str, ...]) -> None:
    model, seen, known = exchange(table(seed=seed, whole=bound), private, records=2)
    guess = Exact()(seen.view, known)
    assert guess.certified is not None
    grids = [range(3) if name == "a" else range(bound + 1) for name in private]
    every = torch.cartesian_prod(*[torch.arange(len(grid)) for grid in grids]).double()
    for r in range(2):
        fits = []
        for cells in every:
            full = torch.zeros(1, len(model.schema.columns), dtype=torch.float64)
            full[0, list(model.private)] = cells
            for label in range(2):
                scaled = model.scaled(full, model.private)[0]
                apart = loss_gradient(model, seen.view.cut[r], scaled, label) - seen.view.own_gradient[r]
                fits.append((float(apart.norm()), cells, label))
        fits.sort(key=lambda one: one[0])
        assert torch.equal(guess.cells[r], fits[0][1])
        alone = fits[1][0] - fits[0][0] > 20 * float(rounding(seen.view.own_gradient)[r])
        if alone:
            assert bool(guess.certified[r].all())
        if bool(guess.certified[r].all()):
            assert torch.equal(guess.cells[r], seen.cells[r])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30), st.floats(0, 0.5))
def test_the_likeliest_value_is_that_of_counting(values: list[float], tolerance: float) -> None:
    samples = torch.tensor([values], dtype=torch.float64)
    found, share = likeliest(samples, tolerance)
    counts = [sum(low <= one <= low + 2 * tolerance for one in values) for low in values]
    assert round(float(share) * len(values)) == max(counts)
    near = ((samples - found).abs() <= tolerance + 1e-9).sum()
    assert int(near) >= max(counts)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 40), min_size=1, max_size=200), st.booleans())
def test_bins_hold_all_values_and_have_a_width(values: list[int], integer: bool) -> None:
    column = Continuous(name="n", low=-5, high=40, tolerance=1, integer=integer)
    edges = bin_edges(torch.tensor(values, dtype=torch.float64), column)
    assert bool((edges.diff() > 0).all())
    assert edges[0] <= min(values)
    assert edges[-1] >= max(values)


def test_samples_of_the_prior_follow_it() -> None:
    model, seen, known = exchange(table(), NUMBERS, records=2)
    plain = replace(known, auxiliary=None)
    prior = NumberPrior.of(model, plain, seen.view.features)
    drawn = prior.samples(2, torch.Generator().manual_seed(0))
    for k, i in enumerate(model.private):
        marginal = known.statistics.marginals[i]
        assert float(drawn[..., k].mean()) == pytest.approx(marginal.mean, abs=0.05)
