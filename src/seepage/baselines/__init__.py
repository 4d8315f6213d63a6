"""Baselines: the same signature as an attack, but without reading any message.

Importing the package registers its baselines; a new one is a new file and a line here.
"""

from seepage.baselines import pooled, split, vertical
from seepage.baselines.likeliest import Likeliest
from seepage.baselines.mode import Mode
from seepage.baselines.random import Random

__all__ = ["Likeliest", "Mode", "Random", "pooled", "split", "vertical"]
