"""Messages of federated trees are those of xgboost: sums from which its trees follow, files as it writes them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import xgboost

from seepage.protocols.trees import (
    Boosting,
    Sums,
    bagging,
    cuts_of,
    cyclic,
    forest_of,
    grow_together,
    histograms,
    matrix,
    train_together,
)
from seepage.wire.forest import read_forest
from tests.attacks.trees.parts import Federation, people
from tests.protocols.loopback import Loopback


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_clients_of_a_single_class_grow_trees_that_are_read_again(label: float) -> None:
    rows = [np.random.default_rng(k).normal(size=(20, 3)).astype(np.float32) for k in range(2)]
    booster, _ = train_together(rows, [np.full(20, label)] * 2, Boosting("binary:logistic", 2, rounds=2, depth=2))
    assert np.isfinite(forest_of(booster).intercept).all()


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_xgboosts_trees_follow_from_the_clients_sums(classes: int) -> None:
    federation = Federation.of(people(300, classes), 100, 4)
    messages = [federation.sums((client,)) for client in range(3)]
    forest, cuts = messages[0].forest, messages[0].cuts
    penalty, eta = federation.recipe.regularisation, federation.recipe.learning_rate
    splits = 0
    for t, tree in enumerate(forest.trees):
        together = np.sum([message.sums[t] for message in messages], axis=0)
        assert tree.hessian is not None
        assert tree.weight is not None
        assert tree.gain is not None
        # One histogram for every node above the largest depth.
        assert set(messages[0].nodes[t]) == set(np.flatnonzero(tree.depth < federation.recipe.depth))
        for node, sums in zip(messages[0].nodes[t], together, strict=True):
            first, second = sums[cuts.of(0)].sum(0)
            assert second == pytest.approx(tree.hessian[node], rel=1e-5)
            leaf = tree.left[node] < 0
            weight = -first / (second + penalty)
            assert weight * (eta if leaf else 1) == pytest.approx(tree.weight[node], rel=1e-3, abs=1e-5)
            if leaf:
                continue
            here = cuts.of(int(tree.column[node]))
            [end] = np.flatnonzero(cuts.values[here] == tree.condition[node])
            left = sums[here][: end + 1].sum(0)
            right = np.array([first, second]) - left
            score = [g * g / (h + penalty) for g, h in (left, right, (first, second))]
            assert score[0] + score[1] - score[2] == pytest.approx(tree.gain[node], rel=1e-3, abs=1e-4)
            splits += 1
    assert splits > 20


@pytest.mark.long
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_trees_that_are_grown_here_without_noise_are_those_of_xgboost(classes: int) -> None:
    federation = Federation.of(people(200, classes), 100, 3)
    recipe = Boosting(federation.recipe.objective, federation.recipe.classes, 3, base_score=0.5)
    booster, _ = train_together(federation.parts, federation.labels, recipe)

    def plain(sums: Sums) -> Sums:
        return sums

    forest, message = grow_together(federation.parts, federation.labels, recipe, plain, (0,))
    rows = np.concatenate(federation.parts)
    np.testing.assert_allclose(forest.margins(rows), forest_of(booster).margins(rows), rtol=1e-4, atol=1e-4)
    # What the first client sent is what it would send for xgboost's trees.
    theirs = histograms(forest_of(booster), message.cuts, federation.parts[0], federation.labels[0], recipe.depth)
    roots = [(ours[0], sent[0]) for ours, sent in zip(message.sums, theirs.sums, strict=True)]
    for ours, sent in roots:
        np.testing.assert_allclose(ours, sent, atol=1e-3)


@pytest.mark.parametrize("protocol", [bagging, cyclic])
@pytest.mark.parametrize("classes", [2, 3])
def test_files_hold_the_sums_of_the_clients_own_rows(protocol: Any, classes: int) -> None:
    federation = Federation.of(people(180, classes), 60, 4)
    booster, messages = protocol(federation.parts, federation.labels, federation.recipe)
    rows = np.concatenate(federation.parts)
    raw = booster.predict(xgboost.DMatrix(rows), output_margin=True).reshape(len(rows), -1)
    np.testing.assert_allclose(messages[0].forest.margins(rows), raw, atol=1e-5)
    every = sorted(position for message in messages for position in message.own)
    assert every == list(range(len(messages[0].forest.trees)))
    for client, message in enumerate(messages):
        for number, position in enumerate(message.own):
            tree, start = message.forest.trees[position], message.start(number)
            held = federation.parts[client]
            gradients = start.gradients(start.margins(held), federation.labels[client])
            assert tree.hessian is not None
            for node, here in enumerate(tree.members(held)):
                own = gradients[here, tree.output, 1].astype(np.float64).sum()
                assert own == pytest.approx(tree.hessian[node], rel=1e-4, abs=1e-5)


WORKER = """
import json, sys
import numpy as np, xgboost
from xgboost import collective
rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rows = np.load(f"{folder}/rows{rank}.npy"); labels = np.load(f"{folder}/labels{rank}.npy")
given = {"dmlc_tracker_uri": "127.0.0.1", "dmlc_tracker_port": port, "dmlc_task_id": str(rank)}
with collective.CommunicatorContext(**given):
    matrix = xgboost.QuantileDMatrix(rows, label=labels, max_bin=256, nthread=1)
    parameters = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6, "nthread": 1}
    booster = xgboost.train(parameters, matrix, 3)
    booster.save_model(f"{folder}/model{rank}.json")
    start, values = matrix.get_quantile_cut()
    np.save(f"{folder}/start{rank}.npy", start); np.save(f"{folder}/values{rank}.npy", values)
"""


class Trained(NamedTuple):
    """What two workers left behind, and what they sent; None where this machine lets nobody listen."""

    folder: Path
    federation: Federation
    streams: list[bytes] | None


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder, federation = tmp_path_factory.mktemp("workers"), Federation.of(people(200, incomes=90), 100, 3)
    for rank in range(2):
        np.save(folder / f"rows{rank}.npy", federation.parts[rank])
        np.save(folder / f"labels{rank}.npy", federation.labels[rank])
    with ExitStack() as stack:
        try:
            loopback = stack.enter_context(Loopback())
        except (PermissionError, AttributeError):
            loopback = None
        tracker = xgboost.tracker.RabitTracker(2, "127.0.0.1")
        tracker.start()
        port = tracker.worker_args()["dmlc_tracker_port"]
        workers = [
            subprocess.Popen([sys.executable, "-c", WORKER, str(rank), str(port), str(folder)]) for rank in range(2)
        ]
        assert [worker.wait(60) for worker in workers] == [0, 0]
        tracker.wait_for(10)
    return Trained(folder, federation, None if loopback is None else loopback.streams)


def held(stream: bytes, values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Return whether bytes hold numbers of double precision one after the other, at any place."""
    for start in range(8):
        numbers = np.frombuffer(stream[start : start + (len(stream) - start) // 8 * 8])
        if len(numbers) < len(values):
            continue
        windows = np.lib.stride_tricks.sliding_window_view(numbers, len(values))
        with np.errstate(all="ignore"):
            places = np.flatnonzero(np.isclose(windows[:, :8], values[:8], rtol=1e-5, atol=1e-6).all(1))
            if any(np.allclose(windows[place], values, rtol=1e-5, atol=1e-6) for place in places):
                return True
    return False


@pytest.mark.long
def test_two_workers_over_the_network_send_the_sums_of_the_simulated_clients(trained: Trained) -> None:
    if trained.streams is None:
        pytest.skip("listening on the loopback interface is not allowed here")
    for client in range(2):
        root = trained.federation.sums((client,)).sums[0][0].ravel()
        # Each worker sends one half of its sums as they are. To the other half, which it is sent, it adds its own.
        halves = [root[: len(root) // 2], root[len(root) // 2 :]]
        assert sum(held(stream, half) for half in halves for stream in trained.streams) == 1


def test_two_workers_over_the_network_grow_the_trees_of_the_simulated_federation(trained: Trained) -> None:
    tmp_path, federation, _ = trained
    texts = [(tmp_path / f"model{rank}.json").read_bytes() for rank in range(2)]
    assert texts[0] == texts[1]
    # With fewer values than bins the merged sketch has every value, as that of all rows at once.
    cuts = cuts_of(matrix(np.concatenate(federation.parts), np.concatenate(federation.labels), federation.recipe))
    start, values = np.load(tmp_path / "start0.npy").astype(int), np.load(tmp_path / "values0.npy")
    np.testing.assert_array_equal(np.delete(values, start[:-1]), cuts.values)
    theirs, ours = read_forest(texts[0]), federation.sums().forest
    for one, other in zip(theirs.trees, ours.trees, strict=True):
        np.testing.assert_array_equal(one.column, other.column)
        np.testing.assert_array_equal(one.left, other.left)
        assert one.hessian is not None
        assert other.hessian is not None
        # Sums of both workers are added in another order.
        np.testing.assert_allclose(one.hessian, other.hessian, rtol=1e-5)
        np.testing.assert_allclose(one.condition, other.condition, rtol=1e-4, atol=1e-6)
