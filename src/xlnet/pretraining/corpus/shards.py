"""From finished pieces to the final files: two splits, shards of equal size, one sentence flag per token.

Runs in one pass over the pieces, in their order, so the result depends on nothing but them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlnet.pretraining.corpus.manifest import Shard, SplitManifest
from xlnet.pretraining.corpus.pieces import EncodedPiece
from xlnet.pretraining.corpus.storage import HashedFile


class SplitWriter:
    """Writes one split: ``<split>-00000.tokens.bin``, ``.sentences.bin`` and ``<split>.documents.bin``.

    Args:
        folder: where the files go.
        split: ``train`` or ``valid``.
        shard_tokens: tokens in a shard, a multiple of 8; the last one may have fewer.
    """

    def __init__(self, folder: Path, split: str, shard_tokens: int) -> None:
        self._folder, self._split, self._shard_tokens = folder, split, shard_tokens
        self._shards: list[Shard] = []
        self._open: tuple[HashedFile, HashedFile] | None = None
        self._in_shard = 0
        self._bits = np.zeros(0, np.bool_)  # fewer than eight flags that do not fill a byte yet
        self._documents = HashedFile(folder / f"{split}.documents.bin")
        self._last_stop = 0
        self.token_count = self.sentence_count = self.document_count = 0

    def append(self, tokens: NDArray[Any], sentence_lengths: NDArray[Any], stops: NDArray[np.int64]) -> None:
        """Add whole sentences, and the ends of documents within them (positions just after, counted from these)."""
        self._add_stops(self.token_count + stops)
        first_flag = self.sentence_count % 2 == 0
        numbers = np.arange(len(sentence_lengths)) % 2 == 0
        flags = np.repeat(numbers == first_flag, sentence_lengths)
        self.sentence_count += len(sentence_lengths)
        self.token_count += len(tokens)
        start = 0
        while start < len(tokens):
            taken = min(len(tokens) - start, self._shard_tokens - self._in_shard)
            self._write(tokens[start : start + taken], flags[start : start + taken])
            start += taken
            if self._in_shard == self._shard_tokens:
                self._close_shard()

    def end_document(self) -> None:
        """Mark that the text does not go on here."""
        self._add_stops(np.array([self.token_count], np.int64))

    def close(self) -> SplitManifest:
        """Finish all files and describe them; the end of the split ends a document."""
        self.end_document()
        if self._open is not None:
            self._close_shard()
        return SplitManifest(
            token_count=self.token_count,
            sentence_count=self.sentence_count,
            document_count=self.document_count,
            shards=tuple(self._shards),
            documents=self._documents.close(),
        )

    def _add_stops(self, stops: NDArray[np.int64]) -> None:
        stops = stops[stops > self._last_stop]
        if len(stops):
            self._last_stop = int(stops[-1])
            self.document_count += len(stops)
            self._documents.write(stops.astype("<u8").tobytes())

    def _write(self, tokens: NDArray[Any], flags: NDArray[np.bool_]) -> None:
        if self._open is None:
            stem = self._folder / f"{self._split}-{len(self._shards):05d}"
            self._open = (HashedFile(Path(f"{stem}.tokens.bin")), HashedFile(Path(f"{stem}.sentences.bin")))
        ids, bits = self._open
        ids.write(tokens.astype(tokens.dtype.newbyteorder("<"), copy=False).tobytes())
        flags = np.concatenate([self._bits, flags])
        full = len(flags) // 8 * 8
        bits.write(np.packbits(flags[:full]).tobytes())
        self._bits = flags[full:]
        self._in_shard += len(tokens)

    def _close_shard(self) -> None:
        if self._open is None:
            return
        ids, bits = self._open
        bits.write(np.packbits(self._bits).tobytes())
        self._shards.append(Shard(token_count=self._in_shard, tokens=ids.close(), sentences=bits.close()))
        self._open, self._in_shard, self._bits = None, 0, np.zeros(0, np.bool_)


def write_splits(
    pieces: Iterable[EncodedPiece], held_out: NDArray[np.int64], folder: Path, shard_tokens: int
) -> dict[str, SplitManifest]:
    """Write the splits; a sentence belongs to ``valid`` iff its last token lies in one of the ranges ``held_out``.

    Args:
        pieces: in order.
        held_out: ``[n, 2]`` increasing disjoint ranges of tokens.
        folder: an existing folder.
        shard_tokens: see ``SplitWriter``.
    """
    writers = {"train": SplitWriter(folder, "train", shard_tokens)}
    if len(held_out):
        writers["valid"] = SplitWriter(folder, "valid", shard_tokens)
    offset, last = 0, ""
    for piece in pieces:
        if not len(piece.tokens):
            continue
        lengths = piece.sentence_lengths.astype(np.int64)
        stops = np.cumsum(lengths)
        held = _is_held(offset + stops - 1, held_out)
        # Where the next sentence goes to the other split, the text does not go on in this one.
        ends = np.isin(stops, piece.document_stops.astype(np.int64))
        ends[:-1] |= held[1:] != held[:-1]
        first = "valid" if held[0] else "train"
        if last and last != first:
            writers[last].end_document()
        for name, writer in writers.items():
            mine = held if name == "valid" else ~held
            own = np.cumsum(lengths[mine])
            writer.append(piece.tokens[np.repeat(mine, lengths)], lengths[mine], own[ends[mine]])
        last = "valid" if held[-1] else "train"
        offset += len(piece.tokens)
    return {name: writer.close() for name, writer in writers.items()}


def _is_held(positions: NDArray[np.int64], held_out: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(held_out):
        return np.zeros(len(positions), np.bool_)
    before = np.searchsorted(held_out[:, 0], positions, side="right") - 1
    return (before >= 0) & (positions < held_out[np.maximum(before, 0), 1])
