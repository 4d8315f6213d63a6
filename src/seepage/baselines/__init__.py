"""Baselines: same signature as an attack, but they use only the knowledge that the attacker has before any message.

A new baseline is one file and one line in its setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package
from seepage.registry import Attack, baselines

if TYPE_CHECKING:
    from seepage.baselines.chow_liu import ChowLiu
    from seepage.baselines.mode import Likeliest, Mode
    from seepage.baselines.random import Random
    from seepage.baselines.stereotypes import Stereotypes


def create(name: str, setting: str, **options: object) -> Attack:
    """Return a baseline, to be called as the attacks of its setting are.

    Example:
        >>> create("random", "horizontal", one_draw_per_column=True)
        Random(one_draw_per_column=True)
    """
    return baselines.of(setting).create(name, **options)


lazy_package(__name__)

__all__ = ["ChowLiu", "Likeliest", "Mode", "Random", "Stereotypes", "create"]
