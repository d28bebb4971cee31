"""Held-out batches that are the same at each evaluation, so that two losses differ by the model alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from xlnet.batch import PretrainingBatch
from xlnet.errors import ConfigurationError
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.lanes import largest_batch
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig


class FixedBatches:
    """A finite list of batches that may be walked again and again; see ``evaluation_batches``.

    Attributes:
        config: the settings as used.
    """

    def __init__(self, stream: PermutationStream, count: int) -> None:
        self.config = stream.config
        self._stream = stream
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PretrainingBatch]:
        return (self._stream.batch(0, step) for step in range(self._count))


def evaluation_batches(
    corpus: TokenCorpus,
    config: StreamConfig,
    starts_word: NDArray[np.bool_],
    count: int | None = None,
    special_ids: Mapping[str, int] | None = None,
) -> FixedBatches:
    """The first batches of the first epoch: the same targets and orders each time, in lanes that carry memory.

    Args:
        corpus: held-out text.
        config: settings; where the text is too short for ``batch_size`` lanes the largest number that fits is taken,
            and ``micro_batches`` counts as one. Rates of any-subset batches are drawn from the whole interval.
        starts_word: bool ``[V]``, True for pieces that begin a word.
        count: how many batches at most; None walks the whole text once.
        special_ids: as for ``PermutationStream``.

    Raises:
        ConfigurationError: for a ``count`` below 1.
        InputError: when the text is too short for one sequence.
    """
    if count is not None and count < 1:
        raise ConfigurationError(f"count={count} must be at least 1, or None for the whole text.")
    single = dataclasses.replace(config, micro_batches=1, any_subset=config.any_subset.at_full_width())
    fitting = max(1, min(config.batch_size, largest_batch(len(corpus), single)))
    stream = PermutationStream(
        corpus, dataclasses.replace(single, batch_size=fitting), starts_word, special_ids=special_ids
    )
    steps = stream.steps_per_epoch
    return FixedBatches(stream, steps if count is None else min(count, steps))
