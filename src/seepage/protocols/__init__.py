"""Protocols: the messages that parties send each other. A new protocol is one file and one line in its setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.protocols.clients import Clients
    from seepage.wire.horizontal import View


def create(name: str, **options: object) -> Clients[View]:
    """Return a protocol of horizontal learning, ready to run; an unknown name or option is a BadInputError."""
    return cast("Clients[View]", registry.protocols.of("horizontal").create(name, **options))


lazy_package(__name__)

__all__ = ["create"]
