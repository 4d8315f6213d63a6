"""Defenses of federated boosted trees: coarser bins, larger leaves, noise on sums, what is not sent or in no order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Float, Float32

from seepage.defenses.accounting import Guarantee, gaussian_guarantee
from seepage.errors import BadInputError, check_count, positive
from seepage.registry import ActsOn, defenses
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics

Field = Literal["sum_hessian", "base_weights", "loss_changes"]


@defenses.register("strip_fields", "trees")
@dataclass(frozen=True)
class StripFields:
    """Tree files are sent without fields that a model needs not to predict.

    NVFlare masks ``sum_hessian`` since version 2.7; ``base_weights`` and ``loss_changes`` give it back, see the attack
    ``hessians``.

    Attributes:
        fields: names of the fields in xgboost's JSON; all three if empty.

    Raises:
        BadInputError: a name is none of them.

    Example:
        >>> StripFields(("sum_hessian",)).hidden
        ('sum_hessian',)
    """

    words: ClassVar[str] = "files without needless fields"
    acts_on: ClassVar[ActsOn] = "tree files"

    fields: tuple[Field, ...] | list[Field] | Field = ()

    def __post_init__(self) -> None:
        for name in self.hidden:
            if name not in get_args(Field):
                raise BadInputError(
                    f"fields of tree files that may be left out are {', '.join(get_args(Field))}; got {name!r}."
                )

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the fields that are not sent."""
        names = (self.fields,) if isinstance(self.fields, str) else tuple(self.fields)
        return names or get_args(Field)


@defenses.register("min_child_weight", "trees")
@dataclass(frozen=True)
class MinChildWeight:
    """Leaves hold at least this sum of second derivatives, so that trees single out fewer records.

    Attributes:
        weight: least sum; a record adds at most 0.25 with two classes.

    Raises:
        BadInputError: the weight is no number above 0.
    """

    words: ClassVar[str] = "larger leaves, of weight {weight}"
    acts_on: ClassVar[ActsOn] = "splits"

    weight: float | int = 5

    def __post_init__(self) -> None:
        positive("weight", self.weight)


@defenses.register("max_bin", "trees")
@dataclass(frozen=True)
class MaxBin:
    """Columns have fewer bins, so that more records share one.

    Attributes:
        bins: largest number of bins of a column.

    Raises:
        BadInputError: the number is no whole number from 2 up.
    """

    words: ClassVar[str] = "fewer bins, {bins} a column"
    acts_on: ClassVar[ActsOn] = "bins"

    bins: int = 16

    def __post_init__(self) -> None:
        _check_bins(self.bins)


@defenses.register("shared_cuts", "trees")
@dataclass(frozen=True)
class SharedCuts:
    """Numbers are rounded down to ends of bins that follow from the public marginals, before anything is trained.

    No sketch of a client's values is sent, and thresholds of its trees are no values of its rows.

    Attributes:
        bins: number of bins of a column, each with about the same share of the public values.

    Raises:
        BadInputError: the number is no whole number from 2 up.
    """

    words: ClassVar[str] = "numbers rounded to public bins"
    acts_on: ClassVar[ActsOn] = "bins"

    bins: int = 32

    def __post_init__(self) -> None:
        _check_bins(self.bins)

    def rounded(
        self, schema: Schema, statistics: Statistics, rows: Float32[np.ndarray, "row encoded"]
    ) -> Float32[np.ndarray, "row encoded"]:
        """Return encoded rows with each number at the lower end of its bin."""
        encoded = rows.copy()
        for column, block, marginal in zip(schema.columns, schema.blocks, statistics.marginals, strict=True):
            if isinstance(column, Discrete):
                continue
            shares = np.cumsum(marginal.probabilities.numpy())
            levels = np.searchsorted(shares, np.arange(1, self.bins) / self.bins)
            inner = marginal.values.numpy()[np.minimum(levels, len(marginal.values) - 1)]
            ends = np.unique(np.concatenate([[column.low], inner])).astype(np.float32)
            place = np.searchsorted(ends, rows[:, block.start], side="right") - 1
            encoded[:, block.start] = ends[np.maximum(place, 0)]
        return encoded


@defenses.register("histogram_noise", "trees")
@dataclass(frozen=True)
class HistogramNoise:
    """Each client adds normal noise to every sum that it sends.

    Attributes:
        deviation: standard deviation of the noise; a record adds at most 1 to a sum with two classes.

    Raises:
        BadInputError: the deviation is no number above 0.

    Example:
        >>> HistogramNoise(10.0).guarantee(trees=10, columns=20, depth=3, outputs=1, delta=1e-5).epsilon > 1
        True
    """

    words: ClassVar[str] = "noise of standard deviation {deviation} on every sum"
    acts_on: ClassVar[ActsOn] = "sums of derivatives"

    deviation: float | int

    def __post_init__(self) -> None:
        positive("deviation", self.deviation)

    def __call__(
        self, sums: Float[np.ndarray, "*shape"], generator: np.random.Generator
    ) -> Float[np.ndarray, "*shape"]:
        """Return sums with noise."""
        noisy: Float[np.ndarray, "*shape"] = sums + generator.normal(0.0, self.deviation, sums.shape)
        return noisy

    def guarantee(self, trees: int, columns: int, depth: int, outputs: int | None, delta: float) -> Guarantee | None:
        """Return the guarantee for single records; None for a regression, whose derivatives have no bound.

        A record is in one bin of each encoded column, in one node of each level of a tree. Its derivatives there are at
        most 1 and 1/4 with two classes; with more, those of all classes together at most the root of 3. So its
        contribution to a round has a bounded norm, and the noise of all rounds composes.
        """
        if outputs is None:
            return None
        squared = 1 + 1 / 16 if outputs == 1 else 3.0
        sensitivity = math.sqrt(columns * depth * squared)
        return gaussian_guarantee(self.deviation / sensitivity, 1.0, trees, delta)


@defenses.register("first_trees", "trees")
@dataclass(frozen=True)
class FirstTrees:
    """The first trees over columns grow on the active party's columns alone, so that nothing of them crosses the wire.

    Source: Cheng et al., SecureBoost (arXiv 1901.08755), the variant with reduced leakage, for one tree. FATE calls it
    ``complete_secure``, SecretFlow ``first_tree_with_label_holder_feature``.

    Attributes:
        rounds: number of boosting rounds without the passive party.

    Raises:
        BadInputError: the number is below 1.
    """

    words: ClassVar[str] = "first {rounds} rounds without the passive party"
    acts_on: ClassVar[ActsOn] = "first trees"

    rounds: int = 1

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)


@defenses.register("shuffled_bins", "trees")
@dataclass(frozen=True)
class ShuffledBins:
    """A passive party numbers the bins of each of its columns at random, once for all trees or anew in every node.

    FATE and SecretFlow draw new numbers for every node; FATE also mixes the bins of all columns.

    Attributes:
        renumbered: whether bins get new numbers in every node.
    """

    renumbered: bool = False
    words: ClassVar[str] = "bins in random order"
    acts_on: ClassVar[ActsOn] = "order of bins"


def _check_bins(bins: int) -> None:
    check_count("bins", bins)
    if bins < 2:
        raise BadInputError(f"a column has at least 2 bins, got bins={bins}.")
