"""A tokenizer small enough to check by eye: one id per word, derived from its letters. Pickles to helper processes."""

from __future__ import annotations

import multiprocessing
import os
import time
import zlib
from collections.abc import Sequence

import numpy as np


class WordTokenizer:
    """Ids 9 and up for words, 7 for ``<eod>``, 8 for ``<eop>``."""

    unk_id, cls_id, sep_id, pad_id, mask_id, eod_id, eop_id = 0, 3, 4, 5, 6, 7, 8

    def __init__(self, vocab_size: int = 4096, name: str = "words") -> None:
        self.vocab_size = vocab_size
        self.fingerprint = f"{name}-{vocab_size}"

    def word_id(self, word: str) -> int:
        return 9 + zlib.crc32(word.encode()) % (self.vocab_size - 9)

    def encode_lines(self, texts: Sequence[str], num_threads: int | None = None) -> list[np.ndarray]:
        return [np.array([self.word_id(word) for word in text.split()], dtype=np.int32) for text in texts]


class WithoutEod(WordTokenizer):
    """Has no end-of-document symbol."""

    eod_id = None  # type: ignore[assignment]


class OutOfRange(WordTokenizer):
    """Gives an id that is not in its vocabulary."""

    def word_id(self, word: str) -> int:
        return self.vocab_size


class Killer(WordTokenizer):
    """Kills a helper process, as want of memory would; slow enough elsewhere for a helper to come up."""

    def encode_lines(self, texts: Sequence[str], num_threads: int | None = None) -> list[np.ndarray]:
        if multiprocessing.parent_process() is not None:
            os._exit(9)
        time.sleep(0.1)
        return super().encode_lines(texts, num_threads)


class Slow(WordTokenizer):
    """Takes time for every call, so that a test can interrupt it."""

    def encode_lines(self, texts: Sequence[str], num_threads: int | None = None) -> list[np.ndarray]:
        time.sleep(0.02)
        return super().encode_lines(texts, num_threads)
