"""Shadow models: joint models with known shares, trained by the attacker."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError, check_count
from seepage.shadow.pooling import MarkedRows, joint_models
from seepage.wire.pooled import HalvedShadows, PooledKnowledge, Shadows, SpreadShadows


def train_shadows(knowledge: PooledKnowledge, shares: Float[Tensor, "shadow part"], seed: int) -> Shadows:
    """Train one shadow model for each line of shares, a column for each time that rows were added, all at once."""
    # Rows are drawn from the auxiliary ones anew for every shadow model, without replacement within one; the attacker's
    # own rows are added to each.
    generator = torch.Generator().manual_seed(seed)
    chosen = knowledge.auxiliary.drawn(shares, knowledge.rows, generator, knowledge.others)
    models = joint_models(knowledge.learner, knowledge.auxiliary, knowledge.own, chosen, generator)
    return Shadows(models, shares, knowledge.answered(models.answers(knowledge.queries)))


def binary_shadows(knowledge: PooledKnowledge, count: int, seed: int) -> Shadows:
    """Train ``count`` shadow models, equally many of each share to distinguish (100 of two in the paper).

    Raises:
        BadInputError: fewer than two a share, or see ``train_shadows``.
    """
    return train_shadows(knowledge, _even(knowledge, count), seed)


def halved_shadows(knowledge: PooledKnowledge, count: int, seed: int) -> HalvedShadows:
    """Train ``count`` shadow models, equally many of each share, from two halves of the auxiliary rows in turn.

    Rows are drawn with replacement, as a half may have too few of a kind. Where all rows of a kind are of one group,
    both halves are all rows.

    Raises:
        BadInputError: fewer than two a share, or a half has no row of a kind.
    """
    shares = _even(knowledge, count)
    generator = torch.Generator().manual_seed(seed)
    auxiliary = knowledge.auxiliary
    parts = halved(auxiliary, generator)
    if auxiliary.groups is not None and any(len(auxiliary.carries[part].unique()) < 2 for part in parts):
        parts = (torch.arange(len(auxiliary)),) * 2
    halves = torch.arange(count) // len(knowledge.shares) % 2
    chosen = torch.empty(count, 1 + len(knowledge.others), knowledge.rows, dtype=torch.long)
    for which, half in enumerate(parts):
        mine = halves == which
        drawn = auxiliary.rows(half).drawn(shares[mine], knowledge.rows, generator, knowledge.others, replacement=True)
        chosen[mine] = half[drawn]
    models = joint_models(knowledge.learner, auxiliary, knowledge.own, chosen, generator)
    return HalvedShadows(models, shares, knowledge.answered(models.answers(knowledge.queries)), halves)


def _even(knowledge: PooledKnowledge, count: int) -> Float[Tensor, "shadow 1"]:
    """Return the share of each of ``count`` shadow models, the shares to distinguish in turn."""
    check_count("count", count)
    worlds = len(knowledge.shares)
    if count < 2 * worlds or count % worlds:
        raise BadInputError(
            f"shadow models are as many for each of {worlds} shares, two at least; got {count}, give a multiple of "
            f"{worlds} from {2 * worlds} up."
        )
    return torch.tensor(knowledge.shares, dtype=torch.float64).repeat(count // worlds)[:, None]


def spread_shadows(knowledge: PooledKnowledge, count: int, seed: int) -> SpreadShadows:
    """Train ``count`` shadow models (a multiple of 4) with shares spread evenly over the range that is known."""
    check_count("count", count)
    if count % 4:
        raise BadInputError(
            f"shadow models with spread shares come in pairs from each half of the rows; got {count}, give a multiple "
            "of 4."
        )
    generator = torch.Generator().manual_seed(seed)
    auxiliary = knowledge.auxiliary
    even = torch.linspace(*knowledge.within, count // 2, dtype=torch.float64)
    halves = halved(auxiliary, generator)
    chosen, all_shares = [], []
    for which, half in enumerate(halves):
        shares = even[which::2]
        drawn = auxiliary.rows(half).drawn(shares[:, None], knowledge.rows, generator, knowledge.others)
        chosen.append(half[drawn].repeat_interleave(2, dim=0))
        all_shares.append(shares.repeat_interleave(2))
    models = joint_models(knowledge.learner, auxiliary, knowledge.own, torch.cat(chosen), generator)
    carrying = float(auxiliary.carries.sum())
    return SpreadShadows(
        models,
        torch.cat(all_shares)[:, None],
        knowledge.answered(models.answers(knowledge.queries)),
        torch.arange(2).repeat_interleave(count // 2),
        carrying / 2,
        (len(auxiliary) - carrying) / 2,
        knowledge.rows,
    )


def halved(rows: MarkedRows, generator: torch.Generator) -> tuple[Int[Tensor, " first"], Int[Tensor, " second"]]:
    """Return the positions of two halves of some rows, with equally many rows of each kind.

    Where rows have groups, each half has every other group instead, so that no group is in both.

    Example:
        >>> rows = MarkedRows(torch.zeros(6, 1), torch.zeros(6).long(), torch.tensor([1, 1, 0, 0, 0, 0]).bool())
        >>> [rows.carries[half].sum().item() for half in halved(rows, torch.Generator().manual_seed(0))]
        [1, 1]
    """
    if rows.groups is not None:
        names, of = rows.groups.unique(return_inverse=True)
        first = torch.zeros(len(names), dtype=torch.bool)
        first[torch.randperm(len(names), generator=generator)[0::2]] = True
        return first[of].nonzero()[:, 0], (~first)[of].nonzero()[:, 0]
    kinds = [(rows.carries.cpu() == kind).nonzero()[:, 0] for kind in (True, False)]
    mixed = [kind[torch.randperm(len(kind), generator=generator)] for kind in kinds]
    return torch.cat([kind[0::2] for kind in mixed]), torch.cat([kind[1::2] for kind in mixed])
