"""A document as a tree of plain values that know their line, with the mistakes that are found in it.

Scalars are read by the core rules of YAML 1.2: ``yes``, ``on`` and dates are words, ``1e-3`` is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from seepage.errors import BadInputError

# Beyond that a list of mistakes helps nobody.
_SHOWN = 25


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake; the line is 0 where nothing was read from a text, the key empty where it is about the whole."""

    line: int
    key: str
    message: str


class DocumentError(BadInputError):
    """An audit document that cannot be used, with all its mistakes in order of lines; a mapping has no source."""

    def __init__(self, source: str, mistakes: list[Mistake]) -> None:
        self.source = source
        self.mistakes = tuple(sorted(dict.fromkeys(mistakes)))
        super().__init__(" ".join(self.lines))

    @property
    def lines(self) -> tuple[str, ...]:
        """One line a mistake, each with document, line and key as far as there are any."""
        lines = [_line(self.source, mistake) for mistake in self.mistakes[:_SHOWN]]
        left = len(self.mistakes) - len(lines)
        return (*lines, *([f"{self.source or 'audit'}: {left} more mistakes."] if left else []))


def _line(source: str, mistake: Mistake) -> str:
    # What was given as an option of the command line stands in no line of the document.
    document = "" if mistake.key.startswith("--") else source
    place = document and (f"{document}:{mistake.line}" if mistake.line else document)
    return ": ".join(part for part in (place, mistake.key, mistake.message) if part)


class Mistakes:
    """Gathers mistakes while a document is read."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._mistakes: list[Mistake] = []

    def add(self, line: int, key: str, message: object) -> None:
        """Note a mistake."""
        self._mistakes.append(Mistake(line, key, str(message)))

    def touch(self, key: str) -> bool:
        """Return whether a mistake was noted at a key or within its value."""
        return any(mistake.key == key or mistake.key.startswith((f"{key}.", f"{key}[")) for mistake in self._mistakes)

    def __len__(self) -> int:
        return len(self._mistakes)

    def check(self) -> None:
        """Stop here if there were any."""
        if self._mistakes:
            raise DocumentError(self.source, self._mistakes)


LARGEST = 1_000_000
# Far more than any audit needs; aliases count as often as they are used.
_MOST_VALUES = 10_000
_DEEPEST = 20

_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())
}
_LONGEST_NUMBER = 100

Scalar = None | bool | int | float | str


@dataclass(frozen=True)
class Node:
    """A value of a document: a scalar, a list of nodes, or a mapping to nodes.

    ``line`` is 0 where it was not read from a text; ``source`` is the option of the command line that gave it; ``path``
    are the keys and positions that lead to it, such as ``attacks[1].restarts``.
    """

    value: Scalar | list[Node] | dict[str, Node]
    line: int = 0
    source: str | None = None
    path: str = ""

    def plain(self) -> object:
        """Return the value without lines."""
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value

    def items(self) -> list[Node]:
        """Return the entries of a list, or the one value itself."""
        return self.value if isinstance(self.value, list) else [self]

    def with_path(self, path: str) -> Node:
        """Return the value with another path, and all within it with paths that follow."""
        value = self.value
        if isinstance(value, list):
            value = [node.with_path(f"{path}[{i}]") for i, node in enumerate(value)]
        elif isinstance(value, dict):
            value = {key: node.with_path(join(path, key)) for key, node in value.items()}
        return replace(self, value=value, path=path)

    def within(self, steps: Iterable[str | int]) -> Node:
        """Return the innermost value at a path of names and positions, as far as the path exists."""
        node = self
        for step in steps:
            inner = node.value
            if isinstance(inner, dict) and step in inner:
                node = inner[str(step)]
            elif isinstance(inner, list) and isinstance(step, int) and step < len(inner):
                node = inner[step]
            else:
                break
        return node

    def instead(self, value: object) -> Node:
        """Return another plain value at the place of this one."""
        if isinstance(value, Mapping):
            return replace(self, value={str(key): self.instead(item) for key, item in value.items()})
        if isinstance(value, list | tuple):
            return replace(self, value=[self.instead(item) for item in value])
        return replace(self, value=value)

    def wrong(self, mistakes: Mistakes, message: object) -> None:
        """Note a mistake at this value."""
        mistakes.add(self.line, self.source or self.path, message)


def read_text(path: str | Path) -> str:
    """Return the text of a document, UTF-8 of at most 1 MB."""
    path = Path(path)
    name = str(path)
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise _whole(name, "is no file; an audit document is a YAML file, which 'seepage spec new' drafts.")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise _whole(name, "does not exist; give the name of an audit document, or draft one: seepage spec new.") from (
            None
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _whole(name, f"cannot be read ({reason}); check its name and permissions.") from None
    if len(content) > LARGEST:
        raise _whole(
            name, "is larger than 1 MB, so it is no audit document; a table of your own is named in one (data: FILE)."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DocumentError(name, [Mistake(line, "", "is no UTF-8 text; save the file in that encoding.")]) from None


def _whole(name: str, message: str) -> DocumentError:
    return DocumentError("", [Mistake(0, "", f"{name!r} {message}")])


def parse(text: str, name: str) -> Node:
    """Return the tree of a YAML text, which is one mapping; ``name`` is for messages.

    It refuses malformed YAML, a key that appears twice or is no word, an explicit tag, more values (with what aliases
    repeat) or levels than an audit can need, several documents, or none.
    """
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else 0
        raise builder.error(line, "", f"this is no valid YAML: {problem}; mend the line or the one above it.") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{error.character:04X}" if isinstance(error.character, int) else repr(error.character)
        raise builder.error(line, "", f"the character {character} may not stand in YAML; remove it.") from None
    if builder.root is None or builder.root.value is None:
        raise builder.error(0, "", "the document holds nothing; 'seepage spec new' drafts one.")
    if not isinstance(builder.root.value, dict):
        raise builder.error(
            builder.root.line, "", "an audit document is a mapping of keys such as 'dataset: adult'; this one is not."
        )
    return builder.root.with_path("")


def plant(value: object, name: str = "", source: str | None = None) -> Node:
    """Return the tree of plain Python values: mappings, lists or tuples, and scalars."""
    return _plant(value, name, source, "", 0)


def _plant(value: object, name: str, source: str | None, path: str, depth: int) -> Node:
    if depth > _DEEPEST:
        raise DocumentError(name, [Mistake(0, path, f"is nested more than {_DEEPEST} levels deep; audits need two.")])
    if isinstance(value, Mapping):
        planted = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise DocumentError(name, [Mistake(0, path, f"has a key {key!r} that is no text; use the key's name.")])
            planted[key] = _plant(item, name, source, join(path, key), depth + 1)
        return Node(planted, 0, source, path)
    if isinstance(value, list | tuple):
        items = [_plant(item, name, source, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        return Node(items, 0, source, path)
    if isinstance(value, Path):
        return Node(str(value), 0, source, path)
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return Node(value, 0, source, path)
    message = f"takes plain values (numbers, texts, lists and mappings of them), got {value!r}."
    raise DocumentError(name, [Mistake(0, source or path, message)])


def is_word(text: str) -> bool:
    """Return whether a text that stands without quotes is read as itself, and not as a number or the like."""
    return text not in _WORDS and not _NUMBER.fullmatch(text) and not _ENDLESS.fullmatch(text)


def join(path: str, key: str) -> str:
    """Return the path of a key below another."""
    return f"{path}.{key}" if path else key


class _Builder:
    """Puts the events of a YAML parser together; nothing recurses, so that no nesting can exhaust the stack."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._open: list[_Open] = []
        self._count = 0
        self.root: Node | None = None

    def error(self, line: int, key: str, message: str) -> DocumentError:
        return DocumentError(self._name, [Mistake(line, key, message)])

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self.error(line, "", "a second document begins here; keep one audit in one file.")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self.error(line, self._path(), f"tags such as {tag!r} are not read; write the plain value.")
        if isinstance(event, yaml.ScalarEvent):
            self._put(Node(self._scalar(event, line), line), 1, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self.error(line, self._path(), f"the alias *{event.anchor} refers to nothing complete above it.")
            node, count = self._anchors[event.anchor]
            self._put(node, count, None)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) >= _DEEPEST:
                raise self.error(line, "", f"is nested more than {_DEEPEST} levels deep; audits need two.")
            empty: list[Node] | dict[str, Node] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            self._open.append(_Open(Node(empty, line), event.anchor, self._count))
            self._counted(1, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self._open.pop()
            self._put(ended.node, 0, None)
            if ended.anchor is not None:
                self._anchors[ended.anchor] = (ended.node, self._count - ended.begun)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Scalar:
        text: str = event.value
        if event.style is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        number = _NUMBER.fullmatch(text)
        if _ENDLESS.fullmatch(text) or (number and not math.isfinite(float(text))):
            raise self.error(line, self._path(), f"expected a finite number, got {text[:20]}.")
        if number is None:
            return text
        if len(text) > _LONGEST_NUMBER:
            raise self.error(line, self._path(), f"a number of {len(text)} digits is none that an audit can use.")
        return int(text) if _WHOLE.fullmatch(text) else float(text)

    def _put(self, node: Node, count: int, anchor: str | None) -> None:
        self._counted(count, node.line)
        if anchor is not None:
            self._anchors[anchor] = (node, count)
        if not self._open:
            self.root = node
            return
        top = self._open[-1]
        if isinstance(top.node.value, list):
            top.node.value.append(node)
        elif isinstance(top.node.value, dict):
            if top.key is not None:
                top.node.value[top.key] = node
                top.key = None
                return
            if not isinstance(node.value, str):
                raise self.error(node.line, self._path(), "a key is a word; put it in quotes if it is meant as one.")
            if node.value in top.lines:
                first = top.lines[node.value]
                where = join(self._path(), node.value)
                raise self.error(node.line, where, f"the key stands on line {first} already; keep one of them.")
            top.key, top.lines[node.value] = node.value, node.line

    def _counted(self, count: int, line: int) -> None:
        self._count += count
        if self._count > _MOST_VALUES:
            message = f"the document holds more than {_MOST_VALUES:,} values, aliases included; an audit needs fewer."
            raise self.error(line, "", message)

    def _path(self) -> str:
        path = ""
        for level in self._open:
            if isinstance(level.node.value, list):
                path += f"[{len(level.node.value)}]"
            elif level.key is not None:
                path = join(path, level.key)
        return path


@dataclass
class _Open:
    """A collection whose end has not come yet: the count at its start, and the key that waits for a value."""

    node: Node
    anchor: str | None
    begun: int
    key: str | None = None
    lines: dict[str, int] = field(default_factory=dict)
