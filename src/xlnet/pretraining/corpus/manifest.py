"""``manifest.json``: what a prepared corpus holds, from which text and settings, and how to check that it is whole.

The manifest is written last and in one step, so its presence means that everything it names is complete.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from xlnet.errors import InputError

MANIFEST_NAME = "manifest.json"
PARTIAL_NAME = ".partial"
MANIFEST_VERSION = 1
SPECIAL_NAMES = ("unk", "cls", "sep", "pad", "mask", "eod", "eop")


class HasVocabulary(Protocol):
    """The part of a tokenizer that tells whether a corpus belongs to it."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """One file of a split: its name inside the folder, its size in bytes and its SHA-256."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A run of consecutive tokens: their ids, and one bit per token that changes value with each sentence."""

    token_count: int
    tokens: ShardFile
    sentences: ShardFile


@dataclass(frozen=True, kw_only=True)
class SplitManifest:
    """Counts and files of one split; ``documents`` holds the end (exclusive) of each document as uint64."""

    token_count: int
    sentence_count: int
    document_count: int
    shards: tuple[Shard, ...] = ()
    documents: ShardFile | None = None


@dataclass(frozen=True, kw_only=True)
class CorpusManifest:
    """Everything known about a prepared corpus.

    Attributes:
        tokenizer_fingerprint: of the tokenizer that made the ids; a model trained on them needs the same one.
        vocab_size: ids are smaller than this.
        dtype: ``uint16`` or ``uint32``, little-endian on disk.
        special_ids: name (``cls``, ``sep``, ``eod`` ...) to id.
        settings: every setting that shapes the result, as resolved (``format`` is never ``auto`` here).
        inputs: per input file its path, size in bytes and time of change (nanoseconds).
        counts: bytes, lines and documents read, duplicates removed, tokens written.
        notes: what was decided on the user's behalf, in plain sentences.
        splits: ``train`` and, where text was held out, ``valid``.
    """

    tokenizer_fingerprint: str
    vocab_size: int
    dtype: str = "uint16"
    special_ids: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Mapping[str, Any], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    splits: Mapping[str, SplitManifest] = field(default_factory=dict)
    version: int = MANIFEST_VERSION

    def to_json(self) -> str:
        """The text of ``manifest.json``; equal corpora give equal text."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, folder: str | Path) -> CorpusManifest:
        """Read the manifest of a finished corpus.

        Raises:
            InputError: when the folder is missing, holds no corpus, an unfinished one, or a manifest that is damaged
                or of another version.
        """
        folder = Path(folder)
        path = folder / MANIFEST_NAME
        if not folder.is_dir():
            raise InputError(f"{folder}: there is no such folder. A corpus is made with `xlnet prepare`.")
        if not path.is_file():
            if (folder / PARTIAL_NAME).is_dir():
                raise InputError(
                    f"{folder} holds an unfinished preparation. Run the same `xlnet prepare` command again: "
                    "it keeps what is done and finishes the rest."
                )
            raise InputError(f"{folder} holds no {MANIFEST_NAME}, so it is no corpus; `xlnet prepare` makes one.")
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is damaged or written by another version ({type(error).__name__}: {error}). "
                "Prepare the corpus again."
            ) from error

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CorpusManifest:
        """Build from the plain values of ``manifest.json``."""
        if values.get("version") != MANIFEST_VERSION:
            raise ValueError(f"version {values.get('version')!r}, this library reads version {MANIFEST_VERSION}")
        splits = {name: _split_from_dict(split) for name, split in values["splits"].items()}
        changed = {"splits": splits, "inputs": tuple(values["inputs"]), "notes": tuple(values["notes"])}
        return cls(**{**values, **changed})

    def check_tokenizer(self, tokenizer: HasVocabulary, source: str = "the corpus") -> None:
        """Refuse a tokenizer other than the one that made the ids.

        Raises:
            InputError: naming both fingerprints.
        """
        if tokenizer.fingerprint != self.tokenizer_fingerprint:
            raise InputError(
                f"{source} was prepared with the tokenizer {self.tokenizer_fingerprint} ({self.vocab_size} pieces), "
                f"but the tokenizer given is {tokenizer.fingerprint} ({tokenizer.vocab_size} pieces). "
                "Give the tokenizer it was prepared with, or prepare the text again with this one."
            )


def special_ids_of(tokenizer: object) -> dict[str, int]:
    """The named special ids that a tokenizer has (``cls_id`` ...); those it lacks are left out."""
    found = {name: getattr(tokenizer, f"{name}_id", None) for name in SPECIAL_NAMES}
    return {name: int(value) for name, value in found.items() if value is not None and int(value) >= 0}


def _split_from_dict(values: dict[str, Any]) -> SplitManifest:
    shards = tuple(
        Shard(
            token_count=shard["token_count"],
            tokens=ShardFile(**shard["tokens"]),
            sentences=ShardFile(**shard["sentences"]),
        )
        for shard in values["shards"]
    )
    documents = ShardFile(**values["documents"]) if values["documents"] is not None else None
    return SplitManifest(**{**values, "shards": shards, "documents": documents})
