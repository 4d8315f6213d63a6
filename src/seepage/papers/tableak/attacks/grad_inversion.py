"""GradInversion (Yin et al., CVPR 2021) as TabLeak's official code adapts it (D11)."""

from __future__ import annotations

from seepage.attacks.horizontal.matching.priors import Prior
from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.papers.tableak.attacks.priors import BatchStatistics, Squares
from seepage.registry import attacks


@attacks.register("grad_inversion", "horizontal")
def grad_inversion(
    profile: Profile = "default", l1: float = 1e-4, l2: float = 1e-3, **options: object
) -> Reconstruction:
    """GradInversion: cosine matching of unconstrained rows, with priors on their squares and on the batch's statistics.

    Source: Yin et al., See through Gradients (CVPR 2021).

    The objective is 1 - cosine + l1 * sum of squares of the batch's standardised rows + l2 * squared distance of mean
    and unbiased variance from the true ones, summed over the inputs of each batch normalisation. The published grid
    takes l1 and l2 from 1, 0.1, 0.01, 0.001, 1e-4, 1e-5 and 0: 49 points, or the 7 of l1 for networks without batch
    normalisation, where l2 has no effect.

    Deviations from Yin et al., all of them TabLeak's: cosine instead of squared distance, squared norms in the
    statistics' term, sign-Adam at a constant step, true statistics of the batch instead of running ones; no total
    variation, group consistency, gradient noise or several seeds.

    Args:
        profile: profile of ``reconstruction``.
        l1: weight of the squares.
        l2: weight of the statistics; above 0 the attacker needs them where the model normalises batches.
        options: options of ``reconstruction``.
    """
    priors: list[Prior] = []
    if l1 != 0:
        priors.append(Squares(float(l1)))
    if l2 != 0:
        priors.append(BatchStatistics(float(l2)))
    preset = {"priors": tuple(priors), "softmax": False, "sigmoid": False, "restarts": 1, "entropy": "counts"}
    return reconstruction(profile, **{**preset, **options})
