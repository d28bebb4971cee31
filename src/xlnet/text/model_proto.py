"""Reading and extending a SentencePiece model file: the few fields of its protocol buffer that are needed here.

The format is public (``sentencepiece_model.proto``): field 1 repeats the pieces, 2 is the training specification,
3 the normalization. Messages of the same type concatenate, so pieces can be added at the end of the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xlnet.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UNIGRAM = 1


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; ``kind`` is one of the constants of this module."""

    text: str
    score: float
    kind: int = NORMAL


def read_pieces(model: bytes, source: str = "spiece.model") -> list[Piece]:
    """The vocabulary in the order of its ids.

    Raises:
        CheckpointError: when the bytes are no SentencePiece model.
    """
    try:
        return [_read_piece(value) for field, value in _fields(model) if field == 1 and isinstance(value, bytes)]
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise CheckpointError(f"{source} is no SentencePiece model, or is damaged ({error}).") from None


def append_pieces(model: bytes, pieces: Iterable[Piece]) -> bytes:
    """The same model with more pieces behind its last id."""
    return model + b"".join(_block(1, _piece(piece)) for piece in pieces)


def build_model(pieces: Iterable[Piece], charsmap: bytes, normalizer: str = "nmt_nfkc") -> bytes:
    """A unigram model from its vocabulary and its compiled normalization table; all else as by default."""
    pieces = list(pieces)
    training = _key(3, _VARINT) + _varint(_UNIGRAM) + _key(4, _VARINT) + _varint(len(pieces))
    normalization = _block(1, normalizer.encode()) + _block(2, charsmap)
    return append_pieces(b"", pieces) + _block(2, training) + _block(3, normalization)


def _piece(piece: Piece) -> bytes:
    score = _key(2, _FIXED32) + struct.pack("<f", piece.score)
    return _block(1, piece.text.encode("utf-8")) + score + _key(3, _VARINT) + _varint(piece.kind)


def _read_piece(data: bytes) -> Piece:
    size = data[1] if data[:1] == b"\x0a" else 0xFF
    rest = data[2 + size :]
    if size < 0x80 and len(rest) in (5, 7) and rest[0] == 0x15 and rest[5:6] in (b"", b"\x18"):
        # The layout that SentencePiece writes; a vocabulary has tens of thousands of them.
        kind = rest[6] if len(rest) == 7 else NORMAL
        return Piece(data[2 : 2 + size].decode("utf-8"), struct.unpack_from("<f", rest, 1)[0], kind)
    text, score, kind = "", 0.0, NORMAL
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif field == 2 and isinstance(value, bytes):
            score = struct.unpack("<f", value)[0]
        elif field == 3 and isinstance(value, int):
            kind = value
    return Piece(text, score, kind)


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, place = _read_varint(data, place)
            yield field, value
            continue
        if wire == _BYTES:
            size, place = _read_varint(data, place)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {wire} at byte {place}")
        if place + size > len(data):
            raise ValueError(f"a field at byte {place} runs past the end")
        yield field, data[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError(f"a number at byte {place} is too long")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _block(field: int, data: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(data)) + data
