"""Folders that are there and whole, or not there: written beside, checksummed, synced, then renamed into place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from xlnet.errors import CheckpointError, MachineError

MANIFEST = "manifest.json"
PARTIAL = ".partial-"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a disk into an error with a remedy.

    Raises:
        MachineError: when the disk is full, read-only, over quota ...
    """
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"{path} could not be written: {error.strerror or error}. What was saved before is intact. "
            "Free some space, or continue in a copy of the folder on another disk."
        ) from error


def sync(path: Path) -> None:
    """Force a file, or the entries of a folder, from the cache of the system onto the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_folder(path: Path) -> None:
    """As :func:`sync`, where the system can open folders (Windows cannot, and does not need it)."""
    if os.name == "posix":
        sync(path)


def write_text(path: Path, text: str) -> None:
    """Replace a small file as a whole: readers see the old text or the new, never a part."""
    partial = path.with_name(PARTIAL + path.name)
    with disk_errors(path):
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def write_folder(target: Path, write: Callable[[Path], None], about: dict[str, Any] | None = None) -> None:
    """Create or replace the folder ``target`` as a whole.

    Args:
        target: the folder; an old one is replaced only once the new one is complete.
        write: fills the folder it is given.
        about: further entries for the manifest, which also lists size and SHA-256 of each file; None writes none.

    Raises:
        MachineError: when the disk refuses; ``target`` is then as it was.
    """
    partial = target.with_name(PARTIAL + target.name)
    old = target.with_name(PARTIAL + "old-" + target.name)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            partial.mkdir()
            write(partial)
            files = sorted(path for path in partial.rglob("*") if path.is_file())
            if about is not None:
                sums = {
                    str(p.relative_to(partial).as_posix()): {"bytes": p.stat().st_size, "sha256": digest(p)}
                    for p in files
                }
                manifest = partial / MANIFEST
                entries = {**about, "files": sums}
                entries["checksum"] = _checksum(entries)
                manifest.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
                files.append(manifest)
            for path in files:
                sync(path)
            sync_folder(partial)
            if target.exists():
                target.replace(old)
            partial.replace(target)
            sync_folder(target.parent)
        except BaseException:
            if old.exists() and not target.exists():
                old.replace(target)
            shutil.rmtree(partial, ignore_errors=True)
            raise
        shutil.rmtree(old, ignore_errors=True)


def clean_partial(folder: Path) -> None:
    """Remove what a killed process left half-written, and put back a folder it was about to replace."""
    if not folder.is_dir():
        return
    for path in folder.glob(PARTIAL + "*"):
        whole = path.with_name(path.name.removeprefix(PARTIAL + "old-"))
        if path.name.startswith(PARTIAL + "old-") and not whole.exists():
            path.replace(whole)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def digest(path: Path) -> str:
    """SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(entries: dict[str, Any]) -> str:
    """SHA-256 of a manifest without its own checksum, whatever its layout."""
    bare = {key: value for key, value in entries.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(bare, sort_keys=True).encode("utf-8")).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, after every file in it was compared with its size and checksum.

    Raises:
        CheckpointError: names the first file that is missing, truncated or changed.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = manifest["files"]
        if manifest["checksum"] != _checksum(manifest):
            raise CheckpointError(f"{path} is damaged: its content does not match its checksum.")
        for name, entry in files.items():
            size = (folder / name).stat().st_size
            if size != entry["bytes"]:
                raise CheckpointError(f"{folder / name} is damaged: {size} bytes, but {entry['bytes']} were written.")
            if digest(folder / name) != entry["sha256"]:
                raise CheckpointError(f"{folder / name} is damaged: its content does not match its checksum.")
    except OSError as error:
        raise CheckpointError(f"{error.filename or path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: it is not a list of files with checksums.") from error
    return manifest


class _Recorder:
    """A file that remembers its own error, which torch's writer would bury under one of its own."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def save_tensors(value: Any, path: Path) -> None:
    """Write nested plain values and tensors; what is written can be read without running code.

    Raises:
        OSError: when the disk refuses.
    """
    with path.open("wb") as file:
        recorder = _Recorder(cast(BinaryIO, file))
        try:
            torch.save(value, recorder)  # type: ignore[arg-type]
        except Exception:
            if recorder.error is not None:
                raise recorder.error from None
            raise


def load_tensors(path: Path) -> Any:
    """Read what :func:`save_tensors` wrote, onto the CPU.

    Raises:
        CheckpointError: when the file is not what it should be.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise CheckpointError(f"{path} cannot be read: {reason}") from error
