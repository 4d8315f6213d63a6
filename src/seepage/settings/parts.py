"""The registries, filled: importing this imports every package whose parts an audit can name."""

from typing import Any

from seepage import assessment as assessment
from seepage import attacks as attacks
from seepage import baselines as baselines
from seepage import datasets as datasets
from seepage import defenses as defenses
from seepage import models as models
from seepage import protocols as protocols
from seepage import registry as registry
from seepage.registry import Registry

_OF_SETTINGS: dict[tuple[str, str], Registry[Any]] = {
    ("attacks", "split"): registry.cut_attacks,
    ("baselines", "split"): registry.cut_baselines,
    ("defenses", "split"): registry.split_defenses,
    ("defenses", "vertical"): registry.vertical_defenses,
    ("defenses", "pooled"): registry.pooled_defenses,
    ("attacks", "vertical"): registry.feature_attacks,
    ("baselines", "vertical"): registry.feature_baselines,
    ("attacks", "pooled"): registry.property_attacks,
    ("baselines", "pooled"): registry.property_baselines,
}


def registered(kind: str, setting: str) -> Registry[Any]:
    """Return the registry of a kind of part (``attacks``, ``datasets``, ...) in a setting."""
    found: Registry[Any] = _OF_SETTINGS.get((kind, setting)) or getattr(registry, kind)
    return found
