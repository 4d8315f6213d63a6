"""Plug-ins declare parts without importing them, and take no name that exists."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seepage import registry
from seepage.attacks.split.fsha import FSHA
from seepage.errors import BadInputError
from seepage.registry import Registry, is_factory, name_of, takes
from seepage.sources import is_reference, short_name

PARTS = """
from seepage import registry
registry.attacks.declare({"reader": "other.reader"}, "horizontal", "Attacks of another package")
"""
READER = '''
import torch
from seepage.registry import attacks

@attacks.register("reader", "horizontal")
class Reader:
    """Reads everything. Source: nobody."""
'''
PROGRAM = """
import sys
from seepage import registry
from seepage.cli import main
try:
    main()
finally:
    print("torch" in sys.modules, registry.attacks["reader"].factory.__module__, file=sys.stderr)
"""


def test_another_distribution_declares_parts_that_are_listed_unread(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text(PARTS)
    (tmp_path / "other" / "reader.py").write_text(READER)
    about = tmp_path / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[seepage.attacks]\nother = other\n")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "attacks"],
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=True,
    )
    listed = done.stdout[done.stdout.index("Attacks of another package:") :]
    assert "Reads everything." in listed.split("split: seepage split")[0]
    assert done.stderr.split() == ["False", "other.reader"]


def test_a_declared_name_is_taken_once() -> None:
    shapes = Registry[object]("shape")
    shapes.declare({"circle": "package.circle"}, "flat", "Round ones")
    [declared] = shapes.entries()
    # The same again, as when a module is loaded anew.
    shapes.of("flat").declare({"circle": "package.circle"})
    assert shapes.entries() == [declared]
    shapes.declare({"circle": "package.circle"}, "solid")
    with pytest.raises(BadInputError, match="shape 'circle' is registered twice"):
        shapes.declare({"circle": "other.circle"}, "flat")
    with pytest.raises(BadInputError, match="registered twice"):
        registry.attacks.declare({"tableak": "other.tableak"}, "horizontal")


def test_parts_of_a_kind_may_share_a_name_in_two_settings() -> None:
    shapes = Registry[int]("shape")
    shapes.register("square")(lambda side=1: side**2)
    shapes.register("square", "solid")(lambda side=1: side**3)
    assert shapes.of("solid").create("square", side=3) == 27


def test_objects_and_user_code_have_names() -> None:
    assert [name_of(takes), name_of(lambda view: view)] == ["takes", "lambda"]
    assert [is_factory(registry.attacks["dlg"].factory), is_factory(takes)] == [True, False]
    assert [takes(sorted, "reverse"), takes(sorted, "colour")] == [True, False]
    assert [is_reference(name) for name in ("mine.py:Mine", "package.mine:Mine", "tableak")] == [True, True, False]
    assert [short_name("folder/mine.py:Mine"), short_name("tableak")] == ["Mine", "tableak"]


def test_traits_of_a_class_that_extends_a_registered_one_are_inherited() -> None:
    class Own(FSHA):
        needs = ("auxiliary", "queries")

    assert registry.attacks.of("split").entry_of(FSHA()).traits.classes
    traits = registry.attacks.of("split").entry_of(Own()).traits
    assert (traits.needs, traits.classes) == (("auxiliary", "queries"), True)


def test_an_installation_without_entry_points_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BUILT_IN", "seepage.no_such_group")
    with pytest.raises(RuntimeError, match="install it again"):
        Registry[object]("attack", built_in=True).names()
