from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from seepage.audit import Store
from seepage.audit.split_spec import CutDefense, SplitSpec
from seepage.audit.split_study import default_private, run_split, split_rows
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from tests.attacks.split.test_exact import table

DATA = table(2, rows=600)
SPEC = SplitSpec(
    dataset="made",
    private=("a", "c"),
    hidden=(16, 8),
    batch_size=32,
    auxiliary=100,
    trainings=2,
    defenses=(CutDefense(), CutDefense(label="noisy", noise_multiplier=1.0)),
)


def figures(spec: SplitSpec, store: Store) -> dict[tuple, float | None]:
    rows = split_rows(run_split(spec, store, DATA))
    return {(r["defense"], r["attack"], r["metric"], r["column"]): r["mean"] for r in rows}


def test_a_stopped_audit_continues_and_says_the_same(tmp_path: Path) -> None:
    said: list[str] = []
    with Store(tmp_path) as store:
        run_split(SPEC.model_copy(update={"trainings": 1}), store, DATA, say=said.append)
        assert len(said) == 2
        first = figures(SPEC, store)
    with Store(tmp_path) as store:
        said.clear()
        rows = split_rows(run_split(SPEC, store, DATA, say=said.append))
        assert said == []
        again = {(r["defense"], r["attack"], r["metric"], r["column"]): r["mean"] for r in rows}
    assert again == first == figures(SPEC, Store(None))


def test_what_is_read_stands_beside_what_was_believed() -> None:
    outcome = run_split(SPEC, Store(None), DATA)
    assert outcome.configurations == 3 * 2 * 2
    rows = split_rows(outcome)
    by = {(r["defense"], r["attack"], r["metric"], r["column"]): r for r in rows}
    read = by["none", "exact", "accuracy", None]
    assert read["mean"] == 1.0
    assert read["n"] == 2
    assert read["baseline_name"] in {"prior", "knn_features", "knn_output", "marginals"}
    assert read["lift"] == pytest.approx(1 - read["baseline"])
    assert by["none", "exact", "proven", None]["mean"] == 1.0
    noisy = by["noisy", "posterior", "accuracy", None]
    assert noisy["mean"] < 1.0
    # The same records, rows and networks: only what came back differs.
    assert noisy["mean"] > by["noisy", "exact", "accuracy", None]["mean"]
    assert by["noisy", "training", "epsilon", None]["mean"] > 0
    assert ("none", "training", "epsilon", None) not in by
    assert 0.5 < by["none", "training", "auc", None]["mean"] < 1
    assert by["none", "training", "label_auc_direction", None]["mean"] > 0.99
    assert all(r["lift"] is None for r in rows if not r["is_attack"] or r["metric"] == "calibration")


def test_older_client_weights_tell_less() -> None:
    fresh, stale = (
        figures(SPEC.model_copy(update={"stale": epochs, "defenses": (CutDefense(),)}), Store(None))
        for epochs in (0, 4)
    )
    key = ("none", "exact", "accuracy", None)
    assert fresh[key] == 1.0
    assert (stale[key] or 0) < 1.0
    with pytest.raises(BadInputError, match="give at most 5"):
        run_split(SPEC.model_copy(update={"stale": 6}), Store(None), DATA)


def test_clients_of_a_few_rows_give_away_as_much() -> None:
    spec = SPEC.model_copy(update={"protocol": "federated_split", "defenses": (CutDefense(),), "trainings": 1})
    assert figures(spec, Store(None))["none", "exact", "accuracy", None] == 1.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attacks": ["exakt"]}, "did you mean 'exact'"),
        ({"attacks": [{"name": "exact", "options": {"votes": 0}}]}, "votes is a whole number"),
        ({"attacks": ["exact", "exact"]}, "two attacks would both be called 'exact'"),
        ({"defenses": [{"label": "a"}, {"label": "a"}]}, "two defenses would both be called 'a'"),
        ({"trainings": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_done_is_refused(settings: dict, said: str) -> None:
    with pytest.raises((ValidationError, BadInputError), match=said):
        SplitSpec.model_validate(settings)


def test_private_columns_are_the_sensitive_ones_unless_named() -> None:
    with pytest.raises(BadInputError, match="no private columns were named"):
        default_private(telling(rows=20))
