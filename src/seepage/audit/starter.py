"""A first audit document, with comments that say what can be changed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import yaml

from seepage.audit.parts import registry
from seepage.audit.tree import is_word
from seepage.errors import BadInputError, unknown_name
from seepage.tabular.reading import open_table, typed

_SIZES = (8, 32)
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
{separator}# Columns that the report singles out, and columns to leave out.
# sensitive: []
# drop: []
# What becomes of missing cells: refuse, drop (the rows that have one) or category (of their own; numbers: the median).
{missing}
# A schema says more about the columns: seepage schema {shown} --target {target} --out schema.yaml
# schema: schema.yaml
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
    if data is None:
        registry.datasets[dataset]
        table, sizes = _DATASET.format(dataset=_scalar(dataset)), _SIZES
    elif target is None:
        raise BadInputError(
            f"the table {str(data)!r} needs a target, the column that the model learns; add --target COLUMN."
        )
    else:
        table, sizes = _own(data, target, separator, out)
    return _TEXT.format(name=out.name, table=table, sizes=list(sizes))


def _own(data: Path, target: str, separator: str, out: Path) -> tuple[str, tuple[int, ...]]:
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
