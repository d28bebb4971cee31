"""A prepared corpus as the rest of pretraining sees it: token ids, a sentence flag per token, ends of documents.

Everything is memory-mapped, so a corpus larger than memory opens at once, and reading ``[a, b)`` costs ``b - a``.
``xlnet.pretraining.corpus.prepare`` makes such a folder; ``TokenCorpus.from_arrays`` holds a small one in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xlnet.errors import InputError, did_you_mean
from xlnet.pretraining.corpus.manifest import CorpusManifest, HasVocabulary, ShardFile, SplitManifest

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


class TokenArray:
    """Token ids of all shards behind one index; ``tokens[a:b]`` is an int64 array ``[b - a]``."""

    def __init__(self, parts: list[NDArray[np.unsignedinteger]]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part) for part in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: slice | int) -> Any:
        if isinstance(index, slice):
            span = range(*index.indices(len(self)))
            if not span:
                return np.zeros(0, np.int64)
            first, last = sorted((span[0], span[-1]))
            return self.read(first, last + 1)[:: span.step]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"token {index} of {len(self)}")
        return int(self.read(place, place + 1)[0])

    def read(self, start: int, stop: int) -> Ids:
        """Ids of ``[start, stop)``, which must lie inside the corpus."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        found = []
        while start < stop:
            base = int(self._starts[first])
            part = self._parts[first][start - base : stop - base]
            found.append(part)
            start += len(part)
            first += 1
        return np.concatenate(found).astype(np.int64) if found else np.zeros(0, np.int64)


class TokenCorpus:
    """One split of a prepared corpus of T tokens.

    Attributes:
        tokens: the ids; ``tokens[a:b]`` is int64 ``[b - a]``, across shards.
        manifest: settings, counts, tokenizer fingerprint, special ids.
        split: ``train`` or ``valid``.
        folder: where it lies, or None when it is held in memory.
    """

    def __init__(
        self,
        tokens: TokenArray,
        read_flags: Callable[[int, int], Flags],
        document_stops: NDArray[np.unsignedinteger] | Ids,
        manifest: CorpusManifest,
        split: str,
        folder: Path | None,
    ) -> None:
        self.tokens = tokens
        self.manifest = manifest
        self.split = split
        self.folder = folder
        self._read_flags = read_flags
        self._document_stops = document_stops

    @classmethod
    def open(cls, folder: str | Path, split: str = "train", verify: bool = False) -> TokenCorpus:
        """Open one split of a finished corpus folder.

        Args:
            folder: made by ``prepare``.
            split: ``train`` or ``valid``.
            verify: read every file and compare its checksum (sizes are always compared).

        Raises:
            InputError: no corpus, an unfinished one, no such split, or a file that is missing or damaged.
        """
        folder = Path(folder)
        manifest = CorpusManifest.load(folder)
        if split not in manifest.splits:
            raise InputError(
                f"{folder} has no split {split!r}; it has {', '.join(manifest.splits)}."
                + did_you_mean(split, manifest.splits)
                + (" Text is held out with valid_fraction." if split == "valid" else "")
            )
        files = manifest.splits[split]
        _check_files(folder, files, verify)
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        tokens = TokenArray([_map(folder / s.tokens.name, dtype, s.token_count) for s in files.shards])
        packed = [_map(folder / s.sentences.name, np.dtype(np.uint8), s.sentences.bytes) for s in files.shards]
        flags = _PackedFlags(packed, [s.token_count for s in files.shards])
        stops = _map_documents(folder, files)
        return cls(tokens, flags.read, stops, manifest, split, folder)

    @classmethod
    def from_arrays(
        cls,
        tokens: ArrayLike,
        sentence_ends: ArrayLike,
        document_ends: ArrayLike = (),
        *,
        vocab_size: int | None = None,
        fingerprint: str = "in-memory",
        special_ids: Mapping[str, int] | None = None,
    ) -> TokenCorpus:
        """A corpus held in memory.

        Args:
            tokens: ids ``[T]``.
            sentence_ends: bool ``[T]``, True at the last token of each sentence (an ``<eod>`` that follows the sentence
                is its last token), or the increasing positions just after each sentence.
            document_ends: increasing positions just after each document's last token. In both, the end of the tokens
                is added where it is missing.
            vocab_size: ids must be smaller; by default the largest id plus one.
            fingerprint: stands for the tokenizer.
            special_ids: name to id, as ``CorpusManifest.special_ids``.

        Raises:
            InputError: ids outside the vocabulary, or ends outside the tokens.
        """
        ids = np.asarray(tokens, dtype=np.int64).reshape(-1)
        size = int(ids.max(initial=-1)) + 1 if vocab_size is None else vocab_size
        if len(ids) and (ids.min() < 0 or ids.max() >= size):
            raise InputError(f"tokens hold ids from {ids.min()} to {ids.max()}, but must lie in 0 to {size - 1}.")
        sentence_stops = _stops(sentence_ends, len(ids), "sentence_ends")
        document_stops = _stops(document_ends, len(ids), "document_ends")
        toggles = np.zeros(len(ids) + 1, dtype=np.int64)
        toggles[sentence_stops] = 1
        flags = (np.cumsum(toggles)[: len(ids)] % 2 == 0).astype(np.bool_)
        counts = SplitManifest(
            token_count=len(ids), sentence_count=len(sentence_stops), document_count=len(document_stops)
        )
        manifest = CorpusManifest(
            tokenizer_fingerprint=fingerprint,
            vocab_size=size,
            dtype="uint32",
            special_ids=dict(special_ids or {}),
            splits={"train": counts},
        )
        held = TokenArray([ids.astype(np.uint32)])
        return cls(held, _ArrayFlags(flags).read, document_stops, manifest, "train", None)

    def __len__(self) -> int:
        return len(self.tokens)

    def sentence_ids(self, start: int, stop: int) -> Flags:
        """The release's ``sent_ids``: bool ``[stop - start]`` that changes value with each sentence.

        It starts True, and ``<eod>`` carries the flag of the sentence before it, so a sentence ends where the flag of
        the next token differs (and at the end of the corpus).
        """
        self._check_range(start, stop)
        return self._read_flags(start, stop)

    def sentence_ends(self, start: int, stop: int) -> Flags:
        """Bool ``[stop - start]``: True at the last token of each sentence."""
        self._check_range(start, stop)
        flags = self._read_flags(start, min(stop + 1, len(self)))
        ends = np.ones(stop - start, dtype=np.bool_)
        ends[: len(flags) - 1] = flags[1:] != flags[:-1]
        return ends

    def document_ends(self, start: int, stop: int) -> Ids:
        """Positions p with ``start <= p < stop`` of the last token of each document, int64, increasing.

        Where the held-out split cut a document, the text does not go on either, and the cut counts as an end.
        """
        self._check_range(start, stop)
        low, high = np.searchsorted(self._document_stops, [start + 1, stop + 1])
        return self._document_stops[low:high].astype(np.int64) - 1

    def check_tokenizer(self, tokenizer: HasVocabulary) -> None:
        """Raise ``InputError`` naming both fingerprints unless ``tokenizer`` made this corpus."""
        self.manifest.check_tokenizer(tokenizer, source=str(self.folder or "the corpus"))

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens the same files again; pickling a memory map would copy the whole corpus.
        if self.folder is not None:
            return TokenCorpus.open, (self.folder, self.split)
        return TokenCorpus, (self.tokens, self._read_flags, self._document_stops, self.manifest, self.split, None)

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"tokens {start} to {stop} were asked for, but the corpus has {len(self)}")


class _ArrayFlags:
    """Sentence flags held in memory."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags

    def read(self, start: int, stop: int) -> Flags:
        return self.flags[start:stop].copy()


class _PackedFlags:
    """Sentence flags as bits, eight tokens a byte (first token in the highest bit); each shard starts on a byte."""

    def __init__(self, parts: list[NDArray[Any]], token_counts: list[int]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *token_counts])

    def read(self, start: int, stop: int) -> Flags:
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        found = []
        while start < stop:
            base, limit = int(self._starts[first]), int(self._starts[first + 1])
            low, high = start - base, min(stop, limit) - base
            bits = np.unpackbits(self._parts[first][low // 8 : (high + 7) // 8])
            found.append(bits[low % 8 : low % 8 + high - low].astype(np.bool_))
            start = base + high
            first += 1
        return np.concatenate(found) if found else np.zeros(0, np.bool_)


def _stops(ends: ArrayLike, length: int, name: str) -> Ids:
    """Increasing positions just after each end, from a mask or from such positions; the last one is ``length``."""
    values = np.asarray(ends)
    if values.dtype == np.bool_:
        if len(values) != length:
            raise InputError(f"{name} has {len(values)} entries for {length} tokens.")
        values = np.flatnonzero(values) + 1
    stops = values.astype(np.int64).reshape(-1)
    if len(stops) and (stops[0] < 1 or stops[-1] > length or bool(np.any(np.diff(stops) <= 0))):
        raise InputError(f"{name} must increase within 1 to {length}.")
    if length and (not len(stops) or stops[-1] != length):
        stops = np.append(stops, length)
    return stops


def _map(path: Path, dtype: np.dtype, count: int) -> NDArray[Any]:
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,)).view(np.ndarray)  # a plain array slices faster


def _map_documents(folder: Path, files: SplitManifest) -> NDArray[Any]:
    if files.documents is None or not files.document_count:
        return np.zeros(0, np.int64)
    return _map(folder / files.documents.name, np.dtype("<u8"), files.document_count)


def _check_files(folder: Path, files: SplitManifest, verify: bool) -> None:
    listed = [file for shard in files.shards for file in (shard.tokens, shard.sentences)]
    if files.documents is not None:
        listed.append(files.documents)
    for file in listed:
        _check_file(folder / file.name, file, verify)


def _check_file(path: Path, expected: ShardFile, verify: bool) -> None:
    if not path.is_file():
        raise InputError(f"{path} is missing, though the manifest names it. Prepare the corpus again.")
    size = path.stat().st_size
    if size != expected.bytes:
        raise InputError(f"{path} has {size} bytes, but the manifest says {expected.bytes}. Prepare the corpus again.")
    if verify:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected.sha256:
            raise InputError(
                f"{path} is damaged: its SHA-256 is {found}, but the manifest says {expected.sha256}. "
                "Prepare the corpus again."
            )
