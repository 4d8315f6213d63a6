"""A first audit document of any setting, made from the fields of its spec: each with its help and default."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel

from seepage.config.tree import is_word
from seepage.errors import BadInputError, Remedy
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.option import PANELS, SpecField, fields_of
from seepage.settings.spec import OF_OWN_TABLES, STEERING, Spec
from seepage.tabular.policy import UTF8
from seepage.tabular.reading import open_table, typed
from seepage.text import clean

_SIMPLE = re.compile(r"[A-Za-z_./][\w./-]*", re.ASCII)
_WIDTH = 110
# What every document should say; all else stands in comments.
_ALWAYS_WRITTEN = ("dataset", "data", "target", "attacks", "defenses", "seed")
_HEAD = """\
# Audit of {about}.
# Check it:  seepage spec check {name}     Run it:  seepage audit {name}
# Lines that begin with '#' are not read. What is left out has its default, which stands beside each key. Where
# "Default:" is said above a key, its value is an example. A list for a key of one value sweeps over its items, and
# so does one for an option of a part.
setting: {setting}
"""


def starter(
    setting: str = "horizontal",
    dataset: str | None = None,
    data: Path | None = None,
    target: str | None = None,
    separator: str = ",",
    encoding: str = UTF8,
    out: Path = Path("audit.yaml"),
) -> str:
    """Return the text of a first audit document.

    Args:
        setting: name of the setting.
        dataset: registered name of a table; the setting's default if None.
        data: file of a table of one's own instead.
        target: column of that table that is learnt.
        separator, encoding: character between the cells of that table, and encoding of the file.
        out: place of the document; its table is named from there.

    Raises:
        BadInputError: the setting or dataset is unknown, the table cannot be opened, or it has no such column.

    Example:
        >>> [line for line in starter("split", "german").splitlines() if line.startswith(("setting", "dataset"))]
        ['setting: split', 'dataset: german']
    """
    kind = find_setting(setting).spec
    fields = fields_of(kind)
    values = _table(kind, dataset, data, target, {"separator": separator, "encoding": encoding}, out)
    parts = [_HEAD.format(about=kind.about, setting=setting, name=clean(out.name, 400))]
    of_own = {"data", *kind.of_own, *(name for name in OF_OWN_TABLES if name in kind.steering or name not in STEERING)}
    left_out = of_own if data is None else {"dataset"}
    for panel in PANELS:
        for field in fields.values():
            shown = field.option.panel == panel and field.option.below is None and not field.option.consent
            if shown and field.name not in left_out:
                parts.append(_entry(kind, field, values))
    return "\n".join(parts)


def _entry(kind: type[Spec], field: SpecField, values: dict[str, object]) -> str:
    """Return one key with its help, as a comment where it may be left out."""
    below = [other for other in fields_of(kind).values() if other.option.below == field.name and other.option.key]
    default = values.get(field.name, field.default)
    text = _flow(_plain(default)) if default is not None else _example(field)
    if below:
        inner = {other.option.key: values.get(other.name, other.default) for other in below}
        more = {key: _plain(value) for key, value in inner.items() if value is not None}
        text = _flow({"name": default, **more} if more else default)
    help_ = field.option.help.replace("`", "'")
    if field.option.default is not None:
        help_ += f" Default: {field.option.default}."
    written = field.name in values or field.name in (*_ALWAYS_WRITTEN, kind.repeats) or bool(below)
    comment = textwrap.fill(help_, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    return f"{comment}\n{'' if written else '# '}{field.key}: {text}\n"


def _example(field: SpecField) -> str:
    """Return a value for a field that has none by default."""
    if field.option.example is not None:
        return field.option.example
    if field.kind == "choice":
        return field.choices[0]
    return {"whole": "1", "number": "0.5", "model": "{}"}.get(field.kind, field.option.metavar or "NAME")


def _plain(value: object) -> object:
    """Return a default in the form that documents use."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, BaseModel):
        dumped = {key: item for key, item in value.model_dump(mode="json").items() if item}
        if "name" in dumped:
            label = {"label": dumped["label"]} if "label" in dumped else {}
            dumped = {"name": dumped["name"], **dumped.get("options", {}), **label}
            return dumped if len(dumped) > 1 else dumped["name"]
        return dumped
    return value


def _flow(value: object) -> str:
    """Return a value as YAML would write it on one line."""
    if isinstance(value, str):
        return _scalar(value)
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("...\n").strip()


def _table(
    kind: type[Spec], dataset: str | None, data: Path | None, target: str | None, read: Mapping[str, str], out: Path
) -> dict[str, object]:
    """Return the document's entries about a table, and batch sizes that suit the table."""
    fields = fields_of(kind)
    if data is None:
        name = fields["dataset"].default if dataset is None else dataset
        kind.registered(fields["dataset"])[name]
        return {"dataset": name}
    if target is None:
        raise BadInputError(
            f"the table {str(data)!r} needs a target, the column that the model learns; add ",
            Remedy("target", placeholder="COLUMN"),
            ".",
        )
    source = open_table(data, **read)
    if target not in source.names:
        raise source.unknown_column(target, f"column of {str(data)!r}:")
    [(_, values)] = source.columns([target])
    rows = len(values)
    entries: dict[str, object] = {"data": _from(out.parent, data), "target": target}
    entries |= {name: value for name, value in read.items() if value != fields[name].default}
    if any(typed(raw).isna().any() for _, raw in source.columns(source.names)):
        entries["missing"] = "category"
    if fields["sensitive"].default:
        # A column that has to be named: that with the fewest values is a start.
        counts = {name: typed(raw).nunique() for name, raw in source.columns(source.names) if name != target}
        entries["sensitive"] = min(counts, key=lambda name: (counts[name] < 2, counts[name]))
    if "batch_sizes" in fields:
        entries["batch_sizes"] = list(dict.fromkeys(min(s, max(1, rows // 2)) for s in fields["batch_sizes"].default))
    return entries


def _from(folder: Path, data: Path) -> str:
    """Return the path of a file relative to a folder."""
    try:
        return Path(os.path.relpath(data.resolve(), folder.resolve())).as_posix()
    except ValueError:
        # On another drive.
        return str(data.resolve())


def _scalar(text: str) -> str:
    """Return a text as YAML would write it on one line, whatever its version."""
    if _SIMPLE.fullmatch(text) and is_word(text) and yaml.safe_load(text) == text:
        return text
    return yaml.safe_dump(text, width=10**9, default_style='"').removesuffix("\n")
