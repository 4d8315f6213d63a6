"""Attacks, defenses, baselines and metrics by name, with options, and defenses that combine several mechanisms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from seepage.errors import BadInputError, unknown_name
from seepage.files import load_yaml
from seepage.registry import Registry

M = TypeVar("M")
# Registered name of no defense.
NONE = "none"


class Part(BaseModel):
    """An attack, a defense or a baseline by its registered name, with arguments.

    Attributes:
        name: registered name; those of several mechanisms with ``+`` between them for a defense that combines them.
        options: arguments of its factory; those of each mechanism, by its name, for a combination.
        label: name in results; the registered name if None.

    Raises:
        BadInputError: a combination has a mechanism twice, or options of something that it does not have.

    Example:
        >>> Part(name="random", options={"one_draw_per_column": True}, label="random_one_draw").called
        'random_one_draw'
        >>> both = Part(name="label_flip+cut_noise", options={"label_flip": {"probability": 0.1}})
        >>> [(one.name, one.options) for one in both.mechanisms]
        [('label_flip', {'probability': 0.1}), ('cut_noise', {})]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None

    @property
    def called(self) -> str:
        """The name in results."""
        return self.label or self.name

    @property
    def mechanisms(self) -> tuple[Part, ...]:
        """What a defense combines: each mechanism with its options; itself alone for a single one."""
        names = self.name.split(_AND)
        if len(names) == 1:
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


# Between the names of mechanisms that a defense combines.
_AND = "+"


def read_part(text: str) -> dict[str, Any]:
    """Return name and options of a part that is written as text.

    Args:
        text: ``name`` or ``name:{option: value}``; several with ``+`` between them for a defense that combines them.

    Raises:
        BadInputError: it is written otherwise.

    Example:
        >>> read_part("label_flip:{probability: 0.01}+label_only")
        {'name': 'label_flip+label_only', 'options': {'label_flip': {'probability': 0.01}}}
        >>> read_part("gaussian_noise:{scale: 1e-3}")["options"]
        {'scale': 0.001}
    """
    made = [_mechanism(one, text) for one in _apart(text)]
    return made[0] if len(made) == 1 else _together(made)


class _Options(yaml.SafeLoader):
    """Plain values of YAML, in which ``1e-3`` is a number, as in documents."""


_POWER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_Options.add_implicit_resolver("tag:yaml.org,2002:float", _POWER, list("-+.0123456789"))


def _apart(text: str) -> list[str]:
    """Return what stands between plus signs outside of brackets."""
    pieces, depth = [""], 0
    for sign in text:
        depth += (sign in "{[") - (sign in "}]")
        if sign == _AND and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    return pieces


def _mechanism(text: str, whole: str) -> dict[str, Any]:
    name, colon, said = text.strip().partition(":{")
    try:
        options = load_yaml("{" + said, loader=_Options) if colon else {}
    except BadInputError:
        options = None
    if not name or not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise BadInputError(
            "expected a name, or a name with options such as gaussian_noise:{scale: 0.01}, perhaps several with + "
            f"between them, got {whole!r}."
        )
    return {"name": name, "options": options} if options else {"name": name}


def _together(mechanisms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    options = {one["name"]: one["options"] for one in mechanisms if one.get("options")}
    return {"name": _AND.join(one["name"] for one in mechanisms), "options": options}


def as_part(value: Any) -> Any:
    """Return name, options and label of a part in any of the forms that a document may write it in."""
    if isinstance(value, str):
        return read_part(value)
    if not isinstance(value, Mapping) or "options" in value:
        return value
    if "all" in value:
        return _all(value)
    # Options may stand beside the name.
    options = {key: option for key, option in value.items() if key not in Part.model_fields}
    return {**{key: said for key, said in value.items() if key not in options}, "options": options}


def _all(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a combination that is written as ``{all: [{name: ..., ...}, ...], label: ...}``."""
    more = [key for key in value if key not in ("all", "label")]
    if more:
        raise BadInputError(f"a defense that combines mechanisms has the keys all and label, got {more[0]!r} beside.")
    listed = value["all"]
    made = [as_part(one) for one in listed] if isinstance(listed, list | tuple) else []
    named = [one for one in made if isinstance(one, Mapping) and isinstance(one.get("name"), str)]
    if not made or len(named) < len(made) or any("label" in one or _AND in one["name"] for one in named):
        raise BadInputError(
            "a defense that combines mechanisms lists each with name and options (all: [{name: label_flip, "
            f"probability: 0.01}}, ...]) and has one label, got all={listed!r}."
        )
    names = [one["name"] for one in named]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"the defense combines {name!r} with itself; give it once.")
    return {**(named[0] if len(named) == 1 else _together(named)), "label": value.get("label")}


def combine(registered: Registry[Any], part: Part, nothing: str = NONE) -> tuple[object, ...]:
    """Return the mechanisms of a defense, made from their options; empty for no defense.

    Args:
        registered: defenses of the setting. What can be combined has an attribute ``acts_on``, the thing that it
            changes: two mechanisms never change the same.
        part: the defense.
        nothing: registered name of no defense.

    Raises:
        BadInputError: a name or an option is unknown or out of range, two mechanisms act on the same thing, or a
            defense would be called as no defense is in results.

    Example:
        >>> both = Part(name="rounded_answers+query_limit", options={
        ...     "rounded_answers": {"digits": 1}, "query_limit": {"queries": 100}})
        >>> from seepage import registry
        >>> combine(registry.defenses.of("pooled"), both)
        (RoundedAnswers(digits=1), QueryLimit(queries=100))
    """
    made: dict[str, tuple[str, object]] = {}
    for one in part.mechanisms:
        mechanism = registered.create(one.name, **one.options)
        if one.name == nothing:
            if len(part.mechanisms) > 1:
                raise BadInputError(f"{part.name!r} combines a defense with none; leave {nothing!r} out.")
            continue
        if part.called == nothing:
            raise BadInputError(
                f"a defense that does something would be called {nothing!r} in results; give it a label of its own, "
                "such as label: mine."
            )
        acts_on = str(getattr(mechanism, "acts_on", one.name))
        if acts_on in made:
            raise BadInputError(
                f"{made[acts_on][0]!r} and {one.name!r} both act on the {acts_on}, so that one defense has only one of "
                "them; leave out one, or give two defenses."
            )
        made[acts_on] = (one.name, mechanism)
    return tuple(mechanism for _, mechanism in made.values())


def of_kind(mechanisms: Sequence[object], kind: type[M]) -> M | None:
    """Return the mechanism of a class among those of a defense; None where there is none.

    Example:
        >>> of_kind((1, "one"), str), of_kind((1,), str)
        ('one', None)
    """
    return next((one for one in mechanisms if isinstance(one, kind)), None)


def distinct_names(kind: str, names: Sequence[str]) -> None:
    """Refuse two things that results would call the same.

    Raises:
        BadInputError: names the first.
    """
    for name in names:
        if list(names).count(name) > 1:
            raise BadInputError(f"two {kind}s would both be called {name!r} in results; give one another label.")


def several(value: Any) -> Any:
    """Return one value as a sequence of one."""
    return (value,) if isinstance(value, str | int | float | Mapping | Part) else value


OnePart = Annotated[Part, BeforeValidator(as_part)]
Parts = Annotated[tuple[OnePart, ...], BeforeValidator(several)]
