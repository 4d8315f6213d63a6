"""Stacked graph networks against one at a time with dense matrices and autograd."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from torch import Tensor

from seepage.errors import BadInputError
from seepage.shadow.graph import Convolutional, Graph


def ring(nodes: int = 60) -> tuple[Graph, Tensor]:
    """Two groups with words of their own; friends are mostly of the same group."""
    rng = np.random.default_rng(0)
    group = np.arange(nodes) % 2
    words = (rng.random((nodes, 8)) < np.where(group[:, None] == np.arange(8) % 2, 0.6, 0.2)).astype(np.float32)
    pairs = rng.integers(nodes, size=(3 * nodes, 2))
    pairs = pairs[(group[pairs[:, 0]] == group[pairs[:, 1]]) | (rng.random(len(pairs)) < 0.1)]
    return Graph.of(words, pairs), torch.from_numpy(group)


def naive(recipe: Convolutional, nodes: np.ndarray, labels: Tensor, seed: int, asked: np.ndarray) -> Tensor:
    """Train one model with dense matrices and autograd; return its answers."""

    def dense(held: np.ndarray) -> tuple[Tensor, Tensor]:
        adjacency = torch.from_numpy(recipe.graph.edges.toarray())[held][:, held] + torch.eye(len(held))
        degree = adjacency.sum(1)
        return torch.from_numpy(recipe.graph.features.toarray())[held], adjacency / (degree[:, None] * degree).sqrt()

    weights = [part[0].clone().requires_grad_() for part in recipe.initial([seed]).parameters]

    def forward(held: np.ndarray) -> Tensor:
        features, propagation = dense(held)
        hidden = (propagation @ (features @ weights[0]) + weights[1]).relu()
        return propagation @ (hidden @ weights[2]) + weights[3]

    optimiser = torch.optim.Adam(weights, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    for _ in range(recipe.epochs):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(forward(nodes), labels[nodes]).backward()
        optimiser.step()
    return torch.softmax(forward(asked), dim=1).detach()


def test_all_models_are_what_each_is_alone() -> None:
    graph, labels = ring()
    recipe = Convolutional(2, graph, hidden=4, epochs=30)
    chosen = torch.stack([torch.randperm(40, generator=torch.Generator().manual_seed(k))[:30] for k in range(3)])
    asked = np.arange(40, 60)
    nodes = torch.arange(60)[:, None]
    models = recipe.train(nodes, labels, chosen, [5, 6, 7])
    found = models.answers(nodes[asked])
    for k, seed in enumerate((5, 6, 7)):
        torch.testing.assert_close(
            found[k], naive(recipe, chosen[k].numpy(), labels, seed, asked), rtol=1e-3, atol=1e-4
        )


def test_groups_are_learnt_and_parts_of_the_stack_answer_alike() -> None:
    graph, labels = ring(200)
    nodes = torch.arange(200)[:, None]
    models = Convolutional(2, graph).train(nodes, labels, torch.arange(120).expand(2, 120), [0, 1])
    answers = models.answers(nodes[120:])
    assert ((answers.argmax(2) == labels[120:]).double().mean(1) > 0.8).all()
    torch.testing.assert_close(models.of(slice(1, 2)).answers(nodes[120:])[0], answers[1])


@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="PyTorch Geometric is not installed")
def test_the_layer_is_that_of_pytorch_geometric() -> None:
    layers = pytest.importorskip("torch_geometric.nn")
    graph, _ = ring()
    recipe = Convolutional(2, graph, hidden=4)
    models = recipe.initial([0])
    first, second = layers.GCNConv(8, 4), layers.GCNConv(4, 2)
    first.lin.weight.data, second.lin.weight.data = models.first[0].T.clone(), models.second[0].T.clone()
    edges = torch.from_numpy(np.stack(graph.edges.nonzero()).astype(np.int64))
    features = torch.from_numpy(graph.features.toarray())
    expected = torch.softmax(second(first(features, edges).relu(), edges), dim=1)
    torch.testing.assert_close(models.answers(torch.arange(60)[:, None])[0], expected.detach(), rtol=1e-4, atol=1e-5)


def test_bad_graphs_are_refused() -> None:
    with pytest.raises(BadInputError, match="nodes 0 to 2"):
        Graph.of(np.eye(3), np.array([[0, 3]]))
    graph, labels = ring()
    with pytest.raises(BadInputError, match="nodes are numbers"):
        Convolutional(2, graph, epochs=1).train(torch.arange(1, 61)[:, None], labels, torch.arange(60)[None], [0])
