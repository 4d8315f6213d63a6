from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from seepage import datasets
from seepage.datasets.dataset import own_table
from seepage.errors import BadInputError
from seepage.report.frames import tolerances
from seepage.run.store import Store
from seepage.settings.part import Part
from seepage.settings.units import with_fields
from seepage.settings.vertical.audit import VerticalAudit, partition_of
from seepage.settings.vertical.spec import VerticalSpec
from seepage.tabular.infer import Policy
from seepage.tabular.schema import Continuous
from tests.attacks.vertical.parts import table
from tests.audits import measured
from tests.rows import number
from tests.tables import pay_table

DATA = table(rows=700)
QUICK = {"epochs": 8, "steps": 150}
SPEC = VerticalSpec.of(
    dataset="made",
    passive=["a", "b", "n"],
    bottom=(16,),
    features=8,
    top=(8,),
    batch_size=64,
    auxiliary=0.4,
    leaked=40,
    repetitions=2,
    epochs=8,
    attacks=[{"name": f"uifv_{name}", "options": QUICK} for name in ("qa", "dpa", "iqa", "sa")],
    baselines=["constant", "random"],
    defenses=["none", {"label": "noisy", "name": "feature_noise", "scale": 3.0}],
)


def figures(spec: VerticalSpec, store: Store) -> dict[tuple, Any]:
    rows = measured(VerticalAudit(spec, DATA), store)
    return {(r.defense, r.attack, r.metric, r.column): r for r in rows}


@pytest.mark.long
def test_every_level_of_access_stands_beside_guesses_with_what_it_was_granted() -> None:
    by = figures(SPEC, Store(None))
    for name in ("qa", "iqa", "sa"):
        read = by["none", f"uifv_{name}", "accuracy", None]
        assert read.lift > 0.15
        assert read.baseline_name == "constant"
        assert read.n == 2
        assert by["noisy", f"uifv_{name}", "accuracy", None].mean < read.mean - 0.1
    granted = {name: by["none", f"uifv_{name}", "accuracy", None].knowledge for name in ("qa", "dpa", "iqa", "sa")}
    assert {name: set(one) - {"sees", "defense"} for name, one in granted.items()} == {
        "qa": {"auxiliary", "queries"},
        "dpa": {"auxiliary"},
        "iqa": {"queries"},
        "sa": {"leaked"},
    }
    assert granted["qa"]["queries"] == granted["qa"]["auxiliary"] == 224
    assert by["none", "uifv_qa", "queries", None].mean == 224
    assert by["none", "uifv_sa", "queries", None].mean == 0
    assert by["none", "uifv_qa", "queries", None].lift is None
    itself = by["none", "uifv_dpa_self_inversion", "accuracy", None]
    assert not itself.is_attack
    assert itself.mean > by["none", "uifv_dpa", "accuracy", None].mean + 0.2
    assert 0.5 < by["none", "training", "auc", None].mean < 1
    told = {name: by["none", "training", f"label_auc_{name}", None].mean for name in ("completion", "gradient")}
    assert told["gradient"] > 0.8
    assert 0.5 < told["completion"] < 1
    assert by["none", "uifv_qa", "coverage", "n"].lift is None
    assert 0.7 < by["none", "uifv_qa", "coverage", "n"].mean <= 1


@pytest.mark.long
def test_a_bottleneck_hides_more_than_it_costs() -> None:
    narrow = {"label": "narrow", "all": [{"name": "bottleneck", "width": 1}, {"name": "feature_noise", "scale": 0.1}]}
    defenses = ["none", narrow, {"label": "back", "name": "vfldefender"}]
    spec = VerticalSpec.of(**(SPEC.model_dump(mode="json") | {"defenses": defenses, "attacks": ["ridge_sa"]}))
    by = figures(spec, Store(None))
    read, kept = (by[one, "ridge_sa", "accuracy", None].lift for one in ("none", "narrow"))
    assert kept < read / 2
    assert by["narrow", "training", "auc", None].mean > by["none", "training", "auc", None].mean - 0.05
    assert by["back", "ridge_sa", "accuracy", None].lift > kept


@pytest.mark.long
def test_features_that_are_sent_again_and_again_lose_their_noise() -> None:
    plain = {
        **SPEC.model_dump(),
        "repetitions": 1,
        "attacks": ["ridge_sa", {"name": "uifv_qa", "options": QUICK}],
        "baselines": ["constant"],
        "defenses": [SPEC.defenses[1]],
    }
    once, often = (figures(VerticalSpec.of(**{**plain, "exposures": number}), Store(None)) for number in (1, 50))
    for attack in ("ridge_sa", "uifv_qa"):
        key = ("noisy", attack, "accuracy", None)
        assert often[key].mean > once[key].mean + 0.05
    # What the task gets is still one message a record.
    key = ("noisy", "training", "task_accuracy", None)
    assert often[key].mean == once[key].mean
    with pytest.raises(BadInputError, match="message of the last epoch"):
        VerticalSpec.of(**{**plain, "exposures": 2, "attacked": "trained"})


@pytest.mark.long
def test_records_of_training_are_attacked_as_they_were_sent() -> None:
    spec = SPEC.model_copy(
        update={
            "attacked": "trained",
            "attacks": SPEC.attacks[-1:],
            "defenses": SPEC.defenses[:1],
            "attacked_records": 50,
        }
    )
    by = figures(spec, Store(None))
    assert by["none", "uifv_sa", "accuracy", None].lift > 0.1
    assert "records of training" in " ".join(VerticalAudit(spec, DATA).threat_model())


def test_an_active_party_that_holds_labels_alone_reads_the_others() -> None:
    names = DATA.schema.names
    few = {"attacks": SPEC.attacks[-1:], "defenses": SPEC.defenses[:1], "repetitions": 1}
    spec = SPEC.model_copy(update={**few, "passive": (names[:3], names[3:]), "parties": 3})
    audit = VerticalAudit(spec, DATA)
    assert "the top model and 0 columns, and receives the features of every party" in audit.about.threat_model[0]
    network = audit.network([0], audit.defenses["none"])
    assert network.features(network.encoded(DATA.train.cells[None]))[0].shape == (1, len(DATA.train), 0)
    baselines = (*SPEC.baselines, Part(name="own_columns"))
    rows = measured(VerticalAudit(with_fields(spec, {"baselines": baselines}), DATA), Store(None))
    read = {r.attack: r.mean or 0.0 for r in rows if (r.metric, r.column) == ("accuracy", None)}
    assert read["uifv_sa"] > max(read["constant"], read["own_columns"]) + 0.1


@pytest.mark.slow
def test_a_stopped_study_goes_on_and_ends_with_the_same_figures(tmp_path: Any) -> None:
    spec = SPEC.model_copy(update={"attacks": SPEC.attacks[-1:], "defenses": SPEC.defenses[:1]})
    whole = figures(spec, Store(None))
    with Store(tmp_path / "run") as store:
        first = figures(spec.model_copy(update={"attacks": ()}), store)
        assert not any(row.is_attack for row in first.values())
        again = figures(spec, store)
    assert {key: row.mean for key, row in again.items()} == {key: row.mean for key, row in whole.items()}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"passive": ["a", "a"]}, "'a' is named 2 times by party 1"),
        ({"passive": [["a"], ["a", "b"]]}, "'a' is held 2 times, by parties 1 and 2"),
        ({"passive": [["a"], []]}, "party 2 of 3 holds no column"),
        ({"passive": ["t"]}, "labels are the active party's"),
        ({"victim": 0}, "which is the attacker itself"),
        ({"victim": 2}, "there is no party 2"),
        ({"leaked": 140}, "140 records of the target are to leak, but of the 700 rows 140 are attacked"),
        ({"queries": 0}, "'uifv_qa' needs answers to its queries, but .* grants none .queries: 0."),
        ({"auxiliary": 0.0}, "needs auxiliary rows"),
        ({"auxiliary": 0.001}, "leaves the attacker no auxiliary row"),
        ({"leaked": 0}, "'uifv_sa' needs leaked"),
        ({"passive": [], "parties": 9}, "holds no column"),
    ],
)
def test_what_cannot_be_audited_is_refused_before_anything_is_trained(changed: dict[str, Any], message: str) -> None:
    values = SPEC.model_dump(mode="json") | changed
    with pytest.raises(BadInputError, match=message):
        VerticalAudit(VerticalSpec.of(**values), DATA)


@pytest.mark.parametrize(
    "changed",
    [
        {"parties": 1},
        {"share": 1.0},
        {"queries": -1},
        {"leaked": -1},
        {"attacks": ["uifv_qb"]},
        {"defenses": ["none", {"name": "bottleneck", "width": 2, "label": "none"}]},
        {"defenses": ["returned_noise:{scale: 1.0}+pa_imfl"]},
        {"defenses": [{"name": "bottleneck", "width": 0}]},
        {"attacks": ["uifv_qa", {"name": "uifv_qa", "layers": 1}]},
    ],
)
def test_values_that_are_none_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        VerticalSpec.of(**(SPEC.model_dump(mode="json") | changed))


def test_columns_are_shared_by_kind_and_the_victim_gets_its_share() -> None:
    spec = VerticalSpec(dataset="german", parties=4, share=0.1, victim=2)
    split = partition_of(spec, datasets.load("german").schema)
    assert split.parties == 4
    assert [len(held) for held in split.columns] == [6, 6, 2, 6]
    first, second = (
        partition_of(VerticalSpec(columns_seed=seed), datasets.load("german").schema).columns for seed in (0, 1)
    )
    assert first != second


def _own(sensitive: Sequence[str], **changes: Any) -> VerticalAudit:
    own, _ = own_table(DATA.all.frame, target=DATA.schema.target.name, policy=Policy(sensitive=sensitive))
    return VerticalAudit(VerticalSpec.of(**{"dataset": own.name, "features": 8, **changes}), own, own=True)


def test_sensitive_columns_of_an_own_table_are_the_passive_party_s() -> None:
    usual = _own(())
    assert usual.about.limits == ()
    for name in DATA.schema.names:
        audit = _own((name,))
        assert name in audit.partition.schemas[1].names
        assert audit.about.limits == ()
        assert [len(held) for held in audit.partition.columns] == [len(held) for held in usual.partition.columns]
    assert DATA.schema.names[-1] in _own(DATA.schema.names[-1:], parties=3, victim=2).partition.schemas[2].names


def test_a_sensitive_column_that_the_user_gave_to_the_active_party_is_named() -> None:
    first, *_, last = DATA.schema.names
    audit = _own((last,), passive=[first])
    assert audit.about.limits == (
        f"Not attacked: the sensitive column {last}, which is not held by passive party 1, the attacked one.",
    )


def test_the_only_distances_that_are_named_are_those_of_attacked_columns_and_a_tenth_of_their_range() -> None:
    audit = VerticalAudit(SPEC, DATA)
    held = [c for c in audit.schema.columns if isinstance(c, Continuous)]
    assert all(c.tolerance == pytest.approx(0.1 * (c.high - c.low)) for c in held)
    words = tolerances(audit.schema, attacked=audit.about.columns)
    assert words == "A number counts as read by its tolerance: n within 0.6."


@pytest.mark.slow
def test_targets_may_be_numbers() -> None:
    spec = VerticalSpec.of(
        dataset="made",
        passive=[["cause"]],
        repetitions=1,
        epochs=15,
        learning_rate=0.01,
        bottom=[8],
        features=9,
        top=[8],
        leaked=40,
        known_labels=40,
        attacks=["ridge_sa", "label_heads", {"name": "uifv_dpa", "epochs": 2, "shadow_epochs": 2}],
        baselines=["constant", "own_columns"],
    )
    by = {(row.attack, row.metric, row.column): row for row in measured(VerticalAudit(spec, pay_table()))}
    assert number(by["training", "task_accuracy", None].mean) > 0.5
    assert 0 < number(by["training", "task_rmse", None].mean) < 2
    assert number(by["training", "task_rmse", None].lift) > 0
    assert by["ridge_sa", "accuracy", None].mean == 1.0
    # Its own column alone tells a party less of the number.
    assert number(by["label_heads", "accuracy", "pay"].lift) > 0
    assert number(by["label_heads", "r2", "pay"].mean) > number(by["label_columns", "r2", "pay"].mean)
    assert number(by["label_mode", "r2", "pay"].mean) < 0.2
    assert ("training", "auc", None) not in by


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"attacks": ["label_norm"]}, "'label_norm' tells classes apart, but the target 'pay' is a number"),
        ({"attacks": ["label_direction"]}, "'label_direction' tells classes apart"),
        ({"unsplit": True, "attacks": ["label_direct"]}, "'label_direct' tells classes apart"),
        ({"defenses": [{"name": "label_flip", "probability": 0.1}]}, "flips classes, but the target 'pay' is a number"),
        ({"defenses": ["marvell"]}, "hides which of two labels a record has, but the target 'pay' is a number"),
    ],
)
def test_what_is_made_for_classes_is_refused_where_the_target_is_a_number(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        VerticalAudit(VerticalSpec.of(**{"dataset": "made", "passive": [["cause"]], **values}), pay_table())
    assert said in str(refused.value)
