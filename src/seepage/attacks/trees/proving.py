"""The kernel's question about a guess of trees: sums, how they came about, and the records as a witness."""

from __future__ import annotations

import torch

from seepage import kernel
from seepage.attacks.trees.cells import Solved
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.trees import HistogramMessage, TreesKnowledge


def proof_of(message: HistogramMessage, knowledge: TreesKnowledge, clients: int, guess: Solved) -> kernel.Certified:
    """Return the certified cells of a client's records."""
    if guess.nodes is None:
        doubt = "the leaves of some records were not read"
        return kernel.nothing(len(guess.cells), len(knowledge.schema.columns), doubt)
    forest, cuts = message.forest, message.cuts
    trees = tuple(
        kernel.Grown(
            tree.left.tolist(),
            tree.right.tolist(),
            tree.column.tolist(),
            tree.condition.tolist(),
            tree.output,
            {int(node): place for place, node in enumerate(nodes)},
            torch.from_numpy(sums),
        )
        for tree, nodes, sums in zip(forest.trees, message.nodes, message.sums, strict=True)
    )
    sent = kernel.Sums(
        _columns(knowledge.schema),
        tuple(tuple(cuts.values[cuts.of(column)].tolist()) for column in range(cuts.columns)),
        forest.objective,
        tuple(forest.intercept.tolist()),
        forest.rounds,
        trees,
        knowledge.batch_size,
        _defense(knowledge, clients),
    )
    return kernel.certify_sums(
        sent, torch.from_numpy(guess.cells), torch.from_numpy(guess.labels), torch.from_numpy(guess.nodes)
    )


def _columns(schema: Schema) -> tuple[kernel.EncodedColumn, ...]:
    return tuple(
        kernel.EncodedColumn(column.name, (), (), tuple(column.categories))
        if isinstance(column, Discrete)
        else kernel.EncodedColumn(column.name, (), (), None, column.low, column.high, column.tolerance, column.integer)
        for column in schema.columns
    )


def _defense(knowledge: TreesKnowledge, clients: int) -> str:
    """Return the defense that changed the sums, or the rows before they were put into bins."""
    if clients > 1:
        return f"sum of {clients} clients"
    if knowledge.noise:
        return "histogram_noise"
    return "shared_cuts" if knowledge.max_bin is None else knowledge.defense.name
