"""A whole training step beside transformers' XLNet: two streams, memory, dropout 0.1, loss, backward, AdamW.

    python benchmarks/training_step.py [--shape small|base|tiny] [--dtype float32|bfloat16]
        [--work pretraining|sst2|imdb] [--backends auto reference] [--runs 5] [--rounds 2] [--threads N] [--quick]

Each contender runs in fresh processes, in turn (``--rounds``); medians over all runs, spread = (slowest - fastest) /
median, peak resident memory of the process. ``cpu s`` is CPU time per step, which a busy machine disturbs less. The
last lines are the markdown rows for docs/speed.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from contenders import SHAPES, finetuning_step, peer_pretraining_step, pretraining_step
from measure import Timing, alternate, comparison, machine, matrix_product_rate, report, table, timed

# Lengths in pieces of eight examples: SST-2 sentences are short and unlike, IMDB reviews fill the window.
FINETUNING = {"sst2": [9, 26, 12, 33, 7, 19, 41, 24], "imdb": [512] * 8}


def worker(arguments: dict[str, Any]) -> None:
    """Measure one contender in this process."""
    torch.manual_seed(0)
    if arguments["threads"]:
        torch.set_num_threads(arguments["threads"])
    shape, dtype = SHAPES[arguments["shape"]], getattr(torch, arguments["dtype"])
    peer, backend = arguments["backend"] == "transformers", arguments["backend"]
    if arguments["work"] == "pretraining":
        work = peer_pretraining_step(shape, dtype) if peer else pretraining_step(shape, dtype, backend)
    else:
        work = finetuning_step(shape, FINETUNING[arguments["work"]], peer, "auto" if peer else backend)
    report(timed(work, arguments["runs"]))


def tokens_of(options: argparse.Namespace) -> int:
    """Positions of a step, padding not counted."""
    if options.work != "pretraining":
        return sum(FINETUNING[options.work])
    return SHAPES[options.shape].batch * SHAPES[options.shape].length


def main() -> None:
    parser = comparison(__doc__, ["auto", "tiles", "reference"])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--work", choices=("pretraining", *FINETUNING), default="pretraining")
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
    common = {"shape": options.shape, "dtype": options.dtype, "work": options.work, "runs": options.runs,
              "threads": options.threads}  # fmt: skip
    names = options.backends + ([] if options.no_peer else ["transformers"])
    print(machine())
    dtype = getattr(torch, options.dtype)
    print(f"square matrix product: {matrix_product_rate(dtype):.0f} GFLOP/s in {options.dtype}")
    timings = alternate(__file__, {name: {**common, "backend": name} for name in names}, options.rounds)
    print(rows(options, timings))


def rows(options: argparse.Namespace, timings: dict[str, Timing]) -> str:
    """The markdown table, ratios against the last contender."""
    tokens = tokens_of(options)
    peer = list(timings.values())[-1]
    out = [["work", "who", "step s", "spread", "cpu s", "tokens/s", "peak MB", "times as fast", "of its memory"]]
    for name, timing in timings.items():
        out.append(
            [
                f"{options.work} {options.shape} {options.dtype}", name, f"{timing.median:.3f}", f"{timing.spread:.0%}",
                f"{timing.cpu_median:.3f}", f"{tokens / timing.median:.0f}", f"{timing.peak_mb:.0f}",
                f"{peer.median / timing.median:.2f}", f"{timing.peak_mb / peer.peak_mb:.2f}",
            ]
        )  # fmt: skip
    return table(out)


if __name__ == "__main__":
    main()
