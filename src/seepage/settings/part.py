"""Attacks, defenses, baselines and metrics by name, with options, and defenses that combine several mechanisms."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar, cast

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from seepage import registry
from seepage.digests import plain
from seepage.errors import BadInputError, unknown_name
from seepage.files import load_yaml
from seepage.registry import Entry, Registry
from seepage.sources import NoDigestError, fingerprint, foreign_code, short_name

T = TypeVar("T")
# Registered name of no defense.
NONE = "none"


class Part(BaseModel):
    """An attack, a defense or a baseline by its registered name with arguments, or an object that a caller passed.

    Attributes:
        name: registered name; those of several mechanisms with ``+`` between them for a defense that combines them. Of
            an object, the name that its class is registered with, else that of its class or function.
        options: arguments of its factory; those of each mechanism, by its name, for a combination. Of an object, its
            arguments that are no defaults, for results.
        label: name in results; the registered name if None.
        passed: object of the caller, ready to use; None for a part that is made from its name and options.

    Raises:
        BadInputError: a combination has a mechanism twice, or options of something that it does not have.

    Example:
        >>> Part(name="random", options={"one_draw_per_column": True}, label="random_one_draw").title
        'random_one_draw'
        >>> both = Part(name="label_flip+cut_noise", options={"label_flip": {"probability": 0.1}})
        >>> [(part.name, part.options) for part in both.mechanisms]
        [('label_flip', {'probability': 0.1}), ('cut_noise', {})]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None
    passed: object = Field(default=None, exclude=True)

    @classmethod
    def of_object(cls, passed: object, label: str | None = None) -> Part:
        """Return the part of an object of a caller; refuse a class, or a function that makes parts."""
        if isinstance(passed, type) or registry.is_factory(passed):
            name = getattr(passed, "__name__", repr(passed))
            raise BadInputError(f"{name} makes a part and is none itself; give what it returns, as in {name}().")
        fields = dataclasses.fields(passed) if dataclasses.is_dataclass(passed) else ()
        values = {field.name: plain(getattr(passed, field.name)) for field in fields}
        # Options are those that differ from the defaults of its class, as with a part by name.
        options = {field.name: values[field.name] for field in fields if values[field.name] != plain(field.default)}
        return cls(name=registry.name_of(passed), options=options, label=label, passed=passed)

    @property
    def title(self) -> str:
        """Name in results."""
        return self.label or _AND.join(map(short_name, self.name.split(_AND)))

    @property
    def mechanisms(self) -> tuple[Part, ...]:
        """Mechanisms of a defense, each with its options; the defense itself for a single one."""
        names = self.name.split(_AND)
        if len(names) == 1 or self.passed is not None:
            return (self,)
        return tuple(Part(name=name, options=self.options.get(name, {})) for name in names)

    @model_validator(mode="after")
    def _each_once(self) -> Part:
        names = self.name.split(_AND)
        if len(names) > 1:
            for name in names:
                if names.count(name) > 1:
                    raise BadInputError(f"{self.name!r} combines {name!r} with itself; give it once.")
            for name, options in self.options.items():
                if name not in names:
                    raise unknown_name(f"mechanism of {self.name!r}:", name, names)
                if not isinstance(options, Mapping):
                    raise BadInputError(f"options of {name!r} are a mapping from their names, got {options!r}.")
        return self


# Types that no part has: values, and parts themselves.
_PLAIN = (bool, int, float, str, bytes, list, tuple, set, frozenset, Mapping, Part, type(None))
# Between the names of mechanisms that a defense combines.
_AND = "+"


class WrittenPart(TypedDict):
    """Name and options of a part; options of a combination are by mechanism."""

    name: str
    options: NotRequired[dict[str, Any]]


def read_part(text: str) -> WrittenPart:
    """Return name and options of a part that is written as text: ``name`` or ``name:{option: value}``, joined by ``+``.

    Example:
        >>> read_part("label_flip:{probability: 0.01}+label_only")
        {'name': 'label_flip+label_only', 'options': {'label_flip': {'probability': 0.01}}}
    """
    mechanisms = [_mechanism(part_text, text) for part_text in _apart(text)]
    return mechanisms[0] if len(mechanisms) == 1 else _together(mechanisms)


class _Options(yaml.SafeLoader):
    """Plain values of YAML, in which ``1e-3`` is a number, as in documents."""


_POWER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_Options.add_implicit_resolver("tag:yaml.org,2002:float", _POWER, list("-+.0123456789"))


def _apart(text: str) -> list[str]:
    """Return the substrings between plus signs outside of brackets."""
    pieces, depth = [""], 0
    for sign in text:
        depth += (sign in "{[") - (sign in "}]")
        if sign == _AND and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    return pieces


def _mechanism(text: str, whole: str) -> WrittenPart:
    name, colon, options_text = text.strip().partition(":{")
    try:
        options = load_yaml("{" + options_text, loader=_Options) if colon else {}
    except BadInputError:
        options = None
    if not name or not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise BadInputError(
            "expected a name, or a name with options such as gaussian_noise:{scale: 0.01}, perhaps several with + "
            f"between them, got {whole!r}."
        )
    return {"name": name, "options": options} if options else {"name": name}


def _together(mechanisms: Sequence[Mapping[str, Any]]) -> WrittenPart:
    options = {mechanism["name"]: mechanism["options"] for mechanism in mechanisms if mechanism.get("options")}
    return {"name": _AND.join(mechanism["name"] for mechanism in mechanisms), "options": options}


def named(*names: str) -> tuple[Part, ...]:
    """Return the registered parts of some names, without options."""
    return tuple(Part(name=name) for name in names)


def as_part(value: object) -> object:
    """Return name, options and label of a part in any of the forms that a document may write it in."""
    if isinstance(value, str):
        return read_part(value)
    if not isinstance(value, _PLAIN):
        return Part.of_object(value)
    if not isinstance(value, Mapping) or "options" in value:
        return value
    if set(value) <= {"name", "label"} and not isinstance(value.get("name", ""), _PLAIN):
        return Part.of_object(value["name"], value.get("label"))
    if "all" in value:
        return _all(value)
    # Options may stand beside the name.
    options = {key: option for key, option in value.items() if key not in Part.model_fields}
    return {**{key: option for key, option in value.items() if key not in options}, "options": options}


def _all(value: Mapping[str, object]) -> dict[str, object]:
    """Return a combination that is written as ``{all: [{name: ..., ...}, ...], label: ...}``."""
    more = [key for key in value if key not in ("all", "label")]
    if more:
        raise BadInputError(f"a defense that combines mechanisms has the keys all and label, got {more[0]!r} beside.")
    listed = value["all"]
    parts = [as_part(part) for part in listed] if isinstance(listed, list | tuple) else []
    named = [part for part in parts if isinstance(part, Mapping) and isinstance(part.get("name"), str)]
    if not parts or len(named) < len(parts) or any("label" in part or _AND in part["name"] for part in named):
        raise BadInputError(
            "a defense that combines mechanisms lists each with name and options (all: [{name: label_flip, "
            f"probability: 0.01}}, ...]) and has one label, got all={listed!r}."
        )
    names = [part["name"] for part in named]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"the defense combines {name!r} with itself; give it once.")
    return {**(named[0] if len(named) == 1 else _together(named)), "label": value.get("label")}


def make_part(registered: Registry[T], part: Part) -> T:
    """Return a part ready to use: the object that was passed, or a new one from name and options."""
    if part.passed is None:
        return registered.create(part.name, **part.options)
    entry_of(registered, part)
    return cast("T", part.passed)


def entry_of(registered: Registry[T], part: Part) -> Entry[T]:
    """Return the registry entry of a part: the view that it takes and the side information that it needs."""
    return registered[part.name] if part.passed is None else registered.entry_of(part.passed)


def in_words(setting: str, defense: Part) -> str | None:
    """Return a description of a defense with its strength, from ``words`` of its class; None without.

    ``words`` is a text with options in braces, or a function of all options.

    Example:
        >>> in_words("split", Part(name="label_flip+max_norm", options={"label_flip": {"probability": 0.1}}))
        'labels exchanged at random, with probability 0.1, and gradients of equal length'
    """
    registered = registry.defenses.of(setting)
    descriptions = []
    for mechanism in defense.mechanisms:
        factory = entry_of(registered, mechanism).factory
        words = getattr(factory, "words", None)
        if words is None:
            return None
        defaults = {name: parameter.default for name, parameter in inspect.signature(factory).parameters.items()}
        try:
            options = {**defaults, **mechanism.options}
            descriptions.append(words(options) if callable(words) else words.format_map(options))
        except (IndexError, KeyError, ValueError):
            # A mistake in words of one's own must not cost the report.
            descriptions.append(mechanism.name if callable(words) else words)
    return ", and ".join(descriptions)


def marks_of(setting: str, attacks: Iterable[Part], defenses: Iterable[Part]) -> dict[str, str]:
    """Return the marks of parts (see ``Traits``) that differ from their publication, as tables print them."""
    marks = {}
    for registered, parts in ((registry.attacks.of(setting), attacks), (registry.defenses.of(setting), defenses)):
        for part in parts:
            published = [entry_of(registered, mechanism).traits.mark for mechanism in part.mechanisms]
            distinct = dict.fromkeys(mark for mark in published if mark is not None)
            if distinct:
                marks[part.title] = "; ".join(distinct)
    return marks


def source_of(registered: Registry[object], part: Part) -> str | None:
    """Return a digest of a part's computation beyond its name and options; None where these determine it.

    An object without a digest goes by its label, which is unique in an audit; results of such audits are not kept.
    """
    if part.passed is None:
        files = [foreign_code(registered[mechanism.name].factory) for mechanism in part.mechanisms]
        return "+".join(str(file) for file in files) if any(files) else None
    try:
        return fingerprint(part.passed)
    except NoDigestError:
        return f"object {part.title}"


def check_storable(parts: Sequence[Part]) -> None:
    """Refuse to store results of objects without a digest, by which a later run knows whether they compute the same."""
    for part in parts:
        try:
            fingerprint(part.passed)
        except NoDigestError as error:
            raise BadInputError(
                f"results of {part.title!r} cannot be kept in a run folder: {error.what}, so that nothing tells a "
                "later run whether it computes the same. Define it in a file, with plain values as arguments, or give "
                "no folder (out)."
            ) from error


def combine(registered: Registry[object], part: Part) -> tuple[object, ...]:
    """Return the mechanisms of a defense, made from their options; empty for no defense.

    A mechanism that can be combined has an attribute ``acts_on``: two mechanisms never change the same thing.
    """
    roles: dict[str, tuple[str, object]] = {}
    for mechanism in part.mechanisms:
        instance = make_part(registered, mechanism)
        if mechanism.name == NONE:
            if len(part.mechanisms) > 1:
                raise BadInputError(f"{part.name!r} combines a defense with none; leave {NONE!r} out.")
            continue
        if part.title == NONE:
            raise BadInputError(
                f"a defense that does something would be called {NONE!r} in results; give it a label of its own, "
                "such as label: mine."
            )
        acts_on = str(getattr(instance, "acts_on", mechanism.name))
        if acts_on in roles:
            raise BadInputError(
                f"{roles[acts_on][0]!r} and {mechanism.name!r} both act on the {acts_on}, so that one defense has only "
                "one of them; leave out one, or give two defenses."
            )
        roles[acts_on] = (mechanism.name, instance)
    return tuple(instance for _, instance in roles.values())


def mechanisms_of(setting: str, part: Part, *kinds: type) -> list[Any]:
    """Return the mechanism of each class in a defense, None without one; refuse those of any other class."""
    registered = registry.defenses.of(setting)
    mechanisms = combine(registered, part)
    if not all(isinstance(mechanism, kinds) for mechanism in mechanisms):
        factories = [(entry.name, entry.factory) for entry in registered.entries()]
        names = [name for name, kind in factories if isinstance(kind, type) and issubclass(kind, kinds)]
        raise BadInputError(
            f"the defense {part.title!r} has no place in this audit, which takes {', '.join(names)}, and objects of "
            f"classes that extend {', '.join(kind.__name__ for kind in kinds)}."
        )
    return [next((mechanism for mechanism in mechanisms if isinstance(mechanism, kind)), None) for kind in kinds]


def several(value: object) -> object:
    """Return one value as a sequence of one."""
    return (value,) if isinstance(value, str | int | float | Mapping | Part) else value


def _as_parts(value: object) -> object:
    """Return one part, an object of a caller included, as a sequence of one."""
    return (value,) if not isinstance(value, _PLAIN) else several(value)


OnePart = Annotated[Part, BeforeValidator(as_part)]
Parts = Annotated[tuple[OnePart, ...], BeforeValidator(_as_parts)]
