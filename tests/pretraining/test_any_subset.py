"""Any-subset batches: random words in lattice order, alone in memory, at rates that widen and spread over a step."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_helpers import SMALL, STARTS_WORD, configs, corpus_of, epoch_of, equal, restarted, stream_of

from xlnet.batch import PretrainingBatch
from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError
from xlnet.model import XLNetLMHeadModel
from xlnet.pretraining.any_subset import AnySubsetConfig
from xlnet.pretraining.draws import Draws
from xlnet.pretraining.evaluate import HeldOutLoss
from xlnet.pretraining.fixed_batches import evaluation_batches
from xlnet.pretraining.pretrain import check_shapes
from xlnet.pretraining.spans import random_words
from xlnet.pretraining.stream_config import StreamConfig, target_count

MIXED = dataclasses.replace(
    SMALL, micro_batches=4, any_subset=AnySubsetConfig(share=0.5, low=0.1, high=0.9, start=0.2, widen_steps=12)
)
ALL = dataclasses.replace(SMALL, any_subset=AnySubsetConfig(share=1.0))


@st.composite
def mixes(draw: st.DrawFn) -> StreamConfig:
    """Any setting of the stream, mixed with any-subset batches."""
    config = draw(configs())
    low, high = sorted((draw(st.floats(0.01, 1.0)), draw(st.floats(0.01, 1.0))))
    steps = draw(st.integers(0, 10))
    mix = AnySubsetConfig(
        share=draw(st.sampled_from([0.2, 0.5, 1.0])), low=low, high=high, widen_steps=steps,
        start=draw(st.floats(0.01, 1.0)) if steps else 0.15,
    )  # fmt: skip
    reset = "lane" if config.reset_memory == "never" else config.reset_memory
    return dataclasses.replace(config, any_subset=mix, reset_memory=reset)


def is_any_subset(batch: PretrainingBatch, config: StreamConfig) -> bool:
    """Whether targets of both parts follow each other from 1 on, which no other kind of a reused part has."""
    targets = batch.target_positions[0]
    order = batch.order[0, targets[targets >= 0]]
    context = torch.ones(config.seq_len, dtype=torch.bool)
    context[targets[targets >= 0]] = False
    return torch.equal(order, torch.arange(1, len(order) + 1)) and not batch.order[0, context].any()


@settings(max_examples=25, deadline=None)
@given(mixes(), st.integers(0, 40))
def test_a_restored_stream_gives_the_exact_next_batches(config: StreamConfig, place: int) -> None:
    stream, again, state = restarted(config, place)
    assert len(state) < 1000
    assert all(equal(next(stream), next(again)) for _ in range(8))


@settings(max_examples=25, deadline=None)
@given(mixes(), st.integers(0, 3))
def test_rows_ask_for_as_many_whole_words_in_ascending_order(config: StreamConfig, epoch: int) -> None:
    config = dataclasses.replace(config, any_subset=dataclasses.replace(config.any_subset, share=1.0))
    corpus = corpus_of(600 + config.batch_size * config.micro_batches * config.window)
    stream = stream_of(corpus, config)
    for step in range(min(4, stream.steps_per_epoch)):
        batch = stream.batch(epoch, step)
        low, high = config.any_subset.interval(epoch * stream.steps_per_epoch + step)
        available = config.seq_len - 3
        fewest, most = target_count(min(low, high), available), target_count(max(low, high), available)
        assert fewest <= batch.target_positions.shape[1] <= most and (batch.target_positions >= 0).all()
        assert is_any_subset(batch, config) and batch.reset_memory.all()
        assert torch.equal(batch.labels, batch.input_ids.gather(1, batch.target_positions))


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 99)
)
def test_random_words_are_exact_in_number_and_break_at_most_one_word(
    pieces: list[tuple[bool, bool]], goal: int, seed: int
) -> None:
    starts, maskable = (np.array(flags) for flags in zip(*pieces, strict=True))
    goal = min(goal, int(maskable.sum()))
    mask = random_words(starts, maskable, goal, Draws(seed))
    assert mask.sum() == goal and not (mask & ~maskable).any()
    units: list[list[bool]] = []
    for place in np.flatnonzero(maskable):
        if starts[place] or place == 0 or not maskable[place - 1]:
            units.append([])
        units[-1].append(bool(mask[place]))
    assert sum(any(unit) and not all(unit) for unit in units) <= 1


def test_every_token_is_hidden_about_as_often() -> None:
    starts = STARTS_WORD[corpus_of(40, seed=1).tokens[0:40]]
    maskable = np.ones(40, dtype=np.bool_)
    maskable[20] = False
    hidden = sum(random_words(starts, maskable, 20, Draws(seed)).astype(float) for seed in range(2000)) / 2000
    assert np.abs(hidden[maskable] - 20 / 39).max() < 0.07  # standard error 0.011; long words are a little rarer


def test_random_words_come_neither_in_spans_nor_in_windows() -> None:
    """Neighbouring words are hidden independently: runs of hidden words are as long as chance has it."""
    everywhere = np.ones(400, dtype=np.bool_)
    both = np.zeros(2)
    for seed in range(50):
        mask = random_words(everywhere, everywhere, 200, Draws(seed))
        both += [np.mean(mask[1:] & mask[:-1]), np.mean(mask[10:] & mask[:-10])]
    assert np.abs(both / 50 - 0.25).max() < 0.02


def test_the_interval_widens_linearly_and_stays() -> None:
    mix = AnySubsetConfig(share=1.0, low=0.05, high=0.95, start=0.15, widen_steps=10)
    assert mix.interval(0) == pytest.approx((0.15, 0.15))
    assert mix.interval(5) == pytest.approx((0.10, 0.55))
    assert mix.interval(10) == mix.interval(1000) == pytest.approx((0.05, 0.95))
    assert mix.at_full_width().interval(0) == pytest.approx((0.05, 0.95))
    assert AnySubsetConfig().at_full_width() == AnySubsetConfig()


def test_each_micro_batch_of_a_step_has_a_bin_of_its_own() -> None:
    mix = AnySubsetConfig(share=1.0, low=0.2, high=1.0)
    for step in range(50):
        rates = sorted(rate for rate in mix.rates(step, 4, Draws(step)) if rate is not None)
        assert [int((rate - 0.2) / 0.2) for rate in rates] == [0, 1, 2, 3]


@pytest.mark.parametrize(("share", "micro_batches"), [(0.5, 1), (0.5, 4), (0.3, 4), (0.1, 3)])
def test_the_share_is_kept_on_average_and_every_micro_batch_has_its_turn(share: float, micro_batches: int) -> None:
    mix = AnySubsetConfig(share=share)
    taken = np.array([[r is not None for r in mix.rates(s, micro_batches, Draws(7, s))] for s in range(3000)])
    assert np.abs(taken.mean(axis=0) - share).max() < 0.04  # standard error below 0.0092
    per_step = taken.sum(axis=1)
    assert per_step.min() >= int(share * micro_batches) and per_step.max() <= int(share * micro_batches) + 1


def test_the_curriculum_goes_on_over_epochs_and_the_rest_is_as_without_it() -> None:
    corpus = corpus_of(400)
    stream, plain = stream_of(corpus, MIXED), stream_of(corpus, dataclasses.replace(SMALL, micro_batches=4))
    assert stream.steps_per_epoch < 12
    rates: dict[int, list[float]] = {}
    same = 0
    for epoch in range(3):
        for step, micro_batch, batch in epoch_of(stream, epoch):
            if is_any_subset(batch, MIXED):
                share = batch.target_positions.shape[1] / 21
                rates.setdefault(epoch * stream.steps_per_epoch + step, []).append(share)
            else:
                other = plain.batch(epoch, step, micro_batch)
                same += 1
                assert torch.equal(batch.order, other.order) and torch.equal(batch.input_ids, other.input_ids)
    assert same > 0 and all(len(found) == 2 for found in rates.values())
    assert all(abs(found - 0.2) < 0.03 for found in rates[0])  # 4 of 21
    for found in (sorted(rates[step]) for step in rates if step >= 12):
        assert 0.09 <= found[0] <= 0.53 and 0.47 <= found[1] <= 0.91  # either bin, rounded to a token


def test_memory_is_empty_at_an_any_subset_batch_and_after_it() -> None:
    stream = stream_of(corpus_of(2000), dataclasses.replace(MIXED, micro_batches=1))
    kinds, resets = [], []
    for _, _, batch in epoch_of(stream):
        kinds.append(is_any_subset(batch, MIXED))
        resets.append(batch.reset_memory.tolist())
    assert {True, False} == set(kinds)
    after = [True, *kinds[:-1]]
    assert resets == [[kind or before] * 2 for kind, before in zip(kinds, after, strict=True)]


@pytest.mark.slow
def test_background_workers_change_nothing() -> None:
    corpus = corpus_of(400)
    plain, busy = stream_of(corpus, MIXED), stream_of(corpus, MIXED, workers=2)
    assert all(equal(next(plain), next(busy)) for _ in range(20))
    busy.close()


def test_all_processes_have_batches_of_the_same_kind_and_shape() -> None:
    corpus = corpus_of(1000)
    ranks = [stream_of(corpus, MIXED, rank=rank, world_size=2) for rank in range(2)]
    for step in range(5):
        for micro_batch in range(4):
            one, two = (stream.batch(0, step, micro_batch) for stream in ranks)
            assert one.target_positions.shape == two.target_positions.shape
            assert is_any_subset(one, MIXED) == is_any_subset(two, MIXED)
            assert not torch.equal(one.input_ids, two.input_ids)


def test_a_state_saved_before_there_were_any_subset_batches_is_still_good() -> None:
    corpus = corpus_of(400)
    stream = stream_of(corpus, SMALL)
    state = stream.state()
    del state["settings"]["any_subset"]
    stream.restore(state)
    with pytest.raises(Exception, match=re.escape("any_subset={'share': 0.0")):
        stream_of(corpus, ALL).restore(state)


def test_evaluation_takes_the_whole_interval_from_the_start() -> None:
    config = dataclasses.replace(
        SMALL, any_subset=AnySubsetConfig(share=1.0, low=0.9, high=1.0, start=0.1, widen_steps=1000)
    )
    batches = evaluation_batches(corpus_of(400), config, STARTS_WORD, 5)
    assert all(batch.target_positions.shape[1] >= 19 for batch in batches)


def test_held_out_loss_reports_both_objectives() -> None:
    config = XLNetConfig(
        vocab_size=60, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=32, mem_len=8, reuse_len=10, dropout=0.0
    )
    model = XLNetLMHeadModel(config).eval()
    plain, subsets = (evaluation_batches(corpus_of(400), kind, STARTS_WORD, 3) for kind in (SMALL, ALL))
    with torch.no_grad():
        metrics = HeldOutLoss(plain, config, subsets)(model)
        assert metrics["loss"] == HeldOutLoss(plain, config)(model)["loss"]
        assert metrics["any_subset_loss"] == HeldOutLoss(subsets, config)(model)["loss"] != metrics["loss"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"share": 1.5}, "any_subset.share=1.5 must be a share from 0 to 1"),
        ({"share": "half"}, "from 0 to 1"),
        ({"share": True}, "from 0 to 1"),
        ({"share": float("nan")}, "from 0 to 1"),
        ({"share": 0.5, "low": 0.0}, "any_subset.low=0.0 must be a share from above 0 to 1"),
        ({"share": 0.5, "high": 1.1}, "any_subset.high=1.1 must be"),
        ({"share": 0.5, "low": 0.9, "high": 0.5}, "low must be at most high"),
        ({"share": 0.5, "widen_steps": -1}, "whole number of at least 0"),
        ({"share": 0.5, "widen_steps": 2.5}, "whole number of at least 0"),
        ({"share": 0.5, "start": 0.3}, "start=0.3 has no effect while any_subset.widen_steps=0: set"),
        ({"low": 0.2}, "low=0.2 has no effect while any_subset.share=0: set any_subset.share above 0"),
        ({"widen_steps": 10}, "widen_steps=10 has no effect while any_subset.share=0"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_rule(change: dict, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(rule)):
        AnySubsetConfig(**change)


def test_settings_that_contradict_the_mix_are_refused() -> None:
    mix = AnySubsetConfig(share=0.5)
    with pytest.raises(ConfigurationError, match=r"reset_memory='never' contradicts any_subset.share=0.5"):
        StreamConfig(any_subset=mix, reset_memory="never")
    with pytest.raises(ConfigurationError, match=r"attn_type='uni'.*contradicts any_subset.share=0.5"):
        check_shapes(
            XLNetConfig(attn_type="uni"),
            StreamConfig(order_kind="left_to_right", predict_fraction=(1.0,), any_subset=mix),
        )
