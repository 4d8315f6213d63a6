"""A first audit document, with comments that say what can be changed."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import yaml

from seepage import registry
from seepage.config.tree import is_word
from seepage.errors import BadInputError, unknown_name
from seepage.settings.studies import study_kind
from seepage.tabular.reading import open_table, typed

_SIZES = (8, 32)
# What the starter of a study says of itself, in other words or in another place.
_SAID = ("dataset", "dataset_options", "data_folder", "seed")
_SIMPLE = re.compile(r"[A-Za-z_./][\w./-]*", re.ASCII)

_TEXT = """\
# What seepage is to audit. Check it:  seepage spec check {name}     Run it:  seepage audit {name}
# A list in dataset, model, protocol, attacks, defenses, baselines, labels, profile, restarts, iterations or seed
# sweeps over its items. Lines that begin with '#' are not read; what is left out has its default.

{table}
# The network that is trained; 'seepage models' lists them. Of your own: {{name: "package.module:factory"}}.
model: nn3
# model: {{name: nn3, seed: [0, 1, 2]}}

# What crosses the wire: one gradient of batch_size records.
protocol:
  name: fedsgd
  batch_size: {sizes}
  replacement: false

# Who tries to read it; 'seepage attacks' lists them. Options of an attack can be swept, too.
attacks: [unmix, inverting_gradients]
# attacks:
#   - tableak
#   - {{name: tableak, restarts: [10, 30]}}

# What clients do to their updates before they send them; 'seepage defenses' lists them.
defenses: [none]
# defenses: [none, {{name: gaussian_noise, scale: [0.001, 0.01]}}]

# Whether the attacker works the labels out (restored) or is told them (true).
labels: restored

# Batches attacked in each setting: more of them give narrower intervals and take longer.
victims: 10

# Everything random follows from it.
seed: 0

# Exit with status 1 where the lift over guessing may exceed this, over all cells or in one column.
# gate: {{above: 0.2}}
"""

_DATASET = """\
# The table; 'seepage datasets' lists them. For one of your own: data, target and perhaps schema.
dataset: {dataset}
"""

_OWN = """\
# The table (.csv, .csv.gz, .parquet), looked for from the folder of this file, and the column that the model learns.
data: {data}
target: {target}
{separator}{sensitive}# Columns to leave out.
# drop: []
# What becomes of missing cells: refuse, drop (the rows that have one) or category (of their own; numbers: the median).
{missing}
# What a column is, instead of what its values look like: discrete, continuous or fields of the schema.
# overrides: {{}}
# A schema says more about the columns: seepage schema {shown} --target {target} --out schema.yaml
# schema: schema.yaml
"""


_STUDY = """\
# What seepage is to audit in {about}.
# Check it:  seepage spec check {name}     Run it:  seepage audit {name}
# Lines that begin with '#' are not read; what is left out has its default.
study: {study}

{table}
# Independent repetitions ({unit}s): intervals are over them.
units: {units}

# What is done against the attacks, an entry each; seepage defenses lists the mechanisms of {study} learning.
# One with options: {{name: ..., option: value}}; several at once: {{all: [{{name: ...}}, {{name: ...}}], label: both}}.
defenses:
- none

# Everything random follows from it.
seed: 0

# Exit with status 1 where the lift over guessing may exceed this, over all cells or in one column.
# gate: {{above: 0.2}}

# All else, with its default:
{rest}
"""


_SENSITIVE = """\
# Columns that the report singles out.
# sensitive: []
"""


def starter(
    dataset: str = "adult",
    data: Path | None = None,
    target: str | None = None,
    separator: str = ",",
    out: Path = Path("audit.yaml"),
) -> str:
    """Return the text of a first audit document.

    Args:
        dataset: registered name of a table.
        data, target, separator: a table of one's own instead, and its target.
        out: where the document is to lie; its table is named from there.

    Raises:
        BadInputError: the dataset is unknown, the table cannot be opened, or it has no such column.

    Example:
        >>> [line for line in starter("german").splitlines() if line.startswith("dataset")]
        ['dataset: german']
    """
    table, sizes = _table(dataset, data, target, separator, out)
    return _TEXT.format(name=out.name, table=table, sizes=list(sizes))


def study_starter(
    study: str,
    dataset: str | None = None,
    data: Path | None = None,
    target: str | None = None,
    separator: str = ",",
    out: Path = Path("audit.yaml"),
) -> str:
    """Return the text of a first document of split, vertical or pooled learning.

    Args:
        study: which.
        dataset: registered name; the setting's own default if None.
        data, target, separator, out: as of ``starter``.

    Raises:
        BadInputError: there is no such study, or as of ``starter``.

    Example:
        >>> [line for line in study_starter("split").splitlines() if line.startswith(("study", "units"))]
        ['study: split', 'units: 3']
    """
    kind = study_kind(study)
    # Where the spec has such a field, it is the column that is asked about.
    singles = "sensitive" not in kind.spec.model_fields
    table, _ = _table(dataset or kind.spec().dataset, data, target, separator, out, singles)
    values = {name: value for name, value in kind.spec().model_dump(mode="json").items() if name not in _SAID}
    values |= {name: [_part(part) for part in values[name]] for name in ("attacks", "baselines")}
    values.pop("defenses")
    return _STUDY.format(
        about=kind.about,
        name=out.name,
        study=study,
        table=table,
        unit=kind.spec.unit,
        units=values.pop("units"),
        rest="\n".join(f"# {name}: {_flow(value)}" for name, value in values.items()),
    )


def _part(part: dict[str, Any]) -> Any:
    told = {key: value for key, value in part.items() if value}
    return told if len(told) > 1 else part["name"]


def _flow(value: Any) -> str:
    """Return a value as YAML would write it on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("...\n").strip()


def _table(
    dataset: str, data: Path | None, target: str | None, separator: str, out: Path, singles: bool = True
) -> tuple[str, tuple[int, ...]]:
    """Return what a document says of a table, and batch sizes that suit it."""
    if data is None:
        if dataset not in registry.populations.names():
            registry.datasets[dataset]
        return _DATASET.format(dataset=_scalar(dataset)), _SIZES
    if target is None:
        raise BadInputError(
            f"the table {str(data)!r} needs a target, the column that the model learns; add --target COLUMN."
        )
    return _own(data, target, separator, out, singles)


def _own(data: Path, target: str, separator: str, out: Path, singles: bool) -> tuple[str, tuple[int, ...]]:
    source = open_table(data, separator)
    if target not in source.names:
        raise unknown_name(f"column of {str(data)!r}:", target, source.names)
    [(_, values)] = source.columns([target])
    rows = len(values)
    has_gaps = any(typed(raw).isna().any() for _, raw in source.columns(source.names))
    shown = _scalar(str(data))
    table = _OWN.format(
        data=_scalar(_from(out.parent, data)),
        target=_scalar(target),
        separator="" if separator == "," else f"separator: {_scalar(separator)}\n",
        sensitive=_SENSITIVE if singles else "",
        missing="missing: category" if has_gaps else "# missing: category",
        shown=shown,
    )
    return table, tuple(dict.fromkeys(min(size, max(1, rows // 2)) for size in _SIZES))


def _from(folder: Path, data: Path) -> str:
    """Return the name of a file as seen from a folder."""
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
