from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seepage.attacks.split import Posterior
from seepage.datasets import load
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.registry import datasets
from seepage.reproduce.reproduce import Selection, reproduce
from seepage.reproduce.table import PlannedAudit, PublishedTable, load_table, tables
from seepage.run.runner import Listener
from seepage.settings.pooled.audit import PooledAudit
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.setting import Configuration
from tests.parts import register

NONE = {"name": "none", "label": "sl"}
FLIPPED = {"name": "label_flip", "probability": 0.2, "label": "flipped"}
TABLE = PublishedTable.model_validate(
    {
        "name": "made/table1",
        "title": "made up",
        "source": "nowhere",
        "published_victims": 3,
        "setting": "split",
        "metrics": {"f1": {}},
        "axes": ["column", "defense"],
        "spec": {
            "dataset": "telling_here",
            "private_columns": ["cause", "noise_0"],
            "hidden": [8],
            "attacked_records": 30,
        },
        "audits": [{"spec": {"defenses": [NONE, FLIPPED], "attacks": ["exact"]}}],
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


STUDIES = [table for table in tables().values() if table.setting != "horizontal"]


@pytest.mark.parametrize("table", STUDIES, ids=lambda table: table.name)
def test_every_published_figure_has_a_place_that_the_table_measures(table: PublishedTable) -> None:
    places = set()
    for audit in table.planned():
        spec = audit.spec
        called = [*(p.title for p in spec.attacks), *(p.title for p in spec.baselines), "prior", "training"]
        for name in called:
            if name not in audit.shown:
                continue
            for defense in spec.defenses[: 1 if name in table.once else None]:
                for column in (*getattr(spec, "private_columns", ()), *getattr(spec, "scored_columns", ()), "label"):
                    for metric in table.metrics:
                        place = audit.place(name, metric, Configuration(defense.title), column)
                        places.add(tuple(place.get(axis) for axis in table.axes))

    def printed(values: object, at: tuple = ()) -> set[tuple]:
        if not isinstance(values, dict):
            return {at}
        return set[tuple]().union(*(printed(inner, (*at, key)) for key, inner in values.items()))

    assert printed(table.published) <= places
    assert printed(table.published) or not table.judged


@pytest.mark.slow
def test_rows_supply_the_shares_of_every_table_of_dataset_properties() -> None:
    data = load("adult_education")
    set_up = set()
    for table in STUDIES:
        for audit in table.planned():
            spec = audit.spec
            if not isinstance(spec, PooledSpec) or spec.dataset != data.name:
                continue
            needs = {"rows", "auxiliary", "queries", "apart", "shares", "parties", "sensitive", "value", "synthetic"}
            key = repr(spec.model_dump(include=needs)), spec.protocol, any(one.name == "ratio" for one in spec.attacks)
            if key not in set_up:
                # Refuses what the rows cannot supply.
                PooledAudit(spec, data)
                set_up.add(key)
    assert len(set_up) > 10


@pytest.mark.slow
def test_ours_stands_beside_theirs(tmp_path: Path) -> None:
    found = reproduce(TABLE, tmp_path, 2)
    cells = {(c.run, c.place["column"], c.place["defense"]): c for c in found.cells}
    assert cells["faithful", "cause", "sl"].ours == 1.0
    # The table prints no deviation, and is taken at its word.
    assert (cells["faithful", "cause", "sl"].agreement, cells["faithful", "cause", "sl"].basis) == (
        "shown within",
        "at its word",
    )
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
    again = reproduce(TABLE, tmp_path, 2, run_missing=False)
    assert [c.ours for c in again.cells] == [c.ours for c in found.cells]


@pytest.mark.slow
def test_what_is_printed_of_something_else_is_shown_without_a_verdict() -> None:
    other = TABLE.model_copy(update={"unlike": ({"column": "label"},)})
    found = reproduce(other, None, 1, Selection(runs=("faithful",), only={"defense": ["sl"]}))
    cells = {c.place["column"]: c for c in found.cells}
    assert (cells["label"].published, cells["label"].difference, cells["label"].agreement) == (
        1.0,
        None,
        "not judgeable",
    )
    assert cells["cause"].difference == 0.0


def test_a_part_is_run_alone() -> None:
    chosen = Selection(runs=("faithful",), only={"defense": ["sl"]})
    found = reproduce(TABLE, None, 1, chosen)
    assert {(c.run, c.place["defense"]) for c in found.cells} == {("faithful", "sl")}
    for wrong, said in (
        (Selection(runs=("faithfull",)), "did you mean 'faithful'"),
        (Selection(attacks=("exact_2",)), "did you mean 'exact'"),
        (Selection(only={"colum": ["x"]}), "did you mean 'column'"),
    ):
        with pytest.raises(BadInputError, match=said):
            reproduce(TABLE, None, 1, wrong)
    with pytest.raises(BadInputError, match="did you mean 'exact/table"):
        load_table("exact/tabel2")


class Stopped(Listener):
    """Stops the program after some series, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self.left = after

    def finished(self, what: str, figure: float | None, units: int) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_ends_with_the_same_figures(tmp_path: Path) -> None:
    chosen = Selection(only={"defense": ["sl"]})
    whole = reproduce(TABLE, tmp_path / "whole", 2, chosen, workers=1)
    with pytest.raises(KeyboardInterrupt):
        reproduce(TABLE, tmp_path / "stopped", 2, chosen, Stopped(after=3), workers=1)
    assert not (tmp_path / "stopped" / "comparison.csv").exists()
    again = reproduce(TABLE, tmp_path / "stopped", 2, chosen, workers=1)
    assert [replace(c, seconds_per_victim=None) for c in again.cells] == [
        replace(c, seconds_per_victim=None) for c in whole.cells
    ]


def test_an_attack_that_fails_is_told_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such matrix")

    monkeypatch.setattr(Posterior, "__call__", broken)
    attacks = {"defenses": [NONE], "attacks": ["exact", "posterior"]}
    parts = {"faithful": ("exact", "posterior")}
    table = TABLE.model_copy(update={"audits": (PlannedAudit(spec=attacks),), "parts": parts, "once": ()})
    found = reproduce(table, None, 1, workers=1)
    # What both believe beforehand is calculated by the same code.
    assert set(found.failed) == {"prior", "posterior"}
    assert "no such matrix" in found.failed["posterior"]
    assert {cell.ours for cell in found.cells if cell.place["column"] == "cause"} == {1.0}
