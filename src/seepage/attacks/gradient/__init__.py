"""Attacks on gradients and updates of horizontal federated learning."""

from seepage.attacks.gradient import (
    cocktail_party,
    dlg,
    grad_inversion,
    inverting_gradients,
    loki,
    rgap,
    robbing_the_fed,
    single_activation,
    spear,
    sqr,
    tableak,
    unmix,
)

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
