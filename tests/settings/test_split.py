from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from seepage.attacks.split.posterior import Posterior
from seepage.datasets.planted import distinct, telling
from seepage.defenses.cut_noise import CutNoise
from seepage.errors import BadInputError
from seepage.report.accumulated import _fields_but_rounds
from seepage.run.store import Store
from seepage.settings.guessing import check_guess
from seepage.settings.part import Part
from seepage.settings.split.audit import DELTA, AttackedTraining, SplitAudit, default_private
from seepage.settings.split.spec import SplitSpec
from seepage.settings.units import UnitsExposure
from seepage.tabular.schema import Discrete
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.labels import LabelGuess
from seepage.wire.split import CutGuess, CutKnowledge, CutView
from tests.attacks.split.test_exact import table
from tests.audits import measured
from tests.rows import number

NONE = Part(name="none")
DATA = table(2, rows=600)
SPEC = SplitSpec(
    dataset="made",
    private_columns=("a", "c"),
    hidden=(16, 8),
    batch_size=32,
    auxiliary=100,
    repetitions=2,
    defenses=(NONE, Part(name="cut_noise", options={"noise_multiplier": 1.0}, label="noisy")),
)


def figures(spec: SplitSpec, store: Store) -> dict[tuple, float | None]:
    rows = measured(SplitAudit(spec, DATA), store)
    return {(r.defense, r.attack, r.metric, r.column): r.mean for r in rows}


@pytest.mark.slow
def test_what_is_read_stands_beside_what_was_believed() -> None:
    audit = SplitAudit(SPEC, DATA)
    assert audit.about.notes[-1] == "12 configurations of private cells and label"
    rows = measured(audit)
    by = {(r.defense, r.attack, r.metric, r.column): r for r in rows}
    read = by["none", "exact", "accuracy", None]
    assert read.mean == 1.0
    assert read.n == 2
    assert read.baseline_name in {"prior", "imputer", "marginals"}
    assert read.lift == pytest.approx(1 - number(read.baseline))
    assert by["none", "exact", "likely", None].mean == 1.0
    noisy = by["noisy", "posterior", "accuracy", None]
    assert number(noisy.mean) < 1.0
    # The same records, rows and networks: only what came back differs.
    assert number(noisy.mean) > number(by["noisy", "exact", "accuracy", None].mean)
    assert number(by["noisy", "training", "epsilon", None].mean) > 0
    assert ("none", "training", "epsilon", None) not in by
    assert 0.5 < number(by["none", "training", "auc", None].mean) < 1
    assert by["none", "training", "auc", None].baseline == 0.5
    assert number(by["none", "training", "label_auc_direction", None].mean) > 0.99
    assert all(r.lift is None for r in rows if not r.is_attack or r.metric == "calibration")


@pytest.mark.slow
def test_older_client_weights_tell_less() -> None:
    plain = SPEC.model_copy(
        update={"defenses": (NONE,), "attacks": (Part(name="exact"),), "baselines": (), "repetitions": 1}
    )
    fresh, stale = (figures(plain.model_copy(update={"stale": epochs}), Store(None)) for epochs in (0, 4))
    key = ("none", "exact", "accuracy", None)
    assert fresh[key] == 1.0
    assert (stale[key] or 0) < 1.0
    with pytest.raises(BadInputError, match="give at most stale=5"):
        SplitAudit(SPEC.model_copy(update={"stale": 6}), DATA)


@pytest.mark.slow
def test_weights_that_are_off_are_allowed_for_where_the_attack_says_so() -> None:
    attacks = [{"name": "exact"}, {"name": "posterior", "options": {"weights": "about"}, "label": "about"}]
    plain = {**SPEC.model_dump(), "repetitions": 1, "attacked_records": 60, "attacks": attacks, "baselines": []}
    blurred = [{"label": "blurred", "name": "weight_noise", "noise_multiplier": 5}]
    for label, more in (("none", {"final": 5, "defenses": ["none"]}), ("blurred", {"defenses": blurred})):
        read = figures(SplitSpec.of(**{**plain, **more}), Store(None))
        exact, about = (read[label, attack, "accuracy", None] or 0 for attack in ("exact", "about"))
        assert exact < 1.0
        assert about > exact - 0.1
        assert ((label, "training", "weights_epsilon", None) in read) == ("final" not in more)
    with pytest.raises(BadInputError, match="leave out one of the two"):
        SplitAudit(SplitSpec.of(**plain), DATA)
    for more, said in (({"final": 6}, "give at most final=5"), ({"final": 1, "stale": 1}, "both older")):
        with pytest.raises(BadInputError, match=said):
            SplitAudit(SplitSpec.of(**{**plain, "attacks": ["exact"], **more}), DATA)


@pytest.mark.slow
def test_older_weights_get_noise_too() -> None:
    defenses = ["none", {"label": "blurred", "name": "weight_noise", "noise_multiplier": 5}]
    plain = {
        **SPEC.model_dump(),
        "repetitions": 1,
        "attacked_records": 60,
        "attacks": ["exact"],
        "baselines": [],
        "stale": 1,
    }
    read = figures(SplitSpec.of(**{**plain, "defenses": defenses}), Store(None))
    assert (read["blurred", "exact", "accuracy", None] or 0) < (read["none", "exact", "accuracy", None] or 0) - 0.1


@pytest.mark.slow
def test_clients_of_a_few_rows_give_away_as_much() -> None:
    spec = SPEC.model_copy(update={"protocol": "federated_split", "defenses": (NONE,), "repetitions": 1})
    assert figures(spec, Store(None))["none", "exact", "accuracy", None] == 1.0


FLIP = {"name": "label_flip", "probability": 0.1}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attacks": ["exakt"]}, "did you mean 'exact'"),
        ({"attacks": [{"name": "exact", "options": {"votes": 0}}]}, "votes is a whole number"),
        (
            {"attacks": ["exact", {"name": "exact", "aware": True}]},
            "two different attacks would both be called 'exact'",
        ),
        (
            {"defenses": [{"name": "none", "label": "a"}, FLIP | {"label": "a"}]},
            "two different defenses would both be called 'a'",
        ),
        ({"defenses": ["label_flop"]}, "did you mean 'label_flip'"),
        ({"defenses": ["label_flip"]}, "needs probability"),
        ({"defenses": [{"name": "label_flip", "probability": 1}]}, "between 0 and 1, got probability=1"),
        ({"defenses": [FLIP | {"label": "none"}]}, "would be called 'none'"),
        ({"defenses": ["label_flip:{probability: 0.1}+none"]}, "combines a defense with none"),
        ({"defenses": []}, "at least one defense"),
        ({"repetitions": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_done_is_refused(settings: dict, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        SplitSpec.of(**settings)


def test_private_columns_are_the_sensitive_ones_or_half_of_the_categories_or_numbers_unless_named() -> None:
    rows = telling(rows=20)
    categories = [column.name for column in rows.schema.columns if isinstance(column, Discrete)]
    assert default_private(rows) == tuple(categories[len(categories) // 2 :])
    numbers = distinct(rows=20, continuous=3, discrete=0)
    assert default_private(numbers) == numbers.schema.names[1:]
    with pytest.raises(BadInputError, match="0 have categories"):
        default_private(distinct(rows=20, continuous=1, discrete=0))


@pytest.mark.slow
def test_more_exchanges_tell_more_and_cost_more_epsilon() -> None:
    noisy = SPEC.defenses[1]
    plain = {**SPEC.model_dump(), "repetitions": 1, "attacks": ["posterior"], "baselines": [], "defenses": [noisy]}
    read = [figures(SplitSpec.of(**{**plain, "exposures": number}), Store(None)) for number in (1, 40)]
    label = DATA.schema.target.name
    for column in (None, label):
        once, often = (number_of["noisy", "posterior", "accuracy", column] or 0 for number_of in read)
        assert often > once + 0.03
    epsilons = [one["noisy", "training", "epsilon", None] for one in read]
    assert epsilons == [CutNoise(1.0).epsilon(number, DELTA) for number in (1, 40)]
    # Without a message, exchanges change nothing.
    assert read[0]["noisy", "prior", "accuracy", None] == read[1]["noisy", "prior", "accuracy", None]


def test_a_record_is_seen_once_an_epoch_by_default_with_the_weights_of_each_epoch() -> None:
    audit = SplitAudit(SPEC.model_copy(update={"epochs": 3, "repetitions": 1}), DATA)
    assert audit.spec.exchanges == audit.about.rounds == 3
    exposure = audit.expose(audit.configurations[1], range(1))
    assert isinstance(exposure, UnitsExposure)
    [exposed] = exposure.units
    assert isinstance(exposed, AttackedTraining)
    views = exposed.transcript.view.exchanges
    assert len(views) == 3
    stages = exposed.trained.stages
    assert len(stages) == 4
    for view, stage in zip(views, reversed(stages[1:]), strict=True):
        assert torch.equal(view.cut, stage.model.cut(exposed.test.cells))
        assert view.clip == stage.clip
    # Noise is fresh, so that it is uncorrelated.
    noise = [view.own_gradient.flatten() for view in views]
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 0.5


def test_exchanges_are_a_curve_over_otherwise_equal_audits() -> None:
    specs = [SPEC.model_copy(update={"exposures": number}) for number in (1, 5)]
    assert _fields_but_rounds(specs[0]) == _fields_but_rounds(specs[1])
    assert _fields_but_rounds(specs[0]) != _fields_but_rounds(SPEC.model_copy(update={"epochs": 4}))


def test_each_training_is_attacked_with_a_seed_of_its_own() -> None:
    given: list[int] = []

    def noting(view: CutView, knowledge: CutKnowledge, seeds: Sequence[int]) -> CutGuess:
        given.extend(seeds)
        return Posterior(observed=False)(view, knowledge)

    small = {"epochs": 1, "attacked_records": 20, "exposures": 1, "control": False}
    audit = SplitAudit(SplitSpec.of(attacks=[noting], repetitions=2, **small), DATA)
    for _ in range(2):
        [part] = [part for part in audit.parts if part.kind == "attack"]
        audit.expose(audit.configurations[0], range(2)).measure(part)
    assert len(set(given)) == 2
    assert given[:2] == given[2:]


@pytest.mark.parametrize(
    ("guess", "kind", "shape", "said"),
    [
        ("nothing", CutGuess, {}, "returned an object of type str"),
        (
            RecordsGuess(torch.zeros(1, 4, 2).double()),
            RecordsGuess,
            {"victim": 1, "record": None, "column": 3},
            r"cells of shape \(1, 4, 2\) .* \(victim, record, column\) = \(1, records, 3\); decode",
        ),
        (
            CutGuess(torch.zeros(4, 2).double(), torch.zeros(4)),
            CutGuess,
            {"record": 5, "private column": 2},
            r"\(record, private column\) = \(5, 2\)",
        ),
        (
            LabelGuess(torch.zeros(1, 4).double()),
            LabelGuess,
            {"training": 1, "record": 5},
            r"labels of shape \(1, 4\) .* = \(1, 5\); one a record",
        ),
        (
            LabelGuess(torch.zeros(1, 5).long()),
            LabelGuess,
            {"training": 1, "record": 5},
            r"type torch.int64, expected float64",
        ),
    ],
)
def test_what_an_attack_returns_is_checked(guess: object, kind: type, shape: dict[str, int | None], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        check_guess(Part(name="mine"), guess, kind, shape)


def test_an_attack_reports_its_work_on_each_training_and_each_guess() -> None:
    def working(
        view: CutView, knowledge: CutKnowledge, seeds: Sequence[int], progress: Callable[[float], None]
    ) -> CutGuess:
        for _ in range(4):
            progress(0.25)
        return Posterior(observed=False)(view, knowledge)

    small = {"epochs": 1, "attacked_records": 20, "exposures": 1, "control": False}
    audit = SplitAudit(SplitSpec.of(attacks=[working], repetitions=2, **small), DATA)
    [part] = [part for part in audit.parts if part.kind == "attack"]
    reported = list[float]()
    audit.expose(audit.configurations[0], range(2)).measure(part, reported.append)
    assert reported == 2 * [*4 * [0.125], 0.0]
