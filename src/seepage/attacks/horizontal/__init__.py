"""Attacks on gradients and updates of horizontal federated learning."""

from seepage.attacks.horizontal.exact import (
    cocktail_party,
    loki,
    rgap,
    robbing_the_fed,
    single_activation,
    spear,
    sqr,
    unmix,
)
from seepage.attacks.horizontal.matching import dlg, grad_inversion, inverting_gradients, tableak

__all__ = [
    "cocktail_party",
    "dlg",
    "grad_inversion",
    "inverting_gradients",
    "loki",
    "rgap",
    "robbing_the_fed",
    "single_activation",
    "spear",
    "sqr",
    "tableak",
    "unmix",
]
