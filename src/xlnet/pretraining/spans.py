"""Which tokens of a sequence are predicted: spans of 1 to ``max_span`` words, exactly as many tokens as asked for.

The paper (section 2.3 and "span-based prediction") predicts about 1/K of the tokens: a span of n is chosen inside a
context of K times its size. The length n has weight 1/n, as in the release. Two rules:

* ``whole_word``: n is counted in words; spans start at a word start and end at a word end.
* ``pieces``: n is counted in pieces from a word start, as the release computes it; 30 % of its spans end inside a word,
  and the context of K * n pieces does not include the span, so single random pieces fill up to the goal.

Functional tokens (``<sep>``, ``<cls>``, ``<pad>``) are never targets, and no span runs across one.

Spans keep context around each of them, which suits small shares. ``random_words`` is a random subset of any size.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import cache
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xlnet.errors import InputError

SpanRule = Literal["whole_word", "pieces"]
Flags = NDArray[np.bool_]


class RandomSource(Protocol):
    """What drawing a span needs; ``Draws`` is one."""

    def uniform(self) -> float: ...

    def below(self, limit: int) -> int: ...


class Targets(NamedTuple):
    """Chosen targets of one part of a sequence.

    Attributes:
        mask: bool ``[L]``, True where the token is predicted.
        spans: ``(begin, end)`` of the spans that were drawn, in the order of drawing.
        filled: how many targets were added afterwards to hit the count.
    """

    mask: Flags
    spans: list[tuple[int, int]]
    filled: int


@cache
def span_length_limits(max_span: int) -> tuple[float, ...]:
    """Cumulative probabilities of the lengths 1 ... ``max_span`` with weights 1/n."""
    cumulative = np.cumsum(1.0 / np.arange(1, max_span + 1))
    return tuple((cumulative / cumulative[-1]).tolist())


def choose_targets(
    starts_word: Flags,
    maskable: Flags,
    goal: int,
    draws: RandomSource,
    *,
    max_span: int = 5,
    rule: SpanRule = "whole_word",
    context_factor: float = 6.0,
) -> Targets:
    """Choose exactly ``goal`` targets.

    Args:
        starts_word: bool ``[L]``, True where a piece begins a word.
        maskable: bool ``[L]``, False at functional tokens.
        goal: number of targets.
        draws: source of random numbers.
        max_span: longest span, in words or pieces.
        rule: ``whole_word`` or ``pieces``.
        context_factor: K of the rule ``pieces``; ``whole_word`` derives it from ``goal``.

    Raises:
        InputError: when fewer than ``goal`` tokens can be predicted.
    """
    available = int(np.count_nonzero(maskable))
    if not 0 <= goal <= available:
        raise InputError(
            f"{goal} targets are asked for in a part of {len(maskable)} tokens, but only {available} of them can be "
            "predicted. Lower predict_fraction or lengthen the sequence."
        )
    if goal == available:
        return Targets(maskable.copy(), [], 0)
    if goal == 0:
        return Targets(np.zeros(len(maskable), dtype=np.bool_), [], 0)
    if rule == "pieces":
        return piece_targets(starts_word, maskable, goal, draws, max_span, context_factor)
    return word_targets(starts_word, maskable, goal, draws, max_span)


def word_targets(starts_word: Flags, maskable: Flags, goal: int, draws: RandomSource, max_span: int) -> Targets:
    """Spans of whole words, spread evenly over the part.

    The part is walked once around, as a ring, from a random place, so that no position is favoured; a span that meets
    the end goes on at the beginning and counts as two. K is what is still to be walked over what is still to be chosen:
    the goal is reached at the end of the walk, and hardly a target must be filled in.
    """
    length = len(maskable)
    begins, ends = words_of(starts_word, maskable)
    offset = draws.below(length)
    turn = bisect_left(begins, offset)
    ring_begins = begins[turn:] + [begin + length for begin in begins[:turn]]
    ring_ends = ends[turn:] + [end + length for end in ends[:turn]]
    chosen: list[tuple[int, int]] = []
    limits = span_length_limits(max_span)
    mean_word = (sum(ends) - sum(begins)) / max(1, len(begins))
    walked, missing = float(offset), goal
    while missing > 0:
        wanted = bisect_right(limits, draws.uniform()) + 1
        factor = (offset + length - walked) / missing
        room = max(0.0, (factor - 1.0) * min(wanted * mean_word, missing))
        word = bisect_left(ring_begins, int(walked + draws.uniform() * (room + 1.0)))
        last = _span_end(ring_begins, ring_ends, word, min(len(begins), word + wanted), missing)
        if last == word:
            break
        begin, end = ring_begins[word], ring_ends[last - 1]
        chosen.append((begin, end))
        missing -= end - begin
        walked = max(float(end), walked + factor * (end - begin))
    spans = [piece for begin, end in chosen for piece in _unroll(begin, end, length)]
    mask = np.zeros(length, dtype=np.bool_)
    for begin, end in spans:
        mask[begin:end] = True
    _fill_words(mask, maskable, begins, ends, missing, draws)
    return Targets(mask, spans, missing)


def random_words(starts_word: Flags, maskable: Flags, goal: int, draws: RandomSource) -> Flags:
    """A random subset of the words, exactly ``goal`` tokens: words in random order, as long as they fit.

    The rest of a word that was cut off before the part, or by a functional token, counts as a word.

    Args:
        starts_word: bool ``[L]``, True where a piece begins a word.
        maskable: bool ``[L]``, False at functional tokens.
        goal: number of targets, at most the number of True in ``maskable``.
        draws: source of random numbers.

    Returns:
        bool ``[L]``, True where the token is predicted.
    """
    heads = starts_word.copy()
    heads[:1] = True
    heads[1:] |= ~maskable[:-1]
    begins, ends = words_of(heads, maskable)
    mask = np.zeros(len(maskable), dtype=np.bool_)
    missing = goal
    for word in np.argsort([draws.uniform() for _ in begins], kind="stable").tolist():
        if ends[word] - begins[word] <= missing:
            mask[begins[word] : ends[word]] = True
            missing -= ends[word] - begins[word]
    _fill_words(mask, maskable, begins, ends, missing, draws)
    return mask


def words_of(starts_word: Flags, maskable: Flags) -> tuple[list[int], list[int]]:
    """Begins and ends (exclusive) of the words of a part; pieces before the first word start belong to no word."""
    boundary = np.flatnonzero(starts_word | ~maskable)
    after = np.append(boundary[1:], len(maskable))
    is_word = maskable[boundary]
    return boundary[is_word].tolist(), after[is_word].tolist()


def piece_targets(
    starts_word: Flags, maskable: Flags, goal: int | None, draws: RandomSource, max_span: int, context_factor: float
) -> Targets:
    """Spans of n pieces as released; with ``goal`` None the walk runs to the end and nothing is filled in.

    A span that would touch the end of the part is dropped and ends the walk.
    """
    length = len(maskable)
    begins = np.flatnonzero(starts_word & maskable).tolist()
    barriers = [*np.flatnonzero(~maskable).tolist(), length]
    mask = np.zeros(length, dtype=np.bool_)
    spans: list[tuple[int, int]] = []
    limits = span_length_limits(max_span)
    place, missing = 0, math.inf if goal is None else goal
    while place < length and missing > 0:
        wanted = int(min(bisect_right(limits, draws.uniform()) + 1, missing))
        context = max(1, math.floor(wanted * context_factor + 1e-9))
        left = draws.below(context)
        word = bisect_left(begins, place + left)
        if word == len(begins):
            break
        begin = begins[word]
        end = min(begin + wanted, barriers[bisect_left(barriers, begin)])
        if end >= length:
            break
        mask[begin:end] = True
        spans.append((begin, end))
        missing -= end - begin
        place = end + context - left
    filled = 0 if goal is None else int(missing)
    for _ in range(filled):
        place = draws.below(length)
        while mask[place] or not maskable[place]:
            place = draws.below(length)
        mask[place] = True
    return Targets(mask, spans, filled)


def _unroll(begin: int, end: int, length: int) -> list[tuple[int, int]]:
    """A span on the ring of ``length`` places as one or two spans of the part."""
    if begin >= length:
        return [(begin - length, end - length)]
    return [(begin, end)] if end <= length else [(begin, length), (0, end - length)]


def _span_end(begins: list[int], ends: list[int], word: int, stop: int, most: int) -> int:
    """The word after the last one that adjoins, starting at ``word``, before ``stop``, in at most ``most`` pieces."""
    last = word
    while last < stop and (last == word or begins[last] == ends[last - 1]) and ends[last] - begins[word] <= most:
        last += 1
    return last


def _fill_words(
    mask: Flags, maskable: Flags, begins: list[int], ends: list[int], missing: int, draws: RandomSource
) -> None:
    """Add ``missing`` targets: whole words that fit, then pieces of no word, at last the first pieces of one word."""
    free = [word for word in range(len(begins)) if not mask[begins[word]]] if missing else []
    while missing > 0:
        fitting = [word for word in free if ends[word] - begins[word] <= missing]
        if fitting:
            word = fitting[draws.below(len(fitting))]
            free.remove(word)
            mask[begins[word] : ends[word]] = True
            missing -= ends[word] - begins[word]
            continue
        wordless = maskable & ~mask
        for word in free:
            wordless[begins[word] : ends[word]] = False
        loose = np.flatnonzero(wordless)
        if len(loose):
            mask[loose[draws.below(len(loose))]] = True
            missing -= 1
            continue
        begin = begins[free[draws.below(len(free))]]
        mask[begin : begin + missing] = True
        missing = 0
