"""Defenses: transformations of messages before they are sent; importing this package registers them."""

from seepage.defenses import clipping, dp_sgd, gaussian_noise, none, sign, soteria, top_k
from seepage.defenses.defense import AnyDefense, Defense, RecordDefense, defended, guarded

__all__ = [
    "AnyDefense",
    "Defense",
    "RecordDefense",
    "clipping",
    "defended",
    "dp_sgd",
    "gaussian_noise",
    "guarded",
    "none",
    "sign",
    "soteria",
    "top_k",
]
