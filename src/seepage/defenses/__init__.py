"""What a client does to its update before it is sent; importing this package registers the defenses."""

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
