"""Worker processes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import multiprocessing
from multiprocessing import resource_tracker
multiprocessing.set_start_method("spawn")
from seepage.run import workers
workers._prepare()
from tqdm import tqdm
tqdm(disable=True)
print(resource_tracker._resource_tracker._fd)
"""


def test_a_bar_of_a_library_takes_no_lock_that_a_killed_worker_leaves() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
