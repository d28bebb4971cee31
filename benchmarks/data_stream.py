"""Tokens per second of the pretraining data path, on one core, without a model.

The figure per CPU second holds on a busy machine too; the other one is by the clock.

    python benchmarks/data_stream.py [--seconds 5] [--seq-len 512] [--fraction 0.1667] [--rule whole_word]

The corpus is made up: words of 1 to 5 pieces (1.45 on average), sentences of about 25 tokens, documents of about 40
sentences. It lies in memory, so reading from a cold disk is not part of the figure.
"""

from __future__ import annotations

import argparse
import os
import platform
import time

import numpy as np

from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig

VOCAB_SIZE = 32000
SPECIAL_IDS = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6, "eod": 7, "eop": 8}


def made_up_corpus(length: int, seed: int = 0) -> tuple[TokenCorpus, np.ndarray]:
    """A corpus of ``length`` tokens, and which pieces begin a word."""
    random = np.random.default_rng(seed)
    starts_word = random.random(VOCAB_SIZE) < 0.69
    tokens = random.integers(9, VOCAB_SIZE, size=length)
    ends = np.flatnonzero(random.random(length) < 0.04)
    tokens[ends[::40]] = SPECIAL_IDS["eod"]
    sentence_ends = np.zeros(length, dtype=bool)
    sentence_ends[ends] = True
    corpus = TokenCorpus.from_arrays(
        tokens, sentence_ends, ends[::40] + 1, vocab_size=VOCAB_SIZE, special_ids=SPECIAL_IDS
    )
    return corpus, starts_word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--fraction", type=float, nargs="+", default=[1 / 6])
    parser.add_argument("--rule", default="whole_word")
    arguments = parser.parse_args()
    corpus, starts_word = made_up_corpus(4_000_000)
    config = StreamConfig(
        seq_len=arguments.seq_len,
        reuse_len=arguments.seq_len // 2,
        batch_size=arguments.batch_size,
        predict_fraction=tuple(arguments.fraction),
        span_rule=arguments.rule,
    )
    stream = PermutationStream(corpus, config, starts_word)
    print(stream.describe())
    next(stream)
    tokens, start, start_cpu = 0, time.perf_counter(), time.process_time()
    while (spent := time.perf_counter() - start) < arguments.seconds:
        tokens += next(stream).token_count
    print(
        f"{tokens / (time.process_time() - start_cpu):,.0f} tokens per CPU second, {tokens / spent:,.0f} by the clock "
        f"(seq_len {config.seq_len}, batch {config.batch_size}, fractions "
        f"{config.predict_fraction}, {config.span_rule}) on one of {os.cpu_count()} cores, {platform.machine()}"
    )


if __name__ == "__main__":
    main()
