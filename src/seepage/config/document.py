"""An audit document of any setting: YAML, or the same mapping in Python, whose keys are the fields of its spec."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from seepage.config.choices import (
    MOST,
    MOST_SWEPT,
    Choice,
    Entries,
    check_names,
    check_options,
    items_of,
    no_consent,
    shown,
)
from seepage.config.tree import Mistakes, Node, join, parse, plant, read_text
from seepage.config.wording import as_key, as_option
from seepage.errors import unknown_name
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.catalogue import settings
from seepage.settings.option import SpecField, fields_of
from seepage.settings.part import Part
from seepage.settings.spec import Problem, Spec

SETTING = "setting"
HORIZONTAL = "horizontal"
# What an audit gives the factories of named parts itself, by the kind of part.
_GIVEN = {
    "datasets": ("folder",),
    "models": ("schema", "seed", "seeds", "head", "weights", "private", "partition"),
    "protocols": ("batch_size", "replacement", "defense"),
}

# Whether a document may name code: none, all, or networks alone, which reading does not load.
AllowedCode = bool | Literal["networks"]


def read_document(
    path: str | Path, given: Mapping[str, object] | None = None, *, allow_code: AllowedCode = False
) -> list[Spec]:
    """Return the audits of a YAML document.

    Args:
        path: path of the document; files that it names are looked for from its folder.
        given: values of fields from the command line, which take precedence, see ``override``.
        allow_code: whether the document may name code, see ``read_text_document``.

    Raises:
        DocumentError: something in it cannot be used; it names document, line and key of every mistake.
    """
    return read_text_document(read_text(path), str(path), Path(path).parent, given, allow_code=allow_code)


def read_text_document(
    text: str, name: str, folder: Path, given: Mapping[str, object] | None = None, *, allow_code: AllowedCode = False
) -> list[Spec]:
    """Return the audits of the text of a YAML document; values of ``given`` take precedence, see ``override``.

    It may come from somebody else, so that it names code only with ``allow_code``; what ``given`` names may always be
    code.
    """
    return _specs(parse(text, name), name, folder, given or {}, allow_code)


def make_specs(
    document: Mapping[str, object], given: Mapping[str, object] | None = None, *, allow_code: AllowedCode = False
) -> list[Spec]:
    """Return the audits of a document that is given as a mapping: the same keys, the same checks.

    Args:
        document: keys and values.
        allow_code: whether the document may name code, see ``read_text_document``.
        given: values of fields that take precedence, see ``override``.

    Raises:
        DocumentError: something in it cannot be used; it names the key of every mistake.

    Example:
        >>> [a, b] = make_specs({"model": "nn1", "labels": ["true", "restored"], "protocol": {"batch_size": [1, 8]}})
        >>> a.labels, b.labels, a.batch_sizes, b.variant
        ('true', 'restored', (1, 8), 'labels=restored')
    """
    return _specs(plant(dict(document)), "", Path(), given or {}, allow_code)


def setting_of(text: str, name: str) -> str:
    """Return the setting of the text of a document."""
    mistakes = Mistakes(name)
    return _setting(parse(text, name), mistakes)


def _setting(root: Node, mistakes: Mistakes) -> str:
    assert isinstance(root.value, dict)
    if SETTING not in root.value:
        return HORIZONTAL
    name = root.value[SETTING]
    if not isinstance(name.value, str) or name.value not in settings():
        name.wrong(mistakes, unknown_name("setting", shown(name.plain()), settings()))
    # Without it no other key can be judged.
    mistakes.check()
    return str(name.value)


@dataclass(frozen=True)
class _Point:
    """The fields that one point of a sweep sets, their places, and a label if results do not differ anyway."""

    fields: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple[str | int, ...], Node] = field(default_factory=dict)
    label: str = ""


def _specs(root: Node, source: str, folder: Path, given: Mapping[str, object], allow_code: AllowedCode) -> list[Spec]:
    mistakes = Mistakes(source)
    kind = find_setting(_setting(root, mistakes)).spec
    reader = _Reader(kind, folder, mistakes, allow_code)
    assert isinstance(root.value, dict)
    fields = {key: value for key, value in root.value.items() if key != SETTING}
    root = override(Node(fields, root.line, root.source), given, kind)
    axes = reader.axes(root)
    # Each point by itself, so that all mistakes are reported at once; what does not go together shows below.
    for point in itertools.chain(*axes):
        attempted = kind.attempt(point.fields)
        if isinstance(attempted, list):
            problems = [problem for problem in attempted if not problem.contradiction]
            _note(kind, problems, point.places, root, mistakes)
    if not len(mistakes):
        reader.check_complete()
    mistakes.check()
    number = math.prod(map(len, axes))
    multiplied = [
        name for name, field in fields_of(kind).items() if field.option.swept or name in ("attacks", "defenses")
    ]
    whole = number * math.prod(_longest(axes, name) for name in multiplied)
    for count, what, most in ((number, "audits", MOST), (whole, "combinations", MOST_SWEPT)):
        if count > most:
            mistakes.add(root.line, "", f"sweeps over {count:,} {what}; a document takes at most {most:,}.")
            mistakes.check()
    specs = [_spec(kind, points, axes, root, mistakes) for points in itertools.product(*axes)]
    mistakes.check()
    return [spec for spec in specs if spec is not None]


def _longest(axes: Sequence[Sequence[_Point]], name: str) -> int:
    """Return the length of the longest list that a point gives a field; 1 where there is none."""
    values = [point.fields[name] for axis in axes for point in axis if name in point.fields]
    return max([1, *(len(value) for value in values if isinstance(value, list | tuple))])


def _spec(
    kind: type[Spec], points: Sequence[_Point], axes: Sequence[Sequence[_Point]], root: Node, mistakes: Mistakes
) -> Spec | None:
    fields = {name: value for point in points for name, value in point.fields.items()}
    labels = [point.label for point, axis in zip(points, axes, strict=True) if len(axis) > 1 and point.label]
    if labels:
        fields["variant"] = ", ".join([*([fields["variant"]] if fields.get("variant") else []), *labels])
    attempted = kind.attempt(fields)
    if isinstance(attempted, Spec):
        return attempted
    _note(kind, attempted, {place: item for point in points for place, item in point.places.items()}, root, mistakes)
    return None


def _note(
    kind: type[Spec],
    problems: Sequence[Problem],
    places: Mapping[tuple[str | int, ...], Node],
    root: Node,
    mistakes: Mistakes,
) -> None:
    for problem in problems:
        lengths = range(len(problem.path), 0, -1)
        depth = next((length for length in lengths if problem.path[:length] in places), 0)
        value = places[problem.path[:depth]].within(problem.path[depth:]) if depth else root
        message = problem.message
        if problem.advised is not None:
            wording = as_option if value.source else as_key
            message = problem.advised.worded(lambda remedy, wording=wording: wording(remedy, kind))
        elif problem.value is not None:
            message = f"{message}, got {shown(value.plain() if depth else problem.value)}."
            if problem.message == "expected a text" and depth and not isinstance(value.value, list | dict):
                message = f"{message[:-1]}; put it in quotes if it is meant as one."
        if not mistakes.touch(value.source or value.path or " "):
            value.wrong(mistakes, message)


class _Reader:
    """Reads the keys of a document of one setting."""

    def __init__(self, kind: type[Spec], folder: Path, mistakes: Mistakes, allow_code: AllowedCode) -> None:
        self._kind, self._folder, self._mistakes, self._allow_code = kind, folder, mistakes, allow_code
        self._fields = fields_of(kind)
        # Checks of names without options, whose modules are imported only where all else is well.
        self._later: list[Callable[[], None]] = []

    def axes(self, root: Node) -> list[list[_Point]]:
        """Return what a document sweeps over, outermost first: what takes longest to load changes least often."""
        assert isinstance(root.value, dict)
        by_key = {field.key: field for field in self._fields.values()}
        read: dict[str, list[_Point]] = {}
        for key, value in root.value.items():
            if key not in by_key:
                self._unknown(value)
            elif by_key[key].option.consent and value.source is None:
                value.wrong(
                    self._mistakes,
                    f"is consent, which a document cannot give; leave the key out, and give {by_key[key].flag} "
                    f"(in Python: {by_key[key].name}=True).",
                )
            elif value.value is None:
                value.wrong(self._mistakes, "has no value; give one, or leave the key out for the default.")
            else:
                read[by_key[key].name] = self._read(by_key[key], value)
        self._only_once(read)
        slow = {name for name, field in self._fields.items() if self._named(field) or field.kind == "model"}
        places = list(self._fields)
        return [read[name] for name in sorted(read, key=lambda name: (name not in slow, places.index(name)))]

    def check_complete(self) -> None:
        """Note parts that need an option and have none."""
        for check in self._later:
            check()

    def _named(self, field: SpecField) -> bool:
        return field.option.parts is not None and not field.several

    def _unknown(self, key: Node) -> None:
        for spec_field in self._fields.values():
            if spec_field.option.below is not None and spec_field.option.key == key.path:
                key.wrong(
                    self._mistakes, f"has its place elsewhere; write {spec_field.option.below}: {{{key.path}: ...}}"
                )
                return
            for name, inner in spec_field.fields.items():
                if inner.option.name == key.path:
                    key.wrong(self._mistakes, f"has its place elsewhere; write {spec_field.key}: {{{name}: ...}}")
                    return
        key.wrong(self._mistakes, unknown_name("key", key.path, keys_of(self._kind)))

    def _only_once(self, read: Mapping[str, list[_Point]]) -> None:
        """Note fields that two keys set, and keys of which each makes the other useless."""
        first: dict[str, str] = {}
        for name, points in read.items():
            for inner in dict.fromkeys(inner for point in points for inner in point.fields):
                place = next(point.places[(inner,)] for point in points if (inner,) in point.places)
                if inner in first:
                    place.wrong(self._mistakes, f"is given in {first[inner]} already; keep one of the two.")
                first[inner] = self._fields[name].key
            for other in self._fields[name].option.replaces:
                field = self._fields[name]
                if other in read and other != name and name in self._fields[other].option.replaces:
                    place = next(iter(read[name][0].places.values())) if read[name] else None
                    if place is not None and list(self._fields).index(other) < list(self._fields).index(name):
                        place.wrong(
                            self._mistakes,
                            f"{field.key} and {self._fields[other].key} exclude each other; leave one of the two out.",
                        )

    def _read(self, field: SpecField, value: Node) -> list[_Point]:
        if field.parts:
            return [self._parts(field, value)]
        if self._named(field):
            return self._choices(field, value)
        if field.kind == "model":
            return self._nested(field, value)
        if field.several or field.kind == "mapping":
            return [self._list(field, value)]
        return [
            _Point({field.name: self._value(field, item)}, {(field.name,): item}, f"{field.key}={shown(item.plain())}")
            for item in items_of(value, self._mistakes)
        ]

    def _value(self, field: SpecField, value: Node) -> object:
        if field.kind in ("path", "text") and value.value == "":
            value.wrong(self._mistakes, "expected a text, got an empty one; leave the key out for the default.")
            return None
        is_path = field.kind == "path" and isinstance(value.value, str)
        return self._file(str(value.value), value) if is_path else value.plain()

    def _file(self, name: str, place: Node) -> Path:
        # What the command line names lies where that was typed.
        path = Path(name).expanduser()
        return path if place.source else self._folder / path

    def _list(self, field: SpecField, value: Node) -> _Point:
        if field.several and field.option.swept:
            items = items_of(value, self._mistakes)
            places: dict[tuple[str | int, ...], Node] = {(field.name, i): item for i, item in enumerate(items)}
            return _Point({field.name: [item.plain() for item in items]}, {(field.name,): value, **places})
        return _Point({field.name: value.plain()}, {(field.name,): value})

    def _nested(self, field: SpecField, entry: Node) -> list[_Point]:
        inner, whole = field.fields, field.option.whole
        fields = entry.value
        if whole is not None and not isinstance(fields, dict):
            fields = {whole: entry.with_path(join(entry.path, whole))}
        if not isinstance(fields, dict):
            example = "{" + ", ".join(f"{name}: ..." for name in list(inner)[:2]) + "}"
            entry.wrong(self._mistakes, f"expected options, such as {example}, got {shown(entry.plain())}.")
            return []
        swept: dict[str, list[Node]] = {}
        for name, value in fields.items():
            if name not in inner:
                value.wrong(self._mistakes, unknown_name(f"key of {field.key}:", name, inner))
            swept[name] = [value] if name in inner and inner[name].several else items_of(value, self._mistakes)
        number = math.prod(map(len, swept.values()))
        if number > MOST:
            entry.wrong(self._mistakes, f"sweeps over {number:,} combinations; a document takes at most {MOST:,}.")
            return []
        points = []
        for values in itertools.product(*swept.values()):
            options = dict(zip(swept, values, strict=True))
            labels = [f"{name}={shown(options[name].plain())}" for name in swept if len(swept[name]) > 1]
            places: dict[tuple[str | int, ...], Node] = {(field.name, name): place for name, place in options.items()}
            plain = {name: value.plain() for name, value in options.items()}
            points.append(_Point({field.name: plain}, {(field.name,): entry, **places}, ", ".join(labels)))
        return points

    def _parts(self, field: SpecField, value: Node) -> _Point:
        registered = self._kind.registered(field)
        read = Entries(registered, self._mistakes, consent=self._allow_code is True, folder=self._folder)
        choices = read.read(value)
        for choice in choices:
            self._check(choice, partial(check_options, choice, registered, self._mistakes))
        parts = tuple(
            Part(name=c.name, options=c.values, label=None if c.title == c.name else c.label) for c in choices
        )
        places: dict[tuple[str | int, ...], Node] = {(field.name, i): c.entry for i, c in enumerate(choices)}
        return _Point({field.name: parts}, {(field.name,): value, **places})

    def _check(self, choice: Choice, check: Callable[[], None], options: Mapping[str, Node] | None = None) -> None:
        if choice.options if options is None else options:
            check()
        else:
            self._later.append(check)

    def _choices(self, field: SpecField, entries: Node) -> list[_Point]:
        """Return the fields that a named part with options sets."""
        registered = self._kind.registered(field)
        below = {other.option.key: other for other in self._fields.values() if other.option.below == field.name}
        rest = below.pop("", None)
        whole = [str(key) for key, other in below.items() if other.several]
        default = field.default if below else None
        given = _GIVEN.get(str(field.option.parts), ())
        points = []
        for choice in Entries(registered, self._mistakes, field.option.own, default, whole).read(entries):
            others = {key: value for key, value in choice.options.items() if key not in below}
            is_own = field.option.own and ":" in choice.name
            if is_own and field.option.code and choice.entry.source is None and not self._allow_code:
                choice.entry.wrong(self._mistakes, no_consent(choice.name))
            if not is_own:
                beside = ("name", *(str(key) for key in below))
                names = beside if below else ()
                self._check(
                    choice, partial(check_names, choice, others, registered, given, self._mistakes, names), others
                )
            point = _Point(
                {field.name: choice.name}, {(field.name,): choice.entry}, choice.title if choice.label else ""
            )
            if is_own and choice.name.partition(":")[0].endswith(".py"):
                point.fields[field.name] = str(self._file(choice.name, choice.entry))
            for key, value in choice.options.items():
                if key in below:
                    [inner] = self._read(below[key], value)
                    point.fields.update(inner.fields)
                    point.places.update(inner.places)
            if rest is not None and others:
                point.fields[rest.name] = {key: value.plain() for key, value in others.items()}
                point.places[(rest.name,)] = choice.entry
            points.append(point)
        return points


_SUFFIX = ".yaml"
_FOLDER = resources.files("seepage.config") / "presets"


def presets() -> dict[str, str]:
    """Return the presets' names with a line each that says what they are."""
    names = sorted(file.name.removesuffix(_SUFFIX) for file in _FOLDER.iterdir() if file.name.endswith(_SUFFIX))
    return {name: _text(name).split("\n", 1)[0].removeprefix("#").strip() for name in names}


def read_preset(name: str) -> str:
    """Return the document of a preset."""
    files = presets()
    if name not in files:
        raise unknown_name("preset", name, files)
    return _text(name)


def _text(name: str) -> str:
    return (_FOLDER / f"{name}{_SUFFIX}").read_text("utf-8")


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
    return Node({**left, **new}, document.line, document.source).with_path("")


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
