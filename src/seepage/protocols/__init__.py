"""What the parties send each other; importing this package registers the protocols."""

from seepage.protocols import fedavg, fedsgd

__all__ = ["fedavg", "fedsgd"]
