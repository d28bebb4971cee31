"""From texts to sequences of the model, as released; and four ways to read what is longer than the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.tasks.contract import TokenSequence
from xlnet.text import XLNetTokenizer, truncate_pair
from xlnet.text.symbols import CLS_ID, SEGMENT_A, SEGMENT_B, SEGMENT_CLS, SEP_ID

LongText = Literal["head", "tail", "head_tail", "windows"]
LONG_TEXT = ("head", "tail", "head_tail", "windows")
Ids = NDArray[np.int32]


def check_long_text(value: str, stride: int, max_length: int) -> None:
    """Refuse an unknown way, or a stride that skips text.

    Raises:
        ConfigurationError: names the key, its value and what is allowed.
    """
    if value not in LONG_TEXT:
        raise ConfigurationError(
            f"long_text={value!r} is not known; it must be one of {', '.join(LONG_TEXT)}."
            + did_you_mean(value, LONG_TEXT)
        )
    if value == "windows" and not 1 <= stride <= max_length - 4:
        raise ConfigurationError(
            f"stride={stride} must lie between 1 and max_length - 4 = {max_length - 4}: a larger one skips text."
        )


def encode_texts(tokenizer: XLNetTokenizer, texts: Sequence[str]) -> list[Ids]:
    """Ids of many texts without marks, each distinct text encoded once."""
    distinct = list(dict.fromkeys(texts))
    encoded = dict(zip(distinct, tokenizer.encode_lines(distinct), strict=True)) if distinct else {}
    return [encoded[text] for text in texts]


def join(first: Ids, second: Ids | None = None) -> TokenSequence:
    """``A <sep> <cls>`` or ``A <sep> B <sep> <cls>`` with segments 0, 1 and 2; nothing is cut."""
    parts: list[Ids] = [first, _mark(SEP_ID)]
    segments = [(len(first) + 1, SEGMENT_A)]
    if second is not None:
        parts += [second, _mark(SEP_ID)]
        segments.append((len(second) + 1, SEGMENT_B))
    parts.append(_mark(CLS_ID))
    segments.append((1, SEGMENT_CLS))
    types = np.concatenate([np.full(count, segment, dtype=np.uint8) for count, segment in segments])
    return TokenSequence(np.concatenate(parts).astype(np.int32), types)


def _mark(number: int) -> Ids:
    return np.array([number], dtype=np.int32)


def shorten(ids: Ids, keep: int, how: LongText) -> Ids:
    """``keep`` ids: the first, the last, or a quarter of first and the rest of last (Sun et al. 2019: 128 + 382)."""
    if len(ids) <= keep:
        return ids
    if how == "tail":
        return ids[len(ids) - keep :]
    if how == "head_tail":
        front = keep // 4
        return np.concatenate([ids[:front], ids[len(ids) - (keep - front) :]])
    return ids[:keep]


def fit_sequences(
    first: Ids, second: Ids | None, max_length: int, how: LongText = "head", stride: int = 0
) -> list[TokenSequence]:
    """The sequences that a text or a pair becomes: one, or several windows.

    Of a pair the longer text loses first, the second on a tie (the release's rule); with ``windows`` the longer one is
    read in windows that start ``stride`` pieces apart, each beside the other text, which keeps half the room at most.

    Args:
        first: ids of the text.
        second: ids of its pair, if any.
        max_length: tokens of a sequence, marks included.
        how: what to do where it is longer.
        stride: pieces between the starts of windows.
    """
    room = max_length - (2 if second is None else 3)
    other = 0 if second is None else len(second)
    if len(first) + other <= room:
        return [join(first, second)]
    if how != "windows":
        if second is None:
            return [join(shorten(first, room, how))]
        keep_first, keep_second = truncate_pair(len(first), other, room)
        return [join(shorten(first, keep_first, how), shorten(second, keep_second, how))]
    if second is None:
        return [join(part) for part in windows(first, room, stride)]
    if len(first) > other:
        second = second[: room // 2]
        return [join(part, second) for part in windows(first, room - len(second), stride)]
    first = first[: room // 2]
    return [join(first, part) for part in windows(second, room - len(first), stride)]


def windows(ids: Ids, size: int, stride: int) -> list[Ids]:
    """Windows of ``size`` ids, ``stride`` apart (less where a window is shorter than that), the last one full."""
    if len(ids) <= size:
        return [ids]
    last = len(ids) - size
    starts = [*range(0, last, min(stride, size)), last]
    return [ids[start : start + size] for start in starts]
