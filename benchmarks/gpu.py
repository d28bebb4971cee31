"""Correctness and speed on a GPU, in under five minutes; without one it says so and stops with code 1.

    python benchmarks/gpu.py [--runs 5] [--no-peer]

First every backend on the device, outputs and gradients, against the reference in float64: in float64, and in float32,
the widest that the kernel of ``flex`` computes in. Then a two-stream training step (small and base shapes, float32 and
bfloat16 autocast) for ``auto``, the reference and transformers; ``flex`` has no dropout of attention weights, so it is
measured without, and ``auto`` beside it once more. That pair says which of them should be the default.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from contenders import SHAPES, Shape, chosen_places
from measure import table, timed

from xlnet.model import XLNetLMHeadModel
from xlnet.model.attention import BACKENDS

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
NO_DROPATT = ", dropatt 0"
CONTENDERS = ("auto", "reference", f"auto{NO_DROPATT}", f"flex{NO_DROPATT}")


def batch_of(shape: Shape, device: torch.device) -> dict[str, torch.Tensor]:
    """A pretraining batch with both directions and two segments."""
    ids = torch.randint(10, shape.vocab_size, (shape.batch, shape.length))
    targets = chosen_places(shape)
    context = torch.ones_like(ids, dtype=torch.bool).scatter(1, targets, False)
    order = torch.stack([torch.randperm(shape.length) for _ in range(shape.batch)]) + 1
    batch = {
        "input_ids": ids,
        "order": order.masked_fill(context, 0),
        "target_positions": targets,
        "labels": ids.gather(1, targets),
        "token_type_ids": (torch.arange(shape.length) > shape.length // 2).long().expand_as(ids),
        "direction": torch.tensor([1, -1] * shape.batch)[: shape.batch],
    }
    return {name: tensor.to(device) for name, tensor in batch.items()}


def check(device: torch.device) -> None:
    """Two segments with memory, so that shift, gather, memory and masks all take part.

    Raises:
        SystemExit: a backend differs from the reference by more than rounding.
    """
    shape = SHAPES["tiny"]
    batches = [batch_of(shape, device) for _ in range(2)]
    exact = loss_and_gradients("reference", batches, torch.float64, device)
    for dtype, tolerance in TOLERANCE.items():
        for backend in BACKENDS:
            found = loss_and_gradients(backend, batches, dtype, device)
            pairs = zip(found, exact, strict=True)
            worst = max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in pairs)
            print(f"{backend} in {dtype}: largest relative difference from the reference in float64 {worst:.1e}")
            if not worst <= tolerance:
                raise SystemExit(f"{backend} is wrong on {device} in {dtype}")


def loss_and_gradients(
    backend: str, batches: list[dict[str, torch.Tensor]], dtype: torch.dtype, device: torch.device
) -> list[torch.Tensor]:
    """Of the last batch, as float64; always the same weights, no dropout."""
    torch.manual_seed(0)
    changes: dict[str, Any] = {"mem_len": 32, "attention_backend": backend, "dropout": 0.0, "dropatt": 0.0}
    model = XLNetLMHeadModel(SHAPES["tiny"].config(**changes)).to(device, dtype)
    memory = None
    for batch in batches:
        out = model(**batch, memory=memory)
        memory = out.memory
    out.loss.backward()
    return [out.loss.detach().double(), *(p.grad.double() for p in model.parameters() if p.grad is not None)]


def step(shape: Shape, dtype: torch.dtype, who: str, device: torch.device) -> Any:
    """A training step of ours with a backend (and perhaps without dropatt), or of transformers where that is named."""
    batch = batch_of(shape, device)
    model: Any
    if who == "transformers":
        from transformers import XLNetLMHeadModel as Peer

        model = Peer(shape.peer_config(mem_len=shape.memory)).to(device).train()
        places = batch["target_positions"]
        mapping = torch.zeros(shape.batch, shape.targets, shape.length, device=device)
        mapping.scatter_(2, places[..., None], 1.0)
        hidden = (batch["order"][:, None] > batch["order"][:, :, None]).float()
        inputs: dict[str, Any] = {
            "input_ids": batch["input_ids"], "perm_mask": hidden, "target_mapping": mapping,
            "labels": batch["labels"], "token_type_ids": batch["token_type_ids"], "use_mems": True,
        }  # fmt: skip
    else:
        config = shape.config(mem_len=shape.memory, attention_backend=who.removesuffix(NO_DROPATT))
        config = config.replace(dropatt=0.0) if who.endswith(NO_DROPATT) else config
        model = XLNetLMHeadModel(config).to(device).train()
        inputs = dict(batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    memory = None

    def work() -> None:
        nonlocal memory
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            past = {"mems" if who == "transformers" else "memory": memory}
            out = model(**inputs, **past)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        memory = out.mems if who == "transformers" else out.memory

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked and nothing was measured", file=sys.stderr)
        raise SystemExit(1)
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    check(device)
    rows = [["shape", "dtype", "who", "step ms", "spread", "tokens/s", "peak MB"]]
    for name in ("small", "base"):
        shape = SHAPES[name]
        for dtype in (torch.float32, torch.bfloat16):
            for who in (*CONTENDERS, *(() if options.no_peer else ("transformers",))):
                torch.cuda.empty_cache()
                torch.compiler.reset()  # else a second shape is compiled as one of any size
                torch.cuda.reset_peak_memory_stats()
                timing = timed(step(shape, dtype, who, device), options.runs, warm_up=3)
                rate = shape.batch * shape.length / timing.median
                peak = torch.cuda.max_memory_allocated() / 2**20
                rows.append(
                    [name, str(dtype).removeprefix("torch."), who, f"{timing.median * 1e3:.1f}",
                     f"{timing.spread:.0%}", f"{rate:.0f}", f"{peak:.0f}"]
                )  # fmt: skip
    print(table(rows))


if __name__ == "__main__":
    main()
