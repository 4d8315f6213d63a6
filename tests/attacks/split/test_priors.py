from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.attacks.split import Posterior
from seepage.baselines.split import Marginals, Nearest
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.models.deepfm import deepfm
from seepage.protocols.split import SplitLearning
from seepage.tabular.align import right_cells
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutView

ROWS, ATTACKED = 2400, 1200
COLUMNS = ("x", "y", "z", "group")


def rows(classes: int = 2, seed: int = 0) -> Table:
    """Return columns that are independent of each other, but ``copy`` of ``group``, and a label of two of them."""
    draw = np.random.default_rng(seed)
    frame: dict[str, np.ndarray] = {name: draw.normal(size=ROWS) for name in ("x", "y", "z")}
    frame["group"] = draw.integers(0, 5, ROWS)
    frame["kind"] = draw.choice(5, ROWS, p=[0.4, 0.3, 0.2, 0.07, 0.03])
    frame["copy"] = np.where(draw.random(ROWS) < 0.7, frame["group"], draw.integers(0, 5, ROWS))
    frame["skewed"] = np.exp(draw.normal(size=ROWS))
    frame["normal"] = draw.normal(size=ROWS)
    score = frame["x"] * frame["y"] + 0.3 * draw.normal(size=ROWS)
    frame["label"] = np.digitize(score, np.quantile(score, np.linspace(0.6, 1, classes)[:-1]))
    numbers = [
        Continuous(name=name, low=float(frame[name].min()), high=float(frame[name].max()), tolerance=0.32)
        for name in ("x", "y", "z", "skewed", "normal")
    ]
    categories = [Discrete(name=name, categories=tuple(range(5))) for name in ("group", "kind", "copy")]
    target = Discrete(name="label", categories=tuple(range(classes)))
    return Table(Schema(columns=(*numbers, *categories), target=target), pd.DataFrame(frame))


def seen(
    table: Table, private: tuple[str, ...], auxiliary: int, flip: LabelFlip | None = None
) -> tuple[CutView, CutKnowledge, torch.Tensor, torch.Tensor]:
    """Return what came back under much noise, from a barely trained network, and the answers."""
    protocol = SplitLearning(epochs=1, batch_size=256, noise=CutNoise(10.0), flip=flip)
    train, test = table.rows(range(ATTACKED, ROWS)), table.rows(range(ATTACKED))
    trained = protocol.train(deepfm(table.schema, private, seed=0, hidden=(8,)), train, seed=0)
    sent = protocol.observe(trained, test, seed=1)
    some = train.rows(range(auxiliary))
    known = CutKnowledge(table.schema, Statistics.of(table), protocol.known(), Auxiliary(some.cells, some.labels))
    return sent.view, known, sent.cells, sent.labels


def read(view: CutView, guess: CutGuess, cells: torch.Tensor) -> torch.Tensor:
    schema = view.model.schema
    part = Schema(columns=tuple(schema.columns[i] for i in view.model.private), target=schema.target)
    return right_cells(part, guess.cells, cells).double().mean(0)


# Four standard errors of a difference between two shares of 1,200 records that agree on most.
CHANCE = 0.03


@pytest.mark.long
@pytest.mark.parametrize(("classes", "flip"), [(2, LabelFlip(0.2)), (3, None)])
def test_labels_are_read_as_well_as_by_neighbours_where_the_network_is_barely_trained(
    classes: int, flip: LabelFlip | None
) -> None:
    view, known, _, labels = seen(rows(classes), ("kind",), ATTACKED, flip)

    def right(guess: CutGuess) -> float:
        return float((guess.labels == labels).double().mean())

    figures = [right(Posterior(observed=observed)(view, known)) for observed in (False, True)]
    places: tuple[Literal["features", "output"], ...] = ("features", "output")
    beside = [right(Nearest(on=on)(view, known)) for on in places] + [right(Marginals()(view, known))]
    assert min(figures) > max(beside) - CHANCE
    assert min(figures) > beside[-1] + 0.1


@pytest.mark.parametrize("auxiliary", [6, 150])
@pytest.mark.parametrize("private", [("kind",), ("skewed", "normal"), ("kind", "group", "normal")])
def test_the_prior_of_columns_that_nothing_tells_is_no_worse_than_their_marginals(
    auxiliary: int, private: tuple[str, ...]
) -> None:
    view, known, cells, _ = seen(rows(), private, auxiliary)
    marginals = read(view, Marginals()(view, known), cells)
    for observed in (False, True):
        found = read(view, Posterior(observed=observed)(view, known), cells)
        assert float(found.mean() - marginals.mean()) > -CHANCE, (observed, found, marginals)


def test_the_prior_reads_columns_that_others_tell() -> None:
    view, known, cells, _ = seen(rows(), ("copy", "kind"), 300)
    found = read(view, Posterior(observed=False)(view, known), cells)
    # The copy is right in 70% and by chance in a fifth of the others.
    assert float(found[0]) > 0.76 - CHANCE


def test_the_prior_reads_private_columns_that_tell_of_each_other() -> None:
    view, known, _, _ = seen(rows(), ("group", "copy"), ATTACKED)
    chances = Posterior(observed=False, decision="joint")(view, known)
    assert bool((chances.cells[:, 0] == chances.cells[:, 1]).all())


def test_without_rows_the_label_is_what_the_network_predicts() -> None:
    view, known, cells, _ = seen(rows(), ("kind",), 100)
    guess = Posterior(observed=False)(view, replace(known, auxiliary=None))
    answers = torch.stack(
        [torch.sigmoid(view.model.client(view.cut, torch.full_like(cells, v).float()))[:, 0] for v in range(5)], dim=1
    )
    expected = (answers.double() * known.statistics.marginals[view.model.private[0]].probabilities).sum(1)
    assert guess.label_chances is not None
    torch.testing.assert_close(guess.label_chances[:, 1], expected.detach(), atol=1e-4, rtol=0)
