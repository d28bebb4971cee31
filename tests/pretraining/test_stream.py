"""The stream: what a batch holds, which text a lane reads, and that any batch can be had again exactly."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.batch import PretrainingBatch
from xlnet.errors import ConfigurationError, InputError, MachineError
from xlnet.pretraining.corpus import TokenCorpus
from xlnet.pretraining.fixed_batches import evaluation_batches
from xlnet.pretraining.lanes import LanePlan, largest_batch
from xlnet.pretraining.spans import words_of
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig, target_count

SPECIAL_IDS = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6, "eod": 7, "eop": 8}
VOCAB_SIZE = 60
STARTS_WORD = np.arange(VOCAB_SIZE) % 3 != 1
SMALL = StreamConfig(seq_len=24, reuse_len=10, batch_size=2, seed=3)


def corpus_of(length: int, seed: int = 0, special: tuple[int, ...] = ()) -> TokenCorpus:
    """Random ids 9 ... V - 1 with ``<eod>`` at document ends; some of ``special`` strewn in."""
    random = np.random.default_rng(seed)
    tokens = random.integers(9, VOCAB_SIZE, size=length)
    ends = random.random(length) < 0.15
    documents = np.flatnonzero(ends)[4::5]
    tokens[documents] = SPECIAL_IDS["eod"]
    if special:
        tokens[random.random(length) < 0.1] = random.choice(special)
    return TokenCorpus.from_arrays(tokens, ends, documents + 1, vocab_size=VOCAB_SIZE, special_ids=SPECIAL_IDS)


def stream_of(corpus: TokenCorpus, config: StreamConfig, **more: int) -> PermutationStream:
    return PermutationStream(corpus, config, STARTS_WORD, **more)


def equal(a: PretrainingBatch, b: PretrainingBatch) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))


def epoch_of(stream: PermutationStream, epoch: int = 0) -> Iterator[tuple[int, int, PretrainingBatch]]:
    for step in range(stream.steps_per_epoch):
        for micro_batch in range(stream.config.micro_batches):
            yield step, micro_batch, stream.batch(epoch, step, micro_batch)


@st.composite
def configs(draw: st.DrawFn) -> StreamConfig:
    reuse = draw(st.integers(0, 20))
    length = reuse + draw(st.integers(5, 30))
    kind = draw(st.sampled_from(["permutation", "permutation", "lattice", "left_to_right", "masked"]))
    shares = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=3)
    return StreamConfig(
        seq_len=length,
        reuse_len=reuse,
        perm_size=draw(st.integers(0, max(reuse, length - reuse))) if kind == "permutation" else 0,
        batch_size=draw(st.integers(1, 5)),
        micro_batches=draw(st.integers(1, 3)),
        bidirectional=draw(st.booleans()),
        consecutive_probability=draw(st.sampled_from([0.0, 0.5, 1.0])),
        predict_fraction=(1.0,) if kind == "left_to_right" else tuple(draw(shares)),
        max_span=draw(st.integers(1, 6)),
        span_rule=draw(st.sampled_from(["whole_word", "pieces"])),
        order_kind=kind,
        reset_memory=draw(st.sampled_from(["lane", "document", "never"])),
        seed=draw(st.integers(0, 2**40)),
    )


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


@settings(max_examples=60, deadline=None)
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


def lanes_of(plan: LanePlan, corpus: TokenCorpus, epoch: int) -> list[list[tuple[int, int]]]:
    return [[(lane.start, lane.direction) for lane in plan.lanes(corpus, epoch, b)] for b in range(plan.blocks)]


@settings(deadline=None)
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
    orders = [tuple(row) for s in (one, two) for micro in (0, 1) for row in s.batch(0, 0, micro).order.tolist()]
    assert len(set(orders)) == 8  # no two lanes share their draws


@settings(max_examples=25, deadline=None)
@given(configs(), st.integers(0, 40))
def test_a_restored_stream_gives_the_exact_next_batches(config: StreamConfig, place: int) -> None:
    corpus = corpus_of(500 + config.batch_size * config.micro_batches * config.window)
    stream = stream_of(corpus, config)
    for _ in range(place):
        next(stream)
    state = json.loads(json.dumps(stream.state()))
    again = stream_of(corpus, config)
    next(again)
    again.restore(state)
    assert again.state() == stream.state() and again.epoch == stream.epoch
    assert all(equal(next(stream), next(again)) for _ in range(5))


def test_order_of_micro_batches_and_epochs() -> None:
    stream = stream_of(corpus_of(200), dataclasses.replace(SMALL, micro_batches=2))
    places = []
    for _ in range(2 * stream.steps_per_epoch * 2 + 1):
        state = stream.state()
        places.append((state["epoch"], state["step"], state["micro_batch"]))
        assert equal(next(stream), stream.batch(*places[-1]))
    expected = itertools.product(range(3), range(stream.steps_per_epoch), range(2))
    assert places == list(itertools.islice(expected, len(places)))
    assert stream.tokens_per_epoch == stream.steps_per_epoch * 2 * 2 * 24


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"seq_len": 25}, {"predict_fraction": (0.5,)}, {"span_rule": "pieces"}, {"micro_batches": 2}],
)
def test_a_state_of_other_settings_is_refused_with_both_values(change: dict) -> None:
    corpus = corpus_of(500)
    state = stream_of(corpus, SMALL).state()
    other = stream_of(corpus, dataclasses.replace(SMALL, **change))
    key = next(iter(change))
    values = [json.dumps(v) if isinstance(v, list) else repr(v) for v in (state["settings"][key],)]
    with pytest.raises(InputError) as caught:
        other.restore(state)
    message = str(caught.value)
    assert f"{key}={values[0]}" in message and f"now {key}=" in message


def test_a_state_of_another_corpus_or_a_damaged_one_is_refused() -> None:
    stream = stream_of(corpus_of(500, seed=1), SMALL)
    with pytest.raises(InputError, match="corpus='train, 500 tokens"):
        stream.restore(stream_of(corpus_of(500, seed=2), SMALL).state())
    for damage in ({"step": 10**6}, {"epoch": -1}, {"micro_batch": 1}):
        with pytest.raises(InputError, match="damaged"):
            stream.restore({**stream.state(), **damage})
    for key in ("step", "settings"):
        state = stream.state()
        del state[key]
        with pytest.raises(InputError, match="damaged: it must hold"):
            stream.restore(state)


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


def wrongly_labelled(corpus: TokenCorpus) -> TokenCorpus:
    """A corpus whose shards hold ids that its manifest denies."""
    corpus.manifest = dataclasses.replace(corpus.manifest, vocab_size=VOCAB_SIZE)
    return corpus


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


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"seq_len": 260}, "seq_len must be at least reuse_len [+] 5.*seq_len >= 261 or reuse_len <= 255"),
        ({"perm_size": 300}, "perm_size=300 .* at most 256"),
        ({"perm_size": 8, "order_kind": "lattice"}, "leave it at 0"),
        ({"order_kind": "left_to_right"}, r"set predict_fraction=\[1.0\]"),
        ({"order_kind": "permutaton"}, "Did you mean 'permutation'"),
        ({"span_rule": "words"}, "one of whole_word, pieces"),
        ({"reset_memory": "always"}, "one of lane, document, never"),
        ({"predict_fraction": (0.0,)}, "above 0 and at most 1"),
        ({"predict_fraction": (1.5,)}, "above 0 and at most 1"),
        ({"predict_fraction": (float("nan"),)}, "above 0 and at most 1"),
        ({"predict_fraction": ()}, "is empty"),
        ({"consecutive_probability": 1.1}, "from 0 to 1"),
        ({"consecutive_probability": "half"}, "from 0 to 1"),
        ({"predict_fraction": "1/6"}, "above 0 and at most 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": 1.5}, "whole number"),
        ({"micro_batches": True}, "whole number"),
        ({"reuse_len": -1}, "at least 0"),
        ({"seed": -1}, "at least 0"),
        ({"max_span": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_rule(change: dict, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        StreamConfig(**change)


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


@pytest.mark.slow
def test_background_workers_change_nothing() -> None:
    corpus = corpus_of(300)
    plain, busy = stream_of(corpus, SMALL), stream_of(corpus, SMALL, workers=2)
    assert all(equal(next(plain), next(busy)) for _ in range(20))
    state = busy.state()
    rest = [next(busy) for _ in range(3)]
    busy.restore(state)
    assert all(equal(batch, next(busy)) for batch in rest)
    busy.close()


@pytest.mark.slow
def test_a_worker_that_dies_is_a_clear_error_and_the_stream_goes_on() -> None:
    corpus = corpus_of(300)
    stream = stream_of(corpus, SMALL, workers=1)
    next(stream)
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
    taken = 1
    with pytest.raises(MachineError, match="workers=0"):
        for _ in range(20):  # what was prepared before still arrives
            next(stream)
            taken += 1
    plain = stream_of(corpus, SMALL)
    following = list(itertools.islice(plain, taken + 1))[-1]
    assert equal(next(stream), following)
    stream.close()
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_killed_program_leaves_no_worker_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time, multiprocessing\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "from test_stream import SMALL, corpus_of, stream_of\n"
        "if __name__ == '__main__':\n"
        "    stream = stream_of(corpus_of(300), SMALL, workers=1)\n"
        "    next(stream)\n"
        "    print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        program.kill()
    for _ in range(100):
        if not is_alive(worker):
            return
        time.sleep(0.1)
    raise AssertionError(f"worker {worker} is still there")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


@pytest.mark.slow
def test_an_error_in_a_worker_arrives_as_it_is() -> None:
    corpus = TokenCorpus.from_arrays(np.full(60, 99), [60], vocab_size=100, special_ids=SPECIAL_IDS)
    stream = stream_of(wrongly_labelled(corpus), SMALL, workers=1)
    with pytest.raises(InputError, match=r"^Token 0 of .* id 99"):
        next(stream)
    stream.close()
