"""Defenses of the parties, by setting. A new defense is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.defenses.defense import AnyDefense, Defense, RecordDefense, defended, guarded

# Registered names by setting; each has a module of its name, imported when the defense is first made, or another.
# fmt: off
_NAMES: dict[str | None, tuple[str, ...]] = {
    None: ("none",),
    "horizontal": ("aggregation", "clipping", "dp_sgd", "gaussian_noise", "sign", "soteria", "top_k"),
    "split": ("cut_noise", "feature_noise", "label_flip", "marvell", "max_norm", "weight_noise"),
    "vertical": (
        "bottleneck", "feature_noise", "label_flip", "mid", "nopeek", "returned_noise", "marvell", "max_norm",
    ),
    "pooled": ("rounded_answers", "label_only", "without_columns", "dp_training", "query_limit"),
    "trees": (
        "strip_fields", "min_child_weight", "max_bin", "shared_cuts", "histogram_noise", "first_trees", "shuffled_bins",
    ),
    "statistics": (
        "rounded_sums", "sum_noise", "one_shot", "coarser_times", "jump_guard", "minimum_count", "rounded_counts",
    ),
}
# fmt: on
_MODULES = {
    **dict.fromkeys(("max_norm", "returned_noise"), "returned"),
    **dict.fromkeys(("rounded_answers", "label_only"), "answers"),
    **dict.fromkeys(("without_columns", "dp_training", "query_limit"), "joint_training"),
    **dict.fromkeys(_NAMES["trees"], "trees"),
    **dict.fromkeys(_NAMES["statistics"], "statistics"),
}
for _setting, _names in _NAMES.items():
    registry.defenses.declare({name: f"seepage.defenses.{_MODULES.get(name, name)}" for name in _names}, _setting)


def create(name: str, **options: object) -> AnyDefense:
    """Return a defense of horizontal learning; an unknown name or option is a BadInputError."""
    return cast("AnyDefense", registry.defenses.of("horizontal").create(name, **options))


lazy_package(__name__)

__all__ = ["AnyDefense", "Defense", "RecordDefense", "create", "defended", "guarded"]
