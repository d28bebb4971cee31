"""The unit of work: about a mebibyte of text, cut from the stream of units, encoded by any process, kept in a file.

Where pieces are cut depends on the text alone, so a resumed run cuts the same ones, and finds those that are finished
by their number and the digest of their text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xlnet.errors import InputError
from xlnet.pretraining.corpus.sentences import SentenceSplitter
from xlnet.pretraining.corpus.storage import guard_disk

_MAGIC = b"xlnet-piece-1\n"


class BulkTokenizer(Protocol):
    """What preparing asks of a tokenizer; it is also pickled to worker processes."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    def encode_lines(self, texts: Sequence[str], /, num_threads: int | None = None) -> Sequence[Any]:
        """One array of ids per text, without ``<sep>`` and ``<cls>``."""
        ...


@dataclass(frozen=True)
class Piece:
    """Units joined by newlines, an empty line where a document ends.

    ``continues``: the first unit belongs to the document that the piece before left open.
    ``read_bytes``: bytes taken from disk since the piece before, for the display of progress.
    """

    index: int
    text: bytes
    continues: bool
    read_bytes: int

    @property
    def digest(self) -> str:
        """Identifies the content."""
        return hashlib.blake2b(self.text + (b"+" if self.continues else b"-"), digest_size=16).hexdigest()


class PieceCounts(NamedTuple):
    """What a piece came to."""

    tokens: int
    sentences: int
    documents: int


@dataclass(frozen=True)
class EncodedPiece:
    """Ids ``[t]``, lengths of the sentences (they add up to t), and stops of the documents that end in this piece."""

    tokens: NDArray[Any]
    sentence_lengths: NDArray[np.uint32]
    document_stops: NDArray[np.uint64]

    @property
    def counts(self) -> PieceCounts:
        """Sizes of the three arrays."""
        return PieceCounts(len(self.tokens), len(self.sentence_lengths), len(self.document_stops))


def cut_pieces(units: Iterable[bytes], piece_bytes: int, read_bytes: Callable[[], int]) -> Iterator[Piece]:
    """Cut the stream of units before the unit that would begin beyond ``piece_bytes``, at least one unit a piece.

    An end of a document stays with the unit before it, and is dropped where nothing of the document is left.

    Args:
        units: text and ends of documents.
        piece_bytes: size at which a piece is full.
        read_bytes: tells the bytes taken from disk so far.
    """
    lines: list[bytes] = []
    size, index, told = 0, 0, 0
    continues, inside = False, False
    for unit in units:
        if unit and size >= piece_bytes:
            now = read_bytes()
            yield Piece(index, b"\n".join(lines), continues, now - told)
            lines, size, index, told, continues = [], 0, index + 1, now, inside
        if unit or inside:
            lines.append(unit)
            size += len(unit) + 1
            inside = bool(unit)
    if lines:
        yield Piece(index, b"\n".join(lines), continues, read_bytes() - told)


@dataclass(frozen=True)
class PieceEncoder:
    """Turns the text of a piece into tokens; sent whole to each worker process.

    Args:
        tokenizer: makes the ids.
        dtype: of the ids.
        language: of the sentence splitter, or None where a unit is a sentence already.
        eod_id: put at the end of each document, or None.
        eop_id: put at the end of each unit, or None.
    """

    tokenizer: BulkTokenizer
    dtype: str
    language: str | None
    eod_id: int | None
    eop_id: int | None

    def encode(self, piece: Piece, threads: int = 1) -> EncodedPiece:
        """Tokens, sentences and ends of documents; a unit without any piece (only odd spaces) vanishes.

        Raises:
            InputError: the tokenizer gave an id that is not in its own vocabulary.
        """
        units = piece.text.decode("utf-8").split("\n")
        sentences, per_unit = self._split(units)
        encoded = [
            np.asarray(ids, dtype=np.int64) for ids in self.tokenizer.encode_lines(sentences, num_threads=threads)
        ]
        parts: list[NDArray[np.int64]] = []
        lengths: list[int] = []
        stops: list[int] = []
        total, document_start = 0, -1 if piece.continues else 0
        following = iter(encoded)
        for unit, count in zip(units, per_unit, strict=True):
            ids = [found for found in (next(following) for _ in range(count)) if len(found)]
            marks = []
            if not unit and total > document_start:
                marks = [] if self.eod_id is None else [self.eod_id]
            elif ids and self.eop_id is not None:
                marks = [self.eop_id]
            parts += ids
            lengths += map(len, ids)
            total += sum(map(len, ids))
            if marks:
                parts.append(np.asarray(marks, dtype=np.int64))
                if lengths:
                    lengths[-1] += len(marks)
                else:
                    lengths.append(len(marks))
                total += len(marks)
            if not unit and total > document_start:
                stops.append(total)
                document_start = total
        tokens = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        self._check(tokens)
        return EncodedPiece(tokens.astype(self.dtype), np.array(lengths, np.uint32), np.array(stops, np.uint64))

    def _split(self, units: list[str]) -> tuple[list[str], list[int]]:
        if self.language is None:
            return [unit for unit in units if unit], [int(bool(unit)) for unit in units]
        splitter = SentenceSplitter(self.language)
        split = [splitter.split(unit) if unit else [] for unit in units]
        return [sentence for found in split for sentence in found], [len(found) for found in split]

    def _check(self, tokens: NDArray[np.int64]) -> None:
        low, high = int(tokens.min(initial=0)), int(tokens.max(initial=0))
        if low < 0 or high >= self.tokenizer.vocab_size:
            raise InputError(
                f"The tokenizer gave the id {low if low < 0 else high}, but its vocabulary has "
                f"{self.tokenizer.vocab_size} pieces: the tokenizer is damaged."
            )


class PieceStore:
    """Finished pieces in a folder, one file each, never seen half-written."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._folder = folder
        self._dtype = dtype

    def path(self, index: int) -> Path:
        """Where piece ``index`` lies."""
        return self._folder / f"{index:08d}.piece"

    def save(self, piece: Piece, encoded: EncodedPiece) -> None:
        """Write a piece in one step; raises ``MachineError`` where the disk refuses."""
        arrays = (encoded.tokens, encoded.sentence_lengths, encoded.document_stops)
        body = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays)
        header = {
            "text": piece.digest,
            "counts": encoded.counts,
            "check": _check_sum(piece.digest, encoded.counts, body),
        }
        header_line = json.dumps(header).encode() + b"\n"
        path = self.path(piece.index)
        with guard_disk(path):
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_bytes(_MAGIC + header_line + body)
            temporary.replace(path)

    def load(self, index: int, text_digest: str | None = None) -> EncodedPiece | None:
        """The piece, or None where it is not there, is damaged, or was made of other text."""
        try:
            data = self.path(index).read_bytes()
        except FileNotFoundError:
            return None
        magic, _, rest = data.partition(b"\n")
        header_line, _, body = rest.partition(b"\n")
        try:
            header = json.loads(header_line)
            text, counts = header["text"], PieceCounts(*header["counts"])
            intact = magic + b"\n" == _MAGIC and header["check"] == _check_sum(text, counts, body)
        except (ValueError, KeyError, TypeError):
            return None
        if not intact or text_digest not in (None, text):
            return None
        width = np.dtype(self._dtype).itemsize
        first, second = width * counts.tokens, width * counts.tokens + 4 * counts.sentences
        return EncodedPiece(
            np.frombuffer(body[:first], np.dtype(self._dtype).newbyteorder("<")),
            np.frombuffer(body[first:second], "<u4"),
            np.frombuffer(body[second:], "<u8"),
        )

    def count_up_to(self, limit: int) -> int:
        """Number of files among the first ``limit`` pieces."""
        return sum(self.path(index).is_file() for index in range(limit))


def _check_sum(text_digest: str, counts: PieceCounts, body: bytes) -> str:
    return hashlib.blake2b(json.dumps([text_digest, counts]).encode() + body, digest_size=16).hexdigest()
