"""Label inference from the rows of nodes, which a passive party of boosted trees over columns is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from sklearn.cluster import KMeans

from seepage.attacks.labels.heads import by_heads
from seepage.attacks.labels.scores import classes_of
from seepage.registry import Traits, attacks
from seepage.wire.labels import LabelGuess, LabelKnowledge
from seepage.wire.secureboost import NodesView

# Known labels that the bet on the rarer label outvotes.
_BET = 2


@attacks.register("node_heads", "trees", needs=("labels",))
@dataclass(frozen=True)
class NodeHeads:
    """Fits several heads to a few known labels, on the nodes of the trees that each row is in.

    Source: our own. Trees are grown so that rows of a leaf have like labels, so that rows which share nodes with known
    ones share their labels. Heads are those of ``label_heads``; inputs are the nodes, alone and with the own columns.
    """

    def __call__(self, view: NodesView, knowledge: LabelKnowledge, seeds: Sequence[int]) -> LabelGuess:
        """Return the guess; ``seeds`` are those of each training's heads."""
        nodes = view.nodes.double()
        inputs = {"nodes": nodes, "nodes and columns": torch.cat([nodes, view.own.double()], dim=-1)}
        return by_heads(inputs, knowledge, seeds, "label inference from nodes")


@attacks.register("node_clusters", "trees", traits=Traits(classes=True))
@dataclass(frozen=True)
class NodeClusters:
    """Groups rows by the nodes that they share; known labels, where there are any, do no more than name the groups.

    Source: after Takahashi et al. (arXiv 2307.10318), who find communities of rows that share nodes. Deviations:
    groups are those of the first axes of a correspondence analysis of rows and nodes, and the public shares of the
    labels say how many rows each has. The trees are the same where two labels change places. So the end of the axis for
    the rarer one is a bet on the rows that are in the smallest nodes of the first two trees, which outvotes two known
    labels: trees cut small nodes where labels are mixed, and leave large ones where the frequent label is alone.
    """

    def __call__(self, view: NodesView, knowledge: LabelKnowledge, seeds: Sequence[int]) -> LabelGuess:
        """Return the guess; by a training's seed its groups start. Labels that are no classes are refused."""
        width = classes_of(knowledge, "label inference by groups of nodes")
        shares = torch.zeros(width, dtype=torch.float64)
        shares[knowledge.marginal.values.long()] = knowledge.marginal.probabilities
        first = torch.isin(view.trees, view.trees.unique()[:2]).numpy()
        guesses = []
        for k, (nodes, seed) in enumerate(zip(view.nodes, seeds, strict=True)):
            known = np.full(view.records, -1)
            if knowledge.known is not None and knowledge.labels is not None:
                known[knowledge.known[k].numpy()] = knowledge.labels[k].long().numpy()
            guesses.append(_grouped(nodes.numpy().astype(np.float64), first, shares.numpy(), known, seed))
        chances = torch.from_numpy(np.stack(guesses))
        return LabelGuess(chances.argmax(-1).double(), chances)


def _grouped(nodes: np.ndarray, first: np.ndarray, shares: np.ndarray, known: np.ndarray, seed: int) -> np.ndarray:
    """Return chances of each label; of two labels only their order means anything. Unknown labels are -1."""
    rows, names = len(nodes), np.eye(len(shares))
    frequent = np.argsort(-shares)[: int((shares > 0).sum())]
    width = len(frequent)
    if width < 2 or min(nodes.shape) <= width:
        return np.tile(names[frequent[0]], (rows, 1))
    axes = _axes(nodes, width - 1, seed)
    if width > 2:
        groups = KMeans(width, n_init="auto", random_state=seed % 2**32).fit_predict(axes)
        sizes = np.bincount(groups, minlength=width) / rows
        # Groups are named by the known labels in them; by their sizes where these say nothing.
        named = np.stack([np.bincount(groups[known == label], minlength=width) for label in frequent], axis=1)
        _, place = linear_sum_assignment(np.abs(sizes[:, None] - shares[frequent]) - named)
        return names[frequent[place][groups]]
    share = float(shares[frequent[1]])
    likelier = _small_nodes(axes[:, 0], nodes[:, first]) * axes[:, 0]
    # The bet and known labels on the right side of the cut vote for an end.
    votes = [
        int(((side > np.quantile(side, 1 - share)) == (known == frequent[1]))[known >= 0].sum())
        for side in (likelier, -likelier)
    ]
    axis = likelier if votes[0] + _BET >= votes[1] else -likelier
    place = (axis.argsort().argsort() + 0.5) / rows
    # The cut between the labels lies at the public share of the more frequent one.
    chance = np.interp(place, [0.0, float(shares[frequent[0]]), 1.0], [0.0, 0.5, 1.0])
    return np.outer(1 - chance, names[frequent[0]]) + np.outer(chance, names[frequent[1]])


def _small_nodes(axis: np.ndarray, nodes: np.ndarray) -> float:
    """Return the sign of the end of an axis whose rows are in the smallest nodes."""
    smallest = np.where(nodes > 0, nodes.sum(axis=0), len(nodes)).min(axis=1, initial=len(nodes))
    return 1.0 if np.dot(axis, np.log(smallest)) <= 0 else -1.0


def _axes(nodes: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the first axes of a correspondence analysis for each row, each of mean 0 over rows."""
    weights = np.sqrt(np.maximum(nodes.sum(axis=0), 1.0))
    degrees = np.sqrt(np.maximum(nodes.sum(axis=1), 1.0))
    scaled = csr_array(nodes / weights / degrees[:, None])
    start = np.random.default_rng(seed).normal(size=min(nodes.shape))
    # The first axis says only how many nodes a row is in.
    left, sizes, _ = svds(scaled, k=count + 1, v0=start)
    assert left is not None
    axes = left[:, np.argsort(-sizes)[1:]] / degrees[:, None]
    return (axes - axes.mean(axis=0)) / np.maximum(axes.std(axis=0), 1e-12)
