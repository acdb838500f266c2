"""Freed memory kept by the process, where the system allows it.

Every operation makes its results in fresh memory. glibc returns large blocks to the system as soon as they are freed, and
the next ones are handed out page by page again, each page by a fault: about a third of a training step.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST_MMAP_THRESHOLD = 32 * 2**20  # that glibc accepts
KEPT = 2**30


def keep_freed_memory() -> bool:
    """Let this process keep up to a gigabyte that it has freed, for its own next arrays; False where that is not possible.

    glibc only: on other systems nothing happens. It holds for the whole process and cannot be taken back.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD) and mallopt(M_TRIM_THRESHOLD, KEPT))
