"""What each victim gave away, one line each, appended as it is measured: a killed audit goes on where it was."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seepage.assessment import Association, Measured, Measurement
from seepage.audit.files import PRIVATE, make_folder, why
from seepage.errors import BadInputError

FILE = "victims.jsonl"


@dataclass(frozen=True)
class Figure:
    """What one entry of a victim's values means.

    Attributes:
        metric, column: as in ``Measurement``.
        higher_leaks, low, high: as in ``Measurement``; None for a pair of accuracy and entropy that
            is correlated across victims.
    """

    metric: str
    column: str | None
    higher_leaks: bool | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, measured: Measured) -> Figure:
        """Return what ``measured`` holds, without its values."""
        if isinstance(measured, Association):
            return cls(measured.metric, measured.column, None, None, None)
        return cls(measured.metric, measured.column, measured.higher_leaks, *map(_plain, measured.bounds))

    def measured(self, values: Sequence[Any]) -> Measured:
        """Return the measurement whose victims have ``values``."""
        if self.higher_leaks is None:
            pairs = torch.tensor([[_number(v) for v in pair] for pair in values], dtype=torch.float64).reshape(-1, 2)
            return Association(self.metric, self.column, pairs[:, 0], pairs[:, 1])
        bounds = (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)
        numbers = torch.tensor([_number(v) for v in values], dtype=torch.float64)
        return Measurement(self.metric, self.column, numbers, self.higher_leaks, bounds)


@dataclass(frozen=True)
class Stored:
    """One victim of one setting.

    Attributes:
        values: one a figure: a number, None for not applicable, or a pair of them.
        seconds: the attack took for this victim (a share of the time of those that ran with it).
        loss: the attack's own, None where it has none.
    """

    values: tuple[Any, ...]
    seconds: float
    loss: float | None


class Store:
    """The victims of a run folder, in memory and, where there is a folder, in ``victims.jsonl``.

    The file holds two kinds of lines: a setting (its key, everything that determines its figures and
    what the entries of its values mean) and, after it, its victims. The file appears with the first
    victims. A line that a crash cut short is dropped; any other damage is refused.

    Args:
        folder: the run folder, None to keep nothing.
        private: whether only its owner may read the file.

    Raises:
        BadInputError: the file is damaged, or not one of these.
    """

    def __init__(self, folder: Path | None, private: bool = False) -> None:
        self._path = None if folder is None else folder / FILE
        self._private = private
        self._cut: int | None = None
        self._figures: dict[str, list[Figure]] = {}
        self._victims: dict[str, dict[int, Stored]] = {}
        if self._path is not None and self._path.exists():
            self._read(self._path)

    @property
    def is_empty(self) -> bool:
        """Whether no victim of any setting is held."""
        return not self._victims

    def victims(self, key: str) -> dict[int, Stored]:
        """Return the victims measured so far under ``key``, by index."""
        return dict(self._victims.get(key, {}))

    def measured(self, key: str, victims: int) -> list[Measured]:
        """Return the measurements of the first ``victims`` victims under ``key``."""
        held = self._victims[key]
        rows = [held[i].values for i in range(victims)]
        return [
            figure.measured(list(column))
            for figure, column in zip(self._figures[key], zip(*rows, strict=True), strict=True)
        ]

    def add(
        self,
        key: str,
        setting: Mapping[str, Any],
        first: int,
        measured: Sequence[Measured],
        seconds: float,
        losses: Sequence[float] | None,
    ) -> None:
        """Keep victims that were measured together, all in one write.

        Args:
            key: of the setting.
            setting: what the key stands for.
            first: index of the first of the victims.
            measured: of the victims.
            seconds: the attack took for each.
            losses: one a victim, None where the attack has none.

        Raises:
            BadInputError: the file cannot be written.
        """
        figures = [Figure.of(m) for m in measured]
        lines: list[str] = []
        if key not in self._figures:
            self._figures[key] = figures
            lines.append(_line({"key": key, "setting": setting, "figures": [list(vars(f).values()) for f in figures]}))
        columns = [
            [[_plain(a), _plain(e)] for a, e in zip(m.accuracy.tolist(), m.entropy.tolist(), strict=True)]
            if isinstance(m, Association)
            else [_plain(v) for v in m.values.tolist()]
            for m in measured
        ]
        for i, values in enumerate(zip(*columns, strict=True)):
            stored = Stored(values, seconds, None if losses is None else _plain(losses[i]))
            self._victims.setdefault(key, {})[first + i] = stored
            lines.append(_line({"key": key, "victim": first + i, **vars(stored)}))
        self._append("".join(lines))

    def _append(self, text: str) -> None:
        if self._path is None:
            return
        make_folder(self._path.parent, self._private)
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE if self._private else 0o666)
            try:
                if self._cut is not None:
                    os.ftruncate(handle, self._cut)
                    self._cut = None
                rest = text.encode()
                while rest:
                    rest = rest[os.write(handle, rest) :]
            finally:
                os.close(handle)
        except OSError as error:
            raise BadInputError(
                f"{str(self._path)!r} cannot be written ({why(error)} with --out, then run the same command again."
            ) from error

    def _read(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadInputError(f"{str(path)!r} cannot be read ({error.strerror}); choose another --out.") from error
        whole = content[: content.rfind(b"\n") + 1]
        # Cut when something is added, not now: another process may be writing the rest of the line.
        self._cut = len(whole) if len(whole) < len(content) else None
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                key = entry["key"]
                if "figures" in entry:
                    self._figures[key] = [Figure(*figure) for figure in entry["figures"]]
                else:
                    values = tuple(entry["values"])
                    if len(values) != len(self._figures[key]):
                        raise ValueError("values do not fit the setting")
                    stored = Stored(values, entry["seconds"], entry["loss"])
                    self._victims.setdefault(key, {})[int(entry["victim"])] = stored
            except (ValueError, KeyError, TypeError) as error:
                raise BadInputError(
                    f"line {number} of {str(path)!r} is no measured victim ({error}); the file was edited or belongs "
                    "to another program. Choose another --out, or delete that line to have its victims measured again."
                ) from error


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
