"""Errors of the file system, in the words of this library."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from xlnet.errors import CheckpointError, MachineError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn failures to open or read ``path`` into a :class:`CheckpointError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist.") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"{path} is a folder where a file is expected.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn failures to write ``path`` into a :class:`MachineError` that says what was kept."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise MachineError(
                f"The disk is full; {path} was not written, and what was there before is untouched. "
                "Free some space and try again."
            ) from error
        raise MachineError(f"{path} cannot be written: {error.strerror or error}.") from error
