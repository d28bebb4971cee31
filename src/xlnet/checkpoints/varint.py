"""Variable-length integers and protocol-buffer fields: the alphabet of TensorFlow's index file."""

from __future__ import annotations

from collections.abc import Iterator


class Damaged(Exception):
    """Bytes that break the rules of their format; readers turn it into an error that names the file."""


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """An unsigned integer of seven bits a byte, lowest first, and the place behind it.

    Raises:
        Damaged: the data end before the integer does, or it takes more than ten bytes.
    """
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise Damaged("an integer is cut off")


def read_message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protocol-buffer message: number, and an integer or the bytes of a string or message.

    Raises:
        Damaged: a field is cut off or of an unknown wire type.
    """
    place = 0
    while place < len(data):
        tag, place = read_varint(data, place)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = read_varint(data, place)
            yield field, value
            continue
        if wire == 2:
            size, place = read_varint(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise Damaged(f"a field has wire type {wire}")
        if place + size > len(data):
            raise Damaged("a field is cut off")
        piece = data[place : place + size]
        place += size
        yield field, piece if wire == 2 else int.from_bytes(piece, "little")
