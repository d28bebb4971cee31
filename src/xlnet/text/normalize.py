"""What happens to text before SentencePiece sees it, exactly as in the release, and where each character came from.

In this order: white space collapsed, doubled ticks turned into quotation marks, accents removed, lower case.
SentencePiece's own normalization (``nmt_nfkc``) comes after this; ``alignment.py`` follows it.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlnet.errors import InputError

Positions = NDArray[np.int64]

_LAST_SPACE = 0x3000  # no white space lies above it in Unicode
_TICKS = re.compile("``|''")


def check_text(text: object, where: str = "text") -> str:
    """Return ``text`` when it is a string that can be written as UTF-8.

    Raises:
        InputError: for None, bytes, anything else that is no string, and for lone surrogates (with their place).
    """
    if not isinstance(text, str):
        remedy = " Decode it first: data.decode('utf-8')." if isinstance(text, bytes | bytearray) else ""
        raise InputError(f"{where} must be a string, not {type(text).__name__}.{remedy}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"{where} holds the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}, which is "
                "no text: it was read with the wrong encoding or cut in the middle of a character."
            ) from None
    return text


@dataclass(frozen=True)
class NormalizedText:
    """Normalized text and the place each of its characters has in the original.

    Attributes:
        text: the normalized string, n characters.
        starts: int64 ``[n]``, first original character of each.
        ends: int64 ``[n]``, one behind the last original character of each.
        original: the string it was made from.
    """

    text: str
    starts: Positions
    ends: Positions
    original: str


@dataclass(frozen=True)
class Normalization:
    """The release's three switches.

    Args:
        lower: lower case (uncased models).
        keep_accents: leave accents; otherwise text is decomposed (NFKD) and combining marks are dropped.
        remove_space: collapse every run of white space to one space and trim the ends.
    """

    lower: bool = False
    keep_accents: bool = False
    remove_space: bool = True

    def __call__(self, text: str) -> str:
        """The normalized string, by the fast way."""
        if self.remove_space and not _is_collapsed(text):
            text = " ".join(text.split())
        if "``" in text:
            text = text.replace("``", '"')
        if "''" in text:
            text = text.replace("''", '"')
        if not self.keep_accents and not text.isascii():
            text = unicodedata.normalize("NFKD", text)
            for mark in _combining_marks().intersection(text):
                text = text.replace(mark, "")
        return text.lower() if self.lower else text

    def with_spans(self, text: str) -> NormalizedText:
        """The same string, with the span in ``text`` that each character stands for.

        A collapsed space stands for the whole run; the parts of a ligature each for the ligature; a dropped accent
        belongs to the character before it. Starts and ends never decrease.
        """
        starts = np.arange(len(text), dtype=np.int64)
        ends = starts + 1
        out = text
        if self.remove_space:
            out, starts, ends = _collapse_spaces(out, starts, ends)
        out, starts, ends = _ticks_to_quotes(out, starts, ends)
        if not self.keep_accents and not out.isascii():
            out, starts, ends = _replace_characters(out, starts, ends, _without_accents)
        if self.lower:
            lowered = out.lower()  # of the whole string: a final sigma differs from one inside a word
            if len(lowered) != len(out):
                _, starts, ends = _replace_characters(out, starts, ends, str.lower)
            out = lowered
        return NormalizedText(out, starts, ends, text)


def _is_collapsed(text: str) -> bool:
    # All white space but the plain space counts as not printable, so this sees, in C, that there is nothing to do.
    return text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "


def _without_accents(character: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))


@functools.cache
def _combining_marks() -> frozenset[str]:
    return frozenset(chr(c) for c in range(0x300, 0x20000) if unicodedata.combining(chr(c)))


@functools.cache
def _space_table() -> NDArray[np.bool_]:
    return np.array([chr(c).isspace() for c in range(_LAST_SPACE + 1)] + [False], dtype=np.bool_)


def white_space(text: str) -> NDArray[np.bool_]:
    """Which characters of a text are white space, bool ``[n]``."""
    return _space_table()[np.minimum(_codes(text), _LAST_SPACE + 1)]


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def _collapse_spaces(text: str, starts: Positions, ends: Positions) -> tuple[str, Positions, Positions]:
    space = white_space(text)
    words = np.flatnonzero(~space)
    if len(words) == 0:
        return "", starts[:0], ends[:0]
    keep = ~space
    keep[1:] |= space[1:] & ~space[:-1]  # the first space of each run,
    keep[words[-1] + 1 :] = False  # but none at the end; one at the very start is not kept anyway
    kept = np.flatnonzero(keep)
    new_ends = ends[kept]
    runs = np.flatnonzero(space[kept])
    new_ends[runs] = starts[kept[runs + 1]]
    return " ".join(text.split()), starts[kept], new_ends


def _ticks_to_quotes(text: str, starts: Positions, ends: Positions) -> tuple[str, Positions, Positions]:
    places = np.array([match.start() for match in _TICKS.finditer(text)], dtype=np.int64)
    if len(places) == 0:
        return text, starts, ends
    ends = ends.copy()
    ends[places] = ends[places + 1]
    return _TICKS.sub('"', text), np.delete(starts, places + 1), np.delete(ends, places + 1)


def _replace_characters(
    text: str, starts: Positions, ends: Positions, replace: Callable[[str], str]
) -> tuple[str, Positions, Positions]:
    """Replace each character beyond ASCII by none, one or several, which stand for the same span."""
    codes = _codes(text)
    foreign = np.flatnonzero(codes >= 0x80)
    unique, places = np.unique(codes[foreign], return_inverse=True)
    new = [replace(chr(code)) for code in unique]
    lengths = np.ones(len(text), dtype=np.int64)
    lengths[foreign] = np.array([len(piece) for piece in new], dtype=np.int64)[places]
    dropped = np.flatnonzero(lengths == 0)
    if len(dropped):
        before = np.maximum.accumulate(np.where(lengths > 0, np.arange(len(lengths)), -1))[dropped]
        ends = ends.copy()
        np.maximum.at(ends, before[before >= 0], ends[dropped[before >= 0]])
    out = text.translate({int(code): piece for code, piece in zip(unique, new, strict=True)})
    return out, np.repeat(starts, lengths), np.repeat(ends, lengths)
