"""A spec as options of the command line, which can be pasted into a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import BaseModel

from seepage.digests import plain
from seepage.settings.option import fields_of
from seepage.settings.part import Part
from seepage.settings.spec import Spec

# What is about one search or one gate alone, and tables, which come first.
_GIVEN_ELSEWHERE = {"dataset", "data", "recommend", "gate", "time_budget"}


def given_options(spec: Spec, leave_out: Collection[str] = ()) -> str:
    """Return the command line options that set the fields of a spec, without tables and limits.

    Args:
        spec: spec, of which the fields that were given count, if they differ from their defaults.
        leave_out: names of further fields that are left out.

    Example:
        >>> from seepage.settings.horizontal.spec import make_spec
        >>> given_options(make_spec(dataset="german", batch_sizes=8, attacks="dlg", control=False))
        '--attack dlg --no-control --batch-size 8'
    """
    texts = []
    for name, spec_field in fields_of(type(spec)).items():
        value, flag = getattr(spec, name), spec_field.flag
        if name not in spec.model_fields_set or name in {*_GIVEN_ELSEWHERE, *leave_out} or value is None:
            continue
        # What is swept has defaults that follow from fields which may be left out here.
        if not spec_field.option.swept and spec.is_usual(name):
            continue
        if isinstance(value, bool):
            texts.append(flag if value else f"--no-{flag[2:]}")
        elif spec_field.parts:
            texts += [f"{flag} {quoted(written(part))}" for part in value]
        elif isinstance(value, tuple) and all(isinstance(item, str | int | float) for item in value):
            texts += [f"{flag} {quoted(str(item))}" for item in value]
        elif isinstance(value, tuple):
            # Names of several columns each, such as those of a party.
            texts += [f"{flag} {quoted(','.join(map(str, item)))}" for item in value]
        elif isinstance(value, BaseModel):
            texts.append(f"{flag} {quoted(_mapping(value.model_dump(exclude_unset=True)))}")
        elif isinstance(value, Mapping):
            texts += [f"{flag} {quoted(f'{key}={_value(item)}')}" for key, item in value.items()]
        elif isinstance(value, str | int | float | Path):
            texts.append(f"{flag} {quoted(str(value))}")
    return " ".join(texts)


def table_option(spec: Spec) -> str:
    """Return the option of the command line that names the table of a spec."""
    return f"--data {quoted(str(spec.data))}" if spec.data is not None else f"--dataset {quoted(spec.dataset)}"


def quoted(text: str) -> str:
    r"""Return a text as one argument of a shell; what steers a terminal is written as escapes that the shell reads.

    Example:
        >>> print(quoted("age"), quoted("two words"), quoted(chr(27) + "[31m"))
        age 'two words' $'\x1b[31m'
    """
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


# What a shell reads as one argument: pieces in quotes, and all between them that is no space.
_ARGUMENT = re.compile(r"""(?:\$'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|[^\s'"])+""")


def in_lines(command: str, width: int) -> list[str]:
    r"""Return a command in lines that a shell reads as one, each but the last with a backslash at its end.

    Lines end between an option's value and the next option, so that only a longer option makes a longer line.

    Example:
        >>> in_lines("seepage audit --dataset german --attack dlg --no-control", 40)
        ['seepage audit --dataset german \\', '  --attack dlg --no-control']
    """
    pieces: list[str] = []
    for argument in _ARGUMENT.findall(command):
        follows = bool(pieces) and not argument.startswith("--")
        pieces[-1:] = [f"{pieces[-1]} {argument}"] if follows else [*pieces[-1:], argument]
    lines = [""]
    for piece in pieces:
        longer = f"{lines[-1]} {piece}".strip() if len(lines) == 1 else f"{lines[-1]} {piece}"
        if lines[-1] and len(longer) > width - 2:
            lines.append(f"  {piece}")
        else:
            lines[-1] = longer
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def written(part: Part) -> str:
    """Return a part as options and documents write it.

    Example:
        >>> written(Part(name="dp_sgd", options={"clip_norm": 1.0, "epsilon": 3}))
        'dp_sgd:{clip_norm: 1, epsilon: 3}'
        >>> written(Part(name="label_flip+cut_noise", options={"label_flip": {"probability": 0.1}}))
        'label_flip:{probability: 0.1}+cut_noise'
    """
    mechanisms = part.mechanisms
    return "+".join(f"{m.name}:{_mapping(m.options)}" if m.options else m.name for m in mechanisms)


def _mapping(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in values.items()) + "}"


def _value(value: object) -> str:
    """Return a value in YAML, a number as short as it stays the same."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, str) and value.replace("_", "").isalpha() and value.lower() not in _NO_TEXTS:
        return value
    # JSON is YAML.
    return json.dumps(plain(value))


# Words that YAML reads as something else.
_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
