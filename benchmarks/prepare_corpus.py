"""How fast text becomes token shards, in megabytes of uncompressed text per second.

Run: python benchmarks/prepare_corpus.py TEXT TOKENIZER [--format paragraphs] [--workers 2]

Each line is one whole call of ``prepare`` from a cold start (reading, duplicates, sentence ends, encoding, shards).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from xlnet.pretraining.corpus.prepare import PrepareConfig, prepare
from xlnet.pretraining.corpus.sentences import SentenceSplitter
from xlnet.pretraining.corpus.sources import find_sources, read_lines
from xlnet.text import XLNetTokenizer


def main() -> None:
    """Time the formats ``paragraphs`` (sentence ends off and on) and ``sentences`` on the same text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("tokenizer")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    tokenizer = XLNetTokenizer.from_pretrained(arguments.tokenizer)
    lines = [line for source in find_sources(arguments.text)[0] for line in read_lines(source)]
    size = sum(map(len, lines)) + len(lines)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, sentences = folder / "plain.txt", folder / "sentences.txt"
        plain.write_bytes(b"\n".join(lines) + b"\n")
        start = time.perf_counter()
        splitter = SentenceSplitter("en")
        split = [sentence for line in lines for sentence in (splitter.split(line.decode()) or [""])]
        print(f"sentence ends alone, one process: {size / 1e6 / (time.perf_counter() - start):.1f} MB/s")
        sentences.write_text("\n".join(split) + "\n", encoding="utf-8")
        cases = (
            ("paragraphs, sentence ends off", plain, PrepareConfig(format="paragraphs", split_sentences="never")),
            ("paragraphs, sentence ends on", plain, PrepareConfig(format="paragraphs", split_sentences="always")),
            ("sentences", sentences, PrepareConfig(format="sentences")),
        )
        for workers in dict.fromkeys((1, arguments.workers)):
            for number, (label, path, config) in enumerate(cases):
                config = PrepareConfig(**{**config.__dict__, "workers": workers})
                start = time.perf_counter()
                manifest = prepare(path, tokenizer, folder / f"corpus-{workers}-{number}", config)
                seconds = time.perf_counter() - start
                rate = path.stat().st_size / 1e6 / seconds
                tokens = manifest.counts["tokens"]
                print(f"{label}, {workers} workers: {rate:.1f} MB/s ({tokens:,} tokens, {seconds:.2f} s)")


if __name__ == "__main__":
    main()
