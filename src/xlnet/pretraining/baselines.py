"""What counting alone reaches on the very same targets: the loss a pretrained model must beat.

The unigram knows how often a piece occurs. The bigram also looks at the left neighbour in the text, where the
factorization order lets the model see it, and falls back to the unigram where it does not. Both are counted on the
training split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlnet.batch import PretrainingBatch
from xlnet.pretraining.corpus.token_corpus import TokenCorpus

_CHUNK = 1 << 22


@dataclass(frozen=True)
class BaselineLoss:
    """Mean negative log-likelihood of the same targets, nats per token.

    Attributes:
        unigram: by frequency alone.
        bigram: with the left neighbour where the order shows it, else the unigram.
        bigram_always_visible: with the left neighbour in any case, which the model does not get.
        targets: how many tokens were predicted.
    """

    unigram: float
    bigram: float
    bigram_always_visible: float
    targets: int


class CountingModel:
    """Unigram and interpolated bigram over V pieces.

    The unigram adds a tenth to every count. The bigram is interpolated by Witten and Bell's rule: a context seen n
    times, with t different followers, is trusted with weight n / (n + t).

    Args:
        corpus: the training split; at most ``max_tokens`` from its start are counted.
        vocab_size: V.
        max_tokens: bound on time and memory (sorting takes 8 bytes a token).
    """

    def __init__(self, corpus: TokenCorpus, vocab_size: int, max_tokens: int = 50_000_000) -> None:
        self.vocab_size = vocab_size
        length = min(len(corpus), max_tokens)
        counts = np.zeros(vocab_size, np.int64)
        pairs: list[NDArray[np.int64]] = []
        for begin in range(0, length, _CHUNK):
            end = min(length, begin + _CHUNK)
            ids = corpus.tokens[begin : min(length, end + 1)]
            counts += np.bincount(ids[: end - begin], minlength=vocab_size)
            pairs.append(ids[:-1] * vocab_size + ids[1:])
        self.unigram = (counts + 0.1) / (counts.sum() + 0.1 * vocab_size)
        coded = np.concatenate(pairs) if pairs else np.zeros(0, np.int64)
        self._pairs, self._pair_counts = np.unique(coded, return_counts=True)
        contexts = self._pairs // vocab_size
        self._context_count = np.bincount(contexts, weights=self._pair_counts, minlength=vocab_size)
        self._followers = np.bincount(contexts, minlength=vocab_size)

    def unigram_log_prob(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """``log p(token)``, same shape as ``tokens``."""
        return np.log(self.unigram[tokens])

    def bigram_log_prob(self, left: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """``log p(token | left)``, same shape as ``tokens``."""
        code = left * self.vocab_size + tokens
        place = np.searchsorted(self._pairs, code).clip(max=max(0, len(self._pairs) - 1))
        seen = self._pairs[place] == code if len(self._pairs) else np.zeros(code.shape, bool)
        joint = np.where(seen, self._pair_counts[place] if len(self._pairs) else 0, 0)
        total, kinds = self._context_count[left], self._followers[left]
        # (n * joint/n + t * unigram) / (n + t); a context never seen has n = t = 0 and leaves the unigram.
        mixed = (joint + kinds * self.unigram[tokens]) / np.maximum(total + kinds, 1)
        return np.log(np.where(total > 0, mixed, self.unigram[tokens]))


def baseline_loss(counting: CountingModel, batches: Iterable[PretrainingBatch]) -> BaselineLoss:
    """Losses of the counting models on the targets of held-out batches."""
    unigram = bigram = always = 0.0
    targets = 0
    for batch in batches:
        ids, order = batch.input_ids.numpy(), batch.order.numpy()
        rows, places = np.nonzero(batch.target_positions.numpy() >= 0)
        positions = batch.target_positions.numpy()[rows, places]
        labels = batch.labels.numpy()[rows, places]
        # The left neighbour in the text stands to the right in a lane of reversed text.
        neighbour = positions - batch.direction.numpy()[rows]
        exists = (neighbour >= 0) & (neighbour < ids.shape[1])
        neighbour = neighbour.clip(0, ids.shape[1] - 1)
        visible = exists & (order[rows, neighbour] < order[rows, positions])
        by_unigram = counting.unigram_log_prob(labels)
        by_bigram = np.where(exists, counting.bigram_log_prob(ids[rows, neighbour], labels), by_unigram)
        unigram -= by_unigram.sum()
        always -= by_bigram.sum()
        bigram -= np.where(visible, by_bigram, by_unigram).sum()
        targets += len(labels)
    count = max(1, targets)
    return BaselineLoss(float(unigram / count), float(bigram / count), float(always / count), targets)
