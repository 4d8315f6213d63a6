"""Defenses of the parties, by setting. A new defense is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.defenses.defense import AnyDefense, Defense, RecordDefense, defended, guarded

# Registered name and module, which is imported when the defense is first made.
# In every setting.
registry.defenses.declare({"none": "seepage.defenses.none"})
registry.defenses.declare(
    {
        "aggregation": "seepage.defenses.aggregation",
        "clipping": "seepage.defenses.clipping",
        "dp_sgd": "seepage.defenses.dp_sgd",
        "gaussian_noise": "seepage.defenses.gaussian_noise",
        "sign": "seepage.defenses.sign",
        "soteria": "seepage.defenses.soteria",
        "top_k": "seepage.defenses.top_k",
    },
    "horizontal",
)
registry.defenses.declare(
    {
        "cut_noise": "seepage.defenses.cut_noise",
        "feature_noise": "seepage.defenses.feature_noise",
        "label_flip": "seepage.defenses.label_flip",
        "marvell": "seepage.defenses.marvell",
        "max_norm": "seepage.defenses.returned",
        "weight_noise": "seepage.defenses.weight_noise",
    },
    "split",
)
registry.defenses.declare(
    {
        "bottleneck": "seepage.defenses.bottleneck",
        "feature_noise": "seepage.defenses.feature_noise",
        "label_flip": "seepage.defenses.label_flip",
        "mid": "seepage.defenses.mid",
        "nopeek": "seepage.defenses.nopeek",
        "returned_noise": "seepage.defenses.returned",
        "marvell": "seepage.defenses.marvell",
        "max_norm": "seepage.defenses.returned",
    },
    "vertical",
)
registry.defenses.declare(
    {
        "rounded_answers": "seepage.defenses.answers",
        "label_only": "seepage.defenses.answers",
        "without_columns": "seepage.defenses.joint_training",
        "dp_training": "seepage.defenses.joint_training",
        "query_limit": "seepage.defenses.joint_training",
    },
    "pooled",
)

registry.defenses.declare(
    {
        "strip_fields": "seepage.defenses.trees",
        "min_child_weight": "seepage.defenses.trees",
        "max_bin": "seepage.defenses.trees",
        "shared_cuts": "seepage.defenses.trees",
        "histogram_noise": "seepage.defenses.trees",
    },
    "trees",
)


def create(name: str, **options: object) -> AnyDefense:
    """Return a defense of horizontal learning; an unknown name or option is a BadInputError."""
    return cast("AnyDefense", registry.defenses.of("horizontal").create(name, **options))


lazy_package(__name__)

__all__ = ["AnyDefense", "Defense", "RecordDefense", "create", "defended", "guarded"]
