"""Files of a checkpoint folder: read with clear errors, written so that they appear whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xlnet.checkpoints.failures import reading, writing
from xlnet.errors import CheckpointError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CheckpointError: the file is missing, is not JSON, or holds something other than an object.
    """
    with reading(path):
        data = path.read_bytes()
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text (byte {error.start}).") from error
    except (json.JSONDecodeError, RecursionError) as error:
        place = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise CheckpointError(f"{path} is not valid JSON, {place}.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold an object of keys and values, not {type(value).__name__}.")
    return value


def read_tensor(path: Path, name: str, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Bytes of a file, little-endian and row by row, as a tensor with memory of its own.

    Raises:
        CheckpointError: the file is missing or ends inside the array; says the array's name.
    """
    tensor = torch.empty(shape, dtype=dtype)
    buffer = bytes_of(tensor)
    with reading(path), path.open("rb") as file:
        file.seek(offset)
        count = file.readinto(buffer)
    if count != len(buffer):
        raise CheckpointError(f"{path} ends inside {name}. Fetch it again.")
    return tensor


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor, without a copy."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data).cast("B")


def write_bytes(path: Path, data: bytes) -> None:
    """Make or replace a file so that it is seen whole or not at all.

    Raises:
        MachineError: the disk is full or the folder cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with writing(path):
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write an object as indented JSON, atomically."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
