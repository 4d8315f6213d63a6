"""Baselines: same signature as an attack, but they use only the knowledge that the attacker has before any message.

A new baseline is one file and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.lazy import lazy_package
from seepage.registry import Attack, baselines

if TYPE_CHECKING:
    from seepage.baselines.mode import Likeliest, Mode
    from seepage.baselines.random import Random

# Registered name and module, which is imported when the baseline is first made.
baselines.declare(
    {
        "likeliest": "seepage.baselines.mode",
        "mode": "seepage.baselines.mode",
        "random": "seepage.baselines.random",
    },
    "horizontal",
)
baselines.declare(
    {
        "marginals": "seepage.baselines.split",
        "knn": "seepage.baselines.split",
        "constant": "seepage.baselines.vertical",
        "median": "seepage.baselines.vertical",
        "label_mode": "seepage.baselines.labels",
    },
    "split",
)
baselines.declare(
    {
        "constant": "seepage.baselines.vertical",
        "median": "seepage.baselines.vertical",
        "random": "seepage.baselines.vertical",
        "own_columns": "seepage.baselines.vertical",
        "label_mode": "seepage.baselines.labels",
        "label_columns": "seepage.baselines.labels",
    },
    "vertical",
)
baselines.declare(
    {
        "likeliest": "seepage.baselines.mode",
        "mode": "seepage.baselines.mode",
        "random": "seepage.baselines.random",
        "own_marginals": "seepage.baselines.trees",
    },
    "trees",
)
baselines.declare({"chance": "seepage.baselines.pooled", "constant_share": "seepage.baselines.pooled"}, "pooled")


def create(name: str, setting: str, **options: object) -> Attack:
    """Return a baseline, to be called as the attacks of its setting are.

    Example:
        >>> create("random", "horizontal", one_draw_per_column=True)
        Random(one_draw_per_column=True)
    """
    return baselines.of(setting).create(name, **options)


lazy_package(__name__)

__all__ = ["Likeliest", "Mode", "Random", "create"]
