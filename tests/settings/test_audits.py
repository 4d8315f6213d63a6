"""Split, vertical and pooled learning as audits: controls on planted columns, forecasts, workers, kept rows."""

from __future__ import annotations

import pickle  # noqa: TID251 - as audits go to worker processes
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from seepage.assessment import Measurement
from seepage.errors import BadInputError
from seepage.models.model import Model
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.settings.pooled.audit import DRAWN, PooledAudit
from seepage.settings.pooled.spec import PooledSpec
from seepage.settings.setting import Audit, Configuration, Outcome
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.units import joined
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from seepage.tabular.encoder import Encoder
from tests.attacks.split.test_exact import table as cut_table
from tests.attacks.vertical.parts import table as feature_table
from tests.settings.test_pooled import SMALL, people

SPLIT = {
    "dataset": "made",
    "private_columns": ("a", "c"),
    "hidden": (16, 8),
    "batch_size": 32,
    "auxiliary": 100,
    "attacked_records": 40,
    "baselines": ("knn", "marginals"),
    "repetitions": 2,
}
VERTICAL = {
    "dataset": "made",
    "passive": ["a", "b", "n"],
    "bottom": (16,),
    "features": 8,
    "top": (8,),
    "auxiliary": 0.4,
    "leaked": 40,
    "repetitions": 2,
    "epochs": 4,
    "attacks": ["ridge_sa", {"name": "uifv_sa", "options": {"epochs": 8, "steps": 150}}, "student_dpa"],
    "baselines": ["constant", "random"],
}


def split_audit(**more: object) -> SplitAudit:
    return SplitAudit(SplitSpec.of(**{**SPLIT, **more}), cut_table(2, rows=600))


def vertical_audit(**more: object) -> VerticalAudit:
    return VerticalAudit(VerticalSpec.of(**{**VERTICAL, **more}), feature_table(rows=700))


def pooled_audit(**more: object) -> PooledAudit:
    return PooledAudit(PooledSpec.of(**{**SMALL, "attacks": ["meta", "kl"], **more}), people(0.0))


def measured(audit: Audit) -> dict[str, list[float]]:
    """Return the accuracy over all cells of each attack and baseline of the first configuration, unit by unit."""
    configuration = audit.configurations[0]
    size = audit.group(configuration, audit.parts[0])
    found: dict[str, list[float]] = {}
    for start in range(0, audit.units, size):
        exposure = audit.expose(configuration, range(start, start + size))
        for part in audit.parts:
            if part.kind != "about":
                found.setdefault(part.label, []).extend(accuracy(exposure.measure(part)))
    return found


def accuracy(found: Outcome) -> list[float]:
    [values] = [m.values for m in found.measured if isinstance(m, Measurement) and (m.metric, m.column) == SCORE]
    return values.tolist()


SCORE = ("accuracy", None)


@pytest.mark.long
@pytest.mark.parametrize("make", [split_audit, pytest.param(vertical_audit, marks=pytest.mark.slow), pooled_audit])
def test_attacks_read_the_positive_control_and_nothing_of_the_negative_one(
    make: Callable[..., Audit],
) -> None:
    audit = make()
    control, negative = audit.control(), audit.negative()
    assert control is not None
    assert negative is not None
    attacks = [part.label for part in control.parts if part.kind == "attack"]
    assert attacks
    read, nothing = measured(control), measured(negative)
    for found in (read, nothing):
        found["best"] = [max(values) for values in zip(*(v for k, v in found.items() if k not in attacks), strict=True)]
    for attack in attacks:
        # More than half of the gap in every unit.
        assert all(2 * (a - b) >= 1 - b for a, b in zip(read[attack], read["best"], strict=True)), (attack, read)
        mean, best = (sum(values) / len(values) for values in (nothing[attack], nothing["best"]))
        assert mean <= best + 0.05, (attack, nothing)
    # Same rows, seeds and networks: what is received makes the difference, and results are kept apart.
    configuration = control.configurations[0]
    one, other = (a.identity(configuration, a.parts[-1]) for a in (control, negative))
    assert {key for key in other if one.get(key) != other[key]} == {"swapped"}


def test_a_control_says_which_attacks_it_leaves_out() -> None:
    found = vertical_audit(attacks=["ridge_sa", "uifv_dpa", "student_dpa"]).control()
    assert found is not None
    assert "leaves out uifv_dpa: they have no pair" in found.about.notes[-1]
    assert [part.label for part in found.parts if part.kind == "attack"] == ["ridge_sa", "student_dpa"]
    assert vertical_audit(attacks=["uifv_dpa"]).control() is None
    found = split_audit(attacks=["exact", "unsplit"]).control()
    assert found is not None
    assert "leaves out unsplit: they learn the client's part" in found.about.notes[-1]
    assert split_audit(attacks=["fsha"]).negative() is None


@pytest.mark.slow
@pytest.mark.parametrize("make", [split_audit, vertical_audit, pooled_audit])
def test_a_worker_measures_the_same(make: Callable[..., Audit]) -> None:
    audit = make()
    configuration = audit.configurations[0]
    units = range(audit.group(configuration, audit.parts[0]))
    sent = pickle.loads(pickle.dumps(audit))  # noqa: S301 - made here
    for part in (audit.parts[0], audit.parts[-1]):
        here, there = (one.expose(configuration, units).measure(part) for one in (audit, sent))
        for a, b in zip(here.measured, there.measured, strict=True):
            assert isinstance(a, Measurement)
            assert isinstance(b, Measurement)
            torch.testing.assert_close(a.values, b.values, rtol=0, atol=0, equal_nan=True)
    assert sent.identity(configuration, audit.parts[0]) == audit.identity(configuration, audit.parts[0])


def test_labels_and_numbers_of_units_are_no_part_of_an_identity_and_options_are() -> None:
    def identity(**more: object) -> dict:
        audit = split_audit(attacks=["exact"], **more)
        return audit.identity(audit.configurations[-1], audit.parts[-1])

    flip = {"name": "label_flip", "probability": 0.1}
    first = identity(defenses=[flip])
    assert first == identity(
        defenses=["none", {**flip, "label": "other"}], repetitions=5, keep_records=True, variant="mine"
    )
    assert first != identity(defenses=[{**flip, "probability": 0.2}])
    assert first != identity(defenses=[flip], epochs=3)
    # Trainings of vertical learning are made side by side.
    by_units = [
        audit.identity(audit.configurations[0], audit.parts[0])
        for audit in (vertical_audit(repetitions=count) for count in (2, 3))
    ]
    assert by_units[0] != by_units[1]
    audit = vertical_audit()
    with pytest.raises(BadInputError, match="made all at once, 2 here"):
        audit.expose(audit.configurations[0], range(1))


@pytest.mark.parametrize("make", [pytest.param(split_audit, marks=pytest.mark.long), vertical_audit, pooled_audit])
def test_a_forecast_is_made_once(make: Callable[..., Audit], monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is.
    monkeypatch.setattr("seepage.settings.units._LONGEST_REHEARSAL_SECONDS", float("inf"))
    audit = make()
    configuration = audit.configurations[0]
    expected = audit.forecast(configuration)
    assert expected is not None
    assert expected > 0
    assert audit.forecast(configuration) == expected


@pytest.mark.parametrize("make", [split_audit, vertical_audit, pooled_audit])
def test_other_devices_are_refused(make: Callable[..., Audit]) -> None:
    with pytest.raises(BadInputError, match="computed on the CPU alone, got device='cuda'"):
        make(device="cuda")
    assert make(device="cpu").where == "cpu"


def test_a_part_that_fails_leaves_the_exposure_as_it_was() -> None:
    audit = pooled_audit(attacks=["meta", "ratio"], shadows=8, targets=8)
    exposure = audit.expose(audit.configurations[0], range(1))
    parts = {part.label: part for part in audit.parts}
    with pytest.raises(BadInputError, match="at least 20 shadow models"):
        exposure.measure(parts["ratio"])
    alone = pooled_audit(attacks=["meta"], shadows=8, targets=8)
    fresh = alone.expose(alone.configurations[0], range(1))
    assert accuracy(exposure.measure(parts["meta"])) == accuracy(fresh.measure(parts["meta"]))


def test_drawn_rows_are_kept_where_records_are(tmp_path: Path) -> None:
    pooled_audit().save(tmp_path)
    assert not list(tmp_path.iterdir())
    audit = PooledAudit(PooledSpec.of(**{**SMALL, "keep_records": True, "repetitions": 1}), people(0.0), own=True)
    audit.save(tmp_path)
    [file] = (tmp_path / DRAWN).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = load_file(file)
    assert kept["drawn"].shape == (20, 1, 150)
    # Rows with the attribute are as many as the shares say, target by target.
    shares = kept["carries"][kept["drawn"][:, 0]].double().mean(1)
    torch.testing.assert_close(shares, torch.tensor([0.33, 0.67] * 10, dtype=torch.float64), rtol=0, atol=0.01)


def test_figures_that_a_unit_lacks_are_missing_and_not_zero() -> None:
    about = split_audit().about
    units = [
        Outcome([Measurement.of_unit("accuracy", None, 0.5), Measurement.of_unit("loss", None, 1.0)], 2.0),
        Outcome([Measurement.of_unit("accuracy", None, None)], 4.0),
    ]
    found = joined(units, about)
    values = {(m.metric, m.column): m.values.tolist() for m in found.measured if isinstance(m, Measurement)}
    assert [str(value) for value in values["accuracy", None]] == ["0.5", "nan"]
    assert [str(value) for value in values["loss", None]] == ["1.0", "nan"]
    assert found.seconds == 3.0
    members = torch.tensor([0.0, 1.0], dtype=torch.float64)
    clusters = joined([Outcome([Measurement.of_unit(*SCORE, 0.5, members)])], about).measured[0]
    assert isinstance(clusters, Measurement)
    assert [one.tolist() for one in clusters.clusters or ()] == [[0.0, 1.0]]


def test_a_configuration_stands_for_a_defense() -> None:
    audit = split_audit(defenses=["none", "label_flip:{probability: 0.1}"])
    assert audit.configurations == (Configuration("none", 32), Configuration("label_flip", 32))


class Adapted(nn.Module):
    """A network whose first layer is frozen but for an adapter of rank 4."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base, self.out = nn.Linear(width, 64), nn.Linear(64, 2)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(4, width)), nn.Parameter(torch.zeros(64, 4))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out((self.base(rows) + rows @ self.down.T @ self.up.T).relu())


class Embedded(nn.Module):
    """A network that no layer of takes whole rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(width // 2, 8), nn.Linear(width - width // 2, 8)])
        self.out = nn.Linear(16, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        halves = rows.split([part.in_features for part in self.parts], 1)
        return self.out(torch.cat([part(half) for part, half in zip(self.parts, halves, strict=True)], 1).relu())


def test_ranks_are_of_what_is_sent() -> None:
    spec = make_spec(dataset="german", batch_sizes=8, attacks="unmix", victims=2)
    subject = prepare(spec)
    width = Encoder(subject.dataset.schema, subject.dataset.statistics).width

    def told(module: nn.Module) -> str:
        model = Model(module, "softmax", "own")
        return " ".join(HorizontalAudit(spec, replace(subject, model=model)).threat_model()).lower()

    adapted = told(Adapted(width))
    assert "on average 4 of 8 records of a batch can be separated" in adapted
    assert f"{64 * (width + 1):,} of" in adapted
    assert "parameters are frozen (base.weight and base.bias)" in adapted
    assert "can be separated" not in told(Embedded(width))
    assert "frozen" not in told(nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 2)))


def test_an_aggregate_is_one_batch_of_all_its_records_for_the_rank() -> None:
    spec = make_spec(
        dataset="german", batch_sizes=8, attacks="unmix", defenses=[{"name": "aggregation", "clients": 4}], victims=2
    )
    told = " ".join(HorizontalAudit(spec, prepare(spec)).threat_model())
    assert "sees the mean of 4 clients' messages" in told
    assert "from the first layer alone, all 32 records of a batch can be separated" in told.lower()
    # The attacker adapts to nothing that is done to the mean.
    assert "how updates were defended" not in told
