"""The bound of epsilon from whole trainings: what of the defaults it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from seepage.advise.epsilon import epsilon
from seepage.assessment.utility import Recipe
from seepage.errors import BadInputError
from seepage.settings.horizontal.spec import HorizontalSpec

REFUSING = """
from dataclasses import dataclass
from seepage.errors import BadInputError
from seepage.registry import defenses
from seepage.wire.horizontal import KnownDefense

@defenses.register("refusing", "horizontal")
@dataclass(frozen=True)
class Refusing:
    acts_on = "update"

    def __call__(self, update, seeds):
        raise BadInputError("no layer of this network can be guarded; choose another one.")

    def describe(self):
        return KnownDefense("refusing")
"""


def test_a_default_defense_that_cannot_act_is_said_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    few = {"batch_sizes": 32, "canaries": 20, "recipe": Recipe(epochs=1), "defenses": ["none", "refusing.py:Refusing"]}
    with pytest.raises(BadInputError, match="can be guarded"):
        epsilon("german", **few)
    monkeypatch.setattr(HorizontalSpec, "is_usual", lambda self, name: name == "defenses")
    results = epsilon("german", **few, say=lines.append)
    assert [result.defense for result in results] == ["none"]
    assert "is not tried: no layer of this network can be guarded" in lines[0]
