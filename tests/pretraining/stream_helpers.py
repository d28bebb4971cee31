"""Small corpora, settings and streams that the tests of the stream share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import torch
from hypothesis import strategies as st

from xlnet.batch import PretrainingBatch
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig

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


def wrongly_labelled(corpus: TokenCorpus) -> TokenCorpus:
    """A corpus whose shards hold ids that its manifest denies."""
    corpus.manifest = dataclasses.replace(corpus.manifest, vocab_size=VOCAB_SIZE)
    return corpus


def restarted(config: StreamConfig, place: int) -> tuple[PermutationStream, PermutationStream, str]:
    """A stream after ``place`` batches, another that was brought to the same place, and the state that did it."""
    corpus = corpus_of(500 + config.batch_size * config.micro_batches * config.window)
    stream, again = stream_of(corpus, config), stream_of(corpus, config)
    for _ in range(place):
        next(stream)
    state = json.dumps(stream.state())
    next(again)
    again.restore(json.loads(state))
    return stream, again, state
