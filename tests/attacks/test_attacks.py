from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seepage.attacks.horizontal.matching.matching import Cosine, MeanSquared
from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.profiles import reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.mlp import mlp, nn2
from seepage.models.model import Head, Model
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import seeded
from seepage.tabular.align import match, pairwise_error, reorder, right_cells
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess
from seepage.wire.secret import Transcript
from tests.oracles.gradients import Widths

DATA = distinct(rows=8, continuous=2, discrete=3)
SINGLE = ("tableak_no_pooling", "inverting_gradients", "dlg")
NAMES = ("tableak", "tableak_no_pooling", "tableak_no_softmax", "inverting_gradients", "dlg")


def scene(
    records: int, victims: int = 2, model: Model | None = None, dtype: torch.dtype = torch.float32
) -> tuple[Transcript, Knowledge]:
    model = nn2(DATA.schema, seed=0) if model is None else model
    model = dataclasses.replace(model, module=model.module.to(dtype))
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=dtype)
    transcript = FedSGD(records).run(model, DATA.train, encoder, seeds=range(victims))
    return transcript, Knowledge(DATA.schema, DATA.statistics, records, transcript.secret.labels)


def attack(name: str = "tableak", **options: Any) -> Reconstruction:
    few = {} if name in SINGLE else {"restarts": 4}
    made = attacks.create(name, **{"iterations": 300, **few, **options})
    assert isinstance(made, Reconstruction)
    return made


def matched(transcript: Transcript, guess: RecordsGuess) -> Tensor:
    """Return the guessed cells in the order of the true ones."""
    true = transcript.secret.cells
    return reorder(guess.cells, match(pairwise_error(DATA.schema, guess.cells, true)))


def accuracy(transcript: Transcript, guess: RecordsGuess) -> float:
    return float(right_cells(DATA.schema, matched(transcript, guess), transcript.secret.cells).double().mean())


def test_the_registry_holds_every_published_attack() -> None:
    assert set(NAMES) <= set(attacks.names())


@pytest.mark.parametrize("profile", ["default", "faithful"])
@pytest.mark.parametrize("name", NAMES)
def test_a_single_record_is_read_exactly(name: str, profile: str) -> None:
    transcript, knowledge = scene(records=1, victims=3)
    guess = attack(name, profile=profile)(transcript.view, knowledge, [0, 1, 2])
    assert torch.equal(guess.cells, transcript.secret.cells)
    assert guess.labels is not None
    assert torch.equal(guess.labels, transcript.secret.labels)
    assert guess.loss is not None
    assert float(guess.loss.abs().max()) < 1e-5


@pytest.mark.parametrize("records", [2, 3, 4])
def test_a_few_records_are_read_nearly_whole(records: int) -> None:
    transcript, knowledge = scene(records, victims=4)
    guess = attack()(transcript.view, knowledge, range(4))
    assert accuracy(transcript, guess) >= 0.95
    assert guess.uncertainty is not None
    # Candidates that found the truth agree on it.
    discrete = guess.uncertainty[..., list(DATA.schema.discrete)]
    assert float(discrete.median()) < 0.05


@pytest.mark.slow
def test_the_relaxation_is_what_reads_several_records() -> None:
    transcript, knowledge = scene(4, victims=6)
    scores = {name: accuracy(transcript, attack(name)(transcript.view, knowledge, range(6))) for name in NAMES}
    assert scores["tableak"] > scores["inverting_gradients"] + 0.1
    assert scores["tableak"] > scores["dlg"] + 0.1


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_the_guess(name: str) -> None:
    transcript, knowledge = scene(3, dtype=torch.float64)
    guess = attack(name, iterations=20)(transcript.view, knowledge, [0, 1])
    assert guess.loss is not None
    assert guess.labels is not None
    encoder = Encoder(DATA.schema, DATA.statistics)
    forged = FedSGD(3).run(transcript.view.model, DATA.train, encoder, [0, 1]).view.gradient
    for v in range(2):
        rows, labels = encoder.encode(guess.cells[v]), guess.labels[v]
        module = transcript.view.model.module
        loss = nn.functional.cross_entropy(module(rows), labels.long())
        own = torch.autograd.grad(loss, list(module.parameters()))
        received = [g[v] for g in forged.values()]
        if name == "dlg":
            expected = sum(float(((a - b) ** 2).mean()) for a, b in zip(own, received, strict=True))
        else:
            a, b = (torch.cat([g.flatten() for g in gradient]) for gradient in (own, received))
            expected = 1 - float(nn.functional.cosine_similarity(a, b, dim=0))
        assert float(guess.loss[v]) == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_the_same_call_gives_the_same_bits_and_seeds_matter() -> None:
    transcript, knowledge = scene(3, victims=3)
    state = torch.random.get_rng_state()
    run = attack(iterations=30)
    first, again = (run(transcript.view, knowledge, [5, 6, 7]) for _ in range(2))
    assert first.uncertainty is not None
    assert again.uncertainty is not None
    assert torch.equal(first.cells, again.cells)
    assert torch.equal(first.uncertainty, again.uncertainty)
    other = run(transcript.view, knowledge, [5, 6, 8]).uncertainty
    assert other is not None
    assert not torch.equal(other[2], first.uncertainty[2])
    assert torch.equal(torch.random.get_rng_state(), state)


def assert_alike(one: RecordsGuess, other: RecordsGuess) -> None:
    torch.testing.assert_close(one.cells, other.cells, rtol=0, atol=1e-6)
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(one.uncertainty, other.uncertainty, rtol=1e-6, atol=1e-8)


def test_a_victim_does_not_depend_on_those_it_is_attacked_with() -> None:
    # Double precision and few steps, so that no sign of a derivative hangs on rounding.
    transcript, knowledge = scene(3, victims=4, dtype=torch.float64)
    labels = transcript.secret.labels
    run = attack(iterations=15)
    whole = run(transcript.view, knowledge, range(4))
    for v in range(4):
        view = GradientView(transcript.view.model, {n: g[v : v + 1] for n, g in transcript.view.gradient.items()})
        alone = run(view, dataclasses.replace(knowledge, labels=labels[v : v + 1]), [v])
        doubt, loss = whole.uncertainty, whole.loss
        assert doubt is not None
        assert loss is not None
        part = RecordsGuess(whole.cells[v : v + 1], doubt[v : v + 1], labels[v : v + 1], loss[v : v + 1])
        assert_alike(part, alone)


@pytest.mark.parametrize("rows_at_once", [1, 7, 18, 36, 10000])
def test_chunks_change_nothing_but_rounding(rows_at_once: int) -> None:
    transcript, knowledge = scene(3, victims=3, dtype=torch.float64)
    guesses = [
        attack(iterations=15, restarts=6, rows_at_once=size)(transcript.view, knowledge, range(3))
        for size in (rows_at_once, 54)
    ]
    assert_alike(*guesses)


@pytest.mark.parametrize("name", ["tableak", "dlg"])
@pytest.mark.parametrize(("iterations", "rows_at_once"), [(1, 1), (7, 1), (7, 8), (99, 8), (250, 1000)])
def test_progress_adds_up_to_one(name: str, iterations: int, rows_at_once: int) -> None:
    transcript, knowledge = scene(2, victims=3)
    reports: list[float] = []
    run = attack(name, iterations=iterations, rows_at_once=rows_at_once)
    run(transcript.view, knowledge, range(3), reports.append)
    assert min(reports) > 0
    assert sum(reports) == pytest.approx(1)


MODULES: list[Callable[[], nn.Module]] = [
    lambda: nn.Sequential(nn.Linear(26, 60), nn.Tanh(), nn.Linear(60, 2)),
    lambda: nn.Sequential(nn.Linear(26, 60), nn.LayerNorm(60), nn.GELU(), nn.Linear(60, 2)),
    lambda: nn.Sequential(nn.Linear(26, 60, bias=False), nn.ReLU(), nn.Linear(60, 2)),
    lambda: Widths(26, 2),
]


@pytest.mark.long
@pytest.mark.parametrize("build", MODULES)
def test_modules_of_ones_own_are_attacked_with_true_and_with_restored_labels(build: Callable[[], nn.Module]) -> None:
    model = Model(seeded(build, seed=0), "softmax", "mine")
    transcript, knowledge = scene(1, model=model)
    run = attack(iterations=150, restarts=2)
    assert accuracy(transcript, run(transcript.view, knowledge, [0, 1])) == 1
    restored = run(transcript.view, dataclasses.replace(knowledge, labels=None), [0, 1])
    assert accuracy(transcript, restored) == 1
    assert restored.labels is not None
    assert torch.equal(restored.labels, transcript.secret.labels)


@pytest.mark.long
@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_both_heads_of_a_binary_task_are_attacked(head: Head) -> None:
    transcript, knowledge = scene(2, model=mlp(DATA.schema, [60], seed=0, head=head))
    for labels in (knowledge.labels, None):
        granted = dataclasses.replace(knowledge, labels=labels)
        assert accuracy(transcript, attack()(transcript.view, granted, [0, 1])) == 1


def test_numbers_as_targets_need_their_labels() -> None:
    target = Continuous(name="pay", low=0, high=9, tolerance=1)
    schema = Schema(columns=DATA.schema.columns, target=target)
    frame = DATA.train.frame.assign(pay=[1.0, 5.5, 2.0, 3.5, 8.0, 7.0, 4.0, 6.5]).drop(columns="label")
    rows = Table(schema, frame)
    statistics = Statistics.of(rows)
    encoder = Encoder(schema, statistics, dtype=torch.float32)
    transcript = FedSGD(1).run(mlp(schema, [60], seed=0), rows, encoder, [0, 1])
    knowledge = Knowledge(schema, statistics, 1, transcript.secret.labels)
    guess = attack()(transcript.view, knowledge, [0, 1])
    assert torch.equal(guess.cells, transcript.secret.cells)
    with pytest.raises(BadInputError, match="labels of model 'mlp' are numbers"):
        attack()(transcript.view, dataclasses.replace(knowledge, labels=None), [0, 1])


def test_restored_labels_are_told() -> None:
    transcript, knowledge = scene(4, victims=5)
    guess = attack("inverting_gradients", iterations=2)(
        transcript.view, dataclasses.replace(knowledge, labels=None), range(5)
    )
    assert guess.labels is not None
    assert torch.equal(guess.labels, transcript.secret.labels.sort(dim=1).values)


def test_uncertainty_comes_from_an_ensemble_only() -> None:
    transcript, knowledge = scene(2)
    for name in SINGLE:
        assert attack(name, iterations=2)(transcript.view, knowledge, [0, 1]).uncertainty is None
        assert attack(name, iterations=2, restarts=2)(transcript.view, knowledge, [0, 1]).uncertainty is not None


def test_options_reach_the_part_they_name() -> None:
    default, faithful = attacks.create("tableak"), attacks.create("tableak", profile="faithful")
    assert (default.restarts, default.descent) == (30, Descent(iterations=500, step=0.35, schedule="cosine"))
    published = Descent(iterations=1500, step=0.06, schedule="constant", signed=True)
    longer = Descent(iterations=3000, step=0.12, schedule="cosine")
    assert [attacks.create(name).descent for name in ("dlg", "tableak_no_softmax")] == [longer, published]
    assert [faithful.descent, attacks.create("dlg", profile="faithful").descent] == [published, published]
    assert (default.logits, default.pooling, default.labels) == ("raw", "median", "bias")
    assert (faithful.logits, faithful.pooling, faithful.labels) == ("standardised", "lower_median", "geng")
    assert (default.start, faithful.start) == ("marginals", "symmetric")
    assert isinstance(default.matching, Cosine)
    assert isinstance(attacks.create("dlg").matching, MeanSquared)
    for name in ("dlg", "inverting_gradients"):
        made = attacks.create(name)
        assert (made.restarts, made.softmax, made.sigmoid) == (1, False, False)
    ablation = attacks.create("tableak_no_softmax")
    assert (ablation.restarts, ablation.softmax, ablation.sigmoid) == (30, False, True)
    assert attacks.create("tableak_no_pooling").restarts == 1
    mixed = attacks.create("tableak", profile="faithful", logits="raw", step=0.1, start="unit", select="soft")
    assert (mixed.logits, mixed.descent.step, mixed.start, mixed.select) == ("raw", 0.1, "unit", "soft")


@pytest.mark.long
def test_every_switch_changes_what_is_done() -> None:
    transcript, knowledge = scene(4, victims=1)
    losses = {}
    switches: list[dict[str, Any]] = [
        {},
        {"softmax": False, "entropy": "counts"},
        {"sigmoid": False},
        {"logits": "standardised"},
        {"start": "symmetric"},
        {"start": "unit"},
        {"pooling": "mean"},
        {"pooling": "lower_median"},
        {"signed": False},
        {"schedule": "constant"},
        {"step": 0.03},
        {"matching": MeanSquared()},
        {"entropy": "counts"},
    ]
    for switch in switches:
        guess = attack(iterations=40, **switch)(transcript.view, knowledge, [0])
        assert guess.uncertainty is not None
        losses[str(switch)] = (tuple(guess.cells.flatten().tolist()), tuple(guess.uncertainty.flatten().tolist()))
    pooled = {str(s) for s in switches if "pooling" in s}
    others = [value for key, value in losses.items() if key not in pooled]
    assert len(set(others)) == len(others)
    # Pooling leaves the candidates, hence their disagreement, as they are.
    assert {losses[key][1] for key in pooled} == {losses["{}"][1]}
    assert len({losses[key][0] for key in pooled | {"{}"}}) > 1


def test_a_search_starts_among_likely_rows() -> None:
    data = load("adult")
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    transcript = FedSGD(4).run(nn2(data.schema, seed=0), data.train, encoder, seeds=range(6))
    knowledge = Knowledge(data.schema, data.statistics, 4, transcript.secret.labels)
    cells = {
        start: attack(start=start, iterations=1, step=1e-9, restarts=1)(transcript.view, knowledge, range(6)).cells
        for start in ("marginals", "symmetric")
    }
    clear = []
    for i in data.schema.discrete:
        shares = data.statistics.marginals[i].probabilities.sort(descending=True)
        # No two draws on [-1, 1] turn the order of logits that far apart.
        if shares.values[0] > math.exp(2) * shares.values[1]:
            clear.append(data.schema.columns[i].name)
            assert (cells["marginals"][..., i] == shares.indices[0]).all()
            assert (cells["symmetric"][..., i] != shares.indices[0]).any()
    assert clear == ["workclass", "race", "native-country"]
    for i in data.schema.continuous:
        assert torch.equal(cells["marginals"][..., i], cells["symmetric"][..., i])


def test_the_reference_is_chosen_after_or_before_projection() -> None:
    transcript, knowledge = scene(4, victims=6)
    guesses = [
        attack("tableak_no_softmax", iterations=10, restarts=8, select=select)(transcript.view, knowledge, range(6))
        for select in ("projected", "soft")
    ]
    assert not torch.equal(guesses[0].cells, guesses[1].cells)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tableek", {}, "unknown attack 'tableek'; did you mean 'tableak'"),
        ("tableak", {"iteration": 3}, "unknown attack option 'iteration'; did you mean 'iterations'"),
        ("tableak", {"restarts": 0}, "from 1 up, got restarts=0"),
        ("dlg", {"iterations": 0}, "from 1 up, got iterations=0"),
        ("dlg", {"step": 0.0}, r"the step must be positive, got step=0\.0"),
        ("dlg", {"step": float("nan")}, "the step must be positive, got step=nan"),
    ],
)
def test_wrong_names_and_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        attacks.create(name, **options)


def test_an_unknown_profile_gets_the_known_ones() -> None:
    # Without the shape checks that tests run under, which would stop a wrong word first.
    with pytest.raises(BadInputError, match="unknown profile 'faitful'; did you mean 'faithful'"):
        inspect.unwrap(reconstruction)("faitful")


def edited(view: GradientView, name: str, value: Tensor) -> GradientView:
    return GradientView(view.model, {**view.gradient, name: value})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda view: GradientView(view.model, {f"net.{n}": g for n, g in view.gradient.items()}),
            r"the gradient holds net\.0\.weight, .* where model 'nn2' has the parameters 0\.weight, 0\.bias",
        ),
        (
            lambda view: GradientView(view.model, dict(reversed(view.gradient.items()))),
            r"the gradient holds 2\.bias, .*in the model's order",
        ),
        (
            lambda view: GradientView(view.model, {n: g for n, g in view.gradient.items() if n != "2.bias"}),
            "hand in one tensor a parameter",
        ),
        (
            lambda view: edited(view, "0.weight", view.gradient["0.weight"][:, :50]),
            r"gradient of '0\.weight' has shape \(50, 26\) a victim where model 'nn2' has \(100, 26\)",
        ),
        (
            lambda view: edited(view, "2.bias", view.gradient["2.bias"] * float("nan")),
            r"gradient of '2\.bias' holds nan; training has diverged or the capture is broken",
        ),
        (
            lambda view: edited(view, "0.bias", view.gradient["0.bias"] + float("inf")),
            r"gradient of '0\.bias' holds inf",
        ),
        (
            lambda view: GradientView(
                view.model,
                {n: g * torch.tensor([1.0, 0.0]).view(2, *[1] * (g.dim() - 1)) for n, g in view.gradient.items()},
            ),
            "the gradient of victim 1 is zero everywhere",
        ),
        (
            lambda view: GradientView(view.model, {n: g * 1e-30 for n, g in view.gradient.items()}),
            r"whose square torch\.float32 cannot hold; convert model and gradient to float64",
        ),
        (
            lambda view: GradientView(nn2(distinct(rows=5).schema), view.gradient),
            "model 'nn2' does not take rows of 26 encoded columns",
        ),
    ],
)
def test_gradients_that_fit_no_model_are_refused(edit: Callable[[GradientView], GradientView], message: str) -> None:
    transcript, knowledge = scene(2)
    with pytest.raises(BadInputError, match=message):
        attack()(edit(transcript.view), knowledge, [0, 1])


def test_seeds_and_labels_go_with_victims() -> None:
    transcript, knowledge = scene(2)
    with pytest.raises(BadInputError, match="one seed for each of 2 victims, got 3"):
        attack()(transcript.view, knowledge, [0, 1, 2])
    for labels in (torch.zeros(2, 3).double(), torch.zeros(1, 2).double()):
        with pytest.raises(BadInputError, match=r"labels have shape .*; expected \(victims, batch size\) = \(2, 2\)"):
            attack()(transcript.view, dataclasses.replace(knowledge, labels=labels), [0, 1])
    for value in (2.0, -1.0, 0.5, float("nan")):
        labels = torch.tensor([[0.0, 1.0], [1.0, value]], dtype=torch.float64)
        with pytest.raises(BadInputError, match=rf"labels hold {value}.*codes from 0 to 1"):
            attack()(transcript.view, dataclasses.replace(knowledge, labels=labels), [0, 1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_an_accelerator_reads_the_same(name: str) -> None:
    model = nn2(DATA.schema, seed=0)
    model = Model(model.module.cuda(), model.head, model.name)
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32, device="cuda")
    transcript = FedSGD(1).run(model, DATA.train, encoder, seeds=[0, 1])
    for labels in (transcript.secret.labels, None):
        knowledge = Knowledge(DATA.schema, DATA.statistics, 1, labels)
        guess = attack(name)(transcript.view, knowledge, [0, 1])
        assert guess.cells.device.type == "cpu"
        assert torch.equal(guess.cells, transcript.secret.cells)
