"""Values of the command line take precedence over a document."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

from seepage.config.tree import Node, plant
from seepage.settings.option import SpecField, fields_of
from seepage.settings.spec import Spec

Fields = dict[str, Node]


def keys_of(spec: type[Spec]) -> dict[str, SpecField]:
    """Return the fields of a spec that documents may set, by their keys there."""
    return {field.key: field for field in fields_of(spec).values() if not field.option.consent}


def override(document: Node, given: Mapping[str, object], spec: type[Spec]) -> Node:
    """Return a document in which values of the command line, by field and None if not given, replace what it says."""
    assert isinstance(document.value, dict)
    fields, by_key = fields_of(spec), keys_of(spec)
    nodes = {name: _node(fields[name], value) for name, value in given.items() if value is not None}
    # What a document says about one table is of no use for another one.
    gone = {*nodes, *(other for name in nodes for other in fields[name].option.replaces)}
    gone_options = {name for name in nodes if fields[name].option.of_attacks}
    left: Fields = {}
    for key, node in document.value.items():
        field = by_key.get(key)
        if field is None:
            left[key] = node
            continue
        below = {str(other.option.key): other for other in fields.values() if other.option.below == field.name}
        going = {key for key, other in below.items() if other.name in gone}
        if "" in going and field.name not in gone:
            node = _each(node, lambda entry, keys={"name", "label", *below}: _only(entry, keys))
        staying = {key for key in below if key} - going
        if field.name in nodes and field.kind == "model":
            nodes[field.name] = _merged(field, node, nodes[field.name])
        elif field.name in nodes and staying:
            # Another protocol keeps what every protocol of the document takes.
            nodes[field.name] = _renamed(_each(node, lambda entry, keys=staying: _only(entry, keys)), nodes[field.name])
        elif field.name not in gone:
            stripped = _each(node, lambda entry, keys=going: _without(entry, keys)) if going else node
            if field.parts and gone_options:
                stripped = _each(stripped, lambda entry: _without(entry, gone_options))
            if stripped.value != {}:
                left[key] = stripped
    new = {fields[name].key: node for name, node in nodes.items()}
    return Node({**left, **new}, document.line, document.source).at("")


def _node(field: SpecField, value: object) -> Node:
    if field.kind == "model" and isinstance(value, Mapping):
        inner = {name: plant(v, source=field.fields[name].flag) for name, v in value.items()}
        return Node(inner, 0, next((node.source for node in inner.values()), field.flag))
    if isinstance(value, list | tuple) and (field.parts or not field.several):
        # An option that is repeated with the same value says nothing new.
        value = list({json.dumps(item, sort_keys=True, default=str): item for item in value}.values())
        if len(value) == 1:
            [value] = value
    return plant(value, source=field.flag)


def _merged(field: SpecField, old: Node, new: Node) -> Node:
    if not isinstance(old.value, dict) and field.option.whole is not None:
        old = Node({field.option.whole: old}, old.line, old.source)
    if not isinstance(old.value, dict) or not isinstance(new.value, dict):
        return new
    return Node({**old.value, **new.value}, old.line, old.source)


def _renamed(entries: Node, names: Node) -> Node:
    """Return other named parts with the options that remain of the document's entries."""
    renamed = [
        Node({**(old.value if isinstance(old.value, dict) else {}), **_mapping(new)}, new.line, new.source)
        for old in entries.items()
        for new in names.items()
    ]
    return _each(renamed[0] if len(renamed) == 1 else Node(renamed, names.line, names.source), lambda entry: entry)


def _mapping(entry: Node) -> Fields:
    return entry.value if isinstance(entry.value, dict) else {"name": entry}


def _each(entries: Node, change: Callable[[Node], Node]) -> Node:
    """Change an entry or each of a list of them; of those that become alike, the first stays."""
    if not isinstance(entries.value, list):
        return change(entries)
    changed = [change(entry) for entry in entries.value]
    alike = {json.dumps(node.plain(), sort_keys=True): node for node in reversed(changed)}
    distinct = [node for node in changed if any(node is other for other in alike.values())]
    return distinct[0] if len(distinct) == 1 else Node(distinct, entries.line, entries.source)


def _only(entry: Node, keys: Collection[str]) -> Node:
    value = entry.value if isinstance(entry.value, dict) else {"name": entry}
    return Node({key: node for key, node in value.items() if key in keys}, entry.line, entry.source)


def _without(entry: Node, gone: Collection[str]) -> Node:
    if not isinstance(entry.value, dict):
        return entry
    rest = {key: node for key, node in entry.value.items() if key not in gone}
    options = rest.get("options")
    if options is not None and isinstance(options.value, dict):
        rest["options"] = Node({k: n for k, n in options.value.items() if k not in gone}, options.line, options.source)
    # An entry with nothing but its name is that name, so that repeats are seen as such.
    return rest["name"] if set(rest) == {"name"} else Node(rest, entry.line, entry.source)
