"""Deep Gradient Leakage (Zhu, Liu, Han, NeurIPS 2019) as TabLeak's official code adapts it (D12)."""

from __future__ import annotations

from seepage.attacks.horizontal.matching.matching import MeanSquared
from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.registry import attacks


@attacks.register("dlg", "horizontal")
def dlg(profile: Profile = "default", **options: object) -> Reconstruction:
    """Deep Gradient Leakage: mean squared difference per tensor, unconstrained rows, one start.

    Source: Zhu, Liu and Han, Deep Leakage from Gradients (NeurIPS 2019).

    Deviations from Zhu et al., all of them TabLeak's: sign-Adam instead of L-BFGS, labels given or restored instead of
    optimised with the rows, each tensor's mean instead of its sum. In the profile ``default`` twice as many steps,
    which begin twice as large and shrink: of batches of eight the published steps read four to six points less.
    """
    preset = {"matching": MeanSquared(), "softmax": False, "sigmoid": False, "restarts": 1, "entropy": "counts"}
    longer = {"iterations": 3000, "step": 0.12, "schedule": "cosine"} if profile == "default" else {}
    return reconstruction(profile, **{**preset, **longer, **options})
