"""Writing that survives: disk errors become clear messages, files appear whole, one process owns a folder."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from xlnet.errors import ConfigurationError, MachineError
from xlnet.pretraining.corpus.manifest import ShardFile


@contextmanager
def guard_disk(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` while writing ``path`` into a ``MachineError`` that says what to do.

    Raises:
        MachineError: disk full, no permission, read-only, input-output error.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = (
                f"The disk is full while writing {path}. Nothing is damaged: free some space (or choose another "
                "output folder) and run the same command again; finished parts are kept."
            )
        else:
            message = f"{path} cannot be written: {error.strerror or error}."
        raise MachineError(message) from error


def write_whole(path: Path, text: str) -> None:
    """Write a small text file in one step, down to the disk: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with guard_disk(path):
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


class HashedFile:
    """A file that is appended to and knows its size and SHA-256 when it is closed (then it is on the disk)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._bytes = 0
        with guard_disk(path):
            self._file: BinaryIO = path.open("wb")

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        with guard_disk(self._path):
            self._append(data)
        self._hash.update(data)
        self._bytes += len(data)

    def _append(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    def close(self) -> ShardFile:
        """Finish the file and describe it."""
        with guard_disk(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return ShardFile(name=self._path.name, bytes=self._bytes, sha256=self._hash.hexdigest())


class FolderLock:
    """Held while a process works in a folder; the system drops it when the process ends, however it ends.

    Raises:
        ConfigurationError: another process works there.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"

    def __enter__(self) -> FolderLock:
        with guard_disk(self._path):
            self._file = self._path.open("w")
        try:
            import fcntl
        except ImportError:  # not on Windows; there the second writer is on its own
            return self
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConfigurationError(
                f"{self._path.parent.parent} is being prepared by another process. Wait for it, or take another folder."
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
