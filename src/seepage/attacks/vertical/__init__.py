"""Attacks of the active party in vertical learning on a passive party's columns."""

from seepage.attacks.vertical.uifv import (
    DataPassiveAttack,
    IsolatedQueryAttack,
    QueryAttack,
    ShadowInversion,
    StealthAttack,
)

__all__ = ["DataPassiveAttack", "IsolatedQueryAttack", "QueryAttack", "ShadowInversion", "StealthAttack"]
