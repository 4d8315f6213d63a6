"""Rows whose sensitive attribute is known, and joint models trained on the pooled rows of several parties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seepage.errors import BadInputError
from seepage.shadow.learner import Learner, Trained
from seepage.text import how_many


@dataclass(frozen=True)
class MarkedRows:
    """Rows in the form that models take, with marks for the sensitive attribute."""

    inputs: Tensor
    labels: Int[Tensor, " _row"]
    carries: Bool[Tensor, " _row"]
    widths: tuple[int, ...] = ()
    column: int | None = None  # with the attribute; None where models do not receive it
    groups: Int[Tensor, " _row"] | None = None  # rows of one, such as a patient, belong to one party

    def __post_init__(self) -> None:
        if self.groups is not None and len(self.groups) != len(self.labels):
            raise BadInputError(f"{len(self.labels)} rows came with groups of {len(self.groups)}; give one a row.")
        if not len(self.inputs) == len(self.labels) == len(self.carries):
            raise BadInputError(
                f"{len(self.inputs)} rows came with {len(self.labels)} labels and {len(self.carries)} marks; give one "
                "of each a row."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, index: Tensor) -> MarkedRows:
        """Return the rows at some positions."""
        groups = None if self.groups is None else self.groups[index]
        fields = {"inputs": self.inputs[index], "labels": self.labels[index], "carries": self.carries[index]}
        return replace(self, **fields, groups=groups)

    def followed_by(self, other: MarkedRows) -> MarkedRows:
        """Return these rows and then others, without groups."""
        if self.inputs.shape[1:] != other.inputs.shape[1:]:
            raise BadInputError(
                f"rows of {tuple(self.inputs.shape[1:])} numbers cannot be pooled with rows of "
                f"{tuple(other.inputs.shape[1:])}; all parties and the attacker's auxiliary rows have the same columns."
            )
        names = ("inputs", "labels", "carries")
        joined = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in names}
        return replace(self, **joined, groups=None)

    def drawn(
        self,
        shares: Float[Tensor, "model _part"],
        rows: int,
        generator: torch.Generator,
        others: tuple[float, ...] = (),
        replacement: bool = False,
    ) -> Int[Tensor, "model _parts {rows}"]:
        """Draw data sets with given shares of marked rows, and the same ``others`` for all.

        With ``replacement`` a data set may have a row several times, so that one row of each kind is enough.
        """
        shares = torch.cat([shares, torch.tensor(others, dtype=shares.dtype).expand(len(shares), -1)], dim=1)
        if not bool(((shares >= 0) & (shares <= 1)).all()):
            raise BadInputError(f"shares of a property lie in [0, 1], got {shares.min():g} to {shares.max():g}.")
        with_it = (shares.double() * rows).round().long()
        taken = []
        for carries, wanted in ((True, with_it), (False, rows - with_it)):
            there = (self.carries.cpu() == carries).nonzero()[:, 0]
            most = int(wanted.sum(1).max())
            if most > len(there) and not (replacement and len(there)):
                raise BadInputError(
                    f"{how_many(shares.shape[1], 'part')} of {rows} rows with shares of {shares.min():.0%} to "
                    f"{shares.max():.0%} "
                    f"need {most} rows that {'carry' if carries else 'do not carry'} the attribute, but of "
                    f"these {len(self)} rows only {len(there)} do; give fewer rows a party, or shares nearer to those "
                    "of the data."
                )
            if replacement:
                order = torch.randint(max(1, len(there)), (len(shares), most), generator=generator)
            else:
                order = torch.rand(len(shares), len(there), generator=generator).argsort(1)[:, :most]
            taken.append(there[order])
        # Each part takes the next rows of both kinds.
        earlier = with_it.cumsum(1) - with_it, (rows - with_it).cumsum(1) - (rows - with_it)
        position = torch.arange(rows).expand(*shares.shape, rows)
        first = position + earlier[0][..., None]
        second = position - with_it[..., None] + earlier[1][..., None] + taken[0].shape[1]
        index = torch.where(position < with_it[..., None], first, second)
        return torch.cat(taken, dim=1).gather(1, index.flatten(1)).unflatten(1, (shares.shape[1], rows))


def joint_models(
    learner: Learner,
    pool: MarkedRows,
    adversary: MarkedRows | None,
    chosen: Int[Tensor, "model part rows"],
    generator: torch.Generator,
) -> Trained:
    """Train a model on each line of chosen rows and all of ``adversary``: one path for parties and attacker."""
    together = pool if adversary is None else pool.followed_by(adversary)
    lines = chosen.flatten(1)
    if adversary is not None:
        added = torch.arange(len(pool), len(together)).expand(len(lines), len(adversary))
        lines = torch.cat([lines, added], dim=1)
    seeds = torch.randint(2**62, (len(lines),), generator=generator).tolist()
    return learner.train(together.inputs, together.labels, lines, seeds)
