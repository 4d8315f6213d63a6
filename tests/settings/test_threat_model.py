"""Which attacks a deployment admits follows from declarations alone; the others are refused before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
import torch

from seepage import registry
from seepage.errors import BadInputError
from seepage.registry import Need
from seepage.settings import catalogue
from seepage.settings.catalogue import deployment_of, settings, settings_of
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.settings.part import Part
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.spec import Spec
from seepage.settings.split.spec import SplitSpec
from seepage.settings.statistics.spec import StatisticsSpec
from seepage.settings.threat_model import (
    NEEDS,
    Deployment,
    applicability,
    grid_of_attacks,
    refuse_inapplicable,
)
from seepage.settings.trees.spec import TreesSpec
from seepage.settings.vertical.spec import VerticalSpec
from seepage.wire import horizontal, labels, pooled, secureboost, split, statistics, trees, vertical
from seepage.wire.horizontal import Knowledge, RecordsGuess, UpdateView
from tests.parts import register

VIEWS = {
    "horizontal": {horizontal.GradientView, horizontal.UpdateView, horizontal.RoundsView},
    "split": {split.CutView, labels.ReturnedView, vertical.ActivationView},
    "vertical": {
        vertical.ActivationView,
        vertical.FeatureView,
        labels.ReturnedView,
        labels.LogitsView,
        labels.BatchView,
    },
    "pooled": {pooled.PredictionView, pooled.ModelView, pooled.UpdatedView, pooled.GradientsView},
    "trees": {trees.HistogramsView, trees.TreeFilesView, secureboost.ColumnSumsView, secureboost.NodesView},
    "statistics": {statistics.NewtonView, statistics.RiskSetView, statistics.TablesView},
}
SPECS = {
    "horizontal": make_spec(),
    "split": SplitSpec(private_columns=("sex",)),
    "vertical": VerticalSpec(),
    "pooled": PooledSpec(),
    "trees": TreesSpec(),
    "statistics": StatisticsSpec(),
}


@dataclass(frozen=True)
class OfUpdates:
    """Reads several local steps."""

    def __call__(self, view: UpdateView, knowledge: Knowledge, seeds: Sequence[int], progress: Any = None) -> Any:
        """Return zeros."""
        shape = view.victims, knowledge.batch_size, len(knowledge.schema.columns)
        return RecordsGuess(torch.zeros(shape, dtype=torch.float64))


@pytest.fixture
def _plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, registry.attacks, "of_updates", OfUpdates, "horizontal")


@pytest.mark.parametrize("setting", VIEWS)
def test_every_attack_declares_what_it_takes_and_needs(setting: str) -> None:
    entries = registry.attacks.of(setting).entries()
    assert entries
    for entry in entries:
        assert entry.sees, entry.name
        assert set(entry.sees) <= VIEWS[setting], entry.name
        assert set(entry.needs) <= set(get_args(Need)), entry.name
    for entry in registry.baselines.of(setting).entries():
        assert set(entry.needs) <= set(get_args(Need)), entry.name
    assert set(NEEDS) == set(get_args(Need))


def test_every_protocol_declares_what_it_reveals_and_every_defense_what_it_acts_on() -> None:
    for entry in registry.protocols.of("horizontal").entries():
        reveals: tuple[type, ...] = getattr(entry.factory, "reveals", ())
        assert set(reveals) <= VIEWS["horizontal"]
        assert reveals, entry.name
    for entry in registry.defenses.entries():
        acts_on = getattr(entry.factory, "acts_on", None)
        assert bool(acts_on) == (entry.name != "none"), entry.name


@pytest.mark.parametrize("setting", SPECS)
def test_the_default_attacks_of_every_setting_apply(setting: str) -> None:
    spec = SPECS[setting]
    deployment = deployment_of(spec)
    assert deployment.setting == setting
    found = {one.attack: one for one in grid_of_attacks(deployment)}
    assert list(found) == registry.attacks.of(setting).names()
    assert all(found[part.name].applies for part in spec.attacks)


# Attacks on activations, which a server with columns of its own does not receive.
WHOLE = {"layer_inversion", "ginver", "informed_sa", "ridge_sa"}
# Attacks on trees over columns, which clients with the same columns do not grow.
BY_COLUMNS = {"bin_sums", "node_clusters", "node_heads"}


@pytest.mark.parametrize(
    ("spec", "out"),
    [
        (make_spec(), {"loki", "robbing_the_fed"}),
        (make_spec(model="loki"), {"robbing_the_fed"}),
        # Only running it tells how a network of one's own was made.
        (make_spec(model="networks:build"), set()),
        (SplitSpec(private_columns=("sex",)), WHOLE),
        (
            SplitSpec(topology="u_shaped", leaked=0),
            {"exact", "fsha", "pcat", "posterior", "sdar", "unsplit", "informed_sa", "ridge_sa"},
        ),
        (SplitSpec(private_columns=("sex",), auxiliary=0), {"fsha", "pcat", "sdar"} | WHOLE),
        (
            SplitSpec(private_columns=("sex",), known_labels=0),
            {"label_heads", "label_direction", "label_completion"} | WHOLE,
        ),
        (VerticalSpec(), {"label_direct"}),
        (VerticalSpec(unsplit=True), set()),
        (
            VerticalSpec(leaked=0, queries=0),
            {"uifv_sa", "informed_sa", "ridge_sa", "uifv_qa", "informed_qa", "uifv_iqa", "label_direct"},
        ),
        (PooledSpec(), {"dominant", "joint"}),
        (TreesSpec(), {"hessians", "leaf_counts", "thresholds", "timberstrike"} | BY_COLUMNS),
        (TreesSpec(protocol="cyclic"), {"anchor"} | BY_COLUMNS),
        (
            TreesSpec(protocol="secureboost", known_labels=0),
            {"anchor", "hessians", "leaf_counts", "thresholds", "timberstrike", "node_heads"},
        ),
        (StatisticsSpec(), {"differencing", "risk_sets"}),
        (StatisticsSpec(protocol="cox"), {"counts", "differencing"}),
        (StatisticsSpec(protocol="table"), {"counts", "risk_sets"}),
        (
            PooledSpec(
                protocol="update", shares=(0.1, 0.3, 0.5, 0.7, 0.9), shadows=100, attacks=(Part(name="dominant"),)
            ),
            {"deep_sets", "kl", "melis", "meta", "ratio", "white_box"},
        ),
    ],
)
def test_the_grid_says_which_do_not_apply_and_names_both_sides(spec: Spec, out: set[str]) -> None:
    deployment = deployment_of(spec)
    refused = {one.attack: one.reason or "" for one in grid_of_attacks(deployment) if not one.applies}
    assert set(refused) == out
    for name, reason in refused.items():
        assert reason.startswith(f"The attack {name!r} ")
        assert ", but " in reason
        with pytest.raises(BadInputError) as raised:
            refuse_inapplicable([Part(name=name)], deployment)
        assert str(raised.value) == reason


@pytest.mark.usefixtures("_plugged_in")
def test_a_plug_in_that_takes_another_view_is_refused_before_anything_runs() -> None:
    deployment = deployment_of(make_spec())
    [found] = [one for one in grid_of_attacks(deployment) if one.attack == "of_updates"]
    assert found.sees == ("UpdateView",)
    said = "takes an update .the message that clients send after several local steps.*reveals a gradient"
    spec = make_spec(dataset="german", attacks=["of_updates"], victims=1)
    with pytest.raises(BadInputError, match=said):
        HorizontalAudit(spec, prepare(spec))
    fitting = make_spec(dataset="german", attacks=["of_updates"], victims=1, protocol="fedavg")
    assert HorizontalAudit(fitting, prepare(fitting)).parts[-1].part.name == "of_updates"


def test_a_further_setting_declares_its_own_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Letters:
        """What the postman sees."""

    class Postman:
        """Reads addresses."""

        def __call__(self, view: Letters, knowledge: None, seeds: Sequence[int]) -> None:
            """Return nothing."""

    # Annotations of local classes cannot be looked up by name.
    Postman.__call__.__annotations__["view"] = Letters
    register(monkeypatch, registry.attacks, "postman", Postman, "mail")
    assert settings_of(registry.attacks)[-1] == "mail"
    assert registry.attacks["postman"].sees == (Letters,)
    assert applicability(registry.attacks["postman"], Deployment("mail", "post", (Letters,))).applies
    assert not applicability(registry.attacks["postman"], Deployment("mail", "courier", ())).applies
    monkeypatch.setitem(catalogue._SETTINGS, "split", replace(catalogue.setting("split"), deployment_at=None))
    with pytest.raises(BadInputError, match="declares no threat model"):
        deployment_of(SplitSpec())


def test_every_view_has_a_name_in_words() -> None:
    assert {view.__name__ for views in VIEWS.values() for view in views} <= {
        name for setting in settings().values() for name in setting.views
    }
