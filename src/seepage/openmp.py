"""Short spinning of OpenMP threads; imported before PyTorch, whose OpenMP reads the setting when it is loaded."""

from __future__ import annotations

import os

# A descent step meets at hundreds of barriers. GNU OpenMP lets a thread spin at each for some milliseconds before it
# sleeps, which is free on idle cores; where another program holds one of them, the whole audit waits: on two busy
# cores it took twenty to a hundred times as long. A shorter spin costs nothing measurable on idle ones.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
