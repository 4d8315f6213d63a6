"""Short spinning of OpenMP threads; imported before PyTorch, whose OpenMP reads the setting when it is loaded."""

from __future__ import annotations

import os

# A descent step meets at hundreds of barriers. GNU OpenMP lets a thread spin at each for some milliseconds before it
# sleeps, which is free on idle cores; where another program holds one of them, the whole audit waits: on two busy
# cores it took twenty to a hundred times as long. A shorter spin costs nothing measurable on idle ones.
SPINS = "2000"


def wait_briefly(environment: dict[str, str] | os._Environ[str]) -> None:
    """Make OpenMP threads spin briefly, unless the user has set their waiting policy."""
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", SPINS)


wait_briefly(os.environ)
