"""View, knowledge and guess of split learning: the server against the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage import kernel
from seepage.errors import BadInputError
from seepage.kernel import Certified
from seepage.models.batch_norm import Moments
from seepage.models.message import PLAIN, MessageForm
from seepage.models.split import SplitModel
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics


@dataclass(frozen=True)
class CutView:
    """One exchange of split learning as the server sees it: the activations that it sent, the gradients it received.

    Attributes:
        model: the server's own part, and the client's part as far as it is granted: that of this exchange, or an older
            one.
        features: cells of the server's own columns of the records, unscaled.
        gradient: gradient with respect to the activations, as received.
        behind: number of records in the loss that each record's gradient was taken of, their mean if plain.
        clip: bound on the norm of a record's own gradient in this exchange, where clients clip to an adaptive bound
            and publish it; None where there is none.
        earlier: views of the same records in other exchanges, the newest first; empty where each is seen once.
        moments: mean and variance of the records at each layer of the client's part that normalises by the batch, by
            its name, where the records are a whole batch whose running statistics before and after tell them.
    """

    model: SplitModel
    features: Float[Tensor, "record public"]
    cut: Float[Tensor, "record cut"]
    gradient: Float[Tensor, "record cut"]
    behind: Float[Tensor, " record"]
    clip: float | None = None
    earlier: tuple[CutView, ...] = ()
    moments: Mapping[str, Moments] | None = None

    @property
    def exchanges(self) -> tuple[CutView, ...]:
        """All exchanges of the records, the newest first."""
        return (self, *self.earlier)

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.cut)

    @property
    def own_gradient(self) -> Float[Tensor, "record cut"]:
        """Each record's gradient of its own loss: the division by the number of records is undone."""
        return self.gradient * self.behind[:, None].to(self.gradient)

    def of(self, chosen: slice | Tensor) -> CutView:
        """Return the view of some of the records; moments are those of all of them."""
        behind = self.behind[chosen]
        return replace(
            self,
            moments=self.moments if len(behind) == self.records else None,
            features=self.features[chosen],
            cut=self.cut[chosen],
            gradient=self.gradient[chosen],
            behind=behind,
            earlier=tuple(view.of(chosen) for view in self.earlier),
        )


@dataclass(frozen=True)
class CutRounds:
    """Messages of several rounds about records that were not all in the same ones, such as those of shuffled epochs.

    ``views`` are without earlier ones, the newest first; ``rows`` number each one's records from 0 without gaps.
    """

    views: tuple[CutView, ...]
    rows: tuple[Int[Tensor, " _record"], ...]

    @classmethod
    def of(cls, views: Sequence[CutView]) -> CutRounds:
        """Return the rounds of views of the same records, the newest first."""
        return cls(tuple(views), tuple(torch.arange(view.records) for view in views))

    @cached_property
    def records(self) -> int:
        """Number of records."""
        return 1 + max(int(rows.max()) for rows in self.rows if len(rows))

    @cached_property
    def newest(self) -> tuple[Bool[Tensor, " _record"], ...]:
        """Which of each round's records are in no newer round."""
        taken, newest = torch.zeros(self.records, dtype=torch.bool), []
        for rows in self.rows:
            newest.append(~taken[rows])
            taken[rows] = True
        return tuple(newest)

    @cached_property
    def features(self) -> Float[Tensor, "record public"]:
        """Cells of the server's own columns of all records, unscaled."""
        features = self.views[0].features.new_zeros(self.records, self.views[0].features.shape[1])
        for view, rows in zip(self.views, self.rows, strict=True):
            features[rows] = view.features
        return features


@dataclass(frozen=True)
class KnownCut:
    """The defense of split learning's clients as an adaptive attacker knows it.

    Attributes:
        noise_multiplier: noise standard deviation on every entry of a record's gradient / bound on its norm.
        clips: whether records' gradients are clipped; the bound is in the view.
        own_norm: whether each record's bound is half of its own gradient's norm.
        flip: probability that a label is exchanged for another one, drawn once a record.
        shaped: name of the defense whose noise follows from the gradients of a batch; None where there is none.
    """

    noise_multiplier: float = 0.0
    clips: bool = False
    own_norm: bool = False
    flip: float = 0.0
    shaped: str | None = None

    @property
    def bare(self) -> bool:
        """Whether gradients go back as they are."""
        return not self.clips and self.shaped is None

    def describe(self) -> dict[str, object]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Auxiliary:
    """Complete rows of the same kind that the attacker holds, such as from an earlier leak or a public survey.

    Attributes:
        cells: all columns of the schema, as a table holds them.
    """

    cells: Float[Tensor, "row column"]
    labels: Float[Tensor, " row"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class CutKnowledge:
    """Side information of the server in split learning.

    Attributes:
        auxiliary: complete rows that the server holds; None where it has none.
        form: form of the messages; None where it is not declared, and fitted on the messages.
    """

    schema: Schema
    statistics: Statistics
    defense: KnownCut = field(default_factory=KnownCut)
    auxiliary: Auxiliary | None = None
    form: MessageForm | None = PLAIN

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "schema": "columns, categories and bounds",
            "statistics": "marginals of every column and of the label",
            "defense": self.defense.describe(),
            "auxiliary": 0 if self.auxiliary is None else len(self.auxiliary),
            "form": "fitted on the messages" if self.form is None else self.form.to_plain(),
        }


@dataclass(frozen=True)
class CutGuess:
    """Guessed private cells and label of each record of an exchange; None is what the attack does not give.

    Attributes:
        cells: float64, codes of discrete columns, values of continuous ones.
        chances: for each private column, the chance of each of its candidate values, in order.
        residual, runner_up: distance between the received gradient and that of the best configuration, and of the best
            that differs in a cell or the label, in units of a record's own gradient; NaN where none was compared.
        ties: number of kept configurations, the best one included, that fit equally well up to rounding.
        likely: whether the configuration replays the message up to rounding, and no other does, or is expected to do so
            by chance; None where this is not known, such as for continuous columns in bins.
        proof: which private cells are certified, see ``seepage.kernel``.
        mass: share of each private column's values, by its marginal, that are shown to replay the message; a large one
            proves that this message does not tell the cell. NaN where nothing is shown.
    """

    cells: Float[Tensor, "record private"]
    labels: Float[Tensor, " record"]
    chances: tuple[Float[Tensor, "record _value"], ...] | None = None
    label_chances: Float[Tensor, "record label"] | None = None
    residual: Float[Tensor, " record"] | None = None
    runner_up: Float[Tensor, " record"] | None = None
    ties: Int[Tensor, " record"] | None = None
    likely: Bool[Tensor, " record"] | None = None
    proof: Certified | None = None
    mass: Float[Tensor, "record private"] | None = None

    @property
    def certified(self) -> Bool[Tensor, "record private"] | None:
        """Whether each private cell is certified; None for attacks that are no provers."""
        return None if self.proof is None else self.proof.cells

    @classmethod
    def joined(cls, guesses: Sequence[CutGuess]) -> CutGuess:
        """Return the guesses of several groups of records as one guess; a field that one of them lacks is None."""
        if len(guesses) == 1:
            return guesses[0]
        joined = {}
        for entry in fields(cls):
            values = [getattr(guess, entry.name) for guess in guesses]
            lacking = any(value is None for value in values)
            if lacking or (isinstance(values[0], tuple) and len({tuple(p.shape[1] for p in v) for v in values}) > 1):
                # A field that one of the guesses lacks, or gives for other values, is None.
                joined[entry.name] = None
            elif isinstance(values[0], tuple):
                joined[entry.name] = tuple(torch.cat(parts) for parts in zip(*values, strict=True))
            elif isinstance(values[0], Certified):
                joined[entry.name] = kernel.joined(values)
            else:
                joined[entry.name] = torch.cat(values)
        return cls(**joined)

    def take(self, positions: Int[Tensor, " chosen"]) -> CutGuess:
        """Return the guess for some of the records, by their position."""
        chosen = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, tuple):
                value = tuple(part[positions] for part in value)
            elif isinstance(value, Certified):
                value = value.take(positions)
            elif value is not None:
                value = value[positions]
            chosen[entry.name] = value
        return CutGuess(**chosen)


def check_gradient(view: CutView) -> None:
    """Refuse a view in which no record has a gradient other than zero."""
    if not bool(view.gradient.any()):
        raise BadInputError(
            f"the gradients of all {view.records} records are zero, so that nothing came back over the cut to attack; "
            "check where the network is cut and that the client's loss depends on what it receives."
        )
