"""Entries of a document that name a registered part: with options, and with lists that sweep over them."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from seepage.config.tree import Mistakes, Node, is_word, join
from seepage.errors import BadInputError, unknown_name
from seepage.registry import Registry
from seepage.settings.part import Part, combine, read_part
from seepage.sources import is_file, is_reference, short_name

# More audits, or parts of one, than anyone can run; and more combinations of all that is swept over.
MOST, MOST_SWEPT = 10_000, 1_000_000
# Types of options that take a list, as they are written.
_LISTS = ("tuple", "list", "Sequence", "Iterable")


@dataclass(frozen=True)
class Choice:
    """A registered part with its options, each with its place: one point of the sweep of an entry."""

    name: str
    options: dict[str, Node]
    label: str | None
    entry: Node
    mechanisms: tuple[Choice, ...] = ()

    @property
    def title(self) -> str:
        """The name in results."""
        return Part(name=self.name, label=self.label).title

    @property
    def values(self) -> dict[str, object]:
        """The options without their places."""
        return {key: value.plain() for key, value in self.options.items()}


def items_of(value: Node, mistakes: Mistakes, what: str = "value") -> list[Node]:
    """Return the items of a list, or the value itself as the only item; note empty lists and repeats as mistakes."""
    items = value.items()
    if not items:
        value.wrong(mistakes, f"an empty list sweeps over nothing; give at least one {what}, or leave the key out.")
    places: dict[str, str] = {}
    for item in items:
        key = json.dumps(item.plain(), sort_keys=True)
        if key in places:
            item.wrong(mistakes, f"repeats {places[key]} ({shown(item.plain())}); a sweep takes each {what} once.")
        places.setdefault(key, item.path)
    return items


@dataclass(frozen=True)
class Entries:
    """Reads the parts that an entry, or a list of entries, sweeps over; after a noted mistake they are of no use.

    An entry is a registered name, or a mapping with ``name``, its options and perhaps a ``label``. A list as an option
    sweeps over its items, unless the part takes a list there; an item that is a list itself is one value. Options whose
    names are taken (``name``, ``label``) can be given below ``options``.

    With ``own``, names with a colon stand for a part of the user's own. ``default`` names an entry that says none, and
    ``whole`` options of which a list is one value. With ``consent``, names of code, which reading runs, are no mistake.
    """

    registry: Registry[object]
    mistakes: Mistakes
    own: bool = False
    default: str | None = None
    whole: Collection[str] = ()
    consent: bool = False
    folder: Path = Path()

    def read(self, entries: Node) -> list[Choice]:
        """Return the parts of all entries."""
        choices: list[Choice] = []
        for entry in items_of(entries, self.mistakes, "entry"):
            choices += self.entry(entry)
            if len(choices) > MOST:
                kind = self.registry.kind
                entry.wrong(self.mistakes, f"makes more than {MOST:,} {kind}s of the list; an audit takes no more.")
                return []
        return _with_distinct_labels(choices, self.registry.kind, self.mistakes)

    def entry(self, entry: Node) -> list[Choice]:
        """Return the parts that an entry sweeps over."""
        mistakes, kind = self.mistakes, self.registry.kind
        if isinstance(entry.value, str):
            return self.text(entry, entry.value)
        fields = entry.value
        if isinstance(fields, dict) and "all" in fields:
            return self.together(entry, fields)
        if isinstance(fields, dict) and "name" not in fields and len(fields) == 1 and self.default is None:
            # ``cut_noise: {scale: 1}`` is ``{name: cut_noise, scale: 1}``, as on the command line.
            [(name, options)] = fields.items()
            if isinstance(options.value, dict) and name in self.registry:
                fields = {"name": entry.instead(name), **options.value}
        if not isinstance(fields, dict):
            entry.wrong(
                mistakes,
                f"{kind}s are given by name, or as a mapping with name and options; got {shown(entry.plain())}.",
            )
            return []
        if "name" not in fields and self.default is None:
            entry.wrong(
                mistakes, f"this {kind} has no name; add one, such as 'name: {(self.registry.names() or ['...'])[0]}'."
            )
            return []
        named = fields.get("name", Node(self.default, entry.line, entry.source, join(entry.path, "name")))
        names = [item for item in map(self.located, items_of(named, mistakes, "name")) if self.is_registered(item)]
        axes: dict[str, list[Node]] = {}
        label: str | None = None
        for key, item in fields.items():
            if key == "label":
                label = _read_label(item, mistakes)
            elif key == "options" and isinstance(item.value, dict):
                for inner, value in item.value.items():
                    if inner in fields:
                        value.wrong(mistakes, f"{inner!r} is given beside 'options' already; keep one of them.")
                    axes[inner] = self.values(names, inner, value)
            elif key != "name":
                axes[key] = self.values(names, key, item)
        if self.sweeps_too_far(entry, [names, *axes.values()]):
            return []
        swept = [key for key, values in axes.items() if len(values) > 1]
        choices = []
        for name, *values in itertools.product(names, *axes.values()):
            options = dict(zip(axes, values, strict=True))
            base = label if label is None or len(names) == 1 else f"{label}:{name.value}"
            values_of_swept = {key: options[key].plain() for key in swept}
            title = describe(base or short_name(str(name.value)), values_of_swept) if swept else base
            choices.append(Choice(str(name.value), options, title, entry))
        return choices

    def text(self, entry: Node, text: str) -> list[Choice]:
        """Return the part that a text names: with options, or several mechanisms joined by ``+``."""
        if self.own and ":" in text:
            return [Choice(text, {}, None, entry)]
        try:
            part = Part.model_validate(read_part(text))
        except (BadInputError, ValidationError) as error:
            entry.wrong(self.mistakes, _refused(error))
            return []
        mechanisms = []
        for mechanism in part.mechanisms:
            name = self.located(entry.instead(mechanism.name))
            if not self.is_registered(name):
                return []
            options = {key: entry.instead(value) for key, value in mechanism.options.items()}
            mechanisms.append(Choice(str(name.value), options, None, entry))
        return mechanisms if len(mechanisms) == 1 else [_combined(mechanisms, None, entry)]

    def together(self, entry: Node, fields: Mapping[str, Node]) -> list[Choice]:
        """Return the combinations of mechanisms that an entry with the key ``all`` sweeps over."""
        for key, field in fields.items():
            if key not in ("all", "label"):
                field.wrong(
                    self.mistakes, unknown_name(f"key of a combined {self.registry.kind}:", key, ("all", "label"))
                )
        label = _read_label(fields["label"], self.mistakes) if "label" in fields else None
        lists = [self.entry(item) for item in fields["all"].items()]
        if self.sweeps_too_far(entry, lists):
            return []
        swept = any(len(item) > 1 for item in lists)
        return [
            _combined(
                mechanisms, describe(label, {c.name: c.values for c in mechanisms}) if swept and label else label, entry
            )
            for mechanisms in itertools.product(*lists)
            if mechanisms
        ]

    def sweeps_too_far(self, entry: Node, axes: Sequence[Sequence[object]]) -> bool:
        """Return whether an entry sweeps over more parts than an audit takes, which is a mistake."""
        number = math.prod(map(len, axes))
        if number > MOST:
            kind = self.registry.kind
            entry.wrong(self.mistakes, f"sweeps over {number:,} {kind}s; an audit takes at most {MOST:,}.")
        return number > MOST

    def is_registered(self, name: Node) -> bool:
        """Return whether a name is registered; note a mistake where it is not."""
        text = name.value
        if not isinstance(text, str):
            kind = self.registry.kind
            name.wrong(self.mistakes, f"{kind}s go by their names, which are texts; got {shown(name.plain())}.")
            return False
        # What an option names has the consent of whoever gave it.
        if is_reference(text) and not self.own and name.source is None and not self.consent:
            name.wrong(self.mistakes, no_consent(text))
            return False
        if self.own and ":" in text:
            return True
        try:
            self.registry[text]
        except BadInputError as error:
            name.wrong(self.mistakes, error)
            return False
        return True

    def located(self, reference: Node) -> Node:
        """Return a reference to code with the path of its file, which is relative to the document's folder."""
        text = reference.value
        if self.own or not isinstance(text, str) or not is_reference(text) or reference.source is not None:
            return reference
        place, _, name = text.rpartition(":")
        return reference.instead(f"{self.folder / place}:{name}") if is_file(place) else reference

    def values(self, names: Sequence[Node], key: str, value: Node) -> list[Node]:
        """Return the values that an option sweeps over."""
        # A list of lists sweeps, whatever the part takes.
        flat = isinstance(value.value, list) and not all(isinstance(item.value, list) for item in value.value)
        if flat and (key in self.whole or any(self._takes_list(str(name.value), key) for name in names)):
            return [value]
        return items_of(value, self.mistakes)

    def _takes_list(self, name: str, key: str) -> bool:
        if name not in self.registry:
            return False
        parameter = inspect.signature(self.registry[name].factory).parameters.get(key)
        return parameter is not None and any(kind in str(parameter.annotation) for kind in _LISTS)


def no_consent(name: str) -> str:
    """Return the message for a document that names code without the user's consent."""
    return (
        f"{shown(name)} is code, which a document may run only with your consent; read it, then give --allow-code (in "
        "Python: allow_code=True)."
    )


def _refused(error: BadInputError | ValidationError) -> object:
    """Return the reason for which a part was refused."""
    if isinstance(error, BadInputError):
        return error
    first = error.errors()[0]
    return first.get("ctx", {}).get("error", first["msg"])


def _combined(mechanisms: Sequence[Choice], label: str | None, entry: Node) -> Choice:
    options = {mechanism.name: entry.instead(mechanism.values) for mechanism in mechanisms if mechanism.options}
    return Choice("+".join(mechanism.name for mechanism in mechanisms), options, label, entry, tuple(mechanisms))


def _read_label(value: Node, mistakes: Mistakes) -> str | None:
    if isinstance(value.value, str) and value.value.strip():
        return value.value
    value.wrong(mistakes, f"a label is a text of at least one letter, got {shown(value.plain())}.")
    return None


def _with_distinct_labels(choices: Sequence[Choice], kind: str, mistakes: Mistakes) -> list[Choice]:
    """Give choices of the same label their options as label; note repeats as mistakes."""
    labels = [choice.title for choice in choices]
    labelled = [
        replace(choice, label=describe(short_name(choice.name), choice.values))
        if choice.options and choice.label is None and labels.count(choice.title) > 1
        else choice
        for choice in choices
    ]
    by_title: dict[str, Choice] = {}
    for choice in labelled:
        other = by_title.setdefault(choice.title, choice)
        again = (other.name, other.values) == (choice.name, choice.values)
        if other is choice or (again and (other.entry is choice.entry or other.entry.plain() == choice.entry.plain())):
            continue
        message = (
            f"repeats {other.entry.path}; remove one of them."
            if again
            else f"would be called {choice.title!r} in results as {other.entry.path} is; give it another label."
        )
        choice.entry.wrong(mistakes, message)
    return labelled


def describe(base: str, options: Mapping[str, object]) -> str:
    """Return a label that tells options."""
    return f"{base}({', '.join(f'{key}={_written(value)}' for key, value in options.items())})" if options else base


def shown(value: object, longest: int = 60) -> str:
    """Return a value as a document would write it, cut where it is long."""
    text = _written(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _written(value: object) -> str:
    # A word stands without quotes, but '8' is another value than 8.
    return value if isinstance(value, str) and is_word(value) else json.dumps(value, ensure_ascii=False)


def check_names(
    choice: Choice,
    options: Mapping[str, Node],
    registry: Registry[object],
    given: Iterable[str],
    mistakes: Mistakes,
    beside: Sequence[str] = (),
) -> None:
    """Note options that a factory does not take or the audit sets itself; messages remind of names ``beside``."""
    parameters = inspect.signature(registry[choice.name].factory).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    accepted = [
        name for name, p in parameters.items() if name not in given and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    for key, value in options.items():
        if key in given or (key not in accepted and not takes_any):
            value.wrong(
                mistakes, unknown_name(f"option of {registry.kind} {choice.name!r}:", key, [*accepted, *beside])
            )
    for name in accepted:
        if parameters[name].default is inspect.Parameter.empty and name not in options:
            choice.entry.wrong(mistakes, f"the {registry.kind} {choice.name!r} needs {name!r}; add it to its options.")


def check_options(choice: Choice, registry: Registry[object], mistakes: Mistakes) -> None:
    """Create a part to check its options; note the options that do not fit."""
    before = len(mistakes)
    if choice.mechanisms:
        for mechanism in choice.mechanisms:
            check_options(mechanism, registry, mistakes)
        if len(mistakes) == before:
            try:
                combine(registry, Part(name=choice.name, options=choice.values, label=choice.label))
            except (BadInputError, ValidationError) as error:
                choice.entry.wrong(mistakes, _refused(error))
        return
    check_names(choice, choice.options, registry, (), mistakes)
    if len(mistakes) > before or _refusal(choice, registry, choice.options) is None:
        return
    parameters = inspect.signature(registry[choice.name].factory).parameters
    needed = [key for key in choice.options if key in parameters and parameters[key].default is parameters[key].empty]
    # One at a time, beside those that cannot be left out, unless it is one of these.
    tried = (
        [key for key in choice.options if key not in needed] if _refusal(choice, registry, needed) is None else needed
    )
    refusals = [(key, _refusal(choice, registry, dict.fromkeys([*needed, key]))) for key in tried]
    culprits = [(key, refusal) for key, refusal in refusals if refusal is not None]
    for key, refusal in culprits:
        choice.options[key].wrong(mistakes, refusal)
    if not culprits:
        choice.entry.wrong(mistakes, _refusal(choice, registry, choice.options))


def _refusal(choice: Choice, registry: Registry[object], keys: Iterable[str]) -> str | None:
    try:
        registry.create(choice.name, **{key: choice.options[key].plain() for key in keys})
    except BadInputError as error:
        return str(error)
    except Exception as error:  # A factory of another package may fail in any way at a value of the wrong kind.
        return f"the {registry.kind} {choice.name!r} cannot be made so ({' '.join(str(error).split()) or repr(error)})."
    return None
