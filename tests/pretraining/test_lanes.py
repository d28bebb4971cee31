"""Which row reads which text, in which direction, and where its memory ends."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_helpers import (
    SMALL,
    SPECIAL_IDS,
    corpus_of,
    epoch_of,
    stream_of,
)

from xlnet.batch import PretrainingBatch
from xlnet.errors import InputError
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.lanes import LanePlan
from xlnet.pretraining.stream_config import StreamConfig


@pytest.mark.parametrize("direction", [True, False])
def test_a_lane_reads_its_share_in_order(direction: bool) -> None:
    corpus = corpus_of(500)
    config = dataclasses.replace(SMALL, bidirectional=direction, batch_size=4)
    stream = stream_of(corpus, config)
    share = 500 // (2 if direction else 4)
    before: PretrainingBatch | None = None
    for step, _, batch in epoch_of(stream):
        assert batch.direction.tolist() == ([1, 1, -1, -1] if direction else [1] * 4)
        for row in range(4):
            number = row % 2 if direction else row
            text = corpus.tokens[number * share : (number + 1) * share][:: int(batch.direction[row])]
            begin = step * config.advance
            assert np.array_equal(batch.input_ids[row, :10].numpy(), text[begin : begin + 10])
            if before is not None:  # the text of A comes again as reused part
                shown = int((before.token_type_ids[row] == 0).sum()) - 1
                again = min(10, shown - 10)
                assert torch.equal(before.input_ids[row, 10 : 10 + again], batch.input_ids[row, :again])
        before = batch
    assert share - ((stream.steps_per_epoch - 1) * config.advance + config.window) < config.advance


def test_without_reused_part_all_text_is_read_once() -> None:
    corpus = corpus_of(400)
    config = dataclasses.replace(SMALL, reuse_len=0, bidirectional=False, consecutive_probability=1.0)
    seen: dict[int, list[int]] = {0: [], 1: []}
    for _, _, batch in epoch_of(stream_of(corpus, config)):
        for row in range(2):
            ids, types = batch.input_ids[row], batch.token_type_ids[row]
            a, b = ids[types == 0][:-1], ids[types == 1][:-1]
            seen[row] += a.tolist() + b.tolist()
    for row in range(2):
        assert seen[row] == corpus.tokens[row * 200 : row * 200 + len(seen[row])].tolist()
        assert len(seen[row]) == 189  # 9 sequences of 21


def lanes_of(plan: LanePlan, corpus: TokenCorpus, epoch: int) -> list[list[tuple[int, int]]]:
    return [[(lane.start, lane.direction) for lane in plan.lanes(corpus, epoch, b)] for b in range(plan.blocks)]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_lanes_are_distinct_balanced_and_read_everything(batch: int, micro: int, world: int, both: bool) -> None:
    corpus = corpus_of(2000)
    config = dataclasses.replace(SMALL, batch_size=batch, micro_batches=micro, bidirectional=both)
    plan = LanePlan.make(len(corpus), config, world)
    read: Counter[tuple[int, int]] = Counter()
    for epoch in range(2 * plan.share_count):
        blocks = lanes_of(plan, corpus, epoch)
        every = [lane for block in blocks for lane in block]
        assert len(set(every)) == len(every) == batch * micro * world
        assert blocks == lanes_of(plan, corpus, epoch)  # a micro-batch keeps its lanes for the whole epoch
        for block in blocks:
            backwards = [direction for _, direction in block].count(-1)
            assert backwards in ((batch // 2, (batch + 1) // 2) if both else (0,))
            assert [direction for _, direction in block] == [1] * (batch - backwards) + [-1] * backwards
        read.update(every)
    shares = {start for start, _ in read}
    assert shares == {n * plan.share_length for n in range(plan.share_count)}
    assert len(read) == plan.share_count * (2 if both else 1)
    assert len(set(read.values())) == 1  # in the long run each share is read equally often each way
    assert len(corpus) - plan.share_count * plan.share_length < plan.share_count


def test_a_single_row_reads_forwards_and_backwards_in_turn() -> None:
    stream = stream_of(corpus_of(200), dataclasses.replace(SMALL, batch_size=1))
    assert [int(stream.batch(epoch, 0).direction) for epoch in range(4)] == [1, -1, 1, -1]


def test_processes_read_different_lanes_with_equal_shapes() -> None:
    corpus = corpus_of(1000)
    config = dataclasses.replace(SMALL, predict_fraction=(0.2, 0.7), micro_batches=2)
    one, two = (stream_of(corpus, config, rank=rank, world_size=2) for rank in (0, 1))
    for _ in range(20):
        a, b = next(one), next(two)
        assert a.labels.shape == b.labels.shape
        assert not torch.equal(a.input_ids, b.input_ids)
    everything = dataclasses.replace(config, predict_fraction=(1.0,))  # then the order shows the draws alone
    streams = [stream_of(corpus, everything, rank=rank, world_size=2) for rank in (0, 1)]
    orders = [tuple(row) for s in streams for micro in (0, 1) for row in s.batch(0, 0, micro).order.tolist()]
    assert len(set(orders)) == 8  # no two lanes share their draws


def test_memory_is_reset_by_the_chosen_rule() -> None:
    tokens = np.arange(9, 59).repeat(8)  # 400 tokens
    corpus = TokenCorpus.from_arrays(tokens, np.arange(5, 401, 5), [95, 200], vocab_size=60, special_ids=SPECIAL_IDS)
    resets = {}
    for rule in ("lane", "document", "never"):
        config = dataclasses.replace(SMALL, reset_memory=rule, batch_size=2)
        stream = stream_of(corpus, config)
        resets[rule] = np.array([stream.batch(0, step).reset_memory.numpy() for step in range(stream.steps_per_epoch)])
    assert resets["lane"][0].all() and not resets["lane"][1:].any() and not resets["never"].any()
    # Forwards the sequence that begins at 100 is the first whose earlier text [90, 100) ended a document at 94.
    assert np.flatnonzero(resets["document"][:, 0]).tolist() == [0, 10, 20]
    # Backwards token 199 is reached after 200 tokens, token 94 after 305: seen by sequences beginning at 200 and 310.
    assert np.flatnonzero(resets["document"][:, 1]).tolist() == [0, 20, 31]


def test_too_short_a_corpus_says_what_there_is_and_what_would_do() -> None:
    with pytest.raises(InputError) as caught:
        stream_of(corpus_of(100), dataclasses.replace(SMALL, batch_size=20))
    assert all(part in str(caught.value) for part in ("100 tokens", "needs 21", "20 lanes", "at most 8"))
    with pytest.raises(InputError, match=r"Not even one lane fits.*seq_len to at most 13"):
        stream_of(corpus_of(10), SMALL)
    stream_of(corpus_of(10), StreamConfig(seq_len=13, reuse_len=5, batch_size=1))
    with pytest.raises(InputError, match="0 tokens"):
        stream_of(corpus_of(0), SMALL)
