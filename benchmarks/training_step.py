"""A whole training step beside transformers' XLNet: two streams, memory, dropout 0.1, loss, backward, AdamW.

    python benchmarks/training_step.py [--shape small|base|tiny] [--dtype float32|bfloat16]
        [--work pretraining|sst2|imdb] [--batch N] [--backends auto reference] [--runs 5] [--rounds 2] [--threads N]
        [--no-peer] [--quick]

Each contender runs in fresh processes, in turn (``--rounds``); medians over all runs, spread = (slowest - fastest) /
median, peak resident memory of the process. ``cpu s`` is CPU time per step, which a busy machine disturbs less. Each
side runs in the float32 products that its user gets by default. ``roofline`` is the share of the square product's rate,
measured in the same run in the same arithmetic, that the products of a step reach (benchmarks/roofline.py). The last
lines are the markdown rows for docs/speed.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from typing import Any

import torch
from contenders import SHAPES, Shape, finetuning_step, peer_pretraining_step, pretraining_step
from measure import Timing, alternate, comparison, machine, matrix_product_rate, report, table, timed
from roofline import finetuning_products, pretraining_products

from xlnet.float32 import float32_products, products_in_words

# Lengths in pieces of eight examples: SST-2 sentences are short and unlike, IMDB reviews fill the window.
FINETUNING = {"sst2": [9, 26, 12, 33, 7, 19, 41, 24], "imdb": [512] * 8}


def chosen_shape(name: str, batch: int) -> Shape:
    """The named shape, with another batch where one is asked for."""
    return dataclasses.replace(SHAPES[name], batch=batch) if batch else SHAPES[name]


def lengths_of(work: str, batch: int) -> list[int]:
    """Lengths of a fine-tuning batch: the listed ones, over and over for a larger batch."""
    return list(itertools.islice(itertools.cycle(FINETUNING[work]), batch or len(FINETUNING[work])))


def worker(arguments: dict[str, Any]) -> None:
    """Measure one contender in this process."""
    torch.manual_seed(0)
    if arguments["threads"]:
        torch.set_num_threads(arguments["threads"])
    shape, dtype = chosen_shape(arguments["shape"], arguments["batch"]), getattr(torch, arguments["dtype"])
    peer, backend = arguments["backend"] == "transformers", arguments["backend"]
    if arguments["work"] == "pretraining":
        work = peer_pretraining_step(shape, dtype) if peer else pretraining_step(shape, dtype, backend)
    else:
        lengths = lengths_of(arguments["work"], arguments["batch"])
        work = finetuning_step(shape, lengths, peer, "auto" if peer else backend)
    report(timed(work, arguments["runs"]))


def tokens_of(options: argparse.Namespace) -> int:
    """Positions of a step, padding not counted."""
    if options.work != "pretraining":
        return sum(lengths_of(options.work, options.batch))
    shape = chosen_shape(options.shape, options.batch)
    return shape.batch * shape.length


def operations_of(options: argparse.Namespace) -> float:
    """Of the products of a step."""
    shape = chosen_shape(options.shape, options.batch)
    if options.work == "pretraining":
        return pretraining_products(shape)
    return finetuning_products(shape, lengths_of(options.work, options.batch))


def main() -> None:
    parser = comparison(__doc__, ["auto", "tiles", "reference"])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--work", choices=("pretraining", *FINETUNING), default="pretraining")
    parser.add_argument("--batch", type=int, default=0, help="rows of a step; by default those of the shape")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    if options.quick:
        options.runs, options.rounds = 3, 1
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.batch < 0:
        parser.error(f"--batch {options.batch} must not be negative; 0 is the shape's own.")
    if options.work != "pretraining" and options.dtype != "float32":
        parser.error(f"--work {options.work} is measured in float32 only.")
    common = {"shape": options.shape, "dtype": options.dtype, "work": options.work, "runs": options.runs,
              "batch": options.batch, "threads": options.threads}  # fmt: skip
    names = options.backends + ([] if options.no_peer else ["transformers"])
    print(machine())
    dtype = getattr(torch, options.dtype)
    print(products_in_words())
    with float32_products():
        rate = matrix_product_rate(dtype)
    print(f"square matrix product: {rate:.0f} GFLOP/s in {options.dtype}")
    print(f"products of a step: {operations_of(options) / 1e9:.0f} GFLOP")
    timings = alternate(__file__, {name: {**common, "backend": name} for name in names}, options.rounds)
    print(rows(options, timings, rate))


def rows(options: argparse.Namespace, timings: dict[str, Timing], rate: float) -> str:
    """The markdown table, ratios against the last contender; ``rate`` of the square product in GFLOP/s."""
    tokens = tokens_of(options)
    peer = list(timings.values())[-1]
    out = [["work", "who", "step s", "spread", "cpu s", "tokens/s", "roofline", "peak MB", "times as fast",
            "of its memory"]]  # fmt: skip
    for name, timing in timings.items():
        out.append(
            [
                f"{options.work} {options.shape} {options.dtype}", name, f"{timing.median:.3f}", f"{timing.spread:.0%}",
                f"{timing.cpu_median:.3f}", f"{tokens / timing.median:.0f}",
                f"{operations_of(options) / timing.median / rate / 1e9:.0%}", f"{timing.peak_mb:.0f}",
                f"{peer.median / timing.median:.2f}", f"{timing.peak_mb / peer.peak_mb:.2f}",
            ]
        )  # fmt: skip
    return table(out)


if __name__ == "__main__":
    main()
