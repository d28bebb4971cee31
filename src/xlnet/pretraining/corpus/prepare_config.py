"""Settings of ``prepare``: how text is read, what is removed or held out, which marks are put in."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

from xlnet.errors import ConfigurationError, check_choice, known_keys
from xlnet.pretraining.corpus.readers import TextFormat
from xlnet.pretraining.corpus.sentences import SentenceSplitter

SplitSentences = Literal["auto", "always", "never"]


@known_keys
@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """How text becomes a corpus. All but ``workers`` shape the result; equal settings give equal bytes.

    Args:
        format: what a line is: ``sentences``, ``paragraphs``, ``documents``, ``wrapped``, ``jsonl``, ``parquet``, or
            ``auto`` to decide by name and content (what was chosen is reported).
        field: JSON key or Parquet column that holds the text.
        split_sentences: find sentence ends inside each line: ``auto`` does so unless a line is a sentence already.
        language: ISO 639 code for the sentence rules.
        use_eod: end each document with ``<eod>``, as the release does by default.
        use_eop: end each paragraph with ``<eop>``. Off as in the release, which keeps only the ``<eop>`` that the text
            itself holds; turn it on if the model is to lay out paragraphs.
        deduplicate: keep only the first of equal paragraphs (of equal lines, in the format ``sentences``). This comes
            before the split, so no held-out paragraph also stands in the training text.
        valid_fraction: share of tokens held out as the split ``valid``: whole documents, or stretches of long ones.
        seed: of the draw of held-out documents.
        piece_bytes: text that one process encodes at a time, and the most that a kill loses per process.
        shard_tokens: tokens in one file of the result, a multiple of 8.
        workers: processes, 0 for one per core; does not change the result.
    """

    format: TextFormat = "auto"
    field: str = "text"
    split_sentences: SplitSentences = "auto"
    language: str = "en"
    use_eod: bool = True
    use_eop: bool = False
    deduplicate: bool = True
    valid_fraction: float = 0.01
    seed: int = 0
    piece_bytes: int = 1 << 20
    shard_tokens: int = 1 << 26
    workers: int = 0

    def __post_init__(self) -> None:
        for key, choices in (("format", TextFormat), ("split_sentences", SplitSentences)):
            value, allowed = getattr(self, key), get_args(choices)
            check_choice(key, value, allowed)
        SentenceSplitter(self.language)  # refuses what is no language code
        if not 0.0 <= self.valid_fraction <= 0.5:
            raise ConfigurationError(f"valid_fraction={self.valid_fraction} must lie in 0 to 0.5.")
        if self.piece_bytes < 1:
            raise ConfigurationError(f"piece_bytes={self.piece_bytes} must be positive.")
        if self.shard_tokens < 8 or self.shard_tokens % 8:
            raise ConfigurationError(f"shard_tokens={self.shard_tokens} must be a positive multiple of 8.")
        if self.workers < 0:
            raise ConfigurationError(f"workers={self.workers} must not be negative; 0 takes every core.")
        if self.seed < 0:
            raise ConfigurationError(f"seed={self.seed} must not be negative.")
        if self.seed >= 1 << 63:
            raise ConfigurationError(f"seed={self.seed} must be below 2^63 = {1 << 63}.")

    @property
    def worker_count(self) -> int:
        """Processes to use."""
        if self.workers:
            return self.workers
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def resolved(self, format: str) -> dict[str, Any]:
        """Every setting that shapes the result, with ``format`` and ``split_sentences`` decided."""
        values = dataclasses.asdict(self)
        del values["workers"]
        split = self.split_sentences == "always" or (self.split_sentences == "auto" and format != "sentences")
        return {**values, "format": format, "split_sentences": split}
