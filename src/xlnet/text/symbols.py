"""The symbols every XLNet vocabulary begins with, and which pieces begin a word.

The release reserves ids 0 to 8; text never produces the first eight of them, whatever is written in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

SYMBOLS: tuple[str, ...] = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
UNK, BOS, EOS, CLS, SEP, PAD, MASK, EOD, EOP = SYMBOLS
UNK_ID, BOS_ID, EOS_ID, CLS_ID, SEP_ID, PAD_ID, MASK_ID, EOD_ID, EOP_ID = range(9)

SPECIAL_IDS: tuple[int, ...] = (UNK_ID, BOS_ID, EOS_ID, CLS_ID, SEP_ID, PAD_ID, MASK_ID, EOD_ID)
"""Ids that stand for no text. ``<eop>`` is not among them: it is written in texts, to end a paragraph."""

CONTROL_SYMBOLS: tuple[str, ...] = (CLS, SEP, PAD, MASK, EOD)
"""Passed to SentencePiece as control symbols: they never match text."""

USER_DEFINED_SYMBOLS: tuple[str, ...] = (EOP, ".", "(", ")", '"', "-", "–", "£", "€")
"""Pieces that are always cut out of text as they are (README of the release); ids 8 to 16."""

SEGMENT_A, SEGMENT_B, SEGMENT_CLS, SEGMENT_SEP, SEGMENT_PAD = range(5)
"""Segment ids (``token_type_ids``) of the release; the model only looks at whether two of them are equal."""

WORD_START = "▁"
"""What SentencePiece writes for a space (U+2581)."""

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
# Scripts written without spaces: there each piece is taken as a word of its own, otherwise a sentence were one word.
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x312F),  # CJK radicals, CJK punctuation, Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # CJK extension A
    (0x4E00, 0x9FFF),  # CJK unified ideographs
    (0xF900, 0xFAFF),  # CJK compatibility ideographs
    (0x20000, 0x3FFFF),  # CJK extensions B and later
)


def starts_word(piece: str) -> bool:
    """Whether a piece begins a word, as whole-word masking needs to know.

    The release says so of pieces that begin with ``▁`` or ``<`` and of most ASCII punctuation. Added here: pieces that
    begin in a script without spaces (Chinese, Japanese, Thai ...), of which the release knows nothing.
    """
    if piece.startswith((WORD_START, "<")) or piece in _PUNCTUATION:
        return True
    first = ord(piece[0]) if piece else 0
    return any(low <= first <= high for low, high in _UNSPACED_RANGES)


def word_starts(pieces: Sequence[str], added: Collection[str] = ()) -> NDArray[np.bool_]:
    """``starts_word`` of a whole vocabulary, bool ``[V]``; pieces in ``added`` are words by themselves."""
    return np.array([starts_word(piece) or piece in added for piece in pieces], dtype=np.bool_)
