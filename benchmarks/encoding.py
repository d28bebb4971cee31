"""Encoding without gradients beside transformers' XLNet: full batches of 512 tokens, and 1,000 ragged sentences.

    python benchmarks/encoding.py [--shape small|base|tiny] [--work full|ragged] [--backends auto sdpa reference]
                                  [--runs 5] [--rounds 2] [--sentences FILE] [--quick]

Ragged: the peer pads batches of 32 in the order they come, as its pipelines do; this library sorts by length first and
fills batches by tokens. Lengths are those of the lines of ``--sentences`` in words times 1.4, or made up alike. Each
side multiplies float32 matrices as it does for its users by default.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch
from contenders import SHAPES, encoding
from measure import alternate, comparison, machine, report, table, timed

from xlnet.float32 import products_in_words

BATCH, TOKENS = 32, 4096


def sentence_lengths(path: str | None, count: int) -> list[int]:
    """Lengths in pieces."""
    if path:
        lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
        return [max(2, round(1.4 * len(line.split())) + 2) for line in lines[:count]]
    draw = random.Random(0)
    return [min(120, max(3, round(math.exp(draw.gauss(2.9, 0.6))))) for _ in range(count)]


def bucketed(lengths: list[int], tokens: int = TOKENS) -> list[list[int]]:
    """Batches of like lengths, each of at most ``tokens`` positions with padding."""
    batches: list[list[int]] = [[]]
    for length in sorted(lengths, reverse=True):
        current = batches[-1]
        if current and current[0] * (len(current) + 1) > tokens:
            batches.append(current := [])
        current.append(length)
    return batches


def worker(arguments: dict[str, Any]) -> None:
    """Measure one contender in this process."""
    torch.manual_seed(0)
    shape, peer = SHAPES[arguments["shape"]], arguments["backend"] == "transformers"
    if arguments["work"] == "full":
        batches = [[shape.length] * 8]
    else:
        lengths = sentence_lengths(arguments["sentences"], arguments["count"])
        batches = [lengths[i : i + BATCH] for i in range(0, len(lengths), BATCH)] if peer else bucketed(lengths)
    report(timed(encoding(shape, batches, peer, "auto" if peer else arguments["backend"]), arguments["runs"], 1))


def main() -> None:
    parser = comparison(__doc__, ["auto", "sdpa", "reference"])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--work", choices=("full", "ragged"), nargs="+", default=["full", "ragged"])
    parser.add_argument("--sentences")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    count = 1000
    if options.quick:
        options.runs, options.rounds, count = 3, 1, 200
    print(machine())
    print(products_in_words())
    rows = [["work", "who", "s", "spread", "cpu s", "peak MB", "times as fast"]]
    for work in options.work:
        common = {"shape": options.shape, "work": work, "runs": options.runs, "sentences": options.sentences,
                  "count": count}  # fmt: skip
        names = [*options.backends, "transformers"]
        timings = alternate(__file__, {name: {**common, "backend": name} for name in names}, options.rounds)
        peer = timings["transformers"]
        for name, timing in timings.items():
            rows.append(
                [f"{work} {options.shape}", name, f"{timing.median:.3f}", f"{timing.spread:.0%}",
                 f"{timing.cpu_median:.3f}", f"{timing.peak_mb:.0f}", f"{peer.median / timing.median:.2f}"]
            )  # fmt: skip
    print(table(rows))


if __name__ == "__main__":
    main()
