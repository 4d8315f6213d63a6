"""Attacks of the server in split learning on the client's columns and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.attacks.labels.scores import direction_scores, norm_scores
    from seepage.attacks.split.exact import Exact
    from seepage.attacks.split.fsha import FSHA
    from seepage.attacks.split.posterior import Posterior
    from seepage.attacks.split.pseudo import AdversarialClientAttack, PseudoClientAttack
    from seepage.attacks.split.unsplit import UnSplit

lazy_package(__name__)

__all__ = [
    "FSHA",
    "AdversarialClientAttack",
    "Exact",
    "Posterior",
    "PseudoClientAttack",
    "UnSplit",
    "direction_scores",
    "norm_scores",
]
