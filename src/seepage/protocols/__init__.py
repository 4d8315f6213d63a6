"""What the parties send each other; importing this package registers the protocols."""

from seepage.protocols import fedsgd

__all__ = ["fedsgd"]
