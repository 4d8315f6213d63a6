"""Defenses of parties that train a joint model: fewer columns, differentially private training, a limit of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seepage.errors import BadInputError, check_count, non_negative, positive
from seepage.registry import ActsOn, defenses


@defenses.register("without_columns", "pooled")
@dataclass(frozen=True)
class WithoutColumns:
    """Models are not trained on some columns.

    Attributes:
        columns: names of columns; one name alone is one column.

    Raises:
        BadInputError: no column is named, or what came is no name.

    Example:
        >>> WithoutColumns("income").columns
        ('income',)
    """

    words: ClassVar[str] = "training without the columns {columns}"
    acts_on: ClassVar[ActsOn] = "columns"

    columns: Sequence[str]

    def __post_init__(self) -> None:
        names = (self.columns,) if isinstance(self.columns, str) else self.columns
        if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
            raise BadInputError(f"columns are names of columns, one at least, got columns={self.columns!r}.")
        object.__setattr__(self, "columns", tuple(names))


@defenses.register("dp_training", "pooled")
@dataclass(frozen=True)
class DpTraining:
    """Models are trained with DP-SGD: each row's gradient is clipped, and their sum gets normal noise.

    Source: Abadi et al., Deep Learning with Differential Privacy (CCS 2016).

    Attributes:
        clip: clipping bound, on the norm of each row's gradient.
        noise_multiplier: noise standard deviation / clipping bound; 0 clips alone.

    Raises:
        BadInputError: the bound is no positive number, or the multiplier is below 0.
    """

    words: ClassVar[str] = "training with noise of {noise_multiplier} clipping bounds"
    acts_on: ClassVar[ActsOn] = "training"

    clip: float | int
    noise_multiplier: float | int = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", positive("clip", self.clip))
        object.__setattr__(self, "noise_multiplier", non_negative("noise_multiplier", self.noise_multiplier))


@defenses.register("query_limit", "pooled")
@dataclass(frozen=True)
class QueryLimit:
    """The joint model answers a limited number of queries.

    Attributes:
        queries: number of queries that are answered.

    Raises:
        BadInputError: the number is no whole one from 1 up.
    """

    words: ClassVar[str] = "a limited number of answers, {queries}"
    acts_on: ClassVar[ActsOn] = "queries"

    queries: int

    def __post_init__(self) -> None:
        check_count("queries", self.queries)
