"""Labels from the rows of nodes: planted nodes of like labels are read, with known labels and with none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.attacks.labels import NodeClusters, NodeHeads
from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete
from seepage.tabular.statistics import Marginal
from seepage.wire.labels import LabelKnowledge
from seepage.wire.secureboost import NodesView

RECORDS, KNOWN = 120, 24


def planted(classes: int, pure: float = 0.97) -> tuple[NodesView, torch.Tensor]:
    """Nodes of six trees, in which a row is in a node of its label with a probability, else in any."""
    draw = torch.Generator().manual_seed(classes)
    # The last label is the rarest; the first rows have all of them.
    labels = (torch.arange(RECORDS) % (2 * classes - 1)).clamp(max=classes * 2 - 2) // 2
    columns, trees = [], []
    for tree in range(6):
        strays = torch.rand(RECORDS, generator=draw) > pure
        of_row = torch.where(strays, torch.randint(0, 2 * classes, (RECORDS,), generator=draw), 2 * labels)
        of_row = torch.where(strays, of_row, of_row + torch.randint(0, 2, (RECORDS,), generator=draw))
        columns += [of_row == node for node in range(2 * classes)]
        trees += [tree] * 2 * classes
    return NodesView(torch.stack(columns, 1)[None], torch.tensor(trees), torch.zeros(1, RECORDS, 1)), labels.double()


def knows(labels: torch.Tensor, known: int, classes: int) -> LabelKnowledge:
    target = Discrete(name="y", categories=tuple(range(classes)))
    shares = torch.bincount(labels.long(), minlength=classes).double() / len(labels)
    marginal = Marginal(torch.arange(classes).double(), shares, 0.0, float(shares.max()), 0.0)
    return LabelKnowledge(target, marginal, torch.arange(known)[None], labels[None, :known])


def score(guess: torch.Tensor, labels: torch.Tensor) -> float:
    return float((guess[0] == labels).double()[KNOWN:].mean())


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 3])
def test_rows_that_share_nodes_share_their_label(classes: int) -> None:
    view, labels = planted(classes)
    knowledge = knows(labels, KNOWN, classes)
    for attack in (NodeHeads(), NodeClusters()):
        assert score(attack(view, knowledge, [0]).labels, labels) > 0.9
    # The groups themselves need no label; of two, the rarer one is in the smaller nodes, and two labels that are known
    # wrongly do not outvote that.
    if classes == 2:
        assert score(NodeClusters()(view, knows(labels, 0, 2), [0]).labels, labels) > 0.9
        wrong = replace(knows(labels, 2, 2), labels=1 - labels[None, :2])
        assert score(NodeClusters()(view, wrong, [0]).labels, labels) > 0.9
    guess = NodeClusters()(view, knows(labels, 0, classes), [0]).labels[0]
    groups = {
        tuple(guess[labels == label].unique().tolist()) for label in range(classes) if pure_in(guess, labels, label)
    }
    assert len(groups) == classes


def pure_in(guess: torch.Tensor, labels: torch.Tensor, label: int) -> bool:
    inside = guess[labels == label]
    return bool((inside == inside.mode().values).double().mean() > 0.85)


@pytest.mark.long
def test_nodes_of_other_rows_tell_nothing() -> None:
    view, labels = planted(2)
    mixed = NodesView(
        view.nodes[:, torch.randperm(RECORDS, generator=torch.Generator().manual_seed(0))], view.trees, view.own
    )
    for attack in (NodeHeads(), NodeClusters()):
        assert score(attack(mixed, knows(labels, KNOWN, 2), [0]).labels, labels) < 0.8


def test_without_nodes_the_most_frequent_label_is_guessed() -> None:
    _, labels = planted(2)
    nothing = NodesView(
        torch.zeros(1, RECORDS, 0, dtype=torch.bool), torch.zeros(0, dtype=torch.int64), torch.zeros(1, RECORDS, 1)
    )
    assert set(NodeClusters()(nothing, knows(labels, 0, 2), [0]).labels[0].tolist()) == {0.0}


def test_numbers_are_no_classes_and_heads_need_labels() -> None:
    view, labels = planted(2)
    numbers = LabelKnowledge(Continuous(name="y", low=0, high=1, tolerance=0.1), knows(labels, 0, 2).marginal)
    with pytest.raises(BadInputError, match="is a number"):
        NodeClusters()(view, numbers, [0])
    with pytest.raises(BadInputError, match="known labels"):
        NodeHeads()(view, numbers, [0])
