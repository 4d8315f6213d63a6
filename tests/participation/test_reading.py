"""Tables of participation from files, and ``seepage rounds``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from seepage.errors import BadInputError
from seepage.participation import read_participation
from tests.commands import Run, commands

WIDE = "round,a,b,c\njan,1,1,0\nfeb,1,1,1\n"


@pytest.fixture
def seepage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return commands(capfd, monkeypatch, tmp_path, "rounds")


def written(folder: Path, text: str) -> Path:
    path = folder / "p.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        (WIDE, ("jan", "feb")),
        ("\ufeff" + WIDE.replace(",", " , ") + "\n", ("jan", "feb")),
        ("a,b,c\n1,1,0\n1,1,1\n", ("1", "2")),
        ("Round,Client\njan,a\njan,b\nfeb,c\nfeb,a\nfeb,b\n", ("jan", "feb")),
    ],
)
def test_both_forms_say_the_same(tmp_path: Path, text: str, rounds: tuple[str, ...]) -> None:
    table = read_participation(written(tmp_path, text))
    order = [table.clients.index(name) for name in "abc"]
    assert (table.rounds, table.matrix[:, order].tolist()) == (rounds, [[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 lines; a header and a line a round are expected"),
        ("round,a\n", "has 1 line;"),
        ("round,a,b\njan,1\n", "line 2 of .* has 2 cells, and the header 3"),
        ("round,a,b\njan,1,x\n", "line 2 of .* has neither 1 .took part. nor 0 .did not. for client 'b'; write 1 or 0"),
        ("when,a,b\njan,1,0\n", "headed 'round'"),
        ("round,a,\njan,1,0\n", "names each client"),
        ("round,a,a\njan,1,0\n", "each client has a name of its own, got 'a' twice"),
        ("round,a,b\njan,1,0\njan,1,1\n", "each round has a name of its own, got 'jan' twice"),
        ("round,client\njan,a\njan,a\n", "client 'a' in round 'jan' a second time"),
        ("round,client\njan,\n", "names no client"),
        ("round,client\n,a\n", "names no round"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        read_participation(written(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="does not exist; give its path"):
        read_participation(tmp_path / "missing.csv")
    (tmp_path / "p.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="is not in UTF-8"):
        read_participation(tmp_path / "p.csv")
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(BadInputError, match="has 100,000,000 bytes"):
        read_participation(tmp_path / "large.csv")
    with pytest.raises(BadInputError, match="has no comma"):
        read_participation(written(tmp_path, "round;a\n1;1\n"))


def test_the_command_names_the_client_and_its_rounds(seepage: Run, tmp_path: Path) -> None:
    written(tmp_path, WIDE.replace("c\n", "c\x1b[31m\n"))
    code, out, _ = seepage("p.csv", "--below", "2")
    assert code == 1
    assert "− jan + feb" in out
    assert "Isolated: 1 client" in out
    assert "\x1b" not in out
    assert "Updates at different models change" in " ".join(out.split())
    code, out, _ = seepage("p.csv", "--below", "2", "--json")
    found = json.loads(out)
    assert found["groups"][0]["combination"] == {"jan": "-1", "feb": "1"}
    assert (code, found["complete"], found["inseparable"]) == (1, True, [["a", "b"]])


def test_the_status_says_whether_all_was_searched(seepage: Run, tmp_path: Path) -> None:
    """Nothing found is 0 only where everything was searched."""
    rows = (np.random.default_rng(0).random((6, 30)) < 0.5).astype(int).tolist()
    lines = [",".join(f"c{i}" for i in range(30)), *(",".join(map(str, row)) for row in rows)]
    written(tmp_path, "\n".join(lines))
    assert seepage("p.csv", "--below", "4")[0] == 0
    code, out, _ = seepage("p.csv", "--below", "4", "--most-compared", "100")
    assert code == 4
    assert "not all searched" in " ".join(out.split())
    assert seepage("p.csv", "--known", "zz")[0] == 2
