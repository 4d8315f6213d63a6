from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from seepage.baselines.split import Marginals, Nearest, numbered
from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous
from seepage.wire.split import Auxiliary, CutKnowledge
from tests.attacks.split.test_exact import PLAIN, exchange, table

DATA = table(3, rows=400)
MODEL, SEEN = exchange(DATA, PLAIN, records=60)
REST = DATA.train.rows(range(60, 400))
KNOWN = CutKnowledge(DATA.schema, DATA.statistics, auxiliary=Auxiliary(REST.cells, REST.labels))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("on", ["features", "output"])
def test_neighbours_vote_as_scikit_learns_do(on: Literal["features", "output"], scaled: bool) -> None:
    guess = Nearest(on=on, scaled=scaled)(SEEN.view, KNOWN)
    if on == "features":
        public = list(MODEL.public)
        known, asked = numbered(DATA.schema, public, REST.cells[:, public]), SEEN.view.features
    else:
        known, asked = MODEL.cut(REST.cells).double(), SEEN.view.cut.double()
    if scaled:
        scaler = StandardScaler().fit(known.numpy())
        known, asked = (torch.from_numpy(scaler.transform(rows.numpy())) for rows in (known, asked))
    for k, i in enumerate(MODEL.private):
        theirs = KNeighborsClassifier(5).fit(known.numpy(), REST.cells[:, i].numpy()).predict(asked.numpy())
        # Rows at the very same distance may be taken in another order.
        assert float((guess.cells[:, k] == torch.tensor(theirs)).double().mean()) > 0.97


def test_marginals_are_the_commonest_values() -> None:
    guess = Marginals()(SEEN.view, KNOWN)
    for k, i in enumerate(MODEL.private):
        assert bool((guess.cells[:, k] == DATA.train.cells[:, i].mode().values).all())


def test_what_came_back_is_not_looked_at() -> None:
    other = replace(
        SEEN.view, gradient=torch.randn(SEEN.view.gradient.shape, generator=torch.Generator().manual_seed(0))
    )
    for baseline in (Marginals(), Nearest(), Nearest(on="output")):
        assert torch.equal(baseline(SEEN.view, KNOWN).cells, baseline(other, KNOWN).cells)


def test_scaled_neighbours_do_not_heed_a_columns_unit_or_one_of_a_single_value() -> None:
    public = list(MODEL.public)
    features, cells = SEEN.view.features.clone(), REST.cells.clone()
    numbers = [k for k, i in enumerate(public) if isinstance(DATA.schema.columns[i], Continuous)]
    features[:, numbers] *= 1000
    cells[:, [public[k] for k in numbers]] *= 1000
    moved = replace(SEEN.view, features=features), replace(KNOWN, auxiliary=Auxiliary(cells, REST.labels))
    assert torch.equal(Nearest(scaled=True)(*moved).cells, Nearest(scaled=True)(SEEN.view, KNOWN).cells)
    features[:, numbers], cells[:, [public[k] for k in numbers]] = 7.0, 7.0
    assert bool(Nearest(scaled=True)(*moved).cells.isfinite().all())


def test_neighbours_need_rows() -> None:
    with pytest.raises(BadInputError, match="5 neighbours are to vote, but the attacker holds 0"):
        Nearest()(SEEN.view, replace(KNOWN, auxiliary=None))
