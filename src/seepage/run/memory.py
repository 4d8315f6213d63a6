"""Memory of this process: its peak, and the allocator's treatment of freed memory."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

try:
    import resource
except ImportError:
    # Windows has none.
    resource = None

# glibc's mallopt parameters, see mallopt(3), and the largest threshold that all its versions take.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_THRESHOLD = 2**25


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
