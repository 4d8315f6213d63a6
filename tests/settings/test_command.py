"""What is printed can be pasted: a shell and the program read commands as they were meant."""

from __future__ import annotations

import shlex
import subprocess
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seepage import cli
from seepage.report.advice import search_command
from seepage.settings.catalogue import setting
from seepage.settings.command import given_options, in_lines, quoted, table_option, written
from seepage.settings.part import Part

# No shell takes a zero byte in an argument, and lone surrogates are no text of a table.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
FIELDS: dict[str, dict[str, Any]] = {
    "horizontal": {
        **{"batch_sizes": [4, 16], "attacks": {"name": "dlg", "iterations": 30}, "replacement": True},
        **{"protocol": "fedavg", "protocol_options": {"epochs": 3, "optimizer": "adam"}, "training": {"rounds": 2}},
        **{"loss": {"reduction": "sum", "weights": (1.0, 9.0)}, "quasi_identifiers": ["job"]},
    },
    "split": {"repetitions": 3, "epochs": 2, "attacks": ["exact"], "private_columns": ["job", "age"]},
    "vertical": {"passive": [["housing", "job"], ["age"]], "repetitions": 2, "bottom": [4], "control": False},
    "pooled": {"sensitive": "housing", "rows": 300, "overrides": {"age": {"low": 0, "kind": "continuous"}}},
    "trees": {"protocol": "histogram", "repetitions": 3, "rows": [50], "baselines": ["mode"]},
    "statistics": {"rows": [50], "repetitions": 3, "family": "binomial"},
}


def in_shell(command: str) -> list[str]:
    """Return the arguments that a shell makes of a command."""
    run = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, timeout=20)
    return run.stdout.decode().split("\0")[:-1]


@given(TEXTS)
@settings(max_examples=40, deadline=None)
def test_a_shell_reads_a_quoted_text_as_it_is_and_a_terminal_obeys_none(text: str) -> None:
    assert quoted(text).isprintable()
    assert in_shell(quoted(text)) == [text]


@given(
    st.lists(st.tuples(st.sampled_from(["--drop", "--target", "--sensitive"]), TEXTS), max_size=6), st.integers(8, 90)
)
@settings(max_examples=40, deadline=None)
def test_lines_of_a_command_are_read_as_one(options: list[tuple[str, str]], width: int) -> None:
    pieces = [f"{flag} {quoted(value)}" for flag, value in options]
    command = " ".join(["seepage recommend --below 0.2", *pieces])
    lines = in_lines(command, width)
    assert in_shell("\n".join(lines)) == in_shell(command)
    longest = max(len(piece) for piece in ["seepage recommend", "--below 0.2", *pieces])
    assert all(len(line) <= max(width, longest + 4) for line in lines)


@pytest.mark.parametrize("name", list(FIELDS))
@given(columns=st.lists(TEXTS, min_size=1, max_size=3, unique=True), path=TEXTS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_search_that_is_printed_starts_from_the_audits_deployment(
    name: str, columns: list[str], path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = setting(name).spec
    fields = {**FIELDS[name], "data": f"{path}.csv", "target": columns[0], "drop": columns[1:], "seed": 3}
    spec = kind.of(**fields)
    searched: list[Any] = []

    def found(of: Any, *_: object, **__: object) -> None:
        searched.append(of)
        raise SystemExit(0)

    monkeypatch.setattr(import_module("seepage.advise.recommend"), "recommended", found)
    arguments = in_shell("\n".join(in_lines(search_command(spec), 80)))
    monkeypatch.setattr("sys.argv", [*arguments, "--out", "unused"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0, capsys.readouterr().err
    [read] = searched
    # A search has one batch size, and as many units as its limit needs.
    left_out = {kind.repeats, *(["batch_sizes"] if name == "horizontal" else [])}
    expected = kind.of(**{key: value for key, value in fields.items() if key not in left_out}, recommend={"below": 0.2})
    assert read == expected


@pytest.mark.parametrize(
    "part",
    [
        Part(name="dp_sgd", options={"epsilon": 0.123456789, "clip_norm": 1.0}),
        Part(
            name="label_flip+cut_noise",
            options={"label_flip": {"probability": 0.1}, "cut_noise": {"noise_multiplier": 1e-05}},
        ),
        Part(name="gaussian_noise", options={"scale": 1e-05}),
    ],
)
def test_the_option_of_a_defense_is_read_back_as_the_same_defense(part: Part) -> None:
    kind = setting("split" if "+" in part.name else "horizontal").spec
    spec = kind.of(defenses=[written(part)])
    assert [(read.name, read.options) for read in spec.defenses] == [(part.name, part.options)]


def test_a_table_and_options_are_printed_on_one_line() -> None:
    spec = setting("split").spec.of(data="two\nlines.csv", target="\x1b[31m", private_columns=["a b"])
    command = f"{table_option(spec)} {given_options(spec)}"
    assert command.isprintable()
    assert in_shell(command)[:4] == ["--data", "two\nlines.csv", "--target", "\x1b[31m"]
    assert shlex.split("--private-column 'a b'") == ["--private-column", "a b"]
