"""Old spellings of fields, which keep working for one release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By setting, fields by their old names.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "split": {"units": "repetitions", "private": "private_columns", "records": "attacked_records"},
    "vertical": {"units": "repetitions", "records": "attacked_records"},
    "pooled": {"units": "repetitions"},
}


def renamed(setting: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return values of a spec by the new names of their fields, and a line for each old one.

    Args:
        setting: name of the setting.
        values: values by old and new names. Where both names are there, the old one stays and is refused later.

    Example:
        >>> renamed("split", {"units": 3})
        ({'repetitions': 3}, ["'units' is now 'repetitions'; the old name will go with the next release."])
    """
    new = RENAMED.get(setting, {})
    known = {name: new[name] for name in values if name in new and new[name] not in values}
    lines = [f"{old!r} is now {name!r}; the old name will go with the next release." for old, name in known.items()]
    return {known.get(name, name): value for name, value in values.items()}, lines
