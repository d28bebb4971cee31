"""Speed of the tokenizer against plain SentencePiece on the same text and threads, measured in turns in one run.

    python benchmarks/tokenizer.py TEXT [MODEL]

TEXT is a text file (plain or gzip), MODEL a ``spiece.model`` or tokenizer folder; without it one is trained on TEXT.
Wall time is the best of several rounds; CPU time is that of all threads together and suffers less from a busy machine.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sentencepiece

from xlnet.text import XLNetTokenizer, train_tokenizer

ROUNDS = 7


def best_of(ways: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            way()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
    return best


def main(text: Path, model: str | None = None) -> None:
    with gzip.open(text, "rt", encoding="utf-8") if text.suffix == ".gz" else text.open(encoding="utf-8") as file:
        lines = file.read().split("\n")
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    tokenizer = XLNetTokenizer.from_pretrained(model) if model else train_tokenizer(lines, 8000)
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    tokenizer.encode_lines(["warm up"])
    print(f"{megabytes:.1f} MB, {len(lines):,} lines")
    for threads in (1, 2):
        best = best_of(
            {
                "sentencepiece, lists": lambda n=threads: plain.encode(lines, num_threads=n),
                "sentencepiece, numpy": lambda n=threads: plain.encode(lines, num_threads=n, out_type="numpy"),
                "encode_lines": lambda n=threads: tokenizer.encode_lines(lines, n),
            }
        )
        ours = best["encode_lines"]
        for name, (wall, cpu) in best.items():
            print(
                f"{threads} threads  {name:22}{megabytes / wall:7.2f} MB/s wall {megabytes / cpu:7.2f} MB/s of CPU   "
                f"ours takes {ours[0] / wall:.2f} of its wall, {ours[1] / cpu:.2f} of its CPU time"
            )
    some = lines[:2000]
    size = sum(len(line.encode()) for line in some) / 1e6
    wall, cpu = best_of({"encode": lambda: [tokenizer.encode(line) for line in some]})["encode"]
    print(f"encode, with offsets: {size / wall:.2f} MB/s wall, {size / cpu:.2f} MB/s of CPU")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
