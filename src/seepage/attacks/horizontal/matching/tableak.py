"""TabLeak (Vero, Balunović, Dimitrov, Vechev, ICML 2023)."""

from __future__ import annotations

from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.registry import attacks


@attacks.register("tableak", "horizontal")
def tableak(profile: Profile = "default", **options: object) -> Reconstruction:
    """TabLeak: softmax and sigmoid relaxation, cosine matching, 30 restarts matched and pooled.

    Source: Vero et al., TabLeak (ICML 2023).
    """
    return reconstruction(profile, **options)
