"""Reader of LevelDB tables, the container of a TensorFlow checkpoint's ``.index`` file.

Format: data blocks, an index block that lists them, and a footer of 48 bytes. A block is a run of entries whose keys
share a prefix with the key before, followed by the offsets of its restart points; behind it stand one byte that names
the compression and four of a masked CRC-32C (LevelDB, ``doc/table_format.md``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from xlnet.checkpoints.crc32c import crc32c, unmask
from xlnet.checkpoints.failures import reading
from xlnet.checkpoints.varint import Damaged, read_varint
from xlnet.errors import CheckpointError

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
_PLAIN, _SNAPPY = 0, 1


def read_table(path: Path) -> dict[bytes, bytes]:
    """All entries of a table, in its order.

    Raises:
        CheckpointError: the file is missing, is not such a table, was cut off, or fails its checksums.
    """
    with reading(path):
        data = path.read_bytes()
    if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
        raise CheckpointError(
            f"{path} is not the index of a TensorFlow V2 checkpoint, or was cut off ({len(data)} bytes). "
            "Fetch it again."
        )
    try:
        place = len(data) - _FOOTER
        meta, place = _handle(data, place)
        index, place = _handle(data, place)
        _block(data, *meta)  # holds nothing we need; read for its checksum
        entries: dict[bytes, bytes] = {}
        for _, handle in _entries(_block(data, *index)):
            entries.update(_entries(_block(data, *_handle(handle, 0)[0])))
    except Damaged as error:
        raise CheckpointError(f"{path} is damaged: {error}. Fetch it again.") from error
    return entries


def _handle(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and the place behind them."""
    offset, place = read_varint(data, place)
    size, place = read_varint(data, place)
    return (offset, size), place


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(data):
        raise Damaged(f"a block of {size} bytes at {offset} runs over the end")
    (stored,) = struct.unpack_from("<I", data, end + 1)
    if crc32c(data[offset : end + 1]) != unmask(stored):
        raise Damaged(f"the block at {offset} fails its checksum")
    kind = data[end]
    if kind == _PLAIN:
        return data[offset:end]
    if kind == _SNAPPY:
        return uncompress(data[offset:end])
    raise Damaged(f"the block at {offset} has compression {kind}, which is neither none nor snappy")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise Damaged("a block is shorter than its trailer")
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise Damaged(f"a block of {len(block)} bytes claims {restarts} restart points")
    place, key = 0, b""
    while place < end:
        shared, place = read_varint(block, place)
        unshared, place = read_varint(block, place)
        length, place = read_varint(block, place)
        if shared > len(key) or place + unshared + length > end:
            raise Damaged("an entry runs over the end of its block")
        key = key[:shared] + block[place : place + unshared]
        place += unshared
        yield key, block[place : place + length]
        place += length


def uncompress(data: bytes) -> bytes:
    """Snappy's raw format: literals, and copies from what was written before.

    Raises:
        Damaged: the stream breaks its rules.
    """
    length, place = read_varint(data, 0)
    result = bytearray()
    while place < len(data):
        tag = data[place]
        kind, place = tag & 3, place + 1
        if kind == 0:
            size = tag >> 2
            if size >= 60:
                extra = size - 59
                size = int.from_bytes(data[place : place + extra], "little")
                place += extra
            size += 1
            if place + size > len(data):
                raise Damaged("a compressed literal is cut off")
            result += data[place : place + size]
            place += size
            continue
        extra = {1: 1, 2: 2, 3: 4}[kind]
        if place + extra > len(data):
            raise Damaged("a compressed copy is cut off")
        back = int.from_bytes(data[place : place + extra], "little")
        place += extra
        size = (tag >> 2) + 1
        if kind == 1:
            back |= (tag >> 5) << 8
            size = ((tag >> 2) & 7) + 4
        if not 0 < back <= len(result) or len(result) + size > length:
            raise Damaged("a compressed copy points outside what was written")
        for _ in range(size):
            result.append(result[-back])
    if len(result) != length:
        raise Damaged(f"a compressed block holds {len(result)} bytes where {length} are announced")
    return bytes(result)
