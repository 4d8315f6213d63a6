"""What a client does to its update before it is sent; importing this package registers the defenses."""

from seepage.defenses import none

__all__ = ["none"]
