"""Shadow models: what the joint model would answer if the victim's share were such and such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError, check_count
from seepage.knowledge import PooledKnowledge
from seepage.models.learner import Trained
from seepage.models.pooling import joint_models


@dataclass(frozen=True)
class Shadows:
    """Shadow models and what they answer to the attacker's queries.

    Attributes:
        models: all of them.
        shares: of the attribute in the rows that stand for the victim's: of its first rows, and of its new ones where
            it brought in any.
        answers: to the queries, as the attacker would see them.
    """

    models: Trained
    shares: Float[Tensor, "shadow part"]
    answers: Float[Tensor, "shadow query label"]

    def __len__(self) -> int:
        return len(self.shares)

    def world(self, shares: Sequence[float]) -> Int[Tensor, " shadow"]:
        """Return the position of each shadow model's share among the ones told apart.

        Raises:
            BadInputError: a shadow model has none of them.
        """
        distance = (self.shares[:, :1] - torch.tensor(list(shares), dtype=self.shares.dtype)).abs()
        if float(distance.min(1).values.max()) > 1e-6:
            raise BadInputError(
                f"shadow models of the shares {list(shares)} are needed to tell these apart, but one has another."
            )
        return distance.argmin(1)


def train_shadows(known: PooledKnowledge, shares: Float[Tensor, "shadow part"], seed: int) -> Shadows:
    """Train one shadow model for each line of shares, all at once.

    Rows are drawn from the auxiliary ones anew for every shadow model, without replacement within one; the
    attacker's own rows are added to each.

    Args:
        known: gives recipe, auxiliary and own rows, queries and further parties.
        shares: of the attribute in the victim's rows, one column for each time that it brought in some.
        seed: of rows, first weights and batches.

    Raises:
        BadInputError: the auxiliary rows cannot supply the shares.
    """
    generator = torch.Generator().manual_seed(seed)
    others = torch.tensor(known.others, dtype=shares.dtype).expand(len(shares), len(known.others))
    chosen = known.auxiliary.drawn(torch.cat([shares, others], dim=1), known.rows, generator)
    models = joint_models(known.learner, known.auxiliary, known.own, chosen, generator)
    return Shadows(models, shares, known.answered(models.answers(known.queries)))


def binary_shadows(known: PooledKnowledge, count: int, seed: int) -> Shadows:
    """Train ``count`` shadow models, as many of each share that is told apart (100 of two in the paper).

    Raises:
        BadInputError: fewer than two a share, or see ``train_shadows``.
    """
    check_count("count", count)
    worlds = len(known.shares)
    if count < 2 * worlds or count % worlds:
        raise BadInputError(
            f"shadow models are as many for each of {worlds} shares, two at least; got {count}, give a multiple of "
            f"{worlds} from {2 * worlds} up."
        )
    shares = torch.tensor(known.shares, dtype=torch.float64).repeat(count // worlds)
    return train_shadows(known, shares[:, None], seed)


def spread_shadows(
    known: PooledKnowledge, count: int, seed: int, low: float = 0.05, high: float = 0.95, parts: int = 1
) -> Shadows:
    """Train ``count`` shadow models with shares spread evenly over a range.

    Args:
        known: see ``train_shadows``.
        count: of shadow models.
        seed: of everything drawn.
        low, high: ends of the range.
        parts: how often the victim brought in rows; the shares of several are in independent orders.

    Raises:
        BadInputError: see ``train_shadows``.
    """
    check_count("count", count)
    generator = torch.Generator().manual_seed(seed)
    even = torch.linspace(low, high, count, dtype=torch.float64)
    columns = [even[torch.randperm(count, generator=generator)] for _ in range(parts)]
    later = cast(int, torch.randint(2**62, (), generator=generator).item())
    return train_shadows(known, torch.stack(columns, dim=1), later)
