"""The part of HOCON that settings of jobs use: objects, lists, texts, numbers, comments, and values of other keys.

Source: the specification *HOCON (Human-Optimized Config Object Notation)*. Other files are never included, and values
of the environment never taken: both stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_DEEPEST = 60
_SPACE = re.compile(r"(?:[ \t\r\f\v\u00a0\ufeff]|(?:#|//)[^\n]*)+")
_BREAKS = re.compile(r"(?:\s|\ufeff|(?:#|//)[^\n]*)+")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_PLAIN = re.compile(r'(?:(?!//)[^$"{}\[\]:=,+#`^?!@*&\\\n\r])+')
_REFERENCE = re.compile(r"\$\{\??[^}\n]*\}")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?\Z")
_PLAIN_VALUES = {"true": True, "false": False, "null": None, "yes": True, "no": False, "on": True, "off": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"'}


def parsed_hocon(text: str) -> dict[str, object]:
    r"""Return the settings of a text in HOCON.

    Raises:
        ValueError: the text is none, or holds what is not read here.

    Example:
        >>> parsed_hocon("rounds = 3 # of training\nserver { name: here, tasks = [train, validate] }")
        {'rounds': 3, 'server': {'name': 'here', 'tasks': ['train', 'validate']}}
    """
    reader = _HoconReader(text)
    reader.skip(_BREAKS)
    braced = reader.take("{")
    settings = reader.fields("}" if braced else "", 0)
    reader.skip(_BREAKS)
    if reader.position != len(text):
        raise reader.error("the end")
    return {name: _resolved(value, settings, 0) for name, value in settings.items()}


class _HoconReader:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def error(self, expected: str) -> ValueError:
        line = self.text.count("\n", 0, self.position) + 1
        return ValueError(f"line {line}: {expected} is expected, got {self.text[self.position : self.position + 12]!r}")

    def skip(self, pattern: re.Pattern[str]) -> None:
        if match := pattern.match(self.text, self.position):
            self.position = match.end()

    def take(self, mark: str) -> bool:
        if mark and self.text.startswith(mark, self.position):
            self.position += len(mark)
            return True
        return False

    def matched(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        return match[0]

    def fields(self, end: str, depth: int) -> dict[str, object]:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        settings: dict[str, object] = {}
        while True:
            self.separators()
            if (self.position == len(self.text) and not end) or self.take(end):
                return settings
            if self.position == len(self.text):
                raise self.error(end)
            self.field(settings, depth)

    def separators(self) -> None:
        self.skip(_BREAKS)
        if self.take(","):
            self.skip(_BREAKS)

    def field(self, settings: dict[str, object], depth: int) -> None:
        path = self.key()
        if path[0].startswith("include ") or path == ["include"]:
            raise ValueError("it includes another file, which is not read")
        self.skip(_BREAKS)
        adds = self.take("+=")
        if not adds and not self.take("=") and not self.take(":") and not self.text.startswith("{", self.position):
            raise self.error("= or :")
        self.skip(_BREAKS)
        value = self.value(depth + 1)
        for name in path[:-1]:
            inner = settings.setdefault(name, {})
            if not isinstance(inner, dict):
                inner = settings[name] = {}
            settings = inner
        before = settings.get(path[-1])
        if adds:
            value = [*before, value] if isinstance(before, list) else [value]
        settings[path[-1]] = _merged(before, value)

    def key(self) -> list[str]:
        path: list[str] = []
        current = ""
        while True:
            if quoted := self.matched(_QUOTED):
                current += _unescaped(quoted)
            elif plain := self.matched(_PLAIN):
                first, *more = plain.split(".")
                current += first
                for part in more:
                    path, current = [*path, current], part
            else:
                break
        path = [part.strip() for part in [*path, current]]
        if not all(path):
            raise self.error("a key")
        return path

    def value(self, depth: int) -> object:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        parts: list[object] = []
        texts: list[str] = []
        while True:
            blank = self.position
            self.skip(_SPACE)
            space = self.text[blank : self.position] if parts else ""
            start = self.position
            if self.take("{"):
                part: object = self.fields("}", depth)
            elif self.take("["):
                part = self.items(depth)
            elif self.take('"""'):
                end = self.text.find('"""', self.position)
                if end < 0:
                    raise self.error("three quotes")
                # More than three quotes at the end belong to the text.
                while self.text.startswith('"', end + 3):
                    end += 1
                part, self.position = self.text[self.position : end], end + 3
            elif quoted := self.matched(_QUOTED):
                part = _unescaped(quoted)
            elif reference := self.matched(_REFERENCE):
                part = _OtherKey(reference)
            elif plain := self.matched(_PLAIN).rstrip():
                self.position = start + len(plain)
                part = _plain_value(plain)
            else:
                break
            parts.append(part)
            texts.append(space + (self.text[start : self.position] if not isinstance(part, str) else part))
        if not parts:
            raise self.error("a value")
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, list) for part in parts):
            return [item for part in parts if isinstance(part, list) for item in part]
        whole: object = parts[0]
        if all(isinstance(part, dict) for part in parts):
            for part in parts[1:]:
                whole = _merged(whole, part)
            return whole
        return _Concatenation(parts, texts)

    def items(self, depth: int) -> list[object]:
        listed: list[object] = []
        while True:
            self.separators()
            if self.take("]"):
                return listed
            if self.position == len(self.text):
                raise self.error("]")
            listed.append(self.value(depth + 1))


class _OtherKey(str):
    """A value that stands under another key."""


class _Concatenation:
    """Values beside each other, which are one text unless they are objects or lists."""

    def __init__(self, parts: list[object], texts: list[str]) -> None:
        self.parts, self.texts = parts, texts


def _unescaped(quoted: str) -> str:
    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", _letter, quoted[1:-1])


def _letter(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])


def _plain_value(text: str) -> object:
    if text in _PLAIN_VALUES:
        return _PLAIN_VALUES[text]
    if _NUMBER.match(text) and len(text) < 40:
        return float(text) if any(c in text for c in ".eE") else int(text)
    return text


def _merged(before: object, value: object) -> object:
    if isinstance(before, dict) and isinstance(value, dict):
        return {**before, **{name: _merged(before.get(name), of) for name, of in value.items()}}
    return value


def _resolved(value: object, settings: Mapping[str, object], depth: int) -> object:
    if depth > _DEEPEST:
        return str(value)
    if isinstance(value, _OtherKey):
        current: object = settings
        for name in value[2:-1].removeprefix("?").strip().split("."):
            current = current.get(name) if isinstance(current, Mapping) else None
        # Whatever else it may stand for, such as the environment, is not looked up.
        plain = current is None or isinstance(current, dict | list | _Concatenation)
        return str(value) if plain else _resolved(current, settings, depth + 1)
    if isinstance(value, _Concatenation):
        if any(isinstance(part, dict | list) for part in value.parts):
            return "".join(value.texts)
        return "".join(
            text
            if not isinstance(part, _OtherKey)
            else f"{text[: len(text) - len(part)]}{_resolved(part, settings, depth + 1)}"
            for part, text in zip(value.parts, value.texts, strict=True)
        )
    if isinstance(value, dict):
        return {name: _resolved(of, settings, depth + 1) for name, of in value.items()}
    return [_resolved(of, settings, depth + 1) for of in value] if isinstance(value, list) else value
