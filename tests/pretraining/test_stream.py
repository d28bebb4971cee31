"""What a batch of the stream holds, for any setting and corpus."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_helpers import (
    SMALL,
    SPECIAL_IDS,
    STARTS_WORD,
    configs,
    corpus_of,
    epoch_of,
    equal,
    stream_of,
    wrongly_labelled,
)

from xlnet.batch import PretrainingBatch
from xlnet.errors import ConfigurationError, InputError
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.fixed_batches import evaluation_batches
from xlnet.pretraining.lanes import largest_batch
from xlnet.pretraining.spans import words_of
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig, target_count


def check_batch(batch: PretrainingBatch, config: StreamConfig) -> None:
    """Everything that holds for each batch of any setting."""
    rows, length, reuse = config.batch_size, config.seq_len, config.reuse_len
    ids, types, order = (t.numpy() for t in (batch.input_ids, batch.token_type_ids, batch.order))
    assert ids.shape == types.shape == order.shape == (rows, length)
    assert {t.dtype for t in (batch.input_ids, batch.order, batch.labels, batch.direction)} == {torch.int64}
    assert batch.reset_memory.dtype == torch.bool and batch.direction.shape == (rows,)
    functional = np.isin(ids, [3, 4, 5])
    for row in range(rows):
        first = int(np.argmax(types[row] == 1)) - 1
        assert reuse < first < length - 3  # A and B have a token at least
        assert (ids[row, first], ids[row, -2], ids[row, -1]) == (4, 4, 3)
        assert (np.diff(types[row]) >= 0).all() and (types[row] == 2).sum() == 1
        places = batch.target_positions[row].numpy()
        used = places[places >= 0]
        assert np.array_equal(used, np.unique(used)) and (places[len(used) :] == -1).all()
        assert not functional[row, used].any()
        available = int((~functional[row]).sum())
        counts = [target_count(share, available) for share in config.predict_fraction]
        assert len(used) in counts
        reusable = int((~functional[row, :reuse]).sum())
        assert (used < reuse).sum() == len(used) * reusable // max(1, available)
        labels = batch.labels[row].numpy()
        assert np.array_equal(labels[: len(used)], ids[row, used]) and (labels[len(used) :] == -100).all()
        if reuse:
            assert order[row, :reuse].max() < order[row, reuse:].min()
    assert batch.target_positions.shape == batch.labels.shape


@settings(max_examples=40, deadline=None)
@given(configs(), st.integers(0, 600), st.booleans(), st.integers(0, 5))
def test_any_setting_works_on_any_corpus_or_says_why_not(
    config: StreamConfig, length: int, strewn: bool, epoch: int
) -> None:
    corpus = corpus_of(length, seed=length, special=(4, 3) if strewn else ())
    best = largest_batch(length, config)
    if config.batch_size > best:
        with pytest.raises(InputError, match=f"corpus has {length} tokens"):
            stream_of(corpus, config)
        if best == 0:
            return
        config = dataclasses.replace(config, batch_size=best)  # what the message offers
    stream = stream_of(corpus, config)
    steps = list(itertools.islice(epoch_of(stream, epoch), 6))
    for step, micro_batch, batch in steps:
        check_batch(batch, config)
        assert equal(batch, stream_of(corpus, config).batch(epoch, step, micro_batch))
    assert stream.steps_per_epoch >= 1 and stream.describe()


def test_every_small_geometry_works_or_is_refused() -> None:
    corpus = corpus_of(60)
    worked = refused = 0
    for length, reuse, perm_size in itertools.product(range(1, 13), range(10), (0, 1, 2, 3, 5, 8, 13)):
        try:
            config = StreamConfig(seq_len=length, reuse_len=reuse, perm_size=perm_size, batch_size=3)
        except ConfigurationError:
            refused += 1
            assert length < reuse + 5 or perm_size > max(reuse, length - reuse)
            continue
        assert length >= reuse + 5
        worked += 1
        for _, _, batch in itertools.islice(epoch_of(stream_of(corpus, config)), 2):
            check_batch(batch, config)
    assert worked > 150 and refused > 150


def test_draws_are_new_each_epoch_and_the_same_each_time() -> None:
    corpus = corpus_of(300)
    config = dataclasses.replace(SMALL, bidirectional=False)
    one, two = stream_of(corpus, config), stream_of(corpus, config)
    assert all(equal(next(one), next(two)) for _ in range(50))
    first, second = one.batch(0, 3), one.batch(1, 3)
    assert torch.equal(first.input_ids[:, :10], second.input_ids[:, :10])  # the same text ...
    assert not torch.equal(first.target_positions, second.target_positions)  # ... but other targets
    assert not torch.equal(first.order, second.order)
    other = stream_of(corpus, dataclasses.replace(config, seed=4)).batch(0, 3)
    assert not torch.equal(first.order, other.order)
    rows = {tuple(one.batch(0, step).order[row].tolist()) for step in range(5) for row in range(2)}
    assert len(rows) == 10


def test_each_micro_batch_draws_one_of_the_fractions() -> None:
    config = dataclasses.replace(SMALL, predict_fraction=(0.2, 0.5, 1.0))
    stream = stream_of(corpus_of(900), config)
    counts = [
        int((stream.batch(epoch, step).target_positions >= 0).sum(1)[0]) for epoch in range(8) for step in range(40)
    ]
    other = stream_of(corpus_of(900), dataclasses.replace(config, seed=4))
    assert [stream.batch(0, n).labels.shape for n in range(20)] != [other.batch(0, n).labels.shape for n in range(20)]
    expected = [target_count(share, 21) for share in config.predict_fraction]
    shares = [counts.count(value) / len(counts) for value in expected]
    assert sum(shares) == 1.0 and all(abs(share - 1 / 3) < 0.1 for share in shares)  # standard error 0.026


def test_targets_are_whole_words_in_reading_direction_of_people() -> None:
    config = dataclasses.replace(SMALL, seq_len=90, reuse_len=40, batch_size=6)
    stream = stream_of(corpus_of(6000), config)
    broken, words = Counter[int](), Counter[int]()
    for _, _, batch in itertools.islice(epoch_of(stream), 40):
        for row, direction in enumerate(batch.direction.tolist()):
            target = np.zeros(90, dtype=bool)
            target[batch.target_positions[row].numpy()] = True
            ids = batch.input_ids[row].numpy()
            for part in (slice(0, 40), slice(40, 90)):
                read = ids[part][::direction]
                begins, ends = words_of(STARTS_WORD[read], ~np.isin(read, [3, 4]))
                hit = [target[part][::direction][b:e] for b, e in zip(begins, ends, strict=True)]
                broken[direction] += sum(0 < word.sum() < len(word) for word in hit)
                words[direction] += sum(word.all() for word in hit)
    assert words[1] > 800 and words[-1] > 800
    assert broken[1] < 0.01 * words[1] and broken[-1] < 0.01 * words[-1]  # only where no whole word makes the count


def test_the_papers_setting_has_85_targets_42_of_them_reused() -> None:
    batch = stream_of(corpus_of(4000), StreamConfig(batch_size=2)).batch(0, 0)
    assert ((batch.target_positions >= 0).sum(1) == 85).all()
    assert ((batch.target_positions < 256).sum(1) == 42).all()
    counts = [target_count(share, available) for share, available in ((1.0, 509), (0.5, 3), (0.001, 10), (0.5, 0))]
    assert counts == [509, 2, 1, 0]


def test_ids_outside_the_vocabulary_are_named() -> None:
    tokens = np.full(60, 10)
    tokens[30] = 99
    corpus = TokenCorpus.from_arrays(tokens, [60], vocab_size=100, special_ids=SPECIAL_IDS)
    with pytest.raises(InputError, match="vocabulary of 100 pieces, but starts_word describes 60"):
        stream_of(corpus, SMALL)
    with pytest.raises(InputError, match=r"Token .* has the id 99, but ids run from 0 to 59"):
        list(epoch_of(stream_of(wrongly_labelled(corpus), dataclasses.replace(SMALL, batch_size=1))))


def test_special_ids_must_be_known() -> None:
    corpus = TokenCorpus.from_arrays(np.full(60, 10), [60], vocab_size=60)
    with pytest.raises(InputError, match="<sep>, <cls> are not known"):
        stream_of(corpus, SMALL)
    assert PermutationStream(corpus, SMALL, STARTS_WORD, special_ids={"sep": 4, "cls": 3})
    with pytest.raises(InputError, match="<sep> has the id 60"):
        PermutationStream(corpus, SMALL, STARTS_WORD, special_ids={"sep": 60, "cls": 3})


def test_evaluation_batches_are_the_same_each_time_and_shrink_to_the_text() -> None:
    corpus = corpus_of(100)
    batches = evaluation_batches(corpus, dataclasses.replace(SMALL, batch_size=64, micro_batches=4), STARTS_WORD)
    assert batches.config.batch_size == 8 and len(batches) == 1
    assert all(equal(a, b) for a, b in zip(batches, batches, strict=True))
    few = evaluation_batches(corpus_of(1000), SMALL, STARTS_WORD, count=7)
    assert len(list(few)) == len(few) == 7
    assert [batch.reset_memory.any().item() for batch in few] == [True] + [False] * 6
    with pytest.raises(ConfigurationError, match="count=0"):
        evaluation_batches(corpus, SMALL, STARTS_WORD, count=0)
    with pytest.raises(InputError, match="Not even one lane"):
        evaluation_batches(corpus_of(5), SMALL, STARTS_WORD)
