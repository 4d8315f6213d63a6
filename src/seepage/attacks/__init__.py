"""What a curious participant does with its view; importing this package registers the attacks."""

from seepage.attacks import gradient, property, split, vertical

__all__ = ["gradient", "property", "split", "vertical"]
