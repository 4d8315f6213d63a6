"""Options of the command line take precedence over a document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from seepage.config.tree import Node, plant

# What a document says about a table is of no use for another one.
_STEERING = ("sensitive", "drop", "overrides", "most_categories", "most_encoded")
_TABLE = ("dataset", "data", "target", "schema", "separator", "missing", *_STEERING)
# Single values of the whole document.
_WHOLE = ("labels", "batch_statistics", "profile", "restarts", "iterations", "seed", "victims", "device", "threads")
_PLAIN = (*_TABLE[2:], *_WHOLE, "workers", "data_folder", "keep_records", "control", "gate")
# Parts that replace those of the document.
_PARTS = {"attack": "attacks", "defense": "defenses", "baseline": "baselines"}
# Where these are options of single attacks, they give way.
_OF_ATTACKS = ("profile", "restarts", "iterations")
_OF_PROTOCOLS = ("batch_size", "replacement")
_DEFAULTS = {"dataset": "adult", "model": "nn3", "protocol": "fedsgd"}

Fields = dict[str, Node]


def override(document: Node, given: Mapping[str, Any]) -> Node:
    """Return a document in which options of the command line replace what it says.

    Args:
        document: a mapping.
        given: by name of the option without dashes (``batch_size``, ``attack``, ...); None for one that was not given,
            lists for those that can be repeated, a mapping for ``dataset_option``.

    Example:
        >>> document = plant({"protocol": {"batch_size": [8, 32], "replacement": True}, "restarts": 30})
        >>> override(document, {"batch_size": [4], "victims": 2, "attack": None}).plain()
        {'protocol': {'batch_size': 4, 'replacement': True, 'name': 'fedsgd'}, 'restarts': 30, 'victims': 2}
    """
    assert isinstance(document.value, dict)
    fields = dict(document.value)
    said = {name: _node(name, value) for name, value in given.items() if value is not None}
    if "dataset" in said or "data" in said:
        for key in _TABLE:
            fields.pop(key, None)
    if "schema" in said:
        for key in _STEERING:
            fields.pop(key, None)
    for name, node in said.items():
        if name in ("dataset", "data", *_PLAIN):
            fields[name] = node
        elif name in _PARTS:
            fields[_PARTS[name]] = node
    if "dataset_option" in said:
        options = said["dataset_option"].value
        assert isinstance(options, dict)
        _amend(fields, "dataset", lambda entry: {**entry, **options})
    if "model" in said:
        fields["model"] = said["model"]
    for name, key in (("head", "head"), ("model_seed", "seed"), ("weights", "weights")):
        if name in said:
            _amend(fields, "model", _setting(key, said[name]))
    if "protocol" in said:
        fields["protocol"] = _renamed(fields.get("protocol", Node(None)), said["protocol"])
    for name in _OF_PROTOCOLS:
        if name in said:
            _amend(fields, "protocol", _setting(name, said[name]))
    gone = [name for name in _OF_ATTACKS if name in said]
    if gone and "attacks" in fields:
        fields["attacks"] = _each(fields["attacks"], lambda entry: _without(entry, gone))
    return Node(fields, document.line, document.source)


def _node(name: str, value: Any) -> Node:
    if isinstance(value, list | tuple):
        # An option that is repeated with the same value says nothing new.
        value = list({json.dumps(item, sort_keys=True): item for item in value}.values())
        if len(value) == 1 and name not in _STEERING:
            [value] = value
    return plant(value, source=f"--{name.replace('_', '-')}")


def _setting(key: str, node: Node) -> Callable[[Fields], Fields]:
    return lambda entry: {**entry, key: node}


def _renamed(entries: Node, names: Node) -> Node:
    """Return other protocols with what every protocol of the document takes."""
    kept = [
        {key: value for key, value in entry.value.items() if key in _OF_PROTOCOLS}
        if isinstance(entry.value, dict)
        else {}
        for entry in (entries.value if isinstance(entries.value, list) else [entries])
    ]
    made = [
        Node({**old, **(new.value if isinstance(new.value, dict) else {"name": new})}, new.line, new.source)
        for old in kept
        for new in (names.value if isinstance(names.value, list) else [names])
    ]
    return _each(made[0] if len(made) == 1 else Node(made, names.line, names.source), lambda entry: entry)


def _amend(fields: Fields, key: str, change: Callable[[Fields], Fields]) -> None:
    """Change every entry of a key, the default one if there is none."""
    fields[key] = _each(fields.get(key, Node(_DEFAULTS[key])), lambda entry: change(_mapping(entry, _DEFAULTS[key])))


def _mapping(entry: Fields | Node, default: str) -> Fields:
    if isinstance(entry, Node):
        return {"name": entry}
    return entry if "name" in entry else {**entry, "name": Node(default)}


def _each(entries: Node, change: Callable[[Any], Fields | Node]) -> Node:
    """Change an entry or each of a list of them; of those that become alike, the first stays."""
    if not isinstance(entries.value, list):
        return _changed(entries, change)
    changed = [_changed(entry, change) for entry in entries.value]
    alike = {json.dumps(node.plain(), sort_keys=True): node for node in reversed(changed)}
    kept = [node for node in changed if any(node is other for other in alike.values())]
    return Node(kept, entries.line, entries.source)


def _changed(entry: Node, change: Callable[[Any], Fields | Node]) -> Node:
    made = change(entry.value if isinstance(entry.value, dict) else entry)
    return Node(made, entry.line, entry.source) if isinstance(made, dict) else made


def _without(entry: Fields | Node, gone: list[str]) -> Fields | Node:
    if isinstance(entry, Node):
        return entry
    kept = {key: node for key, node in entry.items() if key not in gone}
    options = kept.get("options")
    if options is not None and isinstance(options.value, dict):
        kept["options"] = Node({k: n for k, n in options.value.items() if k not in gone}, options.line, options.source)
    # An entry with nothing but its name is that name, so that repeats are seen as such.
    return kept["name"] if set(kept) == {"name"} else kept
