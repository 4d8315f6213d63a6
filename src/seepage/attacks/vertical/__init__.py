"""Attacks of the active party in vertical learning on a passive party's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.attacks.vertical.equality import EqualitySolving
    from seepage.attacks.vertical.informed import InformedQueryAttack, InformedStealth
    from seepage.attacks.vertical.labels import completion_scores, gradient_scores, left_out, raw_scores
    from seepage.attacks.vertical.layer_inversion import LayerInversion, inversion_in_words, why_not_exact
    from seepage.attacks.vertical.ridge import RidgeStealth
    from seepage.attacks.vertical.sdar import AdversarialShadowAttack
    from seepage.attacks.vertical.student import StudentAttack
    from seepage.attacks.vertical.uifv import (
        DataPassiveAttack,
        IsolatedQueryAttack,
        QueryAttack,
        ShadowInversion,
        StealthAttack,
    )
    from seepage.attacks.vertical.white_box import Ginver

lazy_package(__name__)

__all__ = [
    "AdversarialShadowAttack",
    "DataPassiveAttack",
    "EqualitySolving",
    "Ginver",
    "InformedQueryAttack",
    "InformedStealth",
    "IsolatedQueryAttack",
    "LayerInversion",
    "QueryAttack",
    "RidgeStealth",
    "ShadowInversion",
    "StealthAttack",
    "StudentAttack",
    "completion_scores",
    "gradient_scores",
    "inversion_in_words",
    "left_out",
    "raw_scores",
    "why_not_exact",
]
