"""Old spellings of fields and defenses, which keep working for one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

GOES = "the old spelling goes with the next release."
# By setting, fields by their old names.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "split": {"units": "repetitions", "private": "private_columns", "records": "attacked_records"},
    "vertical": {"units": "repetitions", "records": "attacked_records"},
    "pooled": {"units": "repetitions"},
}
# By setting, mechanism and option by the keys that defenses had; without an option, the value is a name or a switch.
DEFENSES: Mapping[str, Mapping[str, tuple[str, str | None]]] = {
    "split": {
        "flip": ("label_flip", "probability"),
        "noise_multiplier": ("cut_noise", "noise_multiplier"),
        "rule": ("cut_noise", "rule"),
        "quantile": ("cut_noise", "quantile"),
        "weights_noise": ("weight_noise", "noise_multiplier"),
    },
    "vertical": {
        "feature_noise": ("feature_noise", "scale"),
        "gradient_noise": ("returned_noise", "scale"),
        "clip": ("returned_noise", "clip"),
        "returned": ("", None),
        "width": ("bottleneck", "width"),
    },
    "pooled": {
        "without": ("without_columns", "columns"),
        "digits": ("rounded_answers", "digits"),
        "label_only": ("label_only", None),
        "queries": ("query_limit", "queries"),
        "clip": ("dp_training", "clip"),
        "noise": ("dp_training", "noise_multiplier"),
    },
}


def _same(value: object) -> object:
    return value


def renewed(
    setting: str,
    values: Mapping[str, object],
    inside: Callable[[Any], Any] = _same,
    wrapped: Callable[[Any, Any], Any] = lambda value, _: value,
) -> tuple[dict[str, Any], list[str]]:
    """Return values of a spec in the new spelling, and a line for each old one.

    Args:
        setting: name of the setting.
        values: values by old and new names. Where both names are there, the old one stays and is refused later.
        inside: returns the list, mapping or scalar that a value is.
        wrapped: returns such a thing as a value, in the place of another one.

    Example:
        >>> renewed("split", {"units": 3, "defenses": [{}, {"flip": 0.1, "label": "noisy"}]})[0]
        {'repetitions': 3, 'defenses': ['none', {'name': 'label_flip', 'probability': 0.1, 'label': 'noisy'}]}
    """
    new = RENAMED.get(setting, {})
    known = {name: new[name] for name in values if name in new and new[name] not in values}
    lines = [f"{old!r} is now {name!r}; {GOES}" for old, name in known.items()]
    current = {known.get(name, name): value for name, value in values.items()}
    if "defenses" in current and setting in DEFENSES:
        entries = inside(current["defenses"])
        several = isinstance(entries, list | tuple)
        defenses = [
            _defense(setting, entry, inside, wrapped) for entry in (entries if several else [current["defenses"]])
        ]
        lines += list(dict.fromkeys(line for _, line in defenses if line))
        if any(line for _, line in defenses):
            fresh = [entry for entry, _ in defenses]
            current["defenses"] = wrapped(fresh, current["defenses"]) if several else fresh[0]
    return current, lines


def _defense(setting: str, entry: Any, inside: Callable[[Any], Any], wrapped: Callable[[Any, Any], Any]) -> Any:
    """Return a defense in the new spelling, and a line if it was in the old one."""
    given, keys = inside(entry), DEFENSES[setting]
    if not isinstance(given, Mapping) or {"name", "all"} & set(given) or not set(given) <= {*keys, "label"}:
        return entry, ""
    mechanisms: dict[str, dict[str, object]] = {}
    for key, value in given.items():
        mechanism, option = keys.get(key, ("", ""))
        if option:
            mechanisms.setdefault(mechanism, {"name": wrapped(mechanism, entry)})[option] = value
        elif option is None and inside(value):
            name = mechanism or inside(value)
            mechanisms[name] = {"name": wrapped(name, entry)}
    label = {"label": given["label"]} if "label" in given else {}
    named = ", ".join(mechanisms) or "none"
    line = f"a defense says its name now ({named}); {GOES}"
    if not mechanisms:
        return wrapped({"name": wrapped("none", entry), **label} if label else "none", entry), line
    listed = [wrapped(mechanism, entry) for mechanism in mechanisms.values()]
    alone = {**next(iter(mechanisms.values())), **label}
    return wrapped(alone if len(listed) == 1 else {"all": wrapped(listed, entry), **label}, entry), line
