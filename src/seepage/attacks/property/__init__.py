"""Attacks on the distribution of a sensitive column in the rows behind a joint model."""

from seepage.attacks.property.deep_sets import DeepSets
from seepage.attacks.property.kl import KL
from seepage.attacks.property.melis import Melis
from seepage.attacks.property.meta import Meta
from seepage.attacks.property.parts.shadows import Shadows, binary_shadows, spread_shadows, train_shadows
from seepage.attacks.property.ratio import Ratio
from seepage.attacks.property.update import Dominant, Joint
from seepage.attacks.property.white_box import WhiteBox

__all__ = [
    "KL",
    "DeepSets",
    "Dominant",
    "Joint",
    "Melis",
    "Meta",
    "Ratio",
    "Shadows",
    "WhiteBox",
    "binary_shadows",
    "spread_shadows",
    "train_shadows",
]
