"""The stream of pretraining batches: endless, drawn anew each epoch, restartable at any batch.

Every batch is a pure function of (seed, epoch, step, micro-batch): nothing is carried from one to the next. So the
state of a stream is three numbers, and background workers may compute batches in any order.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xlnet.batch import IGNORED_LABEL, NO_TARGET, PretrainingBatch
from xlnet.errors import ConfigurationError, InputError
from xlnet.pretraining.any_subset import AnySubsetConfig
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.draws import Draws
from xlnet.pretraining.lanes import LanePlan
from xlnet.pretraining.prefetch import Prefetcher
from xlnet.pretraining.segments import Lane
from xlnet.pretraining.sequence import Sequence, Vocabulary, build_sequence
from xlnet.pretraining.stream_config import StreamConfig

_FRACTION_DRAW, _ROW_DRAW, _ANY_SUBSET_DRAW = 0, 1, 2
_SINCE_SAVED = {"any_subset": dataclasses.asdict(AnySubsetConfig())}  # settings younger than some saved states


class PermutationStream:
    """Endless pretraining batches from a corpus; one item is one micro-batch.

    Args:
        corpus: the tokens.
        config: settings.
        starts_word: bool ``[V]``, True for pieces that begin a word (``XLNetTokenizer.starts_word``).
        special_ids: ids of ``sep``, ``cls`` and, if any, ``pad``; by default those of the corpus manifest.
        rank: which process of a data-parallel run this is; each reads its own lanes.
        world_size: how many processes there are.
        workers: background processes that prepare batches, 0 for none. The batches are the same. A script that sets
            this must guard its start with ``if __name__ == "__main__":``, because workers import it again.

    Raises:
        ConfigurationError: for settings that contradict each other.
        InputError: for a corpus too short for its lanes, or a tokenizer that does not fit it.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        config: StreamConfig,
        starts_word: NDArray[np.bool_],
        *,
        special_ids: Mapping[str, int] | None = None,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ConfigurationError(f"rank={rank} must lie in 0 to world_size - 1 = {world_size - 1}.")
        if workers < 0:
            raise ConfigurationError(f"workers={workers} must not be negative; 0 prepares batches in this process.")
        self.config = config
        self.plan = LanePlan.make(len(corpus), config, world_size)
        vocabulary = Vocabulary.make(starts_word, corpus.manifest.special_ids if special_ids is None else special_ids)
        if corpus.manifest.vocab_size > len(vocabulary.starts_word):
            raise InputError(
                f"The corpus was prepared with a vocabulary of {corpus.manifest.vocab_size} pieces, but starts_word "
                f"describes {len(vocabulary.starts_word)}: give the tokenizer that the corpus was prepared with."
            )
        self._source = BatchSource(corpus, config, self.plan, vocabulary, rank, world_size)
        self._world_size = world_size
        self._workers = workers
        self._next = 0
        self._prefetcher: Prefetcher | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps (of ``micro_batches`` batches) in an epoch."""
        return self.plan.steps

    @property
    def tokens_per_epoch(self) -> int:
        """Positions (rows times ``seq_len``) that an epoch trains on, on all processes together."""
        return self.plan.steps * self.plan.blocks * self.plan.batch_size * self.config.seq_len

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0."""
        return self._place()[0]

    def __iter__(self) -> PermutationStream:
        return self

    def __next__(self) -> PretrainingBatch:
        if self._workers == 0:
            batch = self.batch(*self._place())
        else:
            if self._prefetcher is None:
                self._prefetcher = Prefetcher(self._source, self._next, self._workers)
            try:
                batch = next(self._prefetcher)
            except BaseException:
                self.close()  # the next call starts anew at this batch
                raise
        self._next += 1
        return batch

    def batch(self, epoch: int, step: int, micro_batch: int = 0) -> PretrainingBatch:
        """Any batch by its place; does not move the stream."""
        return self._source.batch(epoch, step, micro_batch)

    def state(self) -> dict[str, Any]:
        """The place of the next batch and what it depends on, as plain JSON values."""
        epoch, step, micro_batch = self._place()
        return {"epoch": epoch, "step": step, "micro_batch": micro_batch, "settings": self._settings()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to the batch that a saved ``state`` names.

        Raises:
            InputError: when the state was saved with other settings or another corpus, naming both values.
        """
        saved, here = state.get("settings"), self._settings()
        places = [state.get(key) for key in ("epoch", "step", "micro_batch")]
        if not isinstance(saved, dict) or not all(isinstance(place, int) for place in places):
            raise InputError(
                f"The saved data position {state!r} is damaged: it must hold epoch, step, micro_batch and settings."
            )
        saved = {**_SINCE_SAVED, **saved}
        for key in sorted({*saved, *here}):
            if saved.get(key) != here.get(key):
                raise InputError(
                    f"The data position was saved with {key}={saved.get(key)!r}, but now {key}={here.get(key)!r}: the "
                    "batches would be other ones. Use the saved value, or start a new run."
                )
        epoch, step, micro_batch = (int(place) for place in places if place is not None)
        if epoch < 0 or not 0 <= step < self.plan.steps or not 0 <= micro_batch < self.config.micro_batches:
            raise InputError(
                f"The data position epoch={epoch}, step={step}, micro_batch={micro_batch} does not exist: an epoch has "
                f"{self.plan.steps} steps of {self.config.micro_batches} micro-batches. The saved state is damaged."
            )
        self.close()
        self._next = (epoch * self.plan.steps + step) * self.config.micro_batches + micro_batch

    def close(self) -> None:
        """Stop the background workers; the stream stays usable and starts new ones when needed."""
        if self._prefetcher is not None:
            self._prefetcher.close()
            self._prefetcher = None

    def describe(self) -> str:
        """One paragraph for people: what an epoch is here."""
        config, plan = self.config, self.plan
        lanes = plan.blocks * plan.batch_size
        backwards = sum(plan.directions(0, block).count(-1) for block in range(plan.blocks))
        read = (plan.steps - 1) * config.advance + config.window
        return (
            f"{self._source.corpus_length:,} tokens in {plan.share_count:,} shares of {plan.share_length:,}; {lanes} "
            f"lanes, {backwards} of them backwards; an epoch is {plan.steps:,} steps or {self.tokens_per_epoch:,} "
            f"positions and leaves the last {plan.share_length - read} tokens of a share unread."
            + (f" {config.any_subset.describe()}" if config.any_subset.share else "")
        )

    def _place(self) -> tuple[int, int, int]:
        return self._source.place(self._next)

    def _settings(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self.config)
        settings["predict_fraction"] = list(self.config.predict_fraction)
        return {**settings, "world_size": self._world_size, "corpus": self._source.fingerprint}


class BatchSource:
    """Builds the batch of any place; a plain value that workers receive."""

    def __init__(
        self,
        corpus: TokenCorpus,
        config: StreamConfig,
        plan: LanePlan,
        vocabulary: Vocabulary,
        rank: int,
        world_size: int,
    ) -> None:
        self._corpus = corpus
        self._config = config
        self._plan = plan
        self._rank = rank
        self._world_size = world_size
        self._vocabulary = vocabulary
        self.corpus_length = len(corpus)
        self.fingerprint = corpus_fingerprint(corpus)

    def place(self, index: int) -> tuple[int, int, int]:
        """(epoch, step, micro-batch) of the ``index``-th batch of an endless stream."""
        step, micro_batch = divmod(index, self._config.micro_batches)
        epoch, step = divmod(step, self._plan.steps)
        return epoch, step, micro_batch

    def __getitem__(self, index: int) -> PretrainingBatch:
        return self.batch(*self.place(index))

    def batch(self, epoch: int, step: int, micro_batch: int) -> PretrainingBatch:
        """The batch of a place; see ``PretrainingBatch`` for shapes."""
        config = self._config
        if epoch < 0 or not 0 <= step < self._plan.steps or not 0 <= micro_batch < config.micro_batches:
            raise IndexError(f"no batch at epoch {epoch}, step {step}, micro-batch {micro_batch}")
        block = micro_batch * self._world_size + self._rank
        rate = self._any_subset_rate(epoch, step, micro_batch)
        share = self._drawn_fraction(epoch, step, micro_batch) if rate is None else rate
        begin = step * config.advance
        lanes = self._plan.lanes(self._corpus, epoch, block)
        rows = []
        for row, lane in enumerate(lanes):
            draws = Draws(config.seed, _ROW_DRAW, epoch, step, block * config.batch_size + row)
            rows.append(build_sequence(lane, begin, config, share, self._vocabulary, draws, rate is not None))
        # What an any-subset batch leaves in memory has seen what the next sequence asks for.
        alone = rate is not None or (step > 0 and self._any_subset_rate(epoch, step - 1, micro_batch) is not None)
        resets = [alone or self._resets(begin, lane) for lane in lanes]
        return _collate(rows, [lane.direction for lane in lanes], resets)

    # Both depend on no rank: the batches of all processes have the same shape.

    def _drawn_fraction(self, epoch: int, step: int, micro_batch: int) -> float:
        shares = self._config.predict_fraction
        drawn = Draws(self._config.seed, _FRACTION_DRAW, epoch, step, micro_batch).below(len(shares))
        return shares[drawn]

    def _any_subset_rate(self, epoch: int, step: int, micro_batch: int) -> float | None:
        """Share of the tokens that an any-subset batch hides; None for a batch that follows ``order_kind``."""
        config = self._config
        if config.any_subset.share == 0:
            return None
        draws = Draws(config.seed, _ANY_SUBSET_DRAW, epoch, step)
        return config.any_subset.rates(epoch * self._plan.steps + step, config.micro_batches, draws)[micro_batch]

    def _resets(self, begin: int, lane: Lane) -> bool:
        rule = self._config.reset_memory
        if rule == "never":
            return False
        return begin == 0 or (rule == "document" and lane.passes_document_end(begin - self._config.advance, begin))


def corpus_fingerprint(corpus: TokenCorpus) -> str:
    """Length, tokenizer and a checksum over samples of the tokens: tells corpora apart without reading them whole."""
    length = len(corpus)
    checksum = 0
    for place in np.linspace(0, max(0, length - 64), num=64, dtype=np.int64).tolist():
        checksum = zlib.crc32(np.asarray(corpus.tokens[place : place + 64], dtype="<i8").tobytes(), checksum)
    return f"{corpus.split}, {length} tokens, tokenizer {corpus.manifest.tokenizer_fingerprint}, sample {checksum:08x}"


def _collate(rows: list[Sequence], directions: list[int], resets: list[bool]) -> PretrainingBatch:
    """Stack rows; rows with fewer targets are filled up with unused places."""
    most = max(1, max(len(row.target_positions) for row in rows))
    positions = np.full((len(rows), most), NO_TARGET, dtype=np.int64)
    labels = np.full((len(rows), most), IGNORED_LABEL, dtype=np.int64)
    for place, row in enumerate(rows):
        count = len(row.target_positions)
        positions[place, :count] = row.target_positions
        labels[place, :count] = row.input_ids[row.target_positions]
    return PretrainingBatch(
        input_ids=torch.from_numpy(np.stack([row.input_ids for row in rows])),
        token_type_ids=torch.from_numpy(np.stack([row.token_type_ids for row in rows])),
        order=torch.from_numpy(np.stack([row.order for row in rows])),
        target_positions=torch.from_numpy(positions),
        labels=torch.from_numpy(labels),
        direction=torch.tensor(directions, dtype=torch.int64),
        reset_memory=torch.tensor(resets, dtype=torch.bool),
    )
