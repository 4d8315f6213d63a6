"""Attacks on the distribution of a sensitive column in the rows of a joint model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.attacks.pooled.deep_sets import DeepSets
    from seepage.attacks.pooled.kl import KL
    from seepage.attacks.pooled.meta import Meta
    from seepage.attacks.pooled.parts.shadows import binary_shadows, halved_shadows, spread_shadows, train_shadows
    from seepage.attacks.pooled.ratio import Ratio
    from seepage.attacks.pooled.update import Dominant, Joint
    from seepage.attacks.pooled.white_box import WhiteBox

lazy_package(__name__)

__all__ = [
    "KL",
    "DeepSets",
    "Dominant",
    "Joint",
    "Meta",
    "Ratio",
    "WhiteBox",
    "binary_shadows",
    "halved_shadows",
    "spread_shadows",
    "train_shadows",
]
