"""Which characters of the original text a piece stands for, through both normalizations.

SentencePiece normalizes again (``nmt_nfkc``) and tells where each character of its own text came from; the pieces laid
end to end are that text. Chained with the spans of ``normalize.py`` this leads back to the original characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sentencepiece

from xlnet.text.encoding import Span
from xlnet.text.normalize import NormalizedText, Positions, white_space
from xlnet.text.symbols import WORD_START

CHUNK_CHARACTERS = 100_000
"""Longer texts are cut at spaces before SentencePiece sees them.

Pieces never cross a space, so nothing changes; but SentencePiece adds up scores in float32, and in lines of some
500 kB its rounding begins to pick pieces that are not the best.
"""


def chunks(text: str, limit: int = CHUNK_CHARACTERS) -> list[Span]:
    """Parts (start, end) of at most ``limit`` characters, cut at single spaces, which belong to no part.

    A stretch without a space stays whole, however long it is.
    """
    parts = []
    start = 0
    while len(text) - start > limit:
        cut = text.rfind(" ", start + 1, start + limit + 1)
        if cut < 0:
            cut = text.find(" ", start + limit)
        if cut < 0:
            break
        parts.append((start, cut))
        start = cut + 1
    parts.append((start, len(text)))
    return parts


def piece_spans(
    processor: sentencepiece.SentencePieceProcessor,
    normalized: NormalizedText,
    part: Span,
    pieces: Sequence[Sequence[str]],
) -> list[Span]:
    """Spans in the original text of all pieces of one part of the normalized text.

    The space at the front of a piece is not counted; a lone ``▁`` gets an empty span where the next character begins.

    Args:
        processor: the SentencePiece model that made the pieces.
        normalized: the text and its spans.
        part: which characters of it were encoded.
        pieces: for each piece of SentencePiece, the pieces it was split into (mostly itself).
    """
    part_starts, part_ends = normalized.starts[part[0] : part[1] + 1], normalized.ends[part[0] : part[1]]
    if part[1] == len(normalized.text):
        part_starts = np.append(part_starts, len(normalized.original))
    inner, inner_offsets = processor.normalize(normalized.text[part[0] : part[1]], with_offsets=True)
    begins = np.asarray(inner_offsets, dtype=np.int64)
    # A character ends where the next one that comes from elsewhere begins: the parts of a ligature share its span.
    following = np.minimum(np.searchsorted(begins, begins, side="right"), len(begins) - 1)
    finishes = begins[following]

    flat = [piece for group in pieces for piece in group]
    stops = np.minimum(np.cumsum(np.fromiter(map(len, flat), np.int64, len(flat))), len(inner))
    firsts = np.concatenate([[0], stops[:-1]]) if len(flat) else stops
    firsts = np.minimum(firsts + np.fromiter((p.startswith(WORD_START) for p in flat), np.bool_, len(flat)), stops)

    first_characters, last_characters = begins[firsts], finishes[np.maximum(stops - 1, 0)]
    empty = (firsts == stops) | (last_characters <= first_characters)
    starts = part_starts[first_characters]
    ends = np.where(empty, starts, np.append(0, part_ends)[last_characters])
    if len(flat):
        _trim(normalized.original, int(part_starts[0]), int(part_starts[-1]), starts, ends, flat)
    # A space inside what one character was expanded to (as in U+FDFA) shares that character's span.
    ends = np.maximum.accumulate(ends)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _trim(text: str, first: int, last: int, starts: Positions, ends: Positions, pieces: Sequence[str]) -> None:
    """Take white space that is not in the pieces off both ends of spans that lie in ``text[first:last]``, in place.

    Only texts whose space was not collapsed need it.
    """
    space = np.append(white_space(text[first:last]), False)
    touching = (starts < ends) & (space[starts - first] | space[ends - 1 - first])
    for i in np.flatnonzero(touching).tolist():
        piece = pieces[i].removeprefix(WORD_START)
        while starts[i] < ends[i] and text[ends[i] - 1].isspace() and not piece[-1:].isspace():
            ends[i] -= 1
        while starts[i] < ends[i] and text[starts[i]].isspace() and not piece[:1].isspace():
            starts[i] += 1
