"""Lanes read their shares both ways; A and B fill a sequence exactly, at sentence borders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.draws import Draws
from xlnet.pretraining.segments import Lane, choose_pair


def corpus_of(sentences: list[int], documents: list[int] | tuple[int, ...] = ()) -> TokenCorpus:
    """Tokens are their own positions; ``sentences`` are lengths, ``documents`` are stops."""
    return TokenCorpus.from_arrays(np.arange(sum(sentences)), np.cumsum(sentences), list(documents))


@st.composite
def lanes(draw: st.DrawFn, least: int = 8) -> Lane:
    sentences = draw(st.lists(st.integers(1, 30), min_size=1, max_size=12))
    total = sum(sentences)
    if total < least:
        sentences, total = [*sentences, least], total + least
    start = draw(st.integers(0, total - least))
    length = draw(st.integers(least, total - start))
    return Lane(corpus_of(sentences), start, length, draw(st.sampled_from([1, -1])))


@settings(max_examples=50, deadline=None)
@given(lanes())
def test_a_reversed_lane_is_the_flipped_forward_lane(lane: Lane) -> None:
    forward = Lane(lane.corpus, lane.start, lane.length, 1)
    backward = Lane(lane.corpus, lane.start, lane.length, -1)
    whole = forward.tokens(0, lane.length)
    assert np.array_equal(whole, np.arange(lane.start, lane.start + lane.length))
    assert np.array_equal(backward.tokens(0, lane.length), whole[::-1])
    cut = lane.length // 3
    assert np.array_equal(backward.tokens(cut, lane.length - 1), whole[::-1][cut:-1])
    flags = forward.sentence_ids(0, lane.length)
    assert np.array_equal(backward.sentence_ids(cut, lane.length), flags[::-1][cut:])


@settings(max_examples=50, deadline=None)
@given(lanes(), st.data())
def test_pairs_fill_the_sequence_and_keep_to_the_lane(lane: Lane, data: st.DataObject) -> None:
    reuse = data.draw(st.integers(0, lane.length - 2))
    text = data.draw(st.integers(2, lane.length - reuse))
    begin = data.draw(st.integers(0, lane.length - reuse - text))
    draws = Draws(data.draw(st.integers(0, 2**32)))
    pair = choose_pair(lane, begin, reuse, text, data.draw(st.sampled_from([0.0, 0.5, 1.0])), draws)
    assert pair.a_len >= 1 and pair.b_len >= 1 and pair.a_len + pair.b_len == text
    assert pair.a_begin == begin + reuse
    assert pair.b_begin >= 0 and pair.b_begin + pair.b_len <= lane.length
    a_end = pair.a_begin + pair.a_len
    assert pair.b_begin >= a_end or pair.b_begin + pair.b_len <= begin  # never the sequence's own text
    assert pair.consecutive == (pair.b_begin == a_end)
    flags = lane.sentence_ids(pair.a_begin, pair.a_begin + text)
    ends = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    assert pair.a_len in ends if len(ends) else pair.a_len == (text + 1) // 2
    if not pair.consecutive and pair.b_begin > 0:
        whole = lane.sentence_ids(0, lane.length)
        starts = {0, *(np.flatnonzero(whole[1:] != whole[:-1]) + 1).tolist()}
        low, high = (0, begin - pair.b_len) if pair.b_begin < begin else (a_end, lane.length - pair.b_len)
        possible = [start for start in starts if low <= start <= high]
        assert pair.b_begin in starts or not possible


def test_half_of_the_pairs_are_consecutive_and_every_other_place_is_drawn() -> None:
    lane = Lane(corpus_of([10] * 100), 0, 1000, 1)
    pairs = [choose_pair(lane, 400, 20, 30, 0.5, Draws(7, i)) for i in range(4000)]
    share = sum(pair.consecutive for pair in pairs) / 4000
    assert 0.46 < share < 0.55  # 0.5 and a few random ones, standard error 0.008
    assert {pair.a_len for pair in pairs} == {10, 20}
    random = {pair.b_begin for pair in pairs if not pair.consecutive}
    # Sentence starts before the sequence that leave room for B, and all after A.
    assert random >= {*range(0, 381, 10), *range(440, 971, 10)}
    assert all(choose_pair(lane, 400, 20, 30, 1.0, Draws(7, i)).consecutive for i in range(200))
    assert not any(choose_pair(lane, 400, 20, 30, 0.0, Draws(8, i)).consecutive for i in range(20))


def test_a_lane_without_other_text_gives_consecutive_pairs() -> None:
    lane = Lane(corpus_of([5, 5, 5]), 0, 15, 1)
    for i in range(20):
        pair = choose_pair(lane, 0, 5, 10, 0.0, Draws(i))
        assert pair.consecutive and (pair.a_len, pair.b_begin) == (5, 10)


def test_recorded_pairs_obey_the_rules_that_ours_do(golden: Path) -> None:
    """The release's A starts where it is told, ends at a sentence or is cut to half, and B starts a sentence."""
    recorded = np.load(golden / "pretraining/split_a_and_b.npz")
    data, flags = recorded["data"].tolist(), recorded["sent_ids"]
    starts = {0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()}
    corpus = TokenCorpus.from_arrays(data, np.append(flags[1:] != flags[:-1], True))
    lane = Lane(corpus, 0, len(data), 1)
    ours_at_sentences = theirs_at_sentences = 0
    for (begin, total, a_len, b_len, label), b in zip(recorded["cases"].tolist(), recorded["b"].tolist(), strict=True):
        assert a_len + b_len == total
        places = [p for p in range(len(data) - b_len + 1) if data[p : p + b_len] == b[:b_len]]
        assert any(place in starts for place in places)
        assert not label or any(place >= begin + a_len for place in places)
        theirs_at_sentences += begin + a_len in starts
        pair = choose_pair(lane, begin, 0, total, float(label), Draws(begin))
        assert pair.a_len + pair.b_len == total and pair.a_begin == begin
        assert pair.consecutive or pair.b_begin in starts or pair.b_begin + pair.b_len >= begin
        ours_at_sentences += begin + pair.a_len in starts
        if not any(begin < start < begin + total for start in starts):
            assert abs(pair.a_len - pair.b_len) <= 1 and abs(a_len - b_len) <= 1
    assert ours_at_sentences >= theirs_at_sentences  # ours cuts a sentence only where there is no border at all


@pytest.mark.parametrize("direction", [1, -1])
def test_lanes_meet_document_ends_in_reading_order(direction: int) -> None:
    corpus = corpus_of([4, 4, 4], documents=[4, 8])
    lane = Lane(corpus, 0, 12, direction)
    documents = lane.tokens(0, 12) // 4
    for begin in range(1, 11):
        for end in range(begin + 1, 12):
            changed = len(set(documents[begin : end + 1])) > 1
            assert lane.passes_document_end(begin, end) == changed, (begin, end)


@pytest.mark.parametrize("case", ["uni", "bi"])
def test_lanes_read_what_the_recorded_batches_read(golden: Path, case: str) -> None:
    """Rows, shares, directions and the advance by the reused part equal the release's files."""
    from xlnet.pretraining.lanes import LanePlan
    from xlnet.pretraining.stream_config import StreamConfig

    recorded = np.load(golden / "pretraining/tfrecords.npz")
    flags = recorded[f"{case}/stream_sent_ids"]
    corpus = TokenCorpus.from_arrays(
        recorded[f"{case}/stream_data"], np.append(flags[1:] != flags[:-1], True), vocab_size=2000
    )
    config = StreamConfig(seq_len=64, reuse_len=32, batch_size=4, bidirectional=case == "bi")
    plan = LanePlan.make(len(corpus), config)
    records, types = recorded[f"{case}/input"], recorded[f"{case}/seg_id"]
    assert plan.steps == len(records) // 4
    rows = plan.lanes(corpus, 0, 0)
    for place, (ids, segments, label) in enumerate(
        zip(records, types, recorded[f"{case}/label"].reshape(-1), strict=True)
    ):
        step, row = divmod(place, 4)
        lane = rows[row]
        first = int(np.argmax(segments == 1)) - 1  # the first <sep>
        begin = step * config.advance
        assert np.array_equal(ids[:first], lane.tokens(begin, begin + first))
        assert (ids[first], ids[-2], ids[-1]) == (4, 4, 3)
        assert np.array_equal(np.unique(segments), [0, 1, 2]) and (segments[:-1] >= 0).all()
        assert (segments == 2).sum() == 1 and len(ids) == config.seq_len
        assert label in (0, 1)
