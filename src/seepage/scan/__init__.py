"""What the settings and source of a project, read and not run, say of the messages that leave a party."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.scan.project import LeavingMessage, ScannedProject
    from seepage.scan.scanning import scan

lazy_package(__name__)

__all__ = ["LeavingMessage", "ScannedProject", "scan"]
