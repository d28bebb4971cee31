"""A passage that is longer than the model is read in windows, each beside the question (run_squad.py).

``passage part <sep> question <sep> <cls>``. Every piece knows which characters of the original passage it stands for,
so that answers become positions and positions become text without guessing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlnet.text import XLNetTokenizer

Positions = NDArray[np.int32]


@dataclass(frozen=True)
class EncodedPassage:
    """Pieces of a whole passage.

    Attributes:
        input_ids: ``[T]`` int32.
        starts, ends: ``[T]`` int32, characters of the original passage; a piece without a visible character has an
            empty span.
    """

    input_ids: Positions
    starts: Positions
    ends: Positions

    def __len__(self) -> int:
        return len(self.input_ids)

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last piece that hold any of the characters ``start`` to ``end`` (exclusive); None without one."""
        inside = np.flatnonzero((self.ends > start) & (self.starts < end) & (self.starts < self.ends))
        return (int(inside[0]), int(inside[-1])) if len(inside) else None


@dataclass(frozen=True)
class Window:
    """A part of a passage as one row of the model.

    Attributes:
        starts, ends: ``[n]`` characters of each of its pieces; piece i stands at position i of the row.
        max_context: ``[n]`` bool, True where no other window shows the piece with more text around it: an answer may
            only begin there, so that each is found once and where it is seen best.
    """

    starts: Positions
    ends: Positions
    max_context: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)


def encode_passage(tokenizer: XLNetTokenizer, passage: str) -> EncodedPassage:
    """Pieces and their characters."""
    encoded = tokenizer.encode(passage, special_tokens=False)
    spans = np.array(encoded.offsets, dtype=np.int32).reshape(-1, 2)
    return EncodedPassage(np.array(encoded.input_ids, dtype=np.int32), spans[:, 0].copy(), spans[:, 1].copy())


def window_spans(count: int, size: int, stride: int) -> list[tuple[int, int]]:
    """(first piece, piece after the last) of each window of ``size`` pieces; they start ``stride`` pieces apart.

    The last one ends with the passage and may be shorter. An empty passage has one empty window.
    """
    spans = [(0, min(size, count))]
    while spans[-1][1] < count:
        start = spans[-1][0] + min(stride, size)
        spans.append((start, min(start + size, count)))
    return spans


def max_context(spans: Sequence[tuple[int, int]]) -> list[NDArray[np.bool_]]:
    """For each window, which of its pieces have the most text around them there.

    The text around a piece is the lesser of what stands to its left and to its right in the window, plus a hundredth of
    the window's length; of equally good windows the first is taken.
    """
    total = max((end for _, end in spans), default=0)
    best = np.full(total, -1.0)
    owner = np.full(total, -1, dtype=np.int64)
    for number, (start, end) in enumerate(spans):
        place = np.arange(end - start)
        score = np.minimum(place, place[::-1]) + 0.01 * (end - start)
        better = score > best[start:end]
        best[start:end][better] = score[better]
        owner[start:end][better] = number
    return [owner[start:end] == number for number, (start, end) in enumerate(spans)]
