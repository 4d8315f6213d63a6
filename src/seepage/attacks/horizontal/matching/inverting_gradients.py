"""Inverting Gradients (Geiping, Bauermeister, Dröge, Moeller, NeurIPS 2020) for tables."""

from __future__ import annotations

from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.registry import attacks


@attacks.register("inverting_gradients", "horizontal")
def inverting_gradients(profile: Profile = "default", **options: object) -> Reconstruction:
    """Inverting Gradients: cosine matching of unconstrained rows, one start, no total variation.

    Source: Geiping et al., Inverting Gradients (NeurIPS 2020).
    """
    preset = {"softmax": False, "sigmoid": False, "restarts": 1, "entropy": "counts"}
    return reconstruction(profile, **{**preset, **options})
