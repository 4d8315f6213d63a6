"""The two profiles of every published gradient attack."""

from __future__ import annotations

import inspect
from typing import Any

from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.profile import Profile
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.errors import check_choice, unknown_name

# Each differs from the other only where the official code does something that weakens the attack.
_PROFILES: dict[str, dict[str, object]] = {
    "default": {},
    "faithful": {
        **{"logits": "standardised", "start": "symmetric", "pooling": "lower_median", "decoding": "nearest"},
        **{"labels": "geng", "local": "simulated"},
    },
}
# Rows of valid form stand large steps that shrink: 500 of them read what 1,500 of the published size do. Unconstrained
# rows (Inverting Gradients, Deep Gradient Leakage) lose by them. Chosen on victims outside every reported figure.
_VALID_ROWS: dict[str, object] = {"iterations": 500, "step": 0.35, "schedule": "cosine"}


def reconstruction(profile: Profile = "default", **options: object) -> Reconstruction:
    """Return the attack of a profile with some of its parts replaced.

    Args:
        profile: ``default``, the strongest version that we know, for audits; or ``faithful``, which follows TabLeak's
            official implementation, for comparison with the literature.
        options: arguments of ``Reconstruction`` or of ``Descent``.

    Raises:
        BadInputError: the profile or an option is unknown.

    Example:
        >>> reconstruction("faithful").descent.iterations, reconstruction(iterations=10).descent.iterations
        (1500, 10)
    """
    check_choice("profile", profile, Profile)
    whole = list(inspect.signature(Reconstruction).parameters)
    of_descent = list(inspect.signature(Descent).parameters)
    merged: dict[str, Any] = {**_PROFILES[profile], **options}
    if profile == "default" and merged.get("softmax", True) and merged.get("sigmoid", True):
        merged = {**_VALID_ROWS, **merged}
    for option in merged:
        if option not in whole and option not in of_descent:
            raise unknown_name("attack option", option, whole + of_descent)
    descent = Descent(**{name: merged.pop(name) for name in of_descent if name in merged})
    return Reconstruction(descent=descent, **merged)
