"""Who holds which part of a network that is split, and who of them attacks. Nothing here imports PyTorch."""

from __future__ import annotations

from typing import Literal

Topology = Literal["columns", "vanilla", "u_shaped", "multi_hop"]
SplitAttacker = Literal["server", "hop"]


def holds_second_cut(topology: Topology, attacker: SplitAttacker) -> bool:
    """Return whether the attacker sends features on, and gets gradients of them back."""
    return topology == "u_shaped" or (topology == "multi_hop" and attacker == "hop")
