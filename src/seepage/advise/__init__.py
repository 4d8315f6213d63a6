"""What to change so that a deployment leaks less: a search for the cheapest configuration that passes a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.advise.recommend import recommend, recommended
    from seepage.advise.recommendation import Recommendation

lazy_package(__name__)

__all__ = ["Recommendation", "recommend", "recommended"]
