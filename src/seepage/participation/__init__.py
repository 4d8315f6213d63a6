"""Which clients the sums of several rounds isolate, from who took part in which round alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.participation.isolation import IsolatedGroup, Isolation, isolated
    from seepage.participation.reading import Participation, read_participation

lazy_package(__name__)

__all__ = ["IsolatedGroup", "Isolation", "Participation", "isolated", "read_participation"]
