"""The mistakes of an audit document, gathered so that all of them are reported at once."""

from __future__ import annotations

from dataclasses import dataclass

from seepage.errors import BadInputError

# Beyond that a list of mistakes helps nobody.
_SHOWN = 25


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake.

    Attributes:
        line: number of the line in the document, from 1; 0 where it was not read from a text.
        key: key in the document, such as ``attacks[1].restarts``; empty where the mistake is about the whole.
    """

    line: int
    key: str
    message: str


class DocumentError(BadInputError):
    """An audit document that cannot be used.

    Attributes:
        source: name of the document; empty where it is a mapping.
        mistakes: all that were found, in order of lines.

    Example:
        >>> print(DocumentError("audit.yaml", [Mistake(12, "victims", "expected a whole number, got 'ten'.")]))
        audit.yaml:12: victims: expected a whole number, got 'ten'.
    """

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
    """Gathers mistakes while a document is read.

    Example:
        >>> found = Mistakes("audit.yaml")
        >>> found.add(3, "victims", "expected a whole number from 1 up, got 0.")
        >>> found.check()
        Traceback (most recent call last):
        ...
        seepage.config.mistakes.DocumentError: audit.yaml:3: victims: expected a whole number from 1 up, got 0.
    """

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
        """Stop here if there were any.

        Raises:
            DocumentError: names all of them.
        """
        if self._mistakes:
            raise DocumentError(self.source, self._mistakes)
