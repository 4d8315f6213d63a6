"""What a curious participant does with its view; importing this package registers the attacks."""

from seepage.attacks import horizontal, pooled, split, vertical

__all__ = ["horizontal", "pooled", "split", "vertical"]
