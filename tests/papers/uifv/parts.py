"""Small images."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seepage.datasets.dataset import Dataset
from seepage.papers.uifv.layout import ImageHalves
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table


def images(rows: int = 160, seed: int = 0) -> Dataset:
    """Return images of 8 by 16 places whose colours drift from a corner that tells the class, in three classes."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(0, 3, size=rows)
    high, wide = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 16), indexing="ij")
    slopes = generator.uniform(-1, 1, size=(rows, 3, 2))
    colours = 128 + 60 * (slopes[..., :1, None] * high + slopes[..., 1:, None] * wide)
    colours[np.arange(rows), kinds] += 60
    pixels = np.clip(colours, 0, 255).round().astype(np.uint8).reshape(rows, -1)
    schema = Schema(
        columns=tuple(Continuous(name=f"p{i}", low=0, high=255, tolerance=20, integer=True) for i in range(384)),
        target=Discrete(name="kind", categories=("red", "green", "blue")),
    )
    frame = pd.DataFrame(pixels, columns=list(schema.names)).assign(kind=np.array(["red", "green", "blue"])[kinds])
    return Dataset("gradients", Table(schema, frame), None, (), "generated", "none needed", ImageHalves((3, 8, 16)))
