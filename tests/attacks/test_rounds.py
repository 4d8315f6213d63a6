from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.single_activation import SingleActivation
from seepage.attacks.horizontal.matching.engine import JointEngine, match
from seepage.attacks.horizontal.matching.matching import Cosine
from seepage.attacks.horizontal.matching.over_rounds import OverRounds
from seepage.attacks.horizontal.matching.profiles import reconstruction
from seepage.attacks.horizontal.matching.rounds import _Links, pooled
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.kernel import Certified
from seepage.models.mlp import nn3
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, RoundsView
from seepage.wire.secret import RecordsSecret
from tests.attacks.test_engine import scene
from tests.oracles.gradients import matching
from tests.roundings import assert_guessed_alike

DATA = distinct(rows=8)
HELD = DATA.train.cells.double()[None]


def knowing(records: int, labels: Tensor | None = None) -> Knowledge:
    return Knowledge(DATA.schema, DATA.statistics, records, labels)


def guessed(rows: Sequence[int], doubt: float | None = None) -> RecordsGuess:
    cells = HELD[:, list(rows)].clone()
    return RecordsGuess(cells, None if doubt is None else torch.full_like(cells, doubt), DATA.train.labels[None, rows])


def rows_of(guess: RecordsGuess) -> list[int | None]:
    """Return which record of the table each guessed one is, None where it is none."""
    return [next((i for i, true in enumerate(HELD[0]) if torch.equal(row, true)), None) for row in guess.cells[0]]


ROUNDS = [(0, 1, 2, 3), (0, 1, 4, 5), (2, 4, 5, 6)]


@settings(max_examples=30, deadline=None)
@given(st.tuples(*(st.permutations(rows) for rows in ROUNDS)), st.booleans())
def test_records_are_found_again_in_any_order(rounds: tuple[list[int], ...], labelled: bool) -> None:
    guesses = [guessed(rows) for rows in rounds]
    found = pooled(guesses if labelled else [replace(one, labels=None) for one in guesses], knowing(8))
    rows = rows_of(found)
    assert found.cells.shape == (1, 8, 6)
    assert sorted(row for row in rows if row is not None) == list(range(7))
    likeliest = torch.stack([m.likeliest(0.0) for m in DATA.statistics.marginals]).double()
    assert torch.equal(found.cells[0, rows.index(None)], likeliest)
    assert found.uncertainty is None
    assert (found.labels is not None) == labelled
    if found.labels is not None:
        known = [i for i, row in enumerate(rows) if row is not None]
        assert torch.equal(found.labels[0, known], DATA.train.labels[[row for row in rows if row is not None]])


def test_most_rounds_decide_on_a_cell_and_the_surest_among_equals() -> None:
    whole = list(range(8))
    wrong, sure = guessed(whole, 0.5), guessed(whole, 0.1)
    wrong.cells[0, 3, 5] = (wrong.cells[0, 3, 5] + 1) % 8
    two = pooled([wrong, sure], knowing(8))
    assert rows_of(two) == whole
    assert two.uncertainty is not None
    assert bool((two.uncertainty == 0.1).all())
    assert rows_of(pooled([sure, wrong], knowing(8))) == whole
    wrong_but_sure = replace(wrong, uncertainty=torch.zeros_like(wrong.cells))
    two = pooled([wrong_but_sure, sure], knowing(8))
    assert [row for row in rows_of(two) if row is not None] == [0, 1, 2, 4, 5, 6, 7]
    assert rows_of(pooled([wrong_but_sure, sure, guessed(whole, 0.9)], knowing(8))) == whole
    # Without certainties the earliest of equals counts.
    bare = [replace(one, uncertainty=None) for one in (sure, wrong)]
    assert rows_of(pooled(bare, knowing(8))) == whole
    assert None in rows_of(pooled(bare[::-1], knowing(8)))


def test_what_is_proved_stands_against_any_majority() -> None:
    whole = list(range(8))
    wrong, proved = guessed(whole, 0.0), guessed(whole, 0.5)
    wrong.cells[0, 3, 5] = (wrong.cells[0, 3, 5] + 1) % 8
    none = torch.zeros(8, 6, dtype=torch.bool)
    certified = none.clone()
    certified[3] = True
    wrong, sure = replace(wrong, proofs=(Certified(none, none),)), replace(proved, proofs=(Certified(certified, none),))
    found = pooled([wrong, sure, wrong], knowing(8))
    assert rows_of(found) == whole
    assert found.certified is not None
    assert torch.equal(found.certified[0], certified)
    # A round without proofs takes none from the others.
    kept = pooled([proved, sure], knowing(8)).certified
    assert kept is not None
    assert torch.equal(kept[0], certified)
    assert pooled([proved, proved], knowing(8)).certified is None


def test_certified_cells_are_of_the_one_round_that_proves_most() -> None:
    """That two rounds' readings are of one record is likely only: what both prove together may be of none."""
    rows, blank = [0, 1, 2], torch.zeros(3, 6, dtype=torch.bool)
    most, least = blank.clone(), blank.clone()
    most[[0, 1]], least[2] = True, True
    guesses = [
        replace(guessed(rows), proofs=(Certified(one, blank, (str(k),)),)) for k, one in enumerate((least, most))
    ]
    found = pooled(guesses, knowing(4))
    assert found.proofs is not None
    assert found.proofs[0].conditions == ("1",)
    assert found.proofs[0].cells.any(1).tolist() == [row in (0, 1) for row in rows_of(found)]


@pytest.mark.long
def test_certificates_of_rounds_are_kept_with_their_conditions_and_true() -> None:
    german = load("german")
    encoder = Encoder(german.schema, german.statistics, dtype=torch.float32)
    models = [nn3(german.schema, seed=seed) for seed in (0, 1)]
    ran = FedSGD(4).run_rounds(models, german.train, encoder, seeds=range(3))
    known = Knowledge(german.schema, german.statistics, 4)
    found = OverRounds(attacks.create("unmix"))(ran.view, known, [0, 1, 2])
    alone = [attacks.create("unmix")(one, known, [0, 1, 2]) for one in ran.view.rounds]
    assert found.certified is not None
    assert all(one.certified is not None for one in alone)
    most = torch.stack([one.certified.sum((1, 2)) for one in alone if one.certified is not None]).amax(0)
    assert found.certified.sum((1, 2)).tolist() == most.tolist()
    assert int(most.sum()) > 0
    matched = match_records(german.schema, german.statistics, ran.secret, found)
    assert matched.certified is not None
    assert bool(matched.right[matched.certified].all())
    assert found.proofs is not None
    assert found.regime is not None
    assert all("exactly 4 records" in " ".join(proof.conditions) for proof in found.proofs if proof.cells.any())


def test_cells_that_a_stranger_would_share_say_little() -> None:
    # Three columns: one that nearly all rows share, two that tell rows apart.
    common = Discrete(name="common", categories=("x", "y"))
    telling = [Discrete(name=f"telling_{i}", categories=tuple(range(50))) for i in range(2)]
    schema = Schema(columns=(common, *telling), target=Discrete(name="label", categories=(0, 1)))
    frame = pd.DataFrame(
        {
            "common": ["x"] * 98 + ["y"] * 2,
            "telling_0": [i % 50 for i in range(100)],
            "telling_1": [i // 2 for i in range(100)],
        }
        | {"label": [0, 1] * 50}
    )
    table = Table(schema, frame)
    known = Knowledge(schema, Statistics.of(table), 4)
    first = torch.tensor([[[0.0, 7.0, 8.0]]])
    cases = {(0.0, 9.0, 10.0): 2, (1.0, 7.0, 8.0): 1, (0.0, 7.0, 10.0): 1, (0.0, 7.0, 8.0): 1}
    for second, records in cases.items():
        found = pooled([RecordsGuess(first.double()), RecordsGuess(torch.tensor([[second]]).double())], known)
        likeliest = torch.stack([m.likeliest(0.0) for m in known.statistics.marginals])
        assert int((found.cells[0] != likeliest).any(1).sum()) == records, second


@pytest.mark.parametrize("seed", range(10))
def test_links_are_those_of_the_greatest_odds_among_all(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    before = torch.randint(8, (1, 3, 6), generator=generator).double()
    after = torch.where(torch.rand(1, 3, 6, generator=generator) < 0.6, before, 7 - before)
    find = _Links(knowing(4)).find
    known = torch.cat([before, torch.full((1, 1, 6), torch.nan).double()], 1)
    blank = torch.full((1, 4, 1), torch.nan).double()
    seen = torch.tensor([[True, True, True, False]])
    place = find(torch.cat([known, blank], -1), seen, torch.cat([after, blank[:, :3]], -1))[0].tolist()

    def odds(error: float, chosen: Sequence[int]) -> float:
        # One of four places is free: the prior is 1.
        return sum(
            sum(
                math.log(error + (1 - error) * 8 * float(a == b)) for a, b in zip(known[0, j], after[0, i], strict=True)
            )
            for i, j in enumerate(chosen)
            if j < 3
        )

    def differing(chosen: Sequence[int]) -> tuple[int, int]:
        pairs = [(known[0, j], after[0, i]) for i, j in enumerate(chosen) if j < 3]
        return int(sum((a != b).sum() for a, b in pairs)), 6 * len(pairs)

    best: Sequence[int] = ()
    error = 0.1
    for _ in range(3):
        best = max(itertools.permutations(range(4), 3), key=lambda chosen: odds(error, chosen))
        wrong, compared = differing(best)
        error = (2 + wrong) / (20 + compared)
    assert odds(error, place) == pytest.approx(odds(error, best))


def test_joint_matching_is_the_mean_of_the_rounds_by_backpropagation() -> None:
    scenes = [scene("softmax", 3, (12, 4), records=4, seed=seed) for seed in (0, 1, 2)]
    _, rows, labels = scenes[0]
    views = [view for view, _, _ in scenes]
    joint = JointEngine([match(view, Cosine()) for view in views])
    loss, derivative = joint(rows, labels)
    each = [matching("cosine", view.model, view.gradient, rows, labels) for view in views]
    torch.testing.assert_close(loss, torch.stack([one for one, _ in each]).mean(0))
    torch.testing.assert_close(derivative, torch.stack([one for _, one in each]).mean(0), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(joint.loss(rows, labels), loss)


GERMAN = load("german")
ENCODER = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
MODELS = [nn3(GERMAN.schema, seed=seed) for seed in range(3)]
# Small steps: what differs in the last place stays small.
ATTACK = reconstruction("default", restarts=4, iterations=100, step=0.06, schedule="constant")


def of_german(records: int) -> Knowledge:
    return Knowledge(GERMAN.schema, GERMAN.statistics, records)


def share_right(guess: RecordsGuess, secret: RecordsSecret) -> float:
    return float(match_records(GERMAN.schema, GERMAN.statistics, secret, guess).right.double().mean())


@pytest.mark.long
def test_the_same_batch_in_several_rounds_is_read_better_than_in_one() -> None:
    ran = FedSGD(8).run_rounds(MODELS, GERMAN.train, ENCODER, [1, 2])
    alone = ATTACK(ran.view.rounds[0], of_german(8), [3, 4])
    attack = OverRounds(ATTACK)
    first = attack(RoundsView(ran.view.rounds[:1], 8), of_german(8), [3, 4])
    assert_guessed_alike(first.cells, alone.cells)
    assert first.loss is not None
    assert alone.loss is not None
    torch.testing.assert_close(first.loss, alone.loss, rtol=1e-3, atol=1e-6)
    reported: list[float] = []
    joint = attack(ran.view, of_german(8), [3, 4], reported.append)
    assert sum(reported) == pytest.approx(1)
    again = attack(ran.view.of(slice(1, 2)), of_german(8), [4])
    assert_guessed_alike(again.cells[0], joint.cells[1])
    assert share_right(joint, ran.secret) > share_right(alone, ran.secret) + 0.01
    # At the truth every round is matched.
    truth = JointEngine([match(view, Cosine()) for view in ran.view.rounds if isinstance(view, GradientView)])
    loss = truth.loss(ENCODER.encode(ran.secret.cells)[:, None], ran.secret.labels)
    assert float(loss.abs().max()) < 1e-5


def test_records_drawn_anew_add_up_round_by_round() -> None:
    ran = FedSGD(1, holds=6).run_rounds([MODELS[0]] * 12, GERMAN.train, ENCODER, [5, 6])
    assert ran.secret.used is not None
    attack = OverRounds(SingleActivation())
    leaked = []
    for rounds in (1, 4, 12):
        guess = attack(RoundsView(ran.view.rounds[:rounds], 1), of_german(6), [0, 0])
        whole = match_records(GERMAN.schema, GERMAN.statistics, ran.secret, guess).right.all(-1)
        # A single record is read exactly, so each that took part leaks, and no other.
        for v in range(2):
            assert set(whole[v].nonzero()[:, 0].tolist()) == set(ran.secret.used[v, :rounds].flatten().tolist())
        leaked.append(int(whole.sum()))
    assert leaked[0] == 2 < leaked[1] < leaked[2]


def test_labels_of_each_round_are_granted_to_it() -> None:
    asked: list[Knowledge] = []

    def attack(view: GradientView, knowledge: Knowledge, seeds: Sequence[int]) -> RecordsGuess:
        asked.append(knowledge)
        return RecordsGuess(torch.zeros(view.victims, knowledge.batch_size, len(GERMAN.schema.columns)).double())

    ran = FedSGD(2, holds=6).run_rounds(MODELS, GERMAN.train, ENCODER, [5])
    labels = torch.arange(6.0).double()[None]
    OverRounds(attack)(ran.view, replace(of_german(6), labels=labels), [0])
    assert [one.labels.tolist() for one in asked if one.labels is not None] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert {one.batch_size for one in asked} == {2}


def test_simulated_rounds_are_attacked_one_by_one() -> None:
    ran = FedAvg(3, epochs=2, learning_rate=0.1).run_rounds(MODELS[:2], GERMAN.train, ENCODER, [5])
    simulated = reconstruction("default", restarts=2, iterations=2, local="simulated")
    with pytest.raises(BadInputError, match="steps are met midway"):
        simulated(ran.view, of_german(3), [0])
    assert OverRounds(simulated)(ran.view, of_german(3), [0]).cells.shape[1] == 3
    midway = reconstruction("default", restarts=2, iterations=2)
    assert torch.equal(midway(ran.view, of_german(3), [0]).cells, OverRounds(midway)(ran.view, of_german(3), [0]).cells)
    with pytest.raises(BadInputError, match="these are of 3 records each"):
        midway(ran.view, of_german(6), [0])
