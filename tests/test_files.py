"""Files are complete or absent, and on the disk when a write has ended."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from seepage.errors import BadInputError
from seepage.files import check_out, load_yaml, publish, read_bytes, read_text, write_whole


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "results.json", list[tuple[bool, bool, bytes]](), os.fsync

    def fsync(handle: int) -> None:
        sync(handle)
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        synced.append((is_folder, path.exists(), b"" if is_folder else os.pread(handle, 100, 0)))

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, "whole")
    assert synced == [(False, False, b"whole"), (True, True, b"")]
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "old")

    def failing(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(BadInputError, match=r"cannot be written \(Input/output error\)"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_for_its_owner_alone_unless_it_is_said_to_be_public(tmp_path: Path) -> None:
    write_whole(tmp_path / "cells.json", "{}")
    write_whole(tmp_path / "public.json", "{}", private=False)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("cells.json", "public.json")]
    assert modes[0] == 0o600
    assert modes[1] & 0o400


def test_a_file_that_is_there_gives_way_only_where_it_is_to(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.sqlite", tmp_path / "new"
    path.write_text("first")
    other.write_text("second")
    with pytest.raises(FileExistsError):
        publish(other, path, replace=False)
    assert (path.read_text(), other.read_text()) == ("first", "second")
    publish(other, path, private=True)
    assert path.read_text() == "second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not other.exists()


def test_a_file_system_without_links_gives_files_their_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", unsupported)
    path, other = tmp_path / "audit.sqlite", tmp_path / "new"
    other.write_text("first")
    publish(other, path, replace=False)
    assert path.read_text() == "first"
    other.write_text("second")
    with pytest.raises(FileExistsError):
        publish(other, path, replace=False)
    assert path.read_text() == "first"


def test_yaml_of_anyone_is_read_or_refused() -> None:
    assert load_yaml("{low: 0, high: [1, 2]}") == {"low": 0, "high": [1, 2]}
    with pytest.raises(BadInputError, match="the text is nested too deeply for anything that is read here"):
        load_yaml("[" * 10_000)


def test_no_more_is_read_than_is_allowed_and_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    file, pipe = tmp_path / "text", tmp_path / "pipe"
    file.write_bytes(b"a\r\nb")
    os.mkfifo(pipe)
    assert read_text(file, "the text", 4) == "a\nb"
    with pytest.raises(BadInputError, match="the text has more than 3 bytes"):
        read_text(file, "the text", 3)
    for other in (pipe, Path("/dev/zero"), tmp_path, tmp_path / "a\0b"):
        with pytest.raises(BadInputError, match=r"^the text (is a|has a NUL)"):
            read_bytes(other, "the text")


def test_a_file_takes_the_place_of_no_pipe_and_no_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInputError, match="cannot be written"):
        write_whole(pipe, "nobody reads")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "read")
    assert os.read(reader, 10) == b"read"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "null").symlink_to("/dev/null")
    write_whole(tmp_path / "null", "gone")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)


def test_yaml_that_is_deep_is_refused_at_once_and_brackets_in_names_are_read() -> None:
    for text in ("a: " + "[" * 100_000 + "]" * 100_000, "{a: " * 50_000):
        with pytest.raises(BadInputError, match="nested too deeply"):
            load_yaml(text)
    names = [f"[{i}, {i + 1})" for i in range(1_000)]
    assert load_yaml("\n".join(f"- '{name}'" for name in names)) == names


def test_a_run_folder_below_a_file_or_a_device_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "people.csv").write_text("age")
    for folder, name in ((tmp_path / "people.csv" / "run" / "deep", "people.csv"), (Path("/dev/null/x"), "/dev/null")):
        with pytest.raises(BadInputError, match=f"is below '.*{name}', which is a file; choose another folder"):
            check_out(folder)
    with pytest.raises(BadInputError, match="is a file; give the name of a folder"):
        check_out(tmp_path / "people.csv")
    check_out(tmp_path / "new" / "run")

    def refuse(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(BadInputError, match=r"cannot be made \(Permission denied\): choose another folder"):
        check_out(tmp_path / "closed" / "run")
