"""What the attacker is granted beyond what crosses the wire; printed with every result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from jaxtyping import Float
from torch import Tensor

from seepage.models.batch_norm import Moments
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics


@dataclass(frozen=True)
class KnownDefense:
    """What an adaptive attacker knows of the defense in front of it: its mechanism, not its random numbers.

    The last five say what the messages went through, so that an attack need know no defense by name.

    Attributes:
        name: registered name, ``none`` for updates sent as they are.
        arguments: of the defense.
        noise: standard deviation of independent normal noise on every entry.
        norm: bound that longer updates were scaled down to; None without one.
        record_norm: bound that the longer ones of single records' gradients were scaled down to; None without one.
        kept: share of the entries that were sent, the largest ones; the others are zero.
        signs: whether entries lost their magnitude.

    Example:
        >>> KnownDefense("clipping", {"norm": 1.0}, norm=1.0).describe()
        {'name': 'clipping', 'norm': 1.0}
    """

    name: str = "none"
    arguments: Mapping[str, float | bool | str] = field(default_factory=dict)
    noise: float = 0.0
    norm: float | None = None
    record_norm: float | None = None
    kept: float = 1.0
    signs: bool = False

    def describe(self) -> dict[str, object]:
        """Return name and arguments as plain values."""
        return {"name": self.name, **self.arguments}


@dataclass(frozen=True)
class Knowledge:
    """Side information of the attacker.

    Attributes:
        schema: columns, categories, bounds.
        statistics: marginals and moments (TabLeak grants those of train and test together).
        batch_size: number of records behind each victim's update, or behind all of several rounds'.
        labels: each victim's labels (victim, record), or None: restore them. Of several rounds with other records
            each, those of the rounds one after the other.
        defense: what the updates went through before they were sent, as far as the attacker knows.
        batch_statistics: moments of what entered each batch normalisation, by its name, shape (victim, channel);
            None where they are not granted. Running statistics that a client sends give them away, see
            ``models.batch_norm.from_running``.
        ordered: whether the labels come in the order in which the client goes through its records, the same in
            every local epoch, so that the attacker knows who is in which local batch; in no particular order else.
    """

    schema: Schema
    statistics: Statistics
    batch_size: int
    labels: Float[Tensor, "victim record"] | None = None
    defense: KnownDefense = field(default_factory=KnownDefense)
    batch_statistics: Mapping[str, Moments] | None = None
    ordered: bool = False

    def of(self, victims: slice) -> Knowledge:
        """Return what is known of some of the victims."""
        statistics = self.batch_statistics
        if statistics is not None:
            statistics = {name: Moments(m.mean[victims], m.variance[victims]) for name, m in statistics.items()}
        labels = None if self.labels is None else self.labels[victims]
        return replace(self, labels=labels, batch_statistics=statistics)

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        told: dict[str, object] = {
            "schema": "columns, categories and bounds",
            "statistics": "marginals, means and standard deviations of every column",
            "batch_size": self.batch_size,
            "labels": "restored" if self.labels is None else "ordered" if self.ordered else "true",
            "defense": self.defense.describe(),
        }
        if self.batch_statistics is not None:
            told["batch_statistics"] = "mean and variance of each batch where it is normalised"
        return told


@dataclass(frozen=True)
class KnownCut:
    """What an adaptive attacker knows of what clients of split learning do to gradients and labels.

    Attributes:
        noise_multiplier: standard deviation of the noise on every entry of a record's gradient, in units of the
            bound on its norm.
        clips: whether records' gradients are clipped; the bound is in the view.
        own_norm: whether each record's bound is half of its own gradient's norm.
        flip: chance of a label to be exchanged for another one, drawn once a record.
    """

    noise_multiplier: float = 0.0
    clips: bool = False
    own_norm: bool = False
    flip: float = 0.0

    def describe(self) -> dict[str, object]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Auxiliary:
    """Rows of the same kind that the attacker holds whole, such as from an earlier leak or a public survey.

    Attributes:
        cells: all columns of the schema, as a table holds them.
        labels: class codes.
    """

    cells: Float[Tensor, "row column"]
    labels: Float[Tensor, " row"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class CutKnowledge:
    """Side information of the server in split learning.

    Attributes:
        schema: columns, categories, bounds.
        statistics: marginals of columns and labels.
        defense: what clients do to gradients and labels.
        auxiliary: rows that it holds whole; None where it has none.
    """

    schema: Schema
    statistics: Statistics
    defense: KnownCut = field(default_factory=KnownCut)
    auxiliary: Auxiliary | None = None

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "schema": "columns, categories and bounds",
            "statistics": "marginals of every column and of the label",
            "defense": self.defense.describe(),
            "auxiliary": 0 if self.auxiliary is None else len(self.auxiliary),
        }
