"""The settings by name."""

from __future__ import annotations

from seepage.errors import unknown_name
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.pooled_spec import PooledSpec
from seepage.settings.spec import Spec
from seepage.settings.split_spec import SplitSpec
from seepage.settings.vertical_spec import VerticalSpec

SPECS: dict[str, type[Spec]] = {spec.setting: spec for spec in (HorizontalSpec, SplitSpec, VerticalSpec, PooledSpec)}


def spec_class(setting: str) -> type[Spec]:
    """Return the class of a setting's specs.

    Raises:
        BadInputError: there is no such setting; the message names the nearest.

    Example:
        >>> spec_class("split").__name__
        'SplitSpec'
    """
    if setting not in SPECS:
        raise unknown_name("setting", setting, SPECS)
    return SPECS[setting]
