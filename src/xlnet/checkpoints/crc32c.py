"""CRC-32C (Castagnoli) of large buffers, with numpy: TensorFlow protects every array with one.

A checksum is the remainder of the message, read as a polynomial over GF(2), by P of degree 32. Three facts make it
fast without a loop over bytes:

* P(x)^S = P(x^S) where S is a power of two. So a message of blocks of S bits can be reduced to its last 32 blocks by
  adding (xor) whole blocks to others: block i goes to i + 32 - e for every exponent e of P below 32.
* What is left is cut into equal lanes whose sums run side by side as one vector, two bytes a step.
* Neighbouring lanes are joined pairwise by a 32 x 32 bit matrix that means "append n zero bytes".
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x1EDC6F41
_DEGREE = 32
_REFLECTED = 0x82F63B78
_ALL = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_LOW_EXPONENTS = [bit for bit in range(_DEGREE) if _POLYNOMIAL >> bit & 1]
_TOGETHER = _DEGREE - max(_LOW_EXPONENTS)  # so many blocks never reach one another

_BLOCK_BYTES = 1 << 15
_CHUNK_BLOCKS = 64 * _TOGETHER
_SHORTEST_LANE = 256

Words = npt.NDArray[np.uint32]


def unmask(stored: int) -> int:
    """The sum behind the masked form in which LevelDB tables and TensorFlow store it."""
    turned = (stored - _MASK_DELTA) & _ALL
    return ((turned >> 17) | (turned << 15)) & _ALL


def mask(value: int) -> int:
    """The inverse of :func:`unmask`."""
    return ((((value >> 15) | (value << 17)) & _ALL) + _MASK_DELTA) & _ALL


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of a buffer."""
    view = memoryview(data).cast("B")
    state = _ALL
    blocks = len(view) // _BLOCK_BYTES
    if blocks > 2 * _DEGREE:
        body = blocks * _BLOCK_BYTES
        state = _advance(state, body) ^ _sum(memoryview(_folded(view[:body])).cast("B"), 0)
        view = view[body:]
    return _sum(view, state) ^ _ALL


def _folded(view: memoryview) -> bytes:
    """The 32 blocks that leave the same remainder as a whole number of blocks."""
    message = np.frombuffer(view, dtype=np.uint64).reshape(-1, _BLOCK_BYTES // 8)
    scratch = np.empty((_DEGREE + _CHUNK_BLOCKS, message.shape[1]), dtype=np.uint64)
    scratch[:_DEGREE] = message[:_DEGREE]
    for start in range(_DEGREE, len(message), _CHUNK_BLOCKS):
        chunk = message[start : start + _CHUNK_BLOCKS]
        count = len(chunk)
        scratch[_DEGREE : _DEGREE + count] = chunk
        for i in range(0, count, _TOGETHER):
            size = min(_TOGETHER, count - i)
            for exponent in _LOW_EXPONENTS:
                target = scratch[i + _DEGREE - exponent : i + _DEGREE - exponent + size]
                np.bitwise_xor(target, scratch[i : i + size], out=target)
        scratch[:_DEGREE] = scratch[count : count + _DEGREE].copy()
    return scratch[:_DEGREE].tobytes()


def _sum(view: memoryview, state: int) -> int:
    """The state after a buffer."""
    lanes = 1 << max(0, (len(view) // _SHORTEST_LANE).bit_length() - 1)
    if lanes > 1:
        per_lane = len(view) // lanes // 2 * 2
        body = per_lane * lanes
        words = np.frombuffer(view[:body], dtype="<u2").reshape(lanes, per_lane // 2)
        state = _advance(state, body) ^ _joined(_lane_sums(words), per_lane)
        view = view[body:]
    table = _byte_table()
    for byte in view:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _lane_sums(words: npt.NDArray[np.uint16]) -> Words:
    """Sum of each row of ``words``, from a zero state."""
    table = _word_table()
    state = np.zeros(len(words), dtype=np.uint32)
    for column in np.ascontiguousarray(words.T):
        state = table[(state ^ column) & 0xFFFF] ^ (state >> 16)
    return state


def _joined(sums: Words, length: int) -> int:
    """The sum of all lanes one after the other; each is ``length`` bytes, their number is a power of two."""
    while len(sums) > 1:
        sums = _appended(sums[0::2], length) ^ sums[1::2]
        length *= 2
    return int(sums[0])


def _advance(state: int, length: int) -> int:
    """The state after ``length`` zero bytes."""
    return int(_appended(np.array([state], dtype=np.uint32), length)[0])


def _appended(states: Words, length: int) -> Words:
    """Each state after ``length`` zero bytes."""
    tables = _zero_tables(length)
    parts = [tables[i][(states >> np.uint32(8 * i)) & 0xFF] for i in range(4)]
    return parts[0] ^ parts[1] ^ parts[2] ^ parts[3]


@functools.lru_cache(maxsize=64)
def _zero_tables(length: int) -> list[Words]:
    """The matrix of :func:`_zeros` times every value of each of the four bytes of a state."""
    every = np.arange(256, dtype=np.uint32)
    return [_apply(_zeros(length), every << np.uint32(8 * i)) for i in range(4)]


def _apply(matrix: Words, states: Words) -> Words:
    """A bit matrix (one column a bit of input) times each state."""
    result = np.zeros_like(states)
    for bit in range(_DEGREE):
        result ^= np.where((states >> np.uint32(bit)) & 1, matrix[bit], np.uint32(0))
    return result


@functools.lru_cache(maxsize=64)
def _zeros(length: int) -> Words:
    """The matrix that appends ``length`` zero bytes, by repeated squaring."""
    result = (np.uint32(1) << np.arange(_DEGREE, dtype=np.uint32)).astype(np.uint32)
    table = _byte_table()
    square = np.array([table[(1 << bit) & 0xFF] ^ ((1 << bit) >> 8) for bit in range(_DEGREE)], dtype=np.uint32)
    while length:
        if length & 1:
            result = _apply(square, result)
        square = _apply(square, square)
        length >>= 1
    return result


@functools.cache
def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_REFLECTED if value & 1 else 0)
        table.append(value)
    return table


@functools.cache
def _word_table() -> Words:
    """State after two bytes, for every value of the low 16 bits."""
    low = np.array(_byte_table(), dtype=np.uint32)
    words = np.arange(1 << 16, dtype=np.uint32)
    first = low[words & 0xFF] ^ (words >> 8)
    return low[first & 0xFF] ^ (first >> 8)
