"""What a tokenizer returns: one encoded text, or a padded batch of tensors; and how pairs are cut to length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from xlnet.errors import InputError
from xlnet.text.symbols import CLS, CLS_ID, PAD_ID, SEGMENT_A, SEGMENT_B, SEGMENT_CLS, SEGMENT_PAD, SEP, SEP_ID

PaddingSide = Literal["left", "right"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Encoding:
    """One encoded text or pair of texts, without padding. All lists have one entry a token.

    Attributes:
        input_ids: ids of the pieces.
        token_type_ids: segment ids: 0 for the first text and its ``<sep>``, 1 for the second and its, 2 for ``<cls>``.
        offsets: (start, end) characters in the *original* text of the sequence; (0, 0) for ``<sep>`` and ``<cls>``.
        pieces: the pieces as text; ``▁`` stands for a space.
        sequence_ids: which text a piece comes from: 0, 1, or -1 for ``<sep>`` and ``<cls>``.
        dropped: how many pieces were cut off to keep ``max_length``.
    """

    input_ids: list[int] = field(default_factory=list)
    token_type_ids: list[int] = field(default_factory=list)
    offsets: list[Span] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    sequence_ids: list[int] = field(default_factory=list)
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class BatchEncoding:
    """A padded batch. ``model(**batch)`` passes the three tensors that a model reads.

    Attributes:
        input_ids: int64 ``[B, L]``, ``<pad>`` where there is no token.
        attention_mask: bool ``[B, L]``, True for real tokens.
        token_type_ids: int64 ``[B, L]``, 4 on padding.
        encodings: the rows before padding.
        offsets: int64 ``[B, L, 2]`` where asked for, else None; (0, 0) on padding.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    encodings: tuple[Encoding, ...]
    offsets: Tensor | None = None

    def keys(self) -> tuple[str, ...]:
        """Names of the tensors that a model reads."""
        return ("input_ids", "attention_mask", "token_type_ids")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.encodings)

    def to(self, device: torch.device | str) -> BatchEncoding:
        """The same batch on another device."""
        offsets = None if self.offsets is None else self.offsets.to(device)
        return BatchEncoding(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            self.token_type_ids.to(device),
            self.encodings,
            offsets,
        )


def truncate_pair(length_a: int, length_b: int, limit: int) -> tuple[int, int]:
    """Lengths of two texts after cutting them to ``limit`` together, as the release does.

    One piece at a time is taken off the end of the longer one, of the second when they are equally long.
    """
    excess = max(0, length_a + length_b - max(0, limit))
    from_longer = min(excess, abs(length_a - length_b))
    if length_a > length_b:
        length_a -= from_longer
    else:
        length_b -= from_longer
    rest = excess - from_longer
    return length_a - rest // 2, length_b - (rest + 1) // 2


def join(first: Encoding, second: Encoding | None, max_length: int | None, special_tokens: bool) -> Encoding:
    """``A <sep> <cls>`` or ``A <sep> B <sep> <cls>``, cut to ``max_length``; without the marks where not asked for.

    A second text without pieces counts as none, as in the release.

    Raises:
        InputError: when ``max_length`` leaves no room for the marks.
    """
    if second is not None and len(second) == 0:
        second = None
    marks = (2 if second is None else 3) if special_tokens else 0
    keep_a, keep_b = len(first), 0 if second is None else len(second)
    if max_length is not None:
        if max_length < marks or max_length < 1:
            raise InputError(
                f"max_length={max_length} leaves no room: {marks} places go to <sep> and <cls>. "
                f"Give at least {marks + 1}."
            )
        keep_a, keep_b = truncate_pair(keep_a, keep_b, max_length - marks)
    dropped = len(first) + (0 if second is None else len(second)) - keep_a - keep_b
    out = Encoding(dropped=dropped)
    _extend(out, first, keep_a, SEGMENT_A)
    if special_tokens:
        _mark(out, SEP, SEP_ID, SEGMENT_A)
    if second is not None:
        _extend(out, second, keep_b, SEGMENT_B)
        if special_tokens:
            _mark(out, SEP, SEP_ID, SEGMENT_B)
    if special_tokens:
        _mark(out, CLS, CLS_ID, SEGMENT_CLS)
    return out


def _extend(out: Encoding, part: Encoding, keep: int, segment: int) -> None:
    out.input_ids.extend(part.input_ids[:keep])
    out.offsets.extend(part.offsets[:keep])
    out.pieces.extend(part.pieces[:keep])
    out.token_type_ids.extend([segment] * keep)
    out.sequence_ids.extend([segment] * keep)


def _mark(out: Encoding, piece: str, piece_id: int, segment: int) -> None:
    out.input_ids.append(piece_id)
    out.offsets.append((0, 0))
    out.pieces.append(piece)
    out.token_type_ids.append(segment)
    out.sequence_ids.append(-1)


def pad(
    encodings: Sequence[Encoding],
    padding_side: PaddingSide = "left",
    length: int | None = None,
    offsets: bool = False,
) -> BatchEncoding:
    """Bring rows to one length: that of the longest, or ``length``.

    Raises:
        InputError: when a row is longer than ``length``, or the side is unknown.
    """
    if padding_side not in ("left", "right"):
        raise InputError(f"padding_side={padding_side!r} must be 'left' or 'right'.")
    longest = max((len(row) for row in encodings), default=0)
    width = longest if length is None else length
    if longest > width:
        raise InputError(f"a text of {longest} tokens does not fit into {width}: give max_length={width} to cut it.")
    rows = len(encodings)
    ids = torch.full((rows, width), PAD_ID, dtype=torch.int64)
    segments = torch.full((rows, width), SEGMENT_PAD, dtype=torch.int64)
    mask = torch.zeros((rows, width), dtype=torch.bool)
    spans = torch.zeros((rows, width, 2), dtype=torch.int64) if offsets else None
    for i, row in enumerate(encodings):
        size = len(row)
        if size == 0:
            continue
        place = slice(width - size, width) if padding_side == "left" else slice(0, size)
        ids[i, place] = torch.tensor(row.input_ids)
        segments[i, place] = torch.tensor(row.token_type_ids)
        mask[i, place] = True
        if spans is not None:
            spans[i, place] = torch.tensor(row.offsets)
    return BatchEncoding(ids, mask, segments, tuple(encodings), spans)
