"""A small vertical learning of a table whose columns depend on each other, and what an attacker may be granted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from seepage.datasets.dataset import Dataset
from seepage.models.vertical import vertical_mlp
from seepage.protocols.vertical import Rows, TrainedVertical, VerticalLearning, leak
from seepage.tabular.partition import by_names
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge


def table(rows: int = 1200, seed: int = 0) -> Dataset:
    """Return columns that share one cause with the label, and one that has nothing to do with it."""
    generator = np.random.default_rng(seed)
    cause = generator.normal(size=rows)
    frame = {
        "a": np.digitize(cause + generator.normal(size=rows), [-1, 1]),
        "b": np.digitize(cause + generator.normal(size=rows), [-1, 0, 1]),
        "n": np.clip(cause + generator.normal(size=rows), -3, 3),
        "mine": np.clip(cause + generator.normal(size=rows), -3, 3),
        "alone": generator.integers(0, 3, size=rows),
        "t": (cause + generator.normal(size=rows) > 0).astype(int),
    }
    schema = Schema(
        columns=(
            Discrete(name="a", categories=(0, 1, 2)),
            Discrete(name="b", categories=(0, 1, 2, 3)),
            Continuous(name="n", low=-3, high=3, tolerance=0.3),
            Continuous(name="mine", low=-3, high=3, tolerance=0.3),
            Discrete(name="alone", categories=(0, 1, 2)),
        ),
        target=Discrete(name="t", categories=(0, 1)),
    )
    return Dataset("made", Table(schema, pd.DataFrame(frame)), None, (), "generated", "none needed")


@dataclass(frozen=True)
class Setting:
    """One trained federation and the records attacked."""

    data: Dataset
    protocol: VerticalLearning
    trained: TrainedVertical
    seen: FeatureTranscript
    auxiliary: Rows
    known: FeatureKnowledge

    def granted(self, queries: int = 600) -> FeatureKnowledge:
        """Return all grants, with a new channel."""
        channel = self.protocol.queries(self.trained, 1, queries, seed=0)
        held = self.protocol.auxiliary(self.trained, self.auxiliary, 1, seed=0)
        return replace(self.known, queries=channel, auxiliary=held, bottom=self.trained.model.bottoms[1])


def setting(protocol: VerticalLearning | None = None, trainings: int = 2, leaked: int = 64) -> Setting:
    """Return a federation of two parties, the passive one with the columns a, b and n."""
    protocol = protocol or VerticalLearning(epochs=15)
    data = table()
    cells, labels = data.all.cells.repeat(trainings, 1, 1), data.all.labels.repeat(trainings, 1)
    rows = Rows(cells, labels)
    split = by_names(data.schema, [(), ["a", "b", "n"]])
    model = vertical_mlp(split, list(range(trainings)), bottom=(32,), features=16, top=(16,))
    trained = protocol.train(model, rows.of(slice(0, 500)), list(range(trainings)))
    seen, held = leak(protocol.observe(trained, rows.of(slice(500, 800)), 1, seed=0), leaked)
    known = replace(protocol.knowledge(trained, 1, data.statistics), leaked=held)
    return Setting(data, protocol, trained, seen, rows.of(slice(800, 1200)), known)


def accuracy(cells: torch.Tensor, seen: FeatureTranscript) -> float:
    """Return the share of cells found: equal ones of a and b, of n those within a tenth of its range."""
    error = (cells - seen.cells).abs()
    return float((error <= torch.tensor([0.0, 0.0, 0.6]).double()).double().mean())


def sureness(guess: FeatureGuess, seen: FeatureTranscript) -> list[tuple[float, float]]:
    """Return, of a and of b, how sure a guess is on average and how often it is right."""
    assert guess.chances is not None
    found = []
    for i in (0, 1):
        chances = guess.chances[i]
        assert chances is not None
        found.append(
            (float(chances.amax(-1).mean()), float((guess.cells[..., i] == seen.cells[..., i]).double().mean()))
        )
    return found
