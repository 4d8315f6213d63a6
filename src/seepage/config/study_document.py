"""An audit document of split, vertical or pooled learning: ``study: split``, a table, and the fields of its spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seepage.config.choices import Said, shown
from seepage.config.document import TABLE_KEYS, read_gate, table_spec
from seepage.config.mistakes import DocumentError, Mistakes
from seepage.config.tree import Node, join, parse
from seepage.errors import FieldError, unknown_name
from seepage.settings.spec import AuditSpec, Gate
from seepage.settings.studies import STUDIES, StudyKind
from seepage.settings.study import Study
from seepage.settings.study_spec import StudySpec, problems
from seepage.settings.subject import load_rows

KEY = "study"
# What a document says in other words than the spec.
_OF_TABLES = ("dataset", "dataset_options")
_FOLDER = "data_folder"


@dataclass(frozen=True)
class StudyDocument:
    """What a document of a study says.

    Attributes:
        spec: what to do, in plain values.
        study: made of it.
        gate: the limit to stay below, None for none.
    """

    spec: StudySpec
    study: Study
    gate: Gate | None = None


def is_study(text: str, name: str) -> bool:
    """Return whether the text of a document is of a study.

    Raises:
        DocumentError: it is no document.

    Example:
        >>> is_study("study: split", "audit.yaml"), is_study("dataset: adult", "audit.yaml")
        (True, False)
    """
    root = parse(text, name).value
    return isinstance(root, dict) and KEY in root


def read_study(text: str, name: str, folder: Path) -> StudyDocument:
    """Return the study of the text of a YAML document.

    Args:
        text: of the document: ``study`` (split, vertical, pooled), ``dataset`` or ``data`` with what documents of
            horizontal learning say of a table, ``gate``, and fields of the study's spec. Nothing sweeps but
            ``defenses``, ``attacks`` and ``baselines``. ``sensitive`` is the spec's where it has such a field.
        name: for messages.
        folder: where the files that it names are looked for.

    Raises:
        DocumentError: something in it cannot be used; it tells document, line and key of every mistake.
        BadInputError: the table cannot be read, or does not suit the study.

    Example:
        >>> defenses = "[none, {name: cut_noise, noise_multiplier: 1}]"
        >>> text = f"{{study: split, dataset: german, private: [housing], defenses: {defenses}}}"
        >>> list(read_study(text, "audit.yaml", Path()).study.defenses)
        ['none', 'cut_noise']
    """
    root, mistakes = parse(text, name), Mistakes(name)
    assert isinstance(root.value, dict)
    given = {key: Said(node.plain(), node, key) for key, node in root.value.items()}
    kind = _kind(given[KEY], mistakes)
    fields = [field for field in kind.spec.model_fields if field not in _OF_TABLES]
    about_tables = [key for key in TABLE_KEYS if key == _FOLDER or key not in fields]
    known = list(dict.fromkeys((KEY, "gate", *about_tables, *fields)))
    for key, said in given.items():
        if key not in known:
            said.wrong(mistakes, unknown_name(f"key of a study of {given[KEY].value} learning:", key, known))
    gate = read_gate(given["gate"], mistakes) if "gate" in given else None
    table = Node({key: node for key, node in root.value.items() if key in about_tables}, root.line)
    assert isinstance(table.value, dict)
    own = any(key not in ("dataset", _FOLDER) for key in table.value)
    values = {key: said.value for key, said in given.items() if key in fields and key not in table.value}
    if not own:
        values |= _dataset(given, folder, mistakes)
    spec = _spec(kind, values, root, mistakes)
    rows = _rows(table, name, folder, mistakes) if own else None
    mistakes.check()
    assert spec is not None
    if rows is None:
        return StudyDocument(spec, kind.study(spec, None, own=False), gate)
    loaded = load_rows(rows)[0]
    spec = spec.model_copy(update={"dataset": loaded.name})
    return StudyDocument(spec, kind.study(spec, loaded, own=True), gate)


def _kind(said: Said, mistakes: Mistakes) -> StudyKind:
    if not isinstance(said.value, str) or said.value not in STUDIES:
        said.wrong(mistakes, unknown_name("study", shown(said.value), STUDIES))
        # Without it no other key can be judged.
        mistakes.check()
    return STUDIES[said.value]


def _spec(kind: StudyKind, values: dict[str, Any], root: Node, mistakes: Mistakes) -> StudySpec | None:
    try:
        return kind.spec.model_validate(values)
    except ValidationError as error:
        for problem in problems(error):
            is_field = isinstance(problem, FieldError)
            node, told = _place(root, problem.path if is_field else ())
            if not mistakes.touch(told):
                mistakes.add(node.line, told, problem.said if is_field else problem)
    return None


def _rows(table: Node, name: str, folder: Path, mistakes: Mistakes) -> AuditSpec | None:
    try:
        return table_spec(table, name, folder)
    except DocumentError as error:
        for one in error.mistakes:
            mistakes.add(one.line, one.key, one.message)
    return None


def _dataset(given: dict[str, Said], folder: Path, mistakes: Mistakes) -> dict[str, Any]:
    """Return the fields of a spec that name a dataset."""
    made: dict[str, Any] = {}
    if (said := given.get("dataset")) is not None:
        options = dict(said.value) if isinstance(said.value, dict) else {"name": said.value}
        name = options.pop("name", None)
        if not isinstance(name, str):
            said.wrong(
                mistakes,
                f"expected the name of one dataset, or {{name: adult, missing: category}}, got {shown(said.value)}.",
            )
        elif "folder" in options:
            said.wrong(mistakes, f"says where files lie in {_FOLDER}, not in folder.")
        else:
            made |= {"dataset": name, "dataset_options": options}
    if (said := given.get(_FOLDER)) is not None:
        if isinstance(said.value, str):
            made[_FOLDER] = str(folder / Path(said.value).expanduser())
        else:
            said.wrong(mistakes, f"expected the name of a folder, got {shown(said.value)}.")
    return made


def _place(root: Node, path: Sequence[str | int]) -> tuple[Node, str]:
    """Return the innermost value of a document on a path, and what to call its place."""
    node, told = root, ""
    for step in path:
        if isinstance(node.value, dict) and step in node.value:
            node, told = node.value[str(step)], join(told, str(step))
        elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
            node, told = node.value[step], f"{told}[{step}]"
    return node, told
