"""Files of datasets as the tests of the package's own have them."""

from __future__ import annotations

from tests.datasets.conftest import nothing_from_outside, real

__all__ = ["nothing_from_outside", "real"]
