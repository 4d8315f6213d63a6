"""The machine that computes: its device, PyTorch's threads, and the memory of this process."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seepage.errors import BadInputError
from seepage.packages import LazyModule
from seepage.text import how_many

try:
    import resource
except ImportError:
    # Windows has none.
    resource = None
if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

# glibc's mallopt parameters, see mallopt(3), and the largest threshold that all its versions take.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_THRESHOLD = 2**25


def find_device(name: str) -> torch.device:
    """Return a device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:1``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadInputError(
            f"device {name!r} was asked for but PyTorch sees {how_many(torch.cuda.device_count(), 'CUDA device')}; "
            "use 'cpu' or 'auto', or install a PyTorch build with CUDA support."
        )
    return device


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of CPU threads of PyTorch for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Have the allocator keep freed tensors' memory instead of handing it back; return whether it can (glibc on Linux).

    A descent step allocates and frees the same dozen tensors over and over; fetching their pages anew takes a third of
    the step. Peak memory does not change.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return mallopt(_MMAP_THRESHOLD, _THRESHOLD) == 1 and mallopt(_TRIM_THRESHOLD, 2**30) == 1


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None where the system does not report it."""
    try:
        # Linux's ru_maxrss may be that of the process that started this one.
        peaks = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    except OSError:
        peaks = []
    if peaks:
        return int(peaks[0]) * 1024
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, others kilobytes.
    return peak if sys.platform == "darwin" else peak * 1024
