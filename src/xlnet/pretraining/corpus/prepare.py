"""Text in, token shards out: read, remove duplicates, find sentence ends, encode on all cores, hold out, write.

The work is done in pieces under ``<output>/.partial``. A run that was killed is continued by the same call: finished
pieces are kept, and the result is byte for byte that of an uninterrupted run. The final files move into place at the
end, the manifest last, so an unfinished folder is never taken for a corpus.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xlnet.errors import ConfigurationError, InputError, Interrupted
from xlnet.pretraining.corpus.deduplicate import DuplicateCounts, HashSet, drop_duplicates
from xlnet.pretraining.corpus.detect import choose_format
from xlnet.pretraining.corpus.holdout import choose_held_out
from xlnet.pretraining.corpus.manifest import MANIFEST_NAME, PARTIAL_NAME, CorpusManifest, SplitManifest, special_ids_of
from xlnet.pretraining.corpus.output_folder import check_finished, check_unfinished, claim, move_into_place
from xlnet.pretraining.corpus.pieces import BulkTokenizer, PieceEncoder, PieceStore, cut_pieces
from xlnet.pretraining.corpus.prepare_config import PrepareConfig
from xlnet.pretraining.corpus.readers import read_units
from xlnet.pretraining.corpus.shards import write_splits
from xlnet.pretraining.corpus.sources import Source, find_sources
from xlnet.pretraining.corpus.storage import FolderLock, guard_disk, write_whole
from xlnet.pretraining.corpus.workers import Encoding, encode_all, refuse_in_helper

__all__ = ["PrepareConfig", "PrepareProgress", "prepare"]


@dataclass(frozen=True, kw_only=True)
class PrepareProgress:
    """How far ``prepare`` has come.

    Attributes:
        stage: ``encode`` or ``write``.
        done_bytes: of the input, as it lies on disk (compressed where it is).
        total_bytes: of the input, None for standard input.
        tokens: made so far.
        documents: ended so far.
        duplicates: paragraphs removed so far.
        notes: what was decided or left out so far, in plain sentences.
    """

    stage: str
    done_bytes: int
    total_bytes: int | None
    tokens: int
    documents: int
    duplicates: int
    notes: tuple[str, ...] = ()


Reporter = Callable[[PrepareProgress], None]


def prepare(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: BulkTokenizer,
    output: str | Path,
    config: PrepareConfig | None = None,
    reporter: Reporter | None = None,
) -> CorpusManifest:
    """Make a corpus folder that ``TokenCorpus.open`` reads.

    Args:
        inputs: files, globs, folders, or ``-`` for standard input; plain or gzip.
        tokenizer: an ``XLNetTokenizer``; every worker process gets a copy.
        output: a folder that is new, empty, or holds the unfinished or finished result of the same call.
        config: see ``PrepareConfig``.
        reporter: called after each piece, and when writing starts.

    Returns:
        The manifest, which also lies in the folder. A finished corpus of the same text and settings is
        returned as it is.

    Raises:
        InputError: input that is missing, empty, or not text; with file and line or byte.
        ConfigurationError: settings that contradict the text, or ``output`` holds something else.
        MachineError: the disk refuses, or a worker process died; the same call continues.
        Interrupted: on Ctrl-C; the same call continues.
    """
    refuse_in_helper()
    config = config or PrepareConfig()
    output = Path(output)
    sources, notes = find_sources(inputs)
    format, chosen = choose_format(sources, config.format, config.language)
    manifest = CorpusManifest(
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        dtype="uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32",
        special_ids=special_ids_of(tokenizer),
        settings=config.resolved(format),
        inputs=tuple({"name": s.name, "bytes": s.size, "changed_ns": s.changed} for s in sources),
        notes=tuple(note for note in (*notes, chosen, _once_only(sources)) if note),
    )
    finished = check_finished(output, manifest, rereadable=all(source.rereadable for source in sources))
    if finished is not None:
        shutil.rmtree(output / PARTIAL_NAME, ignore_errors=True)  # left by a kill after the manifest was written
        return finished
    encoder = _encoder(tokenizer, manifest)
    partial = claim(output)
    with FolderLock(partial):
        check_unfinished(partial, manifest)
        try:
            return _Run(manifest, output, partial, reporter).execute(sources, encoder, config.worker_count)
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped. Finished parts are kept in {partial}; run the same command again to go on from there."
            ) from None


class _Run:
    """The steps of one preparation, with the counts they share."""

    def __init__(self, manifest: CorpusManifest, output: Path, partial: Path, reporter: Reporter | None) -> None:
        self._manifest, self._output, self._partial, self._reporter = manifest, output, partial, reporter
        self._duplicates = DuplicateCounts()
        self._read_bytes = self._done_bytes = self._tokens = self._documents = 0
        sizes = [entry["bytes"] for entry in manifest.inputs]
        self._total_bytes = None if None in sizes else sum(sizes)

    def execute(self, sources: list[Source], encoder: PieceEncoder, workers: int) -> CorpusManifest:
        """Encode, then write; returns the manifest of the finished folder."""
        piece_folder = self._partial / "pieces"
        piece_count = self._encode(sources, Encoding(encoder, piece_folder), workers)
        if not self._tokens:
            shutil.rmtree(self._partial)
            raise InputError(
                f"There is no text in {', '.join(source.name for source in sources)}: no line gave a single token."
            )
        self._report("write")
        manifest = self._write(PieceStore(piece_folder, encoder.dtype), piece_count)
        write_whole(self._output / MANIFEST_NAME, manifest.to_json())
        shutil.rmtree(self._partial)
        return manifest

    def _encode(self, sources: list[Source], encoding: Encoding, workers: int) -> int:
        settings = self._manifest.settings
        seen = HashSet(scratch=self._partial) if settings["deduplicate"] else None
        units = read_units(sources, settings["format"], settings["field"], self._on_read)
        kept = drop_duplicates(units, seen, self._duplicates)
        count = 0
        for piece, counts in encode_all(cut_pieces(kept, settings["piece_bytes"], self._bytes), encoding, workers):
            count += 1
            self._done_bytes += piece.read_bytes
            self._tokens += counts.tokens
            self._documents += counts.documents
            self._report("encode")
        return count

    def _write(self, store: PieceStore, piece_count: int) -> CorpusManifest:
        settings = self._manifest.settings
        stops, total = _document_stops(store, piece_count)
        held_out, note = choose_held_out(stops, total, settings["valid_fraction"], settings["seed"])
        final = self._partial / "final"
        splits = self._write_splits(store, piece_count, held_out, final)
        if not splits["train"].token_count:
            splits = self._write_splits(store, piece_count, held_out[:0], final)
            note = "Nothing is held out: the text is a single sentence."
        move_into_place(final, self._output, splits)
        counts = {
            "input_bytes": self._read_bytes,
            "units": self._duplicates.units,
            "duplicates": self._duplicates.duplicates,
            "duplicate_bytes": self._duplicates.duplicate_bytes,
            "documents": len(stops),
            "sentences": sum(split.sentence_count for split in splits.values()),
            "tokens": total,
        }
        notes = (*self._manifest.notes, *([note] if note else []))
        return replace(self._manifest, counts=counts, notes=notes, splits=splits)

    def _write_splits(
        self, store: PieceStore, piece_count: int, held_out: np.ndarray, final: Path
    ) -> dict[str, SplitManifest]:
        shutil.rmtree(final, ignore_errors=True)
        with guard_disk(final):
            final.mkdir()
        pieces = (_load(store, index) for index in range(piece_count))
        return write_splits(pieces, held_out, final, self._manifest.settings["shard_tokens"])

    def _on_read(self, count: int) -> None:
        self._read_bytes += count

    def _bytes(self) -> int:
        return self._read_bytes

    def _report(self, stage: str) -> None:
        if self._reporter is not None:
            self._reporter(
                PrepareProgress(
                    stage=stage,
                    done_bytes=self._done_bytes,
                    total_bytes=self._total_bytes,
                    tokens=self._tokens,
                    documents=self._documents,
                    duplicates=self._duplicates.duplicates,
                    notes=self._manifest.notes,
                )
            )


def _once_only(sources: list[Source]) -> str:
    once = [source.name for source in sources if not source.rereadable]
    if not once:
        return ""
    return f"{' and '.join(once)} can be read only once: an interrupted run starts again from the beginning."


def _encoder(tokenizer: BulkTokenizer, manifest: CorpusManifest) -> PieceEncoder:
    settings = manifest.settings
    marks: dict[str, int | None] = {}
    for name in ("eod", "eop"):
        marks[name] = manifest.special_ids.get(name) if settings[f"use_{name}"] else None
        if settings[f"use_{name}"] and marks[name] is None:
            raise ConfigurationError(
                f"use_{name}=True, but the tokenizer has no <{name}>. Set use_{name}=False or take another tokenizer."
            )
    language: Any = settings["language"] if settings["split_sentences"] else None
    return PieceEncoder(tokenizer, manifest.dtype, language, marks["eod"], marks["eop"])


def _load(store: PieceStore, index: int) -> Any:
    piece = store.load(index)
    if piece is None:
        raise InputError(
            f"{store.path(index)} vanished or was damaged while it was in use. Run the same command again."
        )
    return piece


def _document_stops(store: PieceStore, piece_count: int) -> tuple[np.ndarray, int]:
    """Positions just after each document in the whole corpus, the last one its length, and that length."""
    found, total = [], 0
    for index in range(piece_count):
        piece = _load(store, index)
        found.append(total + piece.document_stops.astype(np.int64))
        total += len(piece.tokens)
    stops = np.concatenate(found) if found else np.zeros(0, np.int64)
    stops = stops[stops > 0]
    if total and (not len(stops) or stops[-1] < total):
        stops = np.append(stops, total)
    return stops, total
