"""An audit document: what to audit in YAML, or as the same mapping in Python, with lists that sweep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seepage import registry
from seepage.config.choices import MOST, Choice, Said, check_made, check_names, each, read_choices, shown
from seepage.config.mistakes import Mistakes
from seepage.config.override import override
from seepage.config.tree import Node, join, parse, plant, read_text
from seepage.errors import unknown_name
from seepage.models.own import is_own
from seepage.settings.spec import AuditSpec, Gate, Part, Problem, Training, try_spec

# Keys of one value each by what they take, and the fields of AuditSpec that they fill.
_TEXTS = {"data": "data", "target": "target", "schema": "schema_file", "separator": "separator", "device": "device"}
_TEXTS |= {"data_folder": "data_folder", "missing": "missing"}
_PATHS = ("data", "schema", "data_folder")
_WHOLES = {key: key for key in ("victims", "threads", "workers", "most_categories", "most_encoded")}
_SWITCHES = {key: key for key in ("keep_records", "control")}
_COLUMNS = {key: key for key in ("sensitive", "drop")}
# Keys whose lists make a spec each.
_CHOSEN = ("labels", "batch_statistics", "profile")
_COUNTED = ("restarts", "iterations", "seed")
_PARTS = {
    "attacks": registry.attacks.of("horizontal"),
    "defenses": registry.defenses.of("horizontal"),
    "baselines": registry.baselines.of("horizontal"),
    "metrics": registry.metrics,
}
_OF_OWN_TABLES = (
    *("target", "schema", "sensitive", "drop", "overrides", "missing", "most_categories", "most_encoded", "separator"),
)

# Keys about the table.
TABLE_KEYS = ("dataset", "data", *_OF_OWN_TABLES, "data_folder")
KEYS = (
    *("dataset", *_TEXTS, *_COLUMNS, "overrides", "model", "training", "protocol", *_PARTS),
    *(*_CHOSEN, *_COUNTED, *_WHOLES, *_SWITCHES, "gate"),
)
# Where what one might look for at the top has its place.
_ELSEWHERE = {
    "batch_size": "protocol: {name: fedsgd, batch_size: [8, 32]}",
    "batch_sizes": "protocol: {name: fedsgd, batch_size: [8, 32]}",
    "replacement": "protocol: {name: fedsgd, replacement: true}",
    "head": "model: {name: nn3, head: softmax}",
    "model_seed": "model: {name: nn3, seed: 0}",
    "weights": "model: {name: nn3, weights: weights.safetensors}",
    "model_options": "model: {name: nn3, ...}",
    "dataset_options": "dataset: {name: adult, missing: category}",
    "schema_file": "schema: people.yaml",
    "fail_above": "gate: {above: 0.2}",
    "fail_column": "gate: {above: 0.2, column: age}",
}
# Options of a model that the audit has fields for.
_OF_MODELS = {"head": "head", "seed": "model_seed", "weights": "weights"}


def read_document(path: str | Path, given: Mapping[str, Any] | None = None) -> list[AuditSpec]:
    """Return the audits of a YAML document.

    Args:
        path: of the document; files that it names are looked for from its folder.
        given: options of the command line, which take precedence, see ``override``.

    Raises:
        DocumentError: something in it cannot be used; it tells document, line and key of every mistake.
    """
    return read_text_document(read_text(path), str(path), Path(path).parent, given)


def read_text_document(text: str, name: str, folder: Path, given: Mapping[str, Any] | None = None) -> list[AuditSpec]:
    """Return the audits of the text of a YAML document.

    Args:
        text: of the document.
        name: for messages.
        folder: where the files that it names are looked for.
        given: options of the command line, which take precedence, see ``override``.

    Raises:
        DocumentError: something in it cannot be used; it tells document, line and key of every mistake.
    """
    return _specs(override(parse(text, name), given or {}), name, folder)


def make_specs(document: Mapping[str, Any]) -> list[AuditSpec]:
    """Return the audits of a document that is given as a mapping: the same keys, the same checks.

    Raises:
        DocumentError: something in it cannot be used; it tells the key of every mistake.

    Example:
        >>> [a, b] = make_specs({"model": "nn1", "labels": ["true", "restored"], "protocol": {"batch_size": [1, 8]}})
        >>> a.labels, b.labels, a.batch_sizes, b.variant
        ('true', 'restored', (1, 8), 'labels=restored')
        >>> [spec] = make_specs({"attacks": {"name": "tableak", "restarts": [10, 30]}})
        >>> [part.called for part in spec.attacks]
        ['tableak(restarts=10)', 'tableak(restarts=30)']
    """
    return _specs(plant(dict(document)), "", Path())


def table_spec(root: Node, source: str, folder: Path) -> AuditSpec:
    """Return a spec of the table of one's own that a document names by ``TABLE_KEYS``.

    Raises:
        DocumentError: what is said of the table cannot be used.
    """
    [spec] = _specs(root, source, folder)
    return spec


@dataclass(frozen=True)
class _Point:
    """What one point of a sweep sets.

    Attributes:
        fields: of ``AuditSpec``.
        places: where each stands, by field and, for an item of a list, its index.
        told: what tells it from the other points, empty where results do anyway.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple[str, int | None], Said] = field(default_factory=dict)
    told: str = ""

    @classmethod
    def of(cls, name: str, said: Said, told: str = "") -> _Point:
        """Return the point that sets one field to what was said."""
        return cls({name: said.value}, {(name, None): said}, told)


def _specs(root: Node, source: str, folder: Path) -> list[AuditSpec]:
    mistakes = Mistakes(source)
    given = _known_keys(root, mistakes)
    _check_table(given, mistakes)
    # Outermost first: what takes longest to load changes least often.
    axes = [
        [_fixed(given, folder, mistakes)],
        _datasets(given, mistakes),
        _models(given, folder, mistakes),
        _trainings(given, mistakes),
        _protocols(given, mistakes),
        *(_values(key, given, _text, mistakes) for key in _CHOSEN),
        *(_values(key, given, _whole, mistakes) for key in _COUNTED),
    ]
    # Each point by itself, so that all mistakes are told at once; what does not go together shows below.
    for point in itertools.chain(*axes):
        made = try_spec({name: value for name, value in point.fields.items() if value is not None})
        if not isinstance(made, AuditSpec):
            _note([problem for problem in made if not problem.contradiction], point.places, root, mistakes)
    mistakes.check()
    number = math.prod(map(len, axes))
    if number > MOST:
        mistakes.add(root.line, "", f"sweeps over {number:,} audits; a document takes at most {MOST:,}.")
        mistakes.check()
    made = [_spec(points, axes, root, mistakes) for points in itertools.product(*axes)]
    mistakes.check()
    return [spec for spec in made if spec is not None]


def _spec(
    points: Sequence[_Point], axes: Sequence[Sequence[_Point]], root: Node, mistakes: Mistakes
) -> AuditSpec | None:
    fields = {name: value for point in points for name, value in point.fields.items()}
    told = [point.told for point, axis in zip(points, axes, strict=True) if len(axis) > 1 and point.told]
    made = try_spec({**fields, "variant": ", ".join(told) or None})
    if isinstance(made, AuditSpec):
        return made
    _note(made, {place: said for point in points for place, said in point.places.items()}, root, mistakes)
    return None


def _note(
    problems: Sequence[Problem], places: Mapping[tuple[str, int | None], Said], root: Node, mistakes: Mistakes
) -> None:
    for problem in problems:
        said = places.get((problem.field, problem.index)) or places.get((problem.field, None))
        if said is None:
            mistakes.add(root.line, problem.field, problem)
        elif not mistakes.touch(said.node.source or said.path):
            said.wrong(mistakes, _message(problem, said))


def _message(problem: Problem, said: Said) -> str:
    if not problem.path:
        return problem.message
    return f"{problem.message[:1].lower()}{problem.message[1:]}, got {shown(said.value)}."


def _known_keys(root: Node, mistakes: Mistakes) -> dict[str, Said]:
    assert isinstance(root.value, dict)
    given = {}
    for key, node in root.value.items():
        said = Said(node.plain(), node, key)
        if key in _ELSEWHERE:
            said.wrong(mistakes, f"has its place elsewhere; write {_ELSEWHERE[key]}")
        elif key not in KEYS:
            said.wrong(mistakes, unknown_name("key", key, KEYS))
        elif node.value is None:
            said.wrong(mistakes, "has no value; give one, or leave the key out for the default.")
        else:
            given[key] = said
    return given


def _check_table(given: Mapping[str, Said], mistakes: Mistakes) -> None:
    if "data" not in given:
        for key in _OF_OWN_TABLES:
            if key in given:
                given[key].wrong(
                    mistakes,
                    "describes a table of your own, but no data file was given; add the file (data: FILE, --data FILE) "
                    f"or leave {key} out.",
                )
    elif "dataset" in given:
        given["data"].wrong(
            mistakes,
            "is a table of your own, but a dataset is named too; leave one of the two out.",
        )


def _fixed(given: Mapping[str, Said], folder: Path, mistakes: Mistakes) -> _Point:
    """Return what all specs share."""
    point = _Point()

    def put(name: str, value: Any, said: Said) -> None:
        point.fields[name] = value
        point.places[name, None] = said

    kinds: list[tuple[dict[str, str], Callable[[Said, Mistakes], Any]]] = [
        (_TEXTS, _text),
        (_WHOLES, _whole),
        (_SWITCHES, _switch),
        (_COLUMNS, _columns),
    ]
    for keys, read in kinds:
        for key, name in keys.items():
            if key not in given:
                continue
            said = given[key]
            value = read(said, mistakes)
            if key in _PATHS and isinstance(value, str):
                value = _found(value, said, folder)
            put(name, value, said)
    for key in _PARTS:
        if key in given:
            choices = _parts(key, given[key], mistakes)
            made = tuple(
                Part(name=c.name, options=c.values, label=None if c.called == c.name else c.label) for c in choices
            )
            put(key, made, given[key])
            point.places.update({(key, i): choice.entry for i, choice in enumerate(choices)})
    if "overrides" in given:
        put("overrides", _overrides(given["overrides"], mistakes), given["overrides"])
    if "gate" in given:
        put("gate", read_gate(given["gate"], mistakes), given["gate"])
    return point


def _found(name: str, said: Said, folder: Path) -> Path:
    # What the command line names lies where that was typed.
    return Path(name).expanduser() if said.node.source else folder / Path(name).expanduser()


def _one(said: Said, mistakes: Mistakes) -> bool:
    if isinstance(said.value, list | dict):
        said.wrong(
            mistakes,
            f"takes one value, got {shown(said.value)}; lists sweep in protocol, attacks, defenses, baselines, model, "
            f"dataset, {', '.join((*_CHOSEN, *_COUNTED))}.",
        )
        return False
    return True


def _text(said: Said, mistakes: Mistakes) -> str | None:
    if said.path.startswith("labels") and said.value is True:
        return "true"
    if not isinstance(said.value, str):
        if _one(said, mistakes):
            said.wrong(mistakes, f"expected a text, got {shown(said.value)}; put it in quotes if it is meant as one.")
        return None
    if not said.value:
        said.wrong(mistakes, "expected a text, got an empty one; leave the key out for the default.")
    return said.value


def _whole(said: Said, mistakes: Mistakes) -> int | None:
    if isinstance(said.value, int) and not isinstance(said.value, bool):
        return said.value
    if _one(said, mistakes):
        said.wrong(mistakes, f"expected a whole number, got {shown(said.value)}.")
    return None


def _switch(said: Said, mistakes: Mistakes) -> bool | None:
    if isinstance(said.value, bool):
        return said.value
    if _one(said, mistakes):
        said.wrong(mistakes, f"expected true or false, got {shown(said.value)}.")
    return None


def _columns(said: Said, mistakes: Mistakes) -> tuple[str, ...]:
    entries = said.node.items()
    for i, node in enumerate(entries):
        if not isinstance(node.value, str):
            place = Said(node.plain(), node, f"{said.path}[{i}]")
            place.wrong(mistakes, f"expected the name of a column, got {shown(place.value)}; put it in quotes.")
    return tuple(str(node.value) for node in entries)


def _overrides(said: Said, mistakes: Mistakes) -> dict[str, dict[str, Any]]:
    if not isinstance(said.value, dict):
        said.wrong(
            mistakes,
            f"expected columns and what they are, such as {{age: {{low: 0}}, zip: discrete}}, got {shown(said.value)}.",
        )
        return {}
    made = {}
    for column, node in said.value.items():
        fields = {"kind": node} if isinstance(node, str) else node
        if isinstance(fields, dict):
            made[str(column)] = fields
        else:
            said.wrong(mistakes, f"column {column!r}: expected discrete, continuous or fields, got {shown(node)}.")
    return made


def _values(
    key: str, given: Mapping[str, Said], read: Callable[[Said, Mistakes], Any], mistakes: Mistakes
) -> list[_Point]:
    if key not in given:
        return [_Point()]
    points = []
    for said in each(given[key], mistakes):
        value = read(said, mistakes)
        points.append(_Point.of(key, Said(value, said.node, said.path), f"{key}={value}"))
    return points


def _choice_point(choice: Choice, name: str, fields: Mapping[str, str], rest: str | None) -> _Point:
    """Return what a choice sets: the field of its name, fields of some options, and one field for the rest of them."""
    point = _Point({name: choice.name}, {(name, None): choice.entry}, choice.called if choice.label else "")
    others = {}
    for key, said in choice.options.items():
        if key in fields:
            point.fields[fields[key]] = said.value
            point.places[fields[key], None] = said
        else:
            others[key] = said.value
    if rest is not None and others:
        point.fields[rest] = others
        point.places[rest, None] = choice.entry
    return point


def _datasets(given: Mapping[str, Said], mistakes: Mistakes) -> list[_Point]:
    if "dataset" not in given:
        return [_Point()]
    choices = read_choices(given["dataset"].node, "dataset", registry.datasets, mistakes)
    for choice in choices:
        # The audit hands the folder over.
        check_names(choice, choice.options, registry.datasets, ("folder",), mistakes)
    return [_choice_point(choice, "dataset", {}, "dataset_options") for choice in choices]


def _models(given: Mapping[str, Said], folder: Path, mistakes: Mistakes) -> list[_Point]:
    if "model" not in given:
        return [_Point()]
    points = []
    for choice in read_choices(given["model"].node, "model", registry.models, mistakes, is_own):
        rest = {key: said for key, said in choice.options.items() if key not in _OF_MODELS}
        if not is_own(choice.name):
            check_names(choice, rest, registry.models, ("schema", *_OF_MODELS), mistakes)
        if "seed" in choice.options:
            _whole(choice.options["seed"], mistakes)
        point = _choice_point(choice, "model", _OF_MODELS, "model_options")
        if is_own(choice.name) and choice.name.partition(":")[0].endswith(".py"):
            point.fields["model"] = str(_found(choice.name, choice.entry, folder))
        if "weights" in choice.options:
            said = choice.options["weights"]
            point.fields["weights"] = _text(said, mistakes) and _found(said.value, said, folder)
        points.append(point)
    return points


def _trainings(given: Mapping[str, Said], mistakes: Mistakes) -> list[_Point]:
    if "training" not in given:
        return [_Point()]
    said = given["training"]
    if not isinstance(said.node.value, dict):
        said.wrong(mistakes, f"expected options, such as {{rounds: [0, 9]}}, got {shown(said.value)}.")
        return [_Point()]
    swept: dict[str, list[Said]] = {}
    for key, node in said.node.value.items():
        place = Said(node.plain(), node, join(said.path, key))
        if key not in Training.model_fields:
            place.wrong(mistakes, unknown_name("option of training:", key, Training.model_fields))
        swept[key] = each(place, mistakes)
    points = []
    for values in itertools.product(*swept.values()):
        options = {key: value.value for key, value in zip(swept, values, strict=True)}
        told = [f"{key}={options[key]}" for key in swept if len(swept[key]) > 1]
        points.append(_Point({"training": options}, {("training", None): said}, ", ".join(told)))
    return points


def _protocols(given: Mapping[str, Said], mistakes: Mistakes) -> list[_Point]:
    if "protocol" not in given:
        return [_Point()]
    # A spec sweeps over batch sizes itself, so they are no axis of their own.
    node, sizes = _without_sizes(given["protocol"].node)
    points = []
    protocols = registry.protocols.of("horizontal")
    for choice in read_choices(node, "protocol", protocols, mistakes):
        rest = {key: said for key, said in choice.options.items() if key != "replacement"}
        fields = ("batch_size", "replacement")
        check_names(choice, rest, protocols, (*fields, "defense"), mistakes, ("name", *fields))
        if "replacement" in choice.options:
            _switch(choice.options["replacement"], mistakes)
        point = _choice_point(choice, "protocol", {"replacement": "replacement"}, "protocol_options")
        if choice.entry.path in sizes:
            said = sizes[choice.entry.path]
            items = each(said, mistakes, "batch size")
            sizes_read = [_whole(item, mistakes) for item in items]
            # What is no number has been noted; the others are still to be checked.
            point.fields["batch_sizes"] = tuple(1 if size is None else size for size in sizes_read)
            point.places["batch_sizes", None] = said
            point.places.update({("batch_sizes", i): item for i, item in enumerate(items)})
        points.append(point)
    return points


def _without_sizes(node: Node) -> tuple[Node, dict[str, Said]]:
    """Return the protocols without their batch sizes, and those by the path of their entry."""
    sizes: dict[str, Said] = {}

    def strip(entry: Node, path: str) -> Node:
        if not isinstance(entry.value, dict):
            return entry
        rest = dict(entry.value)
        if "batch_size" in rest:
            size = rest.pop("batch_size")
            sizes[path] = Said(size.plain(), size, join(path, "batch_size"))
        return Node(rest if "name" in rest else {"name": Node("fedsgd", entry.line), **rest}, entry.line, entry.source)

    if isinstance(node.value, list):
        stripped = Node([strip(n, f"protocol[{i}]") for i, n in enumerate(node.value)], node.line, node.source)
        return stripped, sizes
    return strip(node, "protocol"), sizes


def _parts(key: str, said: Said, mistakes: Mistakes) -> list[Choice]:
    choices = read_choices(said.node, key, _PARTS[key], mistakes)
    for choice in choices:
        check_made(choice, _PARTS[key], mistakes)
    return choices


def read_gate(said: Said, mistakes: Mistakes) -> Gate | None:
    """Return what the key ``gate`` says, None where it says nothing that can be used."""
    fields = said.node.value if isinstance(said.node.value, dict) else {"above": said.node}
    places = {key: Said(node.plain(), node, join(said.path, key)) for key, node in fields.items()}
    for key, place in places.items():
        if key not in Gate.model_fields:
            place.wrong(mistakes, unknown_name("key of the gate:", key, Gate.model_fields))
    above, column = places.get("above"), places.get("column")
    if above is None:
        said.wrong(mistakes, "needs the lift over guessing above which the audit fails; add it, such as above: 0.2.")
        return None
    limit = above.value
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < 1:
        above.wrong(mistakes, f"expected a lift over guessing from 0 up to but below 1, got {shown(limit)}.")
        return None
    if column is not None and not isinstance(column.value, str):
        column.wrong(mistakes, f"expected the name of a column, got {shown(column.value)}; put it in quotes.")
        return None
    return Gate(above=limit, column=None if column is None else column.value)
