"""Attacks: guesses from a view and the knowledge that goes with it; importing this package registers them."""

from seepage.attacks import horizontal, pooled, split, vertical

__all__ = ["horizontal", "pooled", "split", "vertical"]
