"""Tokens per second of left-to-right generation, batch 1, float32, against the bound of reading every weight once.

    python benchmarks/generation.py [--prompt 64 512] [--new 48] [--runs 5] [--peer] [--threads N]

The bound is the time to read the weights of a step: torch's ``sum`` over each matrix or a loop in C, the faster one
(``read_bound.py``). The speed of memory wanders, so it is measured before and after each run, and the share is that of
the run with the mean of both; the time of one matrix-vector product by torch with each matrix is printed once.
Position projections are not part of a step (they are cached).
Medians over runs, with the least and the largest. Products: ``auto`` is what a user gets by default (all layers in one
call of our kernel, where it can be built), ``torch`` the library that the engine's float32 context chose, ``default``
torch's own without that context. ``--peer`` adds transformers' XLNet with its cache, as torch is set.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from read_bound import Weights

from xlnet.configuration import XLNetConfig
from xlnet.float32 import float32_products, products_in_words
from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import GREEDY, RandomStream
from xlnet.model import XLNetLMHeadModel
from xlnet.model.few_rows import Products

CONTENDERS: tuple[Products | Literal["default"], ...] = ("auto", "torch", "default")


def _note(moments: list[float]) -> None:
    moments.append(time.perf_counter())


def decode_steps(model: XLNetLMHeadModel, prompt: int, new: int, name: Products | Literal["default"]) -> float:
    """Median seconds of a decode step of one run."""
    products: Products = "torch" if name == "default" else name
    plan = FillPlan(
        tuple(torch.randint(9, model.config.vocab_size, (prompt,)).tolist()), tuple(range(prompt, prompt + new))
    )
    moments: list[float] = []
    with float32_products("default" if name == "default" else "auto"), evaluating(model):
        engine = conditionals(model, 1, products=products)
        drive([Run(plan, GREEDY, RandomStream(0, 0))], engine, after_call=partial(_note, moments))
    return statistics.median(b - a for a, b in pairwise(moments[1:]))


def middle_and_range(values: list[float]) -> tuple[float, float, float]:
    """Median, smallest, largest."""
    return statistics.median(values), min(values), max(values)


def peer_rate(prompt: int, new: int) -> float:
    """Tokens per second of transformers' XLNet of the same shape, with its cache."""
    from transformers import XLNetConfig as PeerConfig
    from transformers import XLNetLMHeadModel as Peer

    model = Peer(PeerConfig()).eval()
    ids = torch.randint(9, 32000, (1, prompt))
    rates = []
    for cached in (False, True):
        with torch.inference_mode():
            start = time.perf_counter()
            out = model.generate(ids, max_new_tokens=new, do_sample=False, use_cache=cached, eos_token_id=None)
            rates.append((out.shape[1] - prompt) / (time.perf_counter() - start))
    return max(rates)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {arguments.threads} threads")
    print(products_in_words())
    model = XLNetLMHeadModel(XLNetConfig())
    weights = Weights(model)
    with torch.inference_mode():
        one_row, read = weights.one_row(arguments.runs), weights.read()
    print(
        f"{weights.megabytes:.0f} MB of weights a token; read in {read * 1e3:.1f} ms "
        f"({weights.megabytes / read / 1e3:.1f} GB/s); by torch with one row {one_row.median * 1e3:.1f} ms"
    )
    for prompt in arguments.prompt:
        for products in CONTENDERS:
            steps, shares = [], []
            before = weights.read()
            for _ in range(arguments.runs):
                steps.append(decode_steps(model, prompt, arguments.new, products))
                after = weights.read()
                shares.append((before + after) / 2 / steps[-1])
                before = after
            step, low, high = middle_and_range(steps)
            share, least, most = middle_and_range(shares)
            print(
                f"prompt {prompt}, {products}: {step * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f}), "
                f"{1 / step:.1f} tokens/s, {share:.0%} of the read bound ({least:.0%} to {most:.0%})"
            )
        if arguments.peer:
            print(f"prompt {prompt}, transformers, its faster mode: {peer_rate(prompt, arguments.new):.1f} tokens/s")


if __name__ == "__main__":
    main()
