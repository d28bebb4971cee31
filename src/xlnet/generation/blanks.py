"""The written form of blanks: ``<mask>`` is one piece, ``<mask:n>`` n pieces, ``___`` a blank of unknown length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xlnet.errors import InputError
from xlnet.generation.pieces import SENTINEL, ends_in_space
from xlnet.generation.protocols import Tokenizer

_BLANK = re.compile(r"<mask(?::(?P<count>[^<>]*))?>|_{3,}")
# Each piece of a blank costs a pass over the text, so a slip of the finger would run for days.
_MOST_PIECES = 1000


@dataclass(frozen=True)
class Blank:
    """One blank of a text.

    Attributes:
        length: number of pieces, or None where unknown.
        opens_word: a space (or the start of the text) stands before it, so its first piece starts a word; elsewhere it
            is a piece without a space in front, such as an ending or a full stop.
    """

    length: int | None
    opens_word: bool


@dataclass(frozen=True)
class Template:
    """A text with blanks, encoded.

    Attributes:
        stretches: the text before, between and after the blanks as it was typed, one more than there are blanks.
        segments: their ids.
        blanks: in the order of the text.
    """

    stretches: tuple[str, ...]
    segments: tuple[tuple[int, ...], ...]
    blanks: tuple[Blank, ...]

    def lay_out(self, lengths: Sequence[int], filler: int) -> tuple[list[int], list[list[int]]]:
        """Ids with ``filler`` at the blanks, and the positions of each blank, for given numbers of pieces."""
        ids = list(self.segments[0])
        places = []
        for length, segment in zip(lengths, self.segments[1:], strict=True):
            places.append(list(range(len(ids), len(ids) + length)))
            ids.extend([filler] * length)
            ids.extend(segment)
        return ids, places

    def filled(self, contents: Sequence[Sequence[int]], tokenizer: Tokenizer) -> str:
        """The text as it was typed, with the pieces of each blank in its place.

        Ids could not give it back: case, accents and white space are normalized, unknown characters have no piece.
        Spaces before a blank go only where its first piece has none in front: ``home <mask>`` is filled to ``home.``,
        which is what was scored. Words that were added to a vocabulary cannot tell, and keep what was typed.
        """
        text = self.stretches[0]
        for blank, ids, after in zip(self.blanks, contents, self.stretches[1:], strict=True):
            content = _spaced(ids, tokenizer)
            if blank.opens_word and content.startswith(" "):
                content = content[1:]
            elif blank.opens_word and tokenizer.decode([ids[0]]) not in tokenizer.added_tokens:
                text = text.rstrip(" \t")
            text += content + after
        return text


def parse(text: str, tokenizer: Tokenizer) -> Template:
    """Split a text at its blanks and encode what stands between them.

    Raises:
        InputError: no blank in the text, or ``<mask:n>`` whose n is no positive number.
    """
    stretches: list[str] = []
    segments: list[tuple[int, ...]] = []
    blanks: list[Blank] = []
    end = 0
    for found in _BLANK.finditer(text):
        before = text[end : found.start()]
        stretches.append(before)
        segments.append(_encode(before, tokenizer, glued=bool(blanks)))
        starts = not blanks and not segments[-1]
        blanks.append(Blank(_length(found), starts or ends_in_space(before, tokenizer)))
        end = found.end()
    if not blanks:
        raise InputError(
            f"The text {text!r} holds no blank: write <mask> for one piece, <mask:n> for n pieces, ___ for any number."
        )
    segments.append(_encode(text[end:], tokenizer, glued=True))
    return Template((*stretches, text[end:]), tuple(segments), tuple(blanks))


def _spaced(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Text of pieces with the space in front that ``decode`` leaves out at the beginning of a text."""
    return tokenizer.decode([ids[0], *ids])[len(tokenizer.decode([ids[0]])) :]


def _length(found: re.Match[str]) -> int | None:
    if found.group().startswith("_"):
        return None
    count = found.group("count")
    if count is None:
        return 1
    # The digits are counted first: of thousands of them int() makes an error of its own.
    if not count.strip().isdecimal() or len(count.strip()) > 9 or not 1 <= int(count) <= _MOST_PIECES:
        raise InputError(
            f"{found.group()}: the number of pieces must be a whole number from 1 to {_MOST_PIECES:,}. "
            "Longer text is continued with generate."
        )
    return int(count)


def _encode(text: str, tokenizer: Tokenizer, *, glued: bool) -> tuple[int, ...]:
    """Ids of a stretch of text; one that follows a blank without a space must not start with a word-initial piece."""
    if not text.strip():
        return ()
    if not glued or text[0].isspace():
        return tuple(tokenizer.encode(text, special_tokens=False).input_ids)
    # Encoded behind a symbol that is a piece of its own, the text starts inside a word.
    encoding = tokenizer.encode(SENTINEL + text, special_tokens=False)
    inside = [i for i, (start, end) in zip(encoding.input_ids, encoding.offsets, strict=True) if start >= 1 and end > 1]
    across = any(start < 1 < end for start, end in encoding.offsets)
    if across or not inside:
        return tuple(tokenizer.encode(text, special_tokens=False).input_ids)
    return tuple(inside)
