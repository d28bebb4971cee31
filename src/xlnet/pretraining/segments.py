"""Lanes and the text of a sequence: which part of the corpus a row reads, and where A ends and B begins.

A lane is a contiguous share of the corpus, read forwards or backwards. All lanes have equal length, so an epoch (one
pass of every lane) ends for all at once. A sequence reads ``[reused part | A]`` from the lane and B from right after A
or from another place of the same lane (paper, 2.5: segments A and B come from the same context or not).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from xlnet.pretraining.draws import Draws

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SENTENCE_REACH = 512  # how far to look for the start of a sentence around a random place


class Corpus(Protocol):
    """What a lane reads; ``TokenCorpus`` is one."""

    def __len__(self) -> int: ...

    @property
    def tokens(self) -> TokenSlices: ...

    def sentence_ids(self, start: int, stop: int) -> Flags: ...

    def document_ends(self, start: int, stop: int) -> Ids: ...


class TokenSlices(Protocol):
    """Ids behind a slice."""

    def __getitem__(self, index: slice, /) -> Ids: ...


@dataclass(frozen=True)
class Lane:
    """A share of a corpus in the order in which one row reads it; positions count from the lane's first read token.

    Attributes:
        corpus: where the tokens are.
        start: first corpus position of the share.
        length: tokens of the share.
        direction: +1 forwards, -1 backwards.
    """

    corpus: Corpus
    start: int
    length: int
    direction: int

    def tokens(self, begin: int, end: int) -> Ids:
        """Ids of lane positions ``[begin, end)``, int64."""
        low, high = self._range(begin, end)
        return np.asarray(self.corpus.tokens[low:high], dtype=np.int64)[:: self.direction]

    def sentence_ids(self, begin: int, end: int) -> Flags:
        """Bool ``[end - begin]``; neighbours of one sentence share a value, neighbouring sentences do not."""
        low, high = self._range(begin, end)
        return self.corpus.sentence_ids(low, high)[:: self.direction]

    def passes_document_end(self, begin: int, end: int) -> bool:
        """Whether the text changes its document between lane positions ``begin`` and ``end`` (0 < begin < end)."""
        low, high = self._range(begin, end)
        if self.direction > 0:  # a document's last token, passed on the way
            return len(self.corpus.document_ends(low, high)) > 0
        return len(self.corpus.document_ends(low - 1, high - 1)) > 0  # the last token of the document now entered

    def _range(self, begin: int, end: int) -> tuple[int, int]:
        if self.direction > 0:
            return self.start + begin, self.start + end
        stop = self.start + self.length
        return stop - end, stop - begin


@dataclass(frozen=True)
class Pair:
    """Lane positions of the text of one sequence.

    Attributes:
        begin: first token of the reused part (of A where there is none).
        a_begin: first token of A.
        a_len: tokens of A.
        b_begin: first token of B.
        b_len: tokens of B.
        consecutive: B continues A.
    """

    begin: int
    a_begin: int
    a_len: int
    b_begin: int
    b_len: int
    consecutive: bool


def choose_pair(
    lane: Lane, begin: int, reuse_len: int, text_len: int, consecutive_probability: float, draws: Draws
) -> Pair:
    """Split ``text_len`` tokens between A and B.

    A ends at the end of a sentence, any of those that leave a token for B being equally likely; inside one long
    sentence A takes half. B is exactly what is left: the tokens after A, or tokens from the start of a random other
    sentence of the lane. B never repeats text of its own sequence; where the lane has no other text, B continues A.

    Args:
        lane: its share must hold ``begin + reuse_len + text_len`` tokens.
        begin: lane position of the sequence.
        reuse_len: length of the reused part.
        text_len: tokens of A and B together, at least 2.
        consecutive_probability: how often B continues A.
        draws: source of random numbers.
    """
    a_begin = begin + reuse_len
    flags = lane.sentence_ids(a_begin, a_begin + text_len)
    ends = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    a_len = int(ends[draws.below(len(ends))]) if len(ends) else (text_len + 1) // 2
    a_end, b_len = a_begin + a_len, text_len - a_len
    if draws.uniform() >= consecutive_probability:
        b_begin = _random_start(lane, begin, a_end, b_len, draws)
        if b_begin is not None:
            return Pair(begin, a_begin, a_len, b_begin, b_len, consecutive=b_begin == a_end)
    return Pair(begin, a_begin, a_len, a_end, b_len, consecutive=True)


def _random_start(lane: Lane, begin: int, end: int, length: int, draws: Draws) -> int | None:
    """A sentence start from which ``length`` tokens lie in the lane outside ``[begin, end)``, or None.

    A place is drawn from all possible ones and moved to the start of its sentence, else to the next start, else (in a
    sentence longer than the reach) it stays.
    """
    before, after = max(0, begin - length + 1), max(0, lane.length - length - end + 1)
    if before + after == 0:
        return None
    drawn = draws.below(before + after)
    low, high = (0, before - 1) if drawn < before else (end, lane.length - length)
    place = drawn if drawn < before else end + drawn - before
    start = _last_start(lane, max(low, place - _SENTENCE_REACH), place)
    if start is None:
        start = _first_start(lane, place, min(high, place + _SENTENCE_REACH))
    return place if start is None else start


def _last_start(lane: Lane, low: int, place: int) -> int | None:
    """The last sentence start in ``[low, place]``."""
    if low == 0:
        starts = np.append(0, _starts(lane, 0, place))
    else:
        starts = _starts(lane, low - 1, place)
    return int(starts[-1]) if len(starts) else None


def _first_start(lane: Lane, place: int, high: int) -> int | None:
    """The first sentence start in ``(place, high]``."""
    starts = _starts(lane, place, high)
    return int(starts[0]) if len(starts) else None


def _starts(lane: Lane, low: int, high: int) -> Ids:
    """Sentence starts in ``(low, high]``."""
    flags = lane.sentence_ids(low, high + 1)
    return (np.flatnonzero(flags[1:] != flags[:-1]) + low + 1).astype(np.int64)
