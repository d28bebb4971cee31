"""Safetensors files: one, or several with an index. Read lazily, written atomically."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from xlnet.checkpoints.arrays import Entry, LazyTensors
from xlnet.checkpoints.failures import reading, writing
from xlnet.checkpoints.files import bytes_of, read_json, read_tensor
from xlnet.errors import CheckpointError

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_CODES = {dtype: code for code, dtype in TYPES.items()}
_ALIGNMENT = 8
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 100_000_000  # the limit of the format


def read_safetensors(path: Path) -> tuple[LazyTensors, dict[str, str]]:
    """Arrays and metadata of one file.

    Raises:
        CheckpointError: the file is missing, damaged, shorter than its header says, or of an element type we lack.
    """
    with reading(path), path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        text = file.read(length) if length <= _LONGEST_HEADER else b""
    try:
        with safe_open(path, framework="pt") as whole:  # checks the header, its offsets and the file's length
            metadata = dict(whole.metadata() or {})
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {error}. Fetch it again.") from error
    entries: dict[str, Entry] = {}
    for name, place in json.loads(text).items():
        if name == "__metadata__":
            continue
        if place["dtype"] not in TYPES:
            raise CheckpointError(f"{path}: {name} is of type {place['dtype']}; known are {', '.join(TYPES)}.")
        dtype, shape = TYPES[place["dtype"]], tuple(place["shape"])
        entries[name] = Entry(
            shape, dtype, _Reader(path, name, 8 + length + place["data_offsets"][0], shape, dtype), name
        )
    return LazyTensors(entries), metadata


@dataclass(frozen=True)
class _Reader:
    """Reads one tensor into memory of its own; a mapped file would count twice and must not be replaced meanwhile."""

    path: Path
    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __call__(self) -> Tensor:
        return read_tensor(self.path, self.name, self.offset, self.shape, self.dtype)


def read_sharded(index: Path) -> LazyTensors:
    """Arrays of a folder with ``model.safetensors.index.json``.

    Raises:
        CheckpointError: the index is malformed, a shard is missing, or lacks an array that the index promises.
    """
    where: dict[str, Any] = read_json(index).get("weight_map", {})
    if not isinstance(where, dict) or not where or not all(isinstance(shard, str) for shard in where.values()):
        raise CheckpointError(f"{index} has no usable 'weight_map' from array names to files.")
    entries: dict[str, Entry] = {}
    for shard in sorted(set(where.values())):
        if Path(shard).name != shard:
            raise CheckpointError(f"{index}: shard {shard!r} must be a file in the same folder.")
        if not (index.parent / shard).is_file():
            raise CheckpointError(f"{index.parent} lacks the shard {shard} that {index.name} names.")
        tensors, _ = read_safetensors(index.parent / shard)
        for name in (name for name, file in where.items() if file == shard):
            if name not in tensors:
                raise CheckpointError(f"{index.parent / shard} lacks {name!r}, which {index.name} places there.")
            entries[name] = tensors.entry(name)
    return LazyTensors(entries)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors one after the other, so that only one needs to be in memory, to a file that appears whole or not.

    Names are sorted by falling element size, then by name, as the format recommends; equal input gives equal bytes.

    Args:
        path: the file to make or replace.
        tensors: read one at a time; a :class:`LazyTensors` stays lazy.
        metadata: strings stored in the header.

    Raises:
        CheckpointError: an element type the format has no code for.
        MachineError: the disk is full or the folder cannot be written.
    """
    header, order = _header(tensors, metadata)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with writing(path):
            with part.open("wb") as file:
                file.write(struct.pack("<Q", len(header)))
                file.write(header)
                for name in order:
                    file.write(bytes_of(tensors[name].detach().cpu().contiguous()))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> tuple[bytes, list[str]]:
    known: dict[str, Entry] = {}
    for name in tensors:
        known[name] = tensors.entry(name) if isinstance(tensors, LazyTensors) else Entry.of(tensors[name], name)
        if known[name].dtype not in _CODES:
            raise CheckpointError(f"{name} is of type {known[name].dtype}, which safetensors files cannot hold here.")
    order = sorted(known, key=lambda name: (-known[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in order:
        end = offset + known[name].byte_count
        header[name] = {
            "dtype": _CODES[known[name].dtype],
            "shape": list(known[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGNMENT), order
