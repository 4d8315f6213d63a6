"""The mistakes of an audit document, gathered so that all of them are reported at once."""

from __future__ import annotations

from dataclasses import dataclass

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
