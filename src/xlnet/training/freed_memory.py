"""Memory that is freed within a step stays in the process for the next one, instead of going to the system.

glibc gives large blocks back as soon as they are freed. A step frees hundreds of them, and the next has to have every
page handed out and cleared again: 200,000 page faults a step of the base shape, a tenth of its time (docs/speed.md).
The very largest blocks still go back: there are few, and holes of their size would cost memory.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

# Parameters of mallopt, as malloc.h of glibc numbers them.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEEP = {_MMAP_THRESHOLD: 256 << 20, _TRIM_THRESHOLD: (1 << 31) - 1}
# Where glibc's own adjustment ends up in a process that frees large blocks; what was set before cannot be asked for.
_USUAL = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}
_lock = threading.Lock()
_open = 0


@contextmanager
def freed_memory_kept(device: torch.device) -> Iterator[None]:
    """Inside, blocks below 256 MB that are freed stay with the process; afterwards they go back to the system.

    The peak is what it was, within a few per cent. The setting belongs to the process, and the outermost context ends
    it (a held-out evaluation within training does not). Elsewhere than on Linux with glibc and a CPU nothing is done.
    """
    global _open
    library = _glibc() if device.type == "cpu" else None
    if library is None:
        yield
        return
    with _lock:
        _open += 1
        if _open == 1:
            _set(library, _KEEP)
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                _set(library, _USUAL)
                library.malloc_trim(0)


def _set(library: ctypes.CDLL, values: dict[int, int]) -> None:
    for parameter, value in values.items():
        library.mallopt(parameter, value)


@lru_cache(maxsize=1)
def _glibc() -> ctypes.CDLL | None:
    """The C library of this process where it is glibc."""
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
