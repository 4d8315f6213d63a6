"""What parties do against leakage in each setting; importing this package registers the defenses."""

from seepage.defenses import (
    answers,
    bottleneck,
    clipping,
    cut_noise,
    dp_sgd,
    feature_noise,
    gaussian_noise,
    joint_training,
    label_flip,
    none,
    returned,
    sign,
    soteria,
    top_k,
    weight_noise,
)
from seepage.defenses.defense import AnyDefense, Defense, RecordDefense, defended, guarded

__all__ = [
    "AnyDefense",
    "Defense",
    "RecordDefense",
    "answers",
    "bottleneck",
    "clipping",
    "cut_noise",
    "defended",
    "dp_sgd",
    "feature_noise",
    "gaussian_noise",
    "guarded",
    "joint_training",
    "label_flip",
    "none",
    "returned",
    "sign",
    "soteria",
    "top_k",
    "weight_noise",
]
