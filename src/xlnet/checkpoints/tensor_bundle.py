"""TensorFlow V2 checkpoints without TensorFlow: ``NAME.index`` and ``NAME.data-00000-of-0000N``.

The index is a LevelDB table. Its empty key holds a header; every other key is the name of a variable, whose entry says
where its bytes lie (``tensor_bundle.proto``). A variable that was partitioned has an entry without bytes that lists its
slices; each slice has an entry of its own under a key made of the name and the slice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from xlnet.checkpoints.arrays import Entry, LazyTensors
from xlnet.checkpoints.crc32c import crc32c, unmask
from xlnet.checkpoints.failures import reading
from xlnet.checkpoints.files import bytes_of, read_tensor
from xlnet.checkpoints.leveldb_table import read_table
from xlnet.checkpoints.varint import Damaged, read_message
from xlnet.errors import CheckpointError

# Numbers of tensorflow/core/framework/types.proto. Strings (7) and resources (20) are no arrays.
TYPES = {
    1: torch.float32, 2: torch.float64, 3: torch.int32, 4: torch.uint8, 5: torch.int16, 6: torch.int8,
    9: torch.int64, 10: torch.bool, 14: torch.bfloat16, 19: torch.float16,
}  # fmt: skip
Slice = tuple[tuple[int, int], ...]
"""Start and length along each dimension; a length of -1 is the whole of it."""


@dataclass
class BundleEntry:
    """What the index says of one variable or slice."""

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int | None = None
    slices: list[Slice] = field(default_factory=list)


def read_bundle(prefix: Path) -> tuple[LazyTensors, list[str]]:
    """The variables of a checkpoint, read when they are looked up and checked against their checksums.

    Args:
        prefix: path without ``.index``.

    Returns:
        The variables, and the names of entries that are no arrays.

    Raises:
        CheckpointError: a missing, truncated or corrupt file, or a format of another endianness.
    """
    index = prefix.with_name(prefix.name + ".index")
    table = read_table(index)
    try:
        shards = _header(table, index)
        entries = {key: parse_entry(value) for key, value in table.items() if key}
    except Damaged as error:
        raise CheckpointError(f"{index} is damaged: {error}. Fetch it again.") from error
    files = [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{shards:05d}") for i in range(shards)]
    sizes = {path: _size(path) for path in files}
    result: dict[str, Entry] = {}
    other: list[str] = []
    slice_keys = {slice_key(key, part) for key, entry in entries.items() for part in entry.slices}
    for key, entry in entries.items():
        if key in slice_keys:
            continue
        name = key.decode("utf-8", "replace")
        if entry.dtype not in TYPES:
            other.append(name)
            continue
        parts = _parts(name, key, entry, entries)
        for _, part in parts:
            _check_place(name, part, files, sizes)
        result[name] = Entry(entry.shape, TYPES[entry.dtype], _Reader(name, entry, parts, files), name)
    return LazyTensors(result), other


class _Reader:
    def __init__(self, name: str, whole: BundleEntry, parts: list[tuple[Slice, BundleEntry]], files: list[Path]):
        self.name, self.whole, self.parts, self.files = name, whole, parts, files

    def __call__(self) -> Tensor:
        if not self.whole.slices:
            return self._read(self.parts[0][1])
        result = torch.empty(self.whole.shape, dtype=TYPES[self.whole.dtype])
        for extents, part in self.parts:
            place = tuple(slice(None) if n == -1 else slice(start, start + n) for start, n in extents)
            result[place] = self._read(part)
        return result

    def _read(self, entry: BundleEntry) -> Tensor:
        path = self.files[entry.shard]
        tensor = read_tensor(path, self.name, entry.offset, entry.shape, TYPES[entry.dtype])
        if entry.checksum is not None and crc32c(bytes_of(tensor)) != unmask(entry.checksum):
            raise CheckpointError(f"{path} is damaged: {self.name} fails its checksum. Fetch it again.")
        return tensor


def _header(table: dict[bytes, bytes], index: Path) -> int:
    if b"" not in table:
        raise Damaged("it has no header entry")
    values = {number: value for number, value in read_message(table[b""]) if isinstance(value, int)}
    if values.get(2, 0) != 0:
        raise CheckpointError(f"{index} was written on a big-endian machine, which is not supported.")
    shards = values.get(1, 0)
    if not 1 <= shards <= 99999:
        raise Damaged(f"it announces {shards} data files")
    return shards


def parse_entry(data: bytes) -> BundleEntry:
    """Decode a ``BundleEntryProto``.

    Raises:
        Damaged: the message is malformed.
    """
    entry = BundleEntry()
    for number, value in read_message(data):
        if number == 2 and isinstance(value, bytes):
            entry.shape = tuple(_integer(size) for n, dim in read_message(value) if n == 2 for size in (_dim(dim),))
        elif number == 7 and isinstance(value, bytes):
            entry.slices.append(tuple(_extent(part) for n, part in read_message(value) if n == 1))
        elif isinstance(value, int):
            if number == 1:
                entry.dtype = value
            elif number == 3:
                entry.shard = value
            elif number == 4:
                entry.offset = value
            elif number == 5:
                entry.size = value
            elif number == 6:
                entry.checksum = value
    return entry


def _fields(message: int | bytes) -> dict[int, int]:
    if not isinstance(message, bytes):
        raise Damaged("a message is expected where an integer stands")
    return {number: value for number, value in read_message(message) if isinstance(value, int)}


def _dim(message: int | bytes) -> int:
    return _fields(message).get(1, 0)


def _integer(value: int) -> int:
    if value >= 1 << 40:
        raise Damaged(f"a dimension of {value}")
    return value


def _extent(message: int | bytes) -> tuple[int, int]:
    values = _fields(message)
    return values.get(1, 0), values.get(2, -1)


def _parts(
    name: str, key: bytes, entry: BundleEntry, entries: dict[bytes, BundleEntry]
) -> list[tuple[Slice, BundleEntry]]:
    if not entry.slices:
        return [((), entry)]
    parts = []
    covered = 0
    for extents in entry.slices:
        part = entries.get(slice_key(key, extents))
        if part is None:
            raise CheckpointError(f"{name} is stored in slices, of which {list(extents)} is missing from the index.")
        shape = tuple(full if n == -1 else n for full, (_, n) in zip(entry.shape, extents, strict=False))
        outside = any(start + n > full for full, (start, n) in zip(entry.shape, extents, strict=False))
        if part.shape != shape or len(extents) != len(entry.shape) or outside or part.dtype != entry.dtype:
            raise CheckpointError(f"{name}: slice {list(extents)} does not fit into {list(entry.shape)}.")
        covered += math.prod(shape)
        parts.append((extents, part))
    if covered != math.prod(entry.shape):
        raise CheckpointError(f"{name}: its {len(parts)} slices do not cover {list(entry.shape)}.")
    return parts


def _check_place(name: str, entry: BundleEntry, files: list[Path], sizes: dict[Path, int]) -> None:
    if entry.shard >= len(files):
        raise CheckpointError(f"{name} is said to lie in data file {entry.shard} of {len(files)}.")
    path = files[entry.shard]
    if math.prod(entry.shape) * TYPES[entry.dtype].itemsize != entry.size:
        raise CheckpointError(f"{path}: {name} of shape {list(entry.shape)} does not take {entry.size} bytes.")
    if entry.offset + entry.size > sizes[path]:
        raise CheckpointError(
            f"{path} was cut off: it has {sizes[path]} bytes, but {name} ends at {entry.offset + entry.size}. "
            "Fetch it again."
        )


def _size(path: Path) -> int:
    with reading(path):
        return path.stat().st_size


def slice_key(name: bytes, extents: Slice) -> bytes:
    """The key of a slice in TensorFlow's ordered code: 0, the name, the number of dimensions, starts and lengths."""
    escaped = b"".join({0: b"\x00\xff", 255: b"\xff\x00"}.get(byte, bytes([byte])) for byte in name)
    key = b"\x00" + escaped + b"\x00\x01" + _ordered(len(extents))
    return key + b"".join(_ordered_signed(value) for extent in extents for value in extent)


def _ordered(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    return bytes([size]) + value.to_bytes(size, "big")


def _ordered_signed(value: int) -> bytes:
    """A signed integer whose bytes sort as it does: as many leading ones as bytes (flipped where negative)."""
    magnitude = ~value if value < 0 else value
    size = magnitude.bit_length() // 7 + 1
    if size == 1:
        return bytes([0x80 ^ (value & 0xFF)])
    raw = bytearray((value & ((1 << 80) - 1)).to_bytes(10, "big")[-size:])
    head = ((1 << size) - 1) << (16 - size)
    raw[0] ^= head >> 8
    raw[1] ^= head & 0xFF
    return bytes(raw)
