"""Encoder from rows to the standardised vectors that a network receives, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics


@dataclass(frozen=True)
class Scaling:
    """Shift and divisor of each encoded column, where these are not its mean and standard deviation."""

    mean: Float[Tensor, " encoded"]
    std: Float[Tensor, " encoded"]


def to_bounds(schema: Schema) -> Scaling:
    """Return the scale on which numbers lie from -1 to 1 between their bounds and one-hot columns stay 0 and 1."""
    mean, std = torch.zeros(schema.width, dtype=torch.float64), torch.ones(schema.width, dtype=torch.float64)
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        if not isinstance(column, Discrete):
            mean[block] = column.low / 2 + column.high / 2
            std[block] = (column.high / 2 - column.low / 2) or 1.0
    return Scaling(mean, std)


class Encoder:
    """One-hot encoding and standardisation of every encoded column, invertible.

    Columns keep the schema's order; each discrete column, binary ones included, takes one encoded column a category;
    then all encoded columns, one-hot ones included, are standardised (TabLeak section 3.1 as its official code does
    it).

    All methods accept any leading axes and are differentiable where the map itself is. In float64, ``decode`` after
    ``encode`` gives discrete and integer cells back exactly, others to within a few roundings of the column's largest
    size (in float32 to within 1e-6 of its spread). Cells are always float64.

    Args:
        statistics: public moments used to standardise, or another scale, see ``to_bounds``.

    Attributes:
        mean, std, low, high: moments and standardised bounds of each encoded column, shape (encoded,).
        groups: 1 where an encoded column belongs to a column, else 0, shape (encoded, column).
        is_continuous: whether each encoded column is a number, shape (encoded,).
        categories: encoded columns of the discrete columns, a tensor of shape (category, column) for each number of
            categories.

    Raises:
        BadInputError: the statistics are of another schema, or do not fit into ``dtype``.

    Example:
        >>> from seepage.datasets.planted import distinct
        >>> data = distinct(rows=8)
        >>> encoder = Encoder(data.schema, data.statistics)
        >>> torch.equal(encoder.decode(encoder.encode(data.train.cells)), data.train.cells)
        True
    """

    def __init__(
        self,
        schema: Schema,
        statistics: Statistics | Scaling,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        if len(statistics.mean) != schema.width:
            raise BadInputError(
                f"the schema takes {schema.width} encoded columns, the statistics describe {len(statistics.mean)}; "
                "measure them on a table of the same schema."
            )
        self.schema = schema
        self.width = schema.width
        self.mean = statistics.mean.to(device=device, dtype=dtype)
        self.std = statistics.std.to(device=device, dtype=dtype)
        self._cell_mean = statistics.mean.to(device)
        self._cell_std = statistics.std.to(device)
        # One column of `groups` a schema column, 1 where an encoded column belongs to it.
        self.groups = torch.zeros(self.width, len(schema.columns), dtype=dtype, device=device)
        low = torch.zeros(self.width, dtype=torch.float64)
        high = torch.ones(self.width, dtype=torch.float64)
        self.is_continuous = torch.zeros(self.width, dtype=torch.bool, device=device)
        for i, (column, block) in enumerate(zip(schema.columns, schema.blocks, strict=True)):
            self.groups[block, i] = 1
            if not isinstance(column, Discrete):
                low[block], high[block] = column.low, column.high
                self.is_continuous[block] = True
        self.categories = _categories(schema, device)
        self.low = ((low - statistics.mean) / statistics.std).to(device=device, dtype=dtype)
        self.high = ((high - statistics.mean) / statistics.std).to(device=device, dtype=dtype)
        valid = torch.stack([self.mean, self.std, self.low, self.high]).isfinite().all(0) & (self.std > 0)
        for column, block in zip(schema.columns, schema.blocks, strict=True):
            if not valid[block].all():
                raise BadInputError(
                    f"column {column.name!r} cannot be standardised in {dtype}: its mean is "
                    f"{float(statistics.mean[block.start]):g}, its standard deviation "
                    f"{float(statistics.std[block.start]):g} and its bounds are [{float(low[block.start]):g}, "
                    f"{float(high[block.start]):g}]; narrow the bounds, measure it in another unit, or use float64."
                )

    def encode(self, cells: Float[Tensor, "... record column"]) -> Float[Tensor, "... record encoded"]:
        """Return standardised one-hot rows of valid cells."""
        # No columns are no entries, as of a party that holds labels alone.
        parts = [cells[..., :0]]
        for i, column in enumerate(self.schema.columns):
            cell = cells[..., i]
            if isinstance(column, Discrete):
                parts.append(torch.nn.functional.one_hot(cell.long(), column.width).to(cells.dtype))
            else:
                parts.append(cell[..., None])
        raw = torch.cat(parts, dim=-1)
        return ((raw - self._cell_mean) / self._cell_std).to(self.mean.dtype)

    def decode(self, encoded: Float[Tensor, "... record encoded"]) -> Float[Tensor, "... record column"]:
        """Return the nearest cells: the largest entry of each group; numbers rounded where whole, within bounds."""
        raw = self.destandardise(encoded.to(self._cell_mean.dtype))
        cells = []
        for column, block in zip(self.schema.columns, self.schema.blocks, strict=True):
            if isinstance(column, Discrete):
                cells.append(raw[..., block].argmax(dim=-1).to(raw.dtype))
            else:
                value = raw[..., block.start]
                value = torch.floor(value + 0.5) if column.integer else value
                cells.append(value.clamp(column.low, column.high))
        return torch.stack(cells, dim=-1)

    def project(self, encoded: Float[Tensor, "... record encoded"]) -> Float[Tensor, "... record encoded"]:
        """Return the encoding of the nearest valid rows (``encode`` after ``decode``)."""
        return self.encode(self.decode(encoded))

    def standardise(self, raw: Float[Tensor, "... encoded"]) -> Float[Tensor, "... encoded"]:
        """Return ``(raw - mean) / std``."""
        mean, std = self._moments(raw)
        return (raw - mean) / std

    def destandardise(self, encoded: Float[Tensor, "... encoded"]) -> Float[Tensor, "... encoded"]:
        """Return ``encoded * std + mean``."""
        mean, std = self._moments(encoded)
        return encoded * std + mean

    def _moments(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return (self._cell_mean, self._cell_std) if like.dtype == torch.float64 else (self.mean, self.std)


def _categories(schema: Schema, device: torch.device | str) -> tuple[Int64[Tensor, "_category _column"], ...]:
    """Return the encoded columns of discrete columns, for each number of categories."""
    starts: dict[int, list[int]] = {}
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        if isinstance(column, Discrete):
            starts.setdefault(column.width, []).append(block.start)
    return tuple(
        torch.arange(width, device=device)[:, None] + torch.tensor(first, device=device)
        for width, first in starts.items()
    )
