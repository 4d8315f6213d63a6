from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seepage.datasets import load
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.registry import datasets
from seepage.reproduce import Selection, StudyTable, load_study_table, reproduce_study, study_tables
from seepage.settings.pooled import PooledAudit
from seepage.settings.pooled_spec import PooledSpec
from tests.parts import register
from tests.rows import row

NONE = {"name": "none", "label": "sl"}
FLIPPED = {"name": "label_flip", "probability": 0.2, "label": "flipped"}
TABLE = StudyTable.model_validate(
    {
        "name": "made/table1",
        "title": "made up",
        "source": "nowhere",
        "published_victims": 3,
        "study": "split",
        "metrics": {"f1": {}},
        "axes": ["column", "defense"],
        "audit": {"dataset": "telling_here", "private": ["cause", "noise_0"], "hidden": [8], "records": 30},
        "audits": [{"audit": {"defenses": [NONE, FLIPPED], "attacks": ["exact"]}}],
        "parts": {"faithful": ["exact", "knn_features"], "prior": ["prior"]},
        "compared": {"knn_features": {"defense": "knn"}},
        "once": ["knn_features"],
        "published": {"cause": {"sl": 100.0, "knn": 99.0}, "label": {"sl": 100.0}},
    }
)


@pytest.fixture(scope="module", autouse=True)
def _planted() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        register(patch, datasets, "telling_here", lambda: telling(rows=300))
        yield


@pytest.mark.parametrize("table", study_tables().values(), ids=lambda table: table.name)
def test_every_published_figure_has_a_place_that_the_table_measures(table: StudyTable) -> None:
    places = set()
    for planned, spec in table.specs(repetitions=2):
        called = [*(p.called for p in spec.attacks), *(p.called for p in spec.baselines), "prior", "training"]
        for name in called:
            if table.part(name) is None:
                continue
            for defense in spec.defenses[: 1 if name in table.once else None]:
                for column in (*getattr(spec, "private", ()), *getattr(spec, "told", ()), "label"):
                    for metric in table.metrics:
                        where = {"dataset": spec.dataset, "column": column, "defense": defense.called}
                        found = row(**where, attack=name, metric=metric, model="", batch_size=None)
                        place = table.place(planned, found)
                        places.add(tuple(place.get(axis) for axis in table.axes))

    def printed(values: object, at: tuple = ()) -> set[tuple]:
        if not isinstance(values, dict):
            return {at}
        return set[tuple]().union(*(printed(inner, (*at, key)) for key, inner in values.items()))

    assert printed(table.published) <= places
    assert printed(table.published) or not table.judged


def test_rows_supply_the_shares_of_every_table_of_dataset_properties() -> None:
    data = load("adult_education")
    set_up = set()
    for table in study_tables().values():
        for _, spec in table.specs(repetitions=1):
            if not isinstance(spec, PooledSpec) or spec.dataset != data.name:
                continue
            needs = {"rows", "auxiliary", "queries", "apart", "shares", "parties", "sensitive", "value", "synthetic"}
            key = repr(spec.model_dump(include=needs)), spec.protocol, any(one.name == "ratio" for one in spec.attacks)
            if key not in set_up:
                # Refuses what the rows cannot supply.
                PooledAudit(spec, data)
                set_up.add(key)
    assert len(set_up) > 10


def test_ours_stands_beside_theirs(tmp_path: Path) -> None:
    found = reproduce_study(TABLE, tmp_path, repetitions=2)
    cells = {(c.run, c.place["column"], c.place["defense"]): c for c in found.cells}
    assert cells["faithful", "cause", "sl"].ours == 1.0
    # The table prints no deviation.
    assert cells["faithful", "cause", "sl"].agreement == "too few to tell"
    assert cells["faithful", "label", "sl"].published == 1.0
    assert cells["faithful", "cause", "knn"].published == 0.99
    assert cells["faithful", "cause", "flipped"].published is None
    assert (cells["prior", "cause", "sl"].published, cells["prior", "cause", "sl"].agreement) == (None, None)
    assert {p.name for p in tmp_path.iterdir()} == {
        "audit.sqlite",
        "comparison.csv",
        "provenance.json",
        "results.csv",
        "results.json",
    }
    again = reproduce_study(TABLE, tmp_path, repetitions=2, run_missing=False)
    assert [c.ours for c in again.cells] == [c.ours for c in found.cells]


def test_what_is_printed_of_something_else_is_shown_without_a_verdict() -> None:
    other = TABLE.model_copy(update={"unlike": ({"column": "label"},)})
    found = reproduce_study(other, None, 1, Selection(runs=("faithful",), only={"defense": ["sl"]}))
    cells = {c.place["column"]: c for c in found.cells}
    assert (cells["label"].published, cells["label"].difference, cells["label"].agreement) == (1.0, None, None)
    assert cells["cause"].difference == 0.0


def test_a_part_is_run_alone() -> None:
    chosen = Selection(runs=("faithful",), only={"defense": ["sl"]})
    found = reproduce_study(TABLE, None, 1, chosen)
    assert {(c.run, c.place["defense"]) for c in found.cells} == {("faithful", "sl")}
    for wrong, said in (
        (Selection(runs=("faithfull",)), "did you mean 'faithful'"),
        (Selection(attacks=("exact_2",)), "did you mean 'exact'"),
        (Selection(only={"colum": ["x"]}), "did you mean 'column'"),
    ):
        with pytest.raises(BadInputError, match=said):
            reproduce_study(TABLE, None, 1, wrong)
    with pytest.raises(BadInputError, match="did you mean 'exact/table"):
        load_study_table("exact/tabel2")
