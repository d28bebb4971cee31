"""Tokens per second of left-to-right generation, batch 1, float32, against the bound of reading every weight once.

    python benchmarks/generation.py [--prompt 64 512] [--new 48] [--runs 5] [--peer] [--threads N]

The bound is measured in the same run, twice: the time to read the weights of a step (``sum`` over each matrix), and the
time of one matrix-vector product with each. Position projections are not part of a step (their results are cached).
Medians over runs; the spread is (largest - smallest) / median. Products: ``auto`` is what a user gets by default,
``compiled`` our kernel for few rows, ``torch`` the library that the engine's float32 context chose, ``default`` torch's
own without that context. ``--peer`` adds transformers' XLNet with its cache, as torch is set.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import nn

from xlnet.configuration import XLNetConfig
from xlnet.float32 import float32_products, products_in_words
from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import GREEDY, RandomStream
from xlnet.model import XLNetLMHeadModel


def timed(work: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median seconds and relative spread."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    middle = statistics.median(times)
    return middle, (max(times) - min(times)) / middle


def bounds(model: XLNetLMHeadModel, runs: int) -> dict[str, tuple[float, float]]:
    """Seconds to read the weights of one step, and to multiply each with one row."""
    weights = [p for name, p in model.named_parameters() if p.ndim == 2 and ".position." not in name]
    rows = {weight.shape[1]: torch.randn(1, weight.shape[1]) for weight in weights}
    print(f"weights read per token: {sum(w.numel() for w in weights) * 4 / 1e6:.0f} MB")
    with torch.inference_mode():
        return {
            "read": timed(lambda: [weight.sum() for weight in weights], runs),
            "one row": timed(lambda: [nn.functional.linear(rows[w.shape[1]], w) for w in weights], runs),
        }


def _note(moments: list[float]) -> None:
    moments.append(time.perf_counter())


def step_seconds(model: XLNetLMHeadModel, prompt: int, new: int, runs: int, name: str) -> tuple[float, float]:
    """Median seconds of a decode step and spread of the runs' medians."""
    products = "torch" if name == "default" else name
    plan = FillPlan(
        tuple(torch.randint(9, model.config.vocab_size, (prompt,)).tolist()), tuple(range(prompt, prompt + new))
    )
    medians = []
    with float32_products("default" if name == "default" else "auto"), evaluating(model):
        for _ in range(runs):
            moments: list[float] = []
            run = Run(plan, GREEDY, RandomStream(0, 0))
            engine = conditionals(model, 1, products=products)
            drive([run], engine, after_call=partial(_note, moments))
            medians.append(statistics.median(b - a for a, b in pairwise(moments[1:])))
    middle = statistics.median(medians)
    return middle, (max(medians) - min(medians)) / middle


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
    limits = bounds(model, arguments.runs)
    for name, (seconds, spread) in limits.items():
        print(f"bound, {name}: {seconds * 1e3:.1f} ms (spread {spread:.0%})")
    for prompt in arguments.prompt:
        for products in ("auto", "compiled", "torch", "default"):
            seconds, spread = step_seconds(model, prompt, arguments.new, arguments.runs, products)
            shares = ", ".join(f"{limit / seconds:.0%} of bound ({name})" for name, (limit, _) in limits.items())
            rate = f"{seconds * 1e3:.1f} ms, {1 / seconds:.1f} tokens/s (spread {spread:.0%})"
            print(f"prompt {prompt}, {products}: {rate}, {shares}")
        if arguments.peer:
            print(f"prompt {prompt}, transformers, its faster mode: {peer_rate(prompt, arguments.new):.1f} tokens/s")


if __name__ == "__main__":
    main()
