"""Protocols: the messages that parties send each other; importing this package registers them."""

from seepage.protocols import fedavg, fedsgd

__all__ = ["fedavg", "fedsgd"]
