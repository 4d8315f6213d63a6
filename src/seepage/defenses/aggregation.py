"""Secure aggregation: the server receives the mean of several clients' messages and no single one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seepage.defenses.none import Undefended
from seepage.errors import check_count
from seepage.registry import ActsOn, defenses


@defenses.register("aggregation", "horizontal")
@dataclass(frozen=True)
class Aggregation(Undefended):
    """Several clients' messages reach the server as their mean alone, as secure aggregation lets them.

    Source: Bonawitz et al., Practical Secure Aggregation (CCS 2017), of which this is the ideal form.

    The messages themselves stay as they are; the clients that the protocol aggregates become as many times more. A
    victim is then all of these clients. A server that adds clients of its own to an aggregate undoes it, which an
    honest-but-curious one does not.

    Attributes:
        clients: number of clients whose messages are aggregated, at least 2.

    Raises:
        BadInputError: the number is no whole one from 1 up.
    """

    words: ClassVar[str] = "sums of clients' messages, {clients} at a time"
    acts_on: ClassVar[ActsOn] = "update"

    clients: int

    def __post_init__(self) -> None:
        check_count("clients", self.clients)
