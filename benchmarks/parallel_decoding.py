"""Tokens a call and seconds of the exact parallel methods on a trained model, beside one token a call.

    python benchmarks/parallel_decoding.py MODEL TEXT [--hidden 0.25 0.5 0.95] [--texts 16] [--length 96] [--runs 3]

Pieces of real text, a share of them hidden at random, filled in ascending order (lattice), sampled at temperature 1,
one text at a time with the cache. The law is the same for every method, so the mean log-probability a piece may differ
by chance only. Medians over runs of the seconds for all texts.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from pathlib import Path

import torch
from measure import machine, table

from xlnet import XLNetLMHeadModel, XLNetTokenizer
from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import RandomStream, SamplingConfig

METHODS = [("sequential", 1), *(("speculative", k) for k in (2, 4, 8)), *(("one_pass", k) for k in (1, 2, 4))]


def plans(tokenizer: XLNetTokenizer, path: Path, share: float, texts: int, length: int) -> list[FillPlan]:
    """Texts with a random share of their pieces to decide."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        ids = tokenizer.encode(file.read(texts * length * 12), special_tokens=False).input_ids
    found = []
    generator = torch.Generator().manual_seed(0)
    for number in range(texts):
        tokens = ids[number * length : (number + 1) * length]
        hidden = torch.randperm(length, generator=generator)[: max(1, round(share * length))].sort().values
        found.append(FillPlan(tuple(tokens), tuple(hidden.tolist())))
    return found


def measure(model: XLNetLMHeadModel, work: list[FillPlan], method: str, k: int, runs: int) -> list[str]:
    """One line of the table."""
    seconds = []
    done: list[Run] = []
    with evaluating(model):
        for _ in range(runs):
            done = [Run(plan, SamplingConfig(), RandomStream(0, number)) for number, plan in enumerate(work)]
            start = time.perf_counter()
            for run in done:
                drive([run], conditionals(model, 1), method=method, k=k)
            seconds.append(time.perf_counter() - start)
    tokens, calls = sum(len(run.decided) for run in done), sum(run.calls for run in done)
    mean = sum(sum(run.log_probs) for run in done) / tokens
    name = method if method == "sequential" else f"{method}, k = {k}"
    middle = statistics.median(seconds)
    return [name, f"{tokens / calls:.2f}", f"{middle:.2f}", f"{tokens / middle:.0f}", f"{mean:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--hidden", type=float, nargs="+", default=[0.25, 0.5, 0.95])
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    tokenizer = XLNetTokenizer.from_pretrained(options.model)
    model = XLNetLMHeadModel.from_pretrained(options.model)
    print(machine())
    rows = [["hidden", "method", "tokens a call", "seconds", "tokens/s", "log-probability a piece"]]
    for share in options.hidden:
        work = plans(tokenizer, options.text, share, options.texts, options.length)
        rows += [[f"{share:.0%}", *measure(model, work, method, k, options.runs)] for method, k in METHODS]
    print(table(rows))


if __name__ == "__main__":
    main()
