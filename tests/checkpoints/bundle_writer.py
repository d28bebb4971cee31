"""Writes TensorFlow V2 checkpoints by hand, in every variety the reader must know: shards, slices, compression.

Written from the description of the formats and not from the reader, byte by byte, so that it is a second witness.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlnet.checkpoints.crc32c import crc32c, mask

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "bfloat16": 14, "float16": 19}


@dataclass
class Variable:
    """One array; ``cuts`` are the places along axis 0 where it is partitioned; ``shard`` is its data file."""

    name: str
    array: np.ndarray
    shard: int = 0
    cuts: Sequence[int] = ()
    dtype: int | None = None
    shape: tuple[int, ...] | None = None


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def entry(dtype: int, shape: Sequence[int], shard: int, offset: int, data: bytes) -> bytes:
    dims = b"".join(message(2, number(1, size)) for size in shape)
    checksum = varint(6 << 3 | 5) + struct.pack("<I", mask(crc32c(data)))
    return number(1, dtype) + message(2, dims) + number(3, shard) + number(4, offset) + number(5, len(data)) + checksum


def literals(data: bytes) -> bytes:
    """Snappy without copies: literals of at most 60 bytes."""
    out = bytearray(varint(len(data)))
    for start in range(0, len(data), 60):
        piece = data[start : start + 60]
        out += bytes([(len(piece) - 1) << 2]) + piece
    return bytes(out)


def block(entries: Sequence[tuple[bytes, bytes]], compress: bool) -> bytes:
    """A data block that shares prefixes, with one restart point in four."""
    body, restarts, last = bytearray(), [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % 4 == 0:
            restarts.append(len(body))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        body += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    body += b"".join(struct.pack("<I", place) for place in restarts or [0]) + struct.pack("<I", len(restarts or [0]))
    return literals(bytes(body)) if compress else bytes(body)


def table(entries: dict[bytes, bytes], compress: bool = False, per_block: int = 5) -> bytes:
    out, index = bytearray(), []

    def add(data: bytes) -> bytes:
        kind = b"\x01" if compress else b"\x00"
        handle = varint(len(out)) + varint(len(data))
        out.extend(data + kind + struct.pack("<I", mask(crc32c(data + kind))))
        return handle

    items = sorted(entries.items())
    for start in range(0, len(items), per_block):
        part = items[start : start + per_block]
        index.append((part[-1][0], add(block(part, compress))))
    meta = add(block([], compress))
    handles = meta + add(block(index, compress))
    return bytes(out) + handles.ljust(40, b"\x00") + struct.pack("<Q", 0xDB4775248B80FB57)


def slice_key(name: bytes, start: int, length: int, rank: int) -> bytes:
    """Ordered code for small numbers: a full extent is (0, -1)."""

    def signed(value: int) -> bytes:
        assert -64 <= value < 64
        return bytes([(0x80 ^ value) & 0xFF])

    extents = [(start, length)] + [(0, -1)] * (rank - 1)
    return b"\x00" + name + b"\x00\x01" + bytes([1, rank]) + b"".join(signed(v) for extent in extents for v in extent)


def write_bundle(prefix: Path, variables: Sequence[Variable], shards: int = 1, compress: bool = False) -> None:
    data = [bytearray() for _ in range(shards)]
    entries = {b"": number(1, shards) + number(2, 0) + message(3, number(1, 1))}

    def store(array: np.ndarray, shard: int) -> tuple[int, bytes]:
        raw = np.ascontiguousarray(array).tobytes()
        offset = len(data[shard])
        data[shard] += raw
        return offset, raw

    for variable in variables:
        array, key = variable.array, variable.name.encode()
        dtype = variable.dtype or DTYPES[str(array.dtype)]
        shape = variable.shape or array.shape
        if not variable.cuts:
            offset, raw = store(array, variable.shard)
            entries[key] = entry(dtype, shape, variable.shard, offset, raw)
            continue
        edges = [0, *variable.cuts, len(array)]
        whole = number(1, dtype) + message(2, b"".join(message(2, number(1, size)) for size in shape))
        for i, (start, end) in enumerate(itertools.pairwise(edges)):
            shard = i % shards
            offset, raw = store(array[start:end], shard)
            extent = message(1, number(1, start) + number(2, end - start))
            whole += message(7, extent + message(1, b"") * (array.ndim - 1))
            part = slice_key(key, start, end - start, array.ndim)
            entries[part] = entry(dtype, array[start:end].shape, shard, offset, raw)
        entries[key] = whole
    prefix.with_name(prefix.name + ".index").write_bytes(table(entries, compress))
    for i, content in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{shards:05d}").write_bytes(bytes(content))
