"""Ids of many texts, fast: SentencePiece in threads, the digit-comma rule as array operations."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from xlnet.errors import InputError
from xlnet.text.alignment import CHUNK_CHARACTERS, chunks
from xlnet.text.normalize import Normalization, check_text
from xlnet.text.symbols import UNK_ID

_BLOCK_CHARACTERS = 200_000

Ids = NDArray[np.int32]


class BulkEncoder:
    """Encodes lists of texts to ids that equal those of the tokenizer it is made for.

    Args:
        processor: the SentencePiece model.
        normalization: applied to each text first.
        splits: ids that the digit-comma rule replaces, each with its replacement.
        chunked: whether texts may be cut at spaces.
        by_pieces: the slow way, for texts with unknown characters; needed where the vocabulary has no comma, since
            then a piece that ends in digit and comma may be an unknown one.
    """

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        normalization: Normalization,
        splits: dict[int, list[int]],
        chunked: bool,
        by_pieces: Callable[[str], list[int]] | None,
    ) -> None:
        self._processor = processor
        self._normalization = normalization
        self._splits = {number: np.array(ids, dtype=np.int32) for number, ids in splits.items()}
        self._counts = np.ones(processor.get_piece_size(), dtype=np.int64)
        self._is_split = np.zeros(processor.get_piece_size(), dtype=np.bool_)
        self._is_split[list(splits)] = True
        for number, ids in splits.items():
            self._counts[number] = len(ids)
        self._chunked = chunked
        self._by_pieces = by_pieces

    def __call__(self, texts: Sequence[str], num_threads: int | None = None) -> list[Ids]:
        """Ids of each text; see ``XLNetTokenizer.encode_lines``."""
        threads = (os.cpu_count() or 1) if num_threads is None else num_threads
        if threads < 1:
            raise InputError(f"num_threads={num_threads} must be at least 1, or None for all cores.")
        try:
            blocks = _blocks(texts)
            if threads == 1 or len(blocks) <= 1:
                return [ids for block in blocks for ids in self._encode(block)]
            # Normalization needs the interpreter's lock, SentencePiece does not: threads overlap the two.
            with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
                return [ids for block in pool.map(self._encode, blocks) for ids in block]
        except (TypeError, AttributeError, RuntimeError, UnicodeError):
            for place, text in enumerate(texts):
                check_text(text, f"texts[{place}]")
            raise

    def _encode(self, texts: Sequence[str]) -> list[Ids]:
        normalized = [self._normalization(text) for text in texts]
        if self._chunked and any(len(text) > CHUNK_CHARACTERS for text in normalized):
            return [self._encode_parts(text) for text in normalized]
        return self._split(self._processor.encode(normalized, out_type="numpy", num_threads=1), texts)

    def _encode_parts(self, text: str) -> Ids:
        parts = [text[start:end] for start, end in chunks(text)]
        return np.concatenate(self._split(self._processor.encode(parts, out_type="numpy", num_threads=1), parts))

    def _split(self, lines: list[Ids], texts: Sequence[str]) -> list[Ids]:
        flat = np.concatenate(lines) if lines else np.zeros(0, dtype=np.int32)
        if self._by_pieces is not None and (flat == UNK_ID).any():
            return [self._split_unknown(ids, text) for ids, text in zip(lines, texts, strict=True)]
        hits = np.flatnonzero(self._is_split[flat])
        if len(hits) == 0:
            return lines
        counts = self._counts[flat]
        ends = np.concatenate([[0], np.cumsum(counts)])
        out = np.repeat(flat, counts)
        for number in np.unique(flat[hits]).tolist():
            new = self._splits[number]
            out[ends[hits[flat[hits] == number]][:, None] + np.arange(len(new))] = new
        borders = ends[np.cumsum([0, *map(len, lines)])].tolist()
        return [out[start:end] for start, end in itertools.pairwise(borders)]

    def _split_unknown(self, ids: Ids, text: str) -> Ids:
        if self._by_pieces is not None and (ids == UNK_ID).any():
            return np.array(self._by_pieces(text), dtype=np.int32)
        return self._split([ids], [text])[0]


def _blocks(texts: Sequence[str]) -> list[Sequence[str]]:
    """Cut the list into runs of some 200,000 characters."""
    blocks = []
    start = size = 0
    for place, text in enumerate(texts):
        size += len(text)
        if size >= _BLOCK_CHARACTERS:
            blocks.append(texts[start : place + 1])
            start, size = place + 1, 0
    if start < len(texts):
        blocks.append(texts[start:])
    return blocks
