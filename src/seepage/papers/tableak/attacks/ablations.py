"""Ablations of TabLeak (Vero, Balunović, Dimitrov, Vechev, ICML 2023)."""

from __future__ import annotations

from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.registry import attacks


@attacks.register("tableak_no_pooling", "horizontal")
def tableak_no_pooling(profile: Profile = "default", **options: object) -> Reconstruction:
    """TabLeak from a single start (not the best of many).

    Source: Vero et al., TabLeak (ICML 2023), an ablation.
    """
    return reconstruction(profile, **{"restarts": 1, **options})


@attacks.register("tableak_no_softmax", "horizontal")
def tableak_no_softmax(profile: Profile = "default", **options: object) -> Reconstruction:
    """TabLeak without the softmax relaxation; continuous columns keep the sigmoid.

    Source: Vero et al., TabLeak (ICML 2023), an ablation.
    """
    # Without softmax nothing makes the entries of a group probabilities, so their entropy is that of counts.
    return reconstruction(profile, **{"softmax": False, "entropy": "counts", **options})
