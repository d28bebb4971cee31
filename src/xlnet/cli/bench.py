"""``xlnet bench``: how fast this library is on the machine at hand, in a minute or two."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

from xlnet.cli.progress import say
from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError
from xlnet.float32 import Float32Products, products_in_words
from xlnet.float32 import float32_products as chosen_products
from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import GREEDY, RandomStream
from xlnet.model import XLNetLMHeadModel
from xlnet.model.compiled import has_bfloat16_products
from xlnet.training.device import use_threads

SHAPES: dict[str, dict[str, int]] = {
    "small": {"vocab_size": 8000, "n_layer": 4, "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 1024},
    "base": {"vocab_size": 32000, "n_layer": 12, "d_model": 768, "n_head": 12, "d_head": 64, "d_inner": 3072},
}
BATCH = {"small": 4, "base": 2}
NEW_TOKENS = 32


def bench(
    *,
    shape: Literal["small", "base"] = "small",
    length: int = 512,
    runs: int = 5,
    threads: int = 0,
    seed: int = 0,
    float32_products: Float32Products = "auto",
) -> None:
    """Measure a pretraining step, encoding and generation, with each way of computing attention, and print a table.

    In float32, and in bfloat16 where the processor multiplies it. The machine's plain matrix product is measured
    first: it tells which of the two is the faster here. The full comparison with other libraries is in the
    benchmarks folder of the source.

    Args:
        shape: size of the model: small (4 layers of width 256) or base (12 of 768)
        length: tokens in a sequence
        runs: how often each figure is taken; medians are printed
        threads: CPU threads, 0 for every core
        seed: of the random weights and tokens
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
    """
    for key, value in (("length", length), ("runs", runs)):
        if value < 1:
            raise ConfigurationError(f"--{key} {value} must be at least 1.")
    used = use_threads(threads)
    torch.manual_seed(seed)
    say(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {used} threads, model {shape}")
    say(products_in_words(float32_products))
    with chosen_products(float32_products):
        _measure(shape, length, runs)


def _measure(shape: str, length: int, runs: int) -> None:
    """The table."""
    dtypes = [torch.float32, *([torch.bfloat16] if has_bfloat16_products() else [])]
    for dtype in dtypes:
        left, right = torch.randn(1024, 1024).to(dtype), torch.randn(1024, 1024).to(dtype)
        rate = 2 * 1024**3 / _median(partial(torch.mm, left, right), runs)[0] / 1e9
        say(f"square matrix product: {rate:.0f} GFLOP/s in {_name(dtype)}")
    say(f"{'work':<18}{'in':<10}{'attention':<12}{'seconds':>9}{'spread':>8}{'tokens/s':>10}")

    def line(name: str, dtype: torch.dtype, backend: str, tokens: int, work: Callable[[], object]) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            seconds, spread = _median(work, runs)
        say(f"{name:<18}{_name(dtype):<10}{backend:<12}{seconds:>9.3f}{spread:>8.0%}{tokens / seconds:>10.0f}")

    for dtype in dtypes:
        for backend in ("auto", "sdpa", "reference"):
            config = XLNetConfig(**SHAPES[shape], mem_len=3 * length // 4, reuse_len=length // 2)  # type: ignore[arg-type]
            model = XLNetLMHeadModel(config.replace(attention_backend=backend))
            ids = torch.randint(10, config.vocab_size, (BATCH[shape], length))
            line("pretraining step", dtype, backend, ids.numel(), _training(model, ids))
            line("encoding", dtype, backend, ids.numel(), _encoding(model, ids))
    line("generation", torch.float32, "cached", NEW_TOKENS, _generation(model.eval()))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _median(work: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median seconds and (slowest - fastest) / median."""
    work()
    times = []
    for _ in range(max(1, runs)):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    middle = statistics.median(times)
    return middle, (max(times) - min(times)) / middle


def _training(model: XLNetLMHeadModel, ids: torch.Tensor) -> Callable[[], object]:
    """Two streams, a sixth of the tokens predicted, loss, backward and AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    length = ids.shape[1]
    targets = torch.stack([torch.randperm(length)[: max(1, length // 6)].sort().values for _ in ids])
    context = torch.ones_like(ids, dtype=torch.bool).scatter(1, targets, False)
    order = (torch.stack([torch.randperm(length) for _ in ids]) + 1).masked_fill(context, 0)
    memory = None

    def step() -> None:
        nonlocal memory
        model.train()
        out = model(ids, order=order, target_positions=targets, labels=ids.gather(1, targets), memory=memory)
        memory = out.memory
        if out.loss is not None:
            out.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _encoding(model: XLNetLMHeadModel, ids: torch.Tensor) -> Callable[[], object]:
    """One stream, everybody sees everybody, no gradients."""

    def encode() -> None:
        model.eval()
        with torch.inference_mode():
            model.encoder(ids)

    return encode


def _generation(model: XLNetLMHeadModel) -> Callable[[], object]:
    """Left to right after a prompt of 64 tokens, one text, greedy, with the cache; reading the prompt included."""
    prompt = torch.randint(10, model.config.vocab_size, (64,)).tolist()
    plan = FillPlan(tuple(prompt), tuple(range(64, 64 + NEW_TOKENS)))

    def generate() -> None:
        with evaluating(model):
            drive([Run(plan, GREEDY, RandomStream(0, 0))], conditionals(model, 1))

    return generate
