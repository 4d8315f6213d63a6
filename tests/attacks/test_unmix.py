"""Unmix reads planted batches whole, proves what is true only, and leaves the rest to TabLeak."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.cells_search import CellsSearch, occurring
from seepage.attacks.horizontal.exact.gradients import Gradient
from seepage.attacks.horizontal.exact.harvest import Harvester
from seepage.attacks.horizontal.exact.networks import Network, extended
from seepage.attacks.horizontal.exact.record_count import count_records
from seepage.attacks.horizontal.exact.spans import Span, row_scale
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.attacks.horizontal.matching.tableak import tableak
from seepage.datasets import Dataset, load
from seepage.datasets.planted import distinct
from seepage.defenses.clipping import Clipping
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.errors import BadInputError
from seepage.learning import LocalTraining, gradient, local_update
from seepage.models.mlp import linear, mlp, nn3
from seepage.models.model import Head, Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import models
from seepage.tabular.align import right_cells
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete
from seepage.wire.horizontal import GradientView, Knowledge, KnownDefense, RecordsGuess, UpdateView
from tests.roundings import assert_guessed_alike

GERMAN = load("german")


def received(model: Model, data: Dataset, cells: Tensor, labels: Tensor) -> tuple[GradientView, Knowledge]:
    """Return the gradients of batches (victim, record, column), and what is granted beside them."""
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    view = GradientView(model, gradient(model, encoder.encode(cells), labels.float()))
    return view, Knowledge(data.schema, data.statistics, cells.shape[1])


def rows_with_labels(cells: Tensor, labels: Tensor) -> list[tuple[float, ...]]:
    return sorted(tuple(row) for row in torch.cat([cells, labels[:, None]], 1).tolist())


def assert_read(guess: RecordsGuess, cells: Tensor, labels: Tensor) -> None:
    """All is read."""
    assert guess.labels is not None
    for v in range(len(cells)):
        got, true = (
            torch.tensor(rows_with_labels(*pair), dtype=torch.float64)
            for pair in ((guess.cells[v], guess.labels[v]), (cells[v], labels[v]))
        )
        torch.testing.assert_close(got, true, rtol=1e-5, atol=1e-4)


def assert_right(guessed: Tensor, told: Tensor, cells: Tensor, labels: Tensor) -> None:
    """Every true record has a guessed one of its own, right in all cells and the label."""
    free = list(range(len(guessed)))
    for cell, label in zip(cells, labels, strict=True):
        fits = [i for i in free if told[i] == label and right_cells(GERMAN.schema, guessed[i, None], cell[None]).all()]
        assert fits, f"{cell.tolist()} with label {label} was not read"
        free.remove(fits[0])


@pytest.mark.long
@pytest.mark.parametrize(("records", "depth"), [(1, 2), (12, 1), pytest.param(32, 2, marks=pytest.mark.slow), (64, 3)])
def test_a_batch_is_read_whole(records: int, depth: int) -> None:
    ran = FedSGD(records, replacement=False).run(
        mlp(GERMAN.schema, (100,) * depth, seed=1),
        GERMAN.train,
        Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32),
        range(2),
    )
    guess = unmix(restarts=2, iterations=2)(ran.view, Knowledge(GERMAN.schema, GERMAN.statistics, records), [0, 1])
    assert guess.regime is not None
    proved = [regime == f"all {records} records proved" for regime in guess.regime]
    whole = ["which explains the whole message" in regime for regime in guess.regime]
    assert all(one or other for one, other in zip(proved, whole, strict=True))
    # The more records, the more rows lie in what they span.
    assert all(proved) or records > 12
    assert_read(guess, ran.secret.cells, ran.secret.labels)


@pytest.mark.parametrize(("sure", "proved"), [(60.0, 2), (150.0, 0)])
def test_a_record_that_the_network_is_sure_of_is_read_and_proved_if_its_error_is_no_rounding(
    sure: float, proved: int
) -> None:
    """A chance near 1 is rounded by as much as an error of 6e-8 at the output, which then says nothing."""
    model = nn3(GERMAN.schema, seed=1)
    with torch.no_grad():
        list(model.module.parameters())[-2].mul_(sure)
    cells, encoder = GERMAN.train.cells[:3, None], Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    labels = model.module(encoder.encode(cells)).argmax(-1).double()
    view, knowledge = received(model, GERMAN, cells, labels)
    errors = view.gradient["4.bias"].abs().amax(1)
    assert float(errors.max()) < 2e-3
    assert (errors > 1e-5).tolist() == [True] * proved + [False] * (3 - proved)
    guess = unmix(restarts=1, iterations=2)(view, knowledge, [0, 1, 2])
    assert_read(guess, cells, labels)
    assert guess.regime is not None
    assert guess.certified is not None
    assert guess.regime[:proved] == ("all 1 records proved",) * proved
    assert bool(guess.certified[:proved].all())
    assert not guess.certified[proved:].any()
    for regime in guess.regime[proved:]:
        assert "which explains the whole message" in regime
        assert "stands above its rounding" in regime


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_copies_and_records_in_the_hull_of_others_are_read(head: Head) -> None:
    """Duplicates, one row under both labels, and four rows of which any is an affine combination of the others."""
    cells = GERMAN.train.cells[:12].clone()
    cells[1], cells[2] = cells[0], cells[0]
    cells[5] = torch.cat([cells[3, :10], cells[4, 10:]])
    cells[6] = torch.cat([cells[4, :10], cells[3, 10:]])
    labels = torch.tensor([0.0, 0, 1] + [0, 1] * 4 + [0], dtype=torch.float64)
    view, knowledge = received(nn3(GERMAN.schema, seed=2, head=head), GERMAN, cells[None], labels[None])
    assert_read(unmix(restarts=2, iterations=2)(view, knowledge, [0]), cells[None], labels[None])


def test_several_classes() -> None:
    """A row under two of four labels among others."""
    target = Discrete(name="grade", categories=("a", "b", "c", "d"))
    schema = GERMAN.schema.model_copy(update={"target": target})
    cells = GERMAN.train.cells[:16].clone()
    cells[1] = cells[0]
    labels = torch.arange(16, dtype=torch.float64) % 4
    encoder = Encoder(schema, GERMAN.statistics, dtype=torch.float32)
    model = mlp(schema, (60, 50), seed=0)
    view = GradientView(model, gradient(model, encoder.encode(cells[None]), labels[None].float()))
    guess = unmix(restarts=2, iterations=2)(view, Knowledge(schema, GERMAN.statistics, 16), [0])
    assert_read(guess, cells[None], labels[None])


def test_what_is_outside_goes_to_tableak_as_it_is() -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 8)
    ran = FedSGD(8).run(linear(GERMAN.schema, seed=0), GERMAN.train, encoder, [0])
    options = {"restarts": 3, "iterations": 5}
    ours, theirs = (made("default", **options)(ran.view, knowledge, [7]) for made in (unmix, tableak))
    assert torch.equal(ours.cells, theirs.cells)
    assert ours.regime == ("not tried: no hidden layer",)
    assert ours.certified is not None
    assert not ours.certified.any()
    ran = FedSGD(8).run(nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [0])
    for known in (KnownDefense("sign", signs=True), KnownDefense("top_k", kept=0.1)):
        defended = Knowledge(GERMAN.schema, GERMAN.statistics, 8, defense=known)
        assert unmix("default", **options)(ran.view, defended, [7]).regime == (
            f"not tried: gradients went through {known.name}",
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("epochs", "step"),
    [*(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 16), (5, 4))), (4, 16), (2, 8)],
)
def test_updates_of_several_local_steps_are_read_record_by_record(epochs: int, step: int) -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    protocol = FedAvg(16, epochs=epochs, local_batch_size=step, learning_rate=0.01)
    ran = protocol.run(nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [0, 1])
    guess = unmix(restarts=2, iterations=2)(ran.view, Knowledge(GERMAN.schema, GERMAN.statistics, 16), [0, 1])
    assert guess.labels is not None
    assert guess.proofs is not None
    assert guess.uncertainty is not None
    assert guess.regime is not None
    # Of several local batches the order is not known, and nothing can be replayed.
    for proof, regime in zip(guess.proofs, guess.regime, strict=True):
        assert step == 16 or not (proof.cells | proof.given).any()
        assert step == 16 or "16 of 16 records read one by one" in regime
    for v in range(2):
        assert_right(guess.cells[v], guess.labels[v], ran.secret.cells[v], ran.secret.labels[v])


@pytest.mark.long
def test_noise_that_is_known_is_read_through_until_it_hides_the_records() -> None:
    """Against a defense's own noise: little of it costs nothing, much of it leaves TabLeak's guess as it is."""
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    for scale, reads in ((1e-6, True), (1.0, False)):
        defense = GaussianNoise(scale)
        ran = FedSGD(16, replacement=False, defense=defense).run(
            nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [0], defense_seeds=[5]
        )
        knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 16, defense=defense.describe())
        ours = unmix(restarts=3, iterations=5)(ran.view, knowledge, [7])
        assert ours.regime is not None
        if reads:
            assert ours.proofs is not None
            assert not ours.proofs[0].cells.any()
            assert ours.proofs[0].doubt == "the message went through gaussian_noise, for which there is no rule"
            assert ours.labels is not None
            assert_right(ours.cells[0], ours.labels[0], ran.secret.cells[0], ran.secret.labels[0])
        else:
            assert ours.regime[0].startswith("none of 16 records")
            theirs = tableak(restarts=3, iterations=5)(ran.view, knowledge, [7])
            assert torch.equal(ours.cells, theirs.cells)


def test_a_clipped_message_without_noise_is_read() -> None:
    """A layer that is scaled down has entries whose error is none at all."""
    data = distinct(rows=60, continuous=3, discrete=5)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    defense, model = Clipping(0.1), nn3(data.schema, seed=0)
    ran = FedSGD(4, defense=defense).run(model, data.train, encoder, seeds=[0, 1], defense_seeds=[7, 8])
    knowledge = Knowledge(data.schema, data.statistics, 4, defense=defense.describe())
    guess = unmix(starts=8, rounds=2, restarts=2, iterations=4)(ran.view, knowledge, [0, 1])
    assert guess.cells.shape == ran.secret.cells.shape


def test_what_an_update_does_not_give_is_tableaks() -> None:
    """One round of few searches reads a part; the guess has as many records as there are."""
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    ran = FedAvg(32, epochs=2, local_batch_size=16, learning_rate=0.01).run(
        nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [3]
    )
    knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 32)
    guess = unmix(starts=16, rounds=1, restarts=2, iterations=5)(ran.view, knowledge, [0])
    assert guess.cells.shape == ran.secret.cells.shape
    assert guess.regime is not None
    assert guess.searches is not None
    read = guess.searches[0].read
    assert 0 < read < 32
    whole = {row[:-1] for row in rows_with_labels(ran.secret.cells[0], torch.zeros(32))}
    discrete = list(GERMAN.schema.discrete)
    true = {tuple(row[i] for i in discrete) for row in whole}
    assert all(tuple(row[discrete].tolist()) in true for row in guess.cells[0, :read])


@pytest.mark.long
def test_copies_in_an_update_are_counted_with_their_labels() -> None:
    cells, labels = GERMAN.train.cells[:12].clone(), GERMAN.train.labels[:12].clone()
    cells[1], cells[2] = cells[0], cells[0]
    labels[:3] = torch.tensor([0.0, 0.0, 1.0])
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    model = nn3(GERMAN.schema, seed=0)
    training = LocalTraining(3, 12, learning_rate=0.01)
    update = local_update(
        model,
        encoder.encode(cells)[None, None].expand(-1, 3, -1, -1),
        labels.float()[None, None].expand(-1, 3, -1),
        training,
    )
    view = UpdateView(model, update, training)
    guess = unmix(restarts=2, iterations=2)(view, Knowledge(GERMAN.schema, GERMAN.statistics, 12), [0])
    assert guess.labels is not None
    assert_right(guess.cells[0], guess.labels[0], cells, labels)


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
@pytest.mark.parametrize("records", [1, 7, 50])
def test_records_are_counted(records: int, head: Head) -> None:
    cells, labels = GERMAN.train.cells[:records].clone(), GERMAN.train.labels[:records].clone()
    if records > 5:
        cells[1], labels[1] = cells[0], labels[0]
    view, _ = received(nn3(GERMAN.schema, seed=2, head=head), GERMAN, cells[None], labels[None])
    assert count_records(view, GERMAN.schema, GERMAN.statistics) == records


def test_records_that_cannot_be_counted() -> None:
    cells, labels = GERMAN.train.cells[None, :30], GERMAN.train.labels[None, :30]
    for model in (
        linear(GERMAN.schema, seed=0),
        mlp(GERMAN.schema, (50,), seed=0),
        mlp(GERMAN.schema, (20, 20), seed=0),
    ):
        view, _ = received(model, GERMAN, cells, labels)
        assert count_records(view, GERMAN.schema, GERMAN.statistics) is None


def test_a_batch_as_large_as_the_layers_are_wide_is_estimated_as_tableak_does() -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 24)
    ran = FedSGD(24).run(mlp(GERMAN.schema, (16, 16), seed=0), GERMAN.train, encoder, [0])
    ours, theirs = (made(restarts=3, iterations=5)(ran.view, knowledge, [7]) for made in (unmix, tableak))
    torch.testing.assert_close(ours.cells, theirs.cells)
    assert ours.regime is not None
    assert ours.regime[0].startswith("estimated: no record was found one by one")


@pytest.mark.long
def test_what_was_not_found_is_estimated_from_what_is_left() -> None:
    """One round of few searches finds a part; the others' gradient is exactly what TabLeak is handed."""
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    ran = FedSGD(40, replacement=False).run(nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [3])
    knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 40, labels=ran.secret.labels)
    guess = unmix(starts=24, rounds=1, restarts=4, iterations=150)(ran.view, knowledge, [0])
    assert guess.certified is not None
    assert guess.regime is not None
    assert guess.searches is not None
    # What is left over may be of any records, so that nothing can be replayed.
    assert not guess.certified.any()
    read = guess.searches[0].read
    assert 0 < read < 40
    assert "the others estimated" in guess.regime[0]
    matched = match_records(GERMAN.schema, GERMAN.statistics, ran.secret, guess)
    assert matched.right.all(-1).sum() >= read
    guessed, true = guess.labels, ran.secret.labels
    assert guessed is not None
    assert torch.equal(guessed.sort().values, true.sort().values)
    whole = tableak(restarts=4, iterations=150)(ran.view, knowledge, [0])
    plain = match_records(GERMAN.schema, GERMAN.statistics, ran.secret, whole)
    assert matched.right.double().mean() > plain.right.double().mean()


@pytest.mark.long
def test_same_seed_same_guess_and_counts_below_one_are_refused() -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 12)
    ran = FedSGD(12).run(nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [0, 1])
    attack = unmix(starts=20, rounds=2, restarts=2, iterations=3)
    one, two = attack(ran.view, knowledge, [5, 6]), attack(ran.view, knowledge, [5, 6])
    assert torch.equal(one.cells, two.cells)
    # A victim's guess does not depend on who else is attacked.
    alone = attack(ran.view.of(slice(1, 2)), knowledge, [6])
    assert_guessed_alike(alone.cells[0], one.cells[1])
    for name in ("starts", "rounds"):
        with pytest.raises(BadInputError, match=name):
            unmix("default", **{name: 0})


def test_after_its_time_no_round_begins() -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
    ran = FedSGD(24, replacement=False).run(nn3(GERMAN.schema, seed=0), GERMAN.train, encoder, [3])
    knowledge = Knowledge(GERMAN.schema, GERMAN.statistics, 24)
    short: dict[str, Any] = {"starts": 12, "restarts": 2, "iterations": 3}
    limits: list[dict[str, Any]] = [{"seconds": 1e-9}, {"rounds": 1}, {"seconds": 1e9}]
    hurried, one, unhurried = (unmix(**short, **limit)(ran.view, knowledge, [0]) for limit in limits)
    assert torch.equal(hurried.cells, one.cells)
    assert unhurried.searches is not None
    assert one.searches is not None
    assert unhurried.searches[0].read > one.searches[0].read
    with pytest.raises(BadInputError, match="seconds is a number above 0"):
        unmix(seconds=0.0)


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    records=st.integers(1, 24),
    widths=st.sampled_from([(30, 30), (40, 24), (60,), (32, 32, 32)]),
    copies=st.integers(0, 4),
)
def test_nothing_false_is_certified(seed: int, records: int, widths: tuple[int, ...], copies: int) -> None:
    """Random networks and batches with repeated rows: all that is called certain is right, label included."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(GERMAN.train), (records,), generator=generator)
    chosen[: min(copies, records)] = chosen[-1]
    cells, labels = GERMAN.train.cells[chosen], GERMAN.train.labels[chosen]
    model = mlp(GERMAN.schema, widths, seed=seed)
    view, knowledge = received(model, GERMAN, cells[None], labels[None])
    guess = unmix(starts=48, rounds=6, restarts=1, iterations=1)(view, knowledge, [seed])
    assert guess.certified is not None
    assert guess.labels is not None
    proved = guess.certified[0].all(-1)
    left = rows_with_labels(cells, labels)
    for row in rows_with_labels(guess.cells[0, proved], guess.labels[0, proved]):
        near = [other for other in left if all(abs(a - b) < 0.5 for a, b in zip(row, other, strict=True))]
        assert near, f"{row} is none of the records"
        left.remove(near[0])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(1, 10))
def test_spans_of_a_sum_of_products(seed: int, rank: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    errors = torch.randn(rank, 14, generator=generator, dtype=torch.float64)
    inputs = extended(torch.randn(rank, 12, generator=generator, dtype=torch.float64))
    product = errors.T @ inputs
    span = Span.of(product, row_scale(product), float(product.norm()), 1e-14)
    assert span.rank == rank
    assert float((inputs @ span.off_rows.T).norm()) < 1e-8
    assert float((errors / span.scale @ span.off_columns.T).norm()) < 1e-8
    inverse = torch.einsum("nu,eu,ne->n", errors / span.scale, span.inverse, inputs)
    torch.testing.assert_close(inverse, torch.ones_like(inverse))


def test_a_search_ends_where_single_changes_of_cells_help_no_more() -> None:
    """Against a naive misfit, record by record and cell by cell; a start at a record stays there."""
    encoder = Encoder(GERMAN.schema, GERMAN.statistics)
    cells, labels = GERMAN.train.cells[:20], GERMAN.train.labels[:20]
    model = nn3(GERMAN.schema, seed=0)
    model.module.double()
    sent = list(gradient(model, encoder.encode(cells), labels).values())
    layers = [torch.cat([w, b[:, None]], 1) for w, b in zip(sent[::2], sent[1::2], strict=True)]
    network = Network.of_parameters(list(model.parameters.values()))
    held = Gradient(network, "softmax", layers, 20, 2e-16)
    spans = held.spans()
    everything = torch.ones_like(occurring(encoder, spans[0], 2e-16))
    search = CellsSearch(encoder, network, spans, everything)
    discrete, places = list(GERMAN.schema.discrete), [GERMAN.schema.blocks[i].start for i in GERMAN.schema.continuous]
    rows = encoder.encode(cells)
    stayed = search.run(cells[:, discrete].long(), rows[:, places], 5)
    assert float(stayed.misfit.max()) < 1e-12
    assert torch.equal(stayed.codes, cells[:, discrete].long())

    def misfit(cell: Tensor) -> float:
        row = encoder.encode(cell[None])
        entering = network.inputs(row)
        away = [float((extended(e) @ s.off_rows.T).square().sum()) for e, s in zip(entering, spans, strict=False)]
        return sum(away)

    ends = search.run(
        GERMAN.train.cells[50:53, discrete].long(), encoder.encode(GERMAN.train.cells[50:53])[:, places], 40
    )
    for codes, numbers, value in zip(ends.codes, ends.numbers, ends.misfit, strict=True):
        cell = torch.empty(len(GERMAN.schema.columns), dtype=torch.float64)
        cell[discrete] = codes.double()
        for i, place, number in zip(GERMAN.schema.continuous, places, numbers, strict=True):
            cell[i] = number * encoder.std[place] + encoder.mean[place]
        assert misfit(cell) == pytest.approx(float(value), rel=1e-6, abs=1e-12)
        for i in discrete:
            for code in range(GERMAN.schema.columns[i].width):
                other = cell.clone()
                other[i] = code
                assert misfit(other) > float(value) * (1 - 1e-5) - 1e-12


def test_categories_that_no_record_has_are_seen_in_the_span() -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics)
    cells = GERMAN.train.cells[:10]
    model = nn3(GERMAN.schema, seed=0)
    model.module.double()
    sent = gradient(model, encoder.encode(cells), GERMAN.train.labels[:10])
    layer = torch.cat([sent["0.weight"], sent["0.bias"][:, None]], 1)
    span = Span.of(layer, row_scale(layer), 1.0, 2e-16)
    there = (encoder.destandardise(encoder.encode(cells)).abs() > 1e-9).any(0) | encoder.is_continuous
    assert torch.equal(occurring(encoder, span, 2e-16), there)


def test_taking_every_record_leaves_nothing() -> None:
    encoder = Encoder(GERMAN.schema, GERMAN.statistics)
    model = mlp(GERMAN.schema, (50, 40, 30), seed=3)
    model.module.double()
    cells, labels = GERMAN.train.cells[:9], GERMAN.train.labels[:9]
    sent = list(gradient(model, encoder.encode(cells), labels).values())
    layers = [torch.cat([w, b[:, None]], 1) for w, b in zip(sent[::2], sent[1::2], strict=True)]
    held = Gradient(Network.of_parameters(list(model.parameters.values())), "softmax", layers, 9, 2e-16)
    rows = encoder.encode(cells)
    held.take(rows, torch.nn.functional.one_hot(labels.long(), 2).double())
    assert all(float(left.norm()) < 1e-12 for left in held.left)
    assert [a.shape[1] for a, _ in pairwise(held.received)] == [GERMAN.schema.width + 1, 51, 41]
    assert Harvester(encoder, Starts(encoder, GERMAN.statistics, 4), 1).run(held, 0).dimensions == (0, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize(("continuous", "discrete"), [(0, 5), (5, 0)])
def test_tables_of_one_kind_of_column(continuous: int, discrete: int) -> None:
    data = distinct(rows=40, continuous=continuous, discrete=discrete)
    cells, labels = data.train.cells[None, :10], data.train.labels[None, :10]
    view, knowledge = received(nn3(data.schema, seed=0), data, cells, labels)
    assert_read(unmix(restarts=2, iterations=2)(view, knowledge, [0]), cells, labels)


def test_the_search_of_a_victim_ends_at_a_limit_that_depends_on_no_machine() -> None:
    data = distinct(rows=40)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    ran = FedSGD(16).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1])
    known = Knowledge(data.schema, data.statistics, 16)

    def regime(operations: float, **options: Any) -> str:
        made = unmix(operations=operations, restarts=1, iterations=2, **options)
        said = made(ran.view, known, [0]).regime
        assert said is not None
        return said[0]

    effort = unmix()._effort(ran.view, known, None)
    assert effort < 1e12 / 16
    assert regime(1e12) == "all 16 records proved"
    # What is read within the limit says nothing of it; what is not, does.
    assert regime(2.5 * effort) == "all 16 records proved"
    assert regime(0.5 * effort).startswith("not tried: a round of the search takes about")
    assert regime(effort / 128, starts=1).endswith("allowed 2 of 16 rounds")
    with pytest.raises(BadInputError, match="operations is a number above 0"):
        unmix(operations=0.0)


def test_networks_of_the_published_figures_stay_within_the_limit() -> None:
    data = load("adult")
    for name in ("nn3", "cnn_bn", "resnet_bn"):
        model = models.create(name, schema=data.schema, seed=0)
        assert isinstance(model, Model)
        view = GradientView(model, {n: p.detach()[None] for n, p in model.parameters.items()})
        assert 16 * unmix()._effort(view, Knowledge(data.schema, data.statistics, 32), None) <= 1e12
