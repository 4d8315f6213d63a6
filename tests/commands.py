"""Running the program as from a command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seepage import cli

Run = Callable[..., tuple[int, str, str]]


def commands(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, *command: str) -> Run:
    """Return what runs the program, or one command of it, in a folder and returns status, output and errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seepage", *command, *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capfd.readouterr()
        code = stopped.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return run
