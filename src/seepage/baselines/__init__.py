"""Baselines: same signature as an attack, but they use only the knowledge that the attacker has before any message.

A new baseline is one file and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package
from seepage.registry import Attack, baselines

if TYPE_CHECKING:
    from seepage.baselines.mode import Likeliest, Mode
    from seepage.baselines.random import Random

# Registered names by setting and module, which is imported when the baseline is first made.
_NAMES = {
    "horizontal": {"mode": ("likeliest", "mode"), "random": ("random",)},
    "split": {"split": ("marginals", "knn"), "vertical": ("constant", "median"), "labels": ("label_mode",)},
    "vertical": {
        "vertical": ("constant", "median", "random", "own_columns"),
        "labels": ("label_mode", "label_columns"),
    },
    "trees": {
        "mode": ("likeliest", "mode"),
        "random": ("random",),
        "trees": ("own_marginals", "own_columns"),
        "vertical": ("constant", "median"),
        "labels": ("label_mode", "label_columns"),
    },
    "pooled": {"pooled": ("chance", "constant_share")},
    "statistics": {
        "mode": ("likeliest",),
        "random": ("random",),
        "statistics": ("own_marginals", "cross_tables", "likeliest_table"),
    },
}
for _setting, _modules in _NAMES.items():
    for _module, _names in _modules.items():
        baselines.declare(dict.fromkeys(_names, f"seepage.baselines.{_module}"), _setting)


def create(name: str, setting: str, **options: object) -> Attack:
    """Return a baseline, to be called as the attacks of its setting are.

    Example:
        >>> create("random", "horizontal", one_draw_per_column=True)
        Random(one_draw_per_column=True)
    """
    return baselines.of(setting).create(name, **options)


lazy_package(__name__)

__all__ = ["Likeliest", "Mode", "Random", "create"]
