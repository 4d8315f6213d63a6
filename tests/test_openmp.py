"""The spin of waiting threads is set before PyTorch loads its OpenMP, and only where the user has not set it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# The variable as the program sees it, and whether torch was there when it was set.
PROGRAM = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"))
        return None

sys.meta_path.insert(0, Watch())
import seepage
assert "torch" not in sys.modules
seepage.Encoder
"""


@pytest.mark.parametrize(
    ("said", "seen"),
    [({}, "2000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "None")],
)
def test_the_spin_is_set_before_pytorch_is_loaded(said: dict[str, str], seen: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**inherited, **said}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [seen]
