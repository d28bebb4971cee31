"""Exact attention tile by tile in one C kernel per call (``attention.c``): the fastest path on CPU.

The mathematics and what is kept for the backward pass are those of ``attention_tiles``. Dropout follows from a seed and
the number of a row, so it does not depend on how rows are cut into tiles or shared out among threads. bfloat16 stays
bfloat16 in the products where the processor has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.attention_kernel import AttentionKernel, attention_kernel
from xlnet.model.attention_tiles import LOG2_E, Settings, tiled_attention
from xlnet.model.compiled import has_bfloat16_products
from xlnet.model.dropout import keep_rule, scale_of
from xlnet.model.row_numbers import row_numbers
from xlnet.model.scratch import Scratch

SCRATCH = Scratch()
_TILE_NUMBERS = 240_000  # in a tile: measured to be what the cache of one core holds without haste


def tile_rows(keys: int) -> int:
    """Rows of a tile: scores by content, by distance and gradients, each somewhat over ``keys`` wide."""
    return max(48, min(96, _TILE_NUMBERS // (3 * keys)))


def can_compile() -> bool:
    """Whether the kernel can be had on this machine; builds it at the first call."""
    return attention_kernel(torch.float32) is not None


def compiled_attention(inputs: AttentionInputs) -> Tensor:
    """The fastest exact path on CPU, in training and without gradients. Returns ``[B, R, N, H]``.

    float16, dropout rates below 1/256 and other devices are served by ``tiled_attention``.
    """
    storage = inputs.query.dtype
    if storage == torch.bfloat16 and not has_bfloat16_products():
        storage = torch.float32
    rare = inputs.dropatt > 0.0 and keep_rule(inputs.dropatt) is None
    if inputs.query.device.type != "cpu" or storage == torch.float16 or rare or attention_kernel(storage) is None:
        return tiled_attention(inputs)
    # The seed comes from the ordinary generator: the same run for the same torch.manual_seed, also when recomputing.
    seed = int(torch.randint(0, 2**62, ())) if inputs.dropatt > 0.0 else 0
    settings = StoredSettings(inputs.geometry, inputs.dropatt, seed, storage)
    with torch.autocast("cpu", enabled=False):  # everything here has its dtype already
        return CompiledAttention.apply(*inputs.tensors, settings)


@dataclass(frozen=True)
class StoredSettings(Settings):
    """``storage`` is the dtype of what is multiplied."""

    storage: torch.dtype


class Call:
    """The inputs of one call as the kernel takes them.

    Attributes:
        real: float64 for float64 storage, else float32; of biases, sums and what is found about a row.
        query: ``[B, R, N, H]``; key, value: ``[B, S, N, H]``, all in the dtype of storage.
        biases: ``[N, H]`` by name, as ``attention_call.c`` has them.
        position_key: ``[T, N, H]``, likewise.
    """

    def __init__(
        self, settings: StoredSettings, query: Tensor, key: Tensor, value: Tensor, shared: list[Tensor]
    ) -> None:
        storage = settings.storage
        self.settings = settings
        self.real = torch.promote_types(storage, torch.float32)
        self.query, self.key, self.value = (x.to(storage).contiguous() for x in (query, key, value))
        self.batch, self.rows, self.heads, self.size = query.shape
        self.keys = key.shape[1]
        position_key, *biases, embedding = (x.to(self.real).contiguous() for x in shared)
        names = ("content_bias", "position_bias", "segment_bias")
        self.biases = {**dict(zip(names, biases, strict=True)), "difference": embedding[1] - embedding[0]}
        self.position_key = position_key.to(storage)
        self.numbers = row_numbers(settings.geometry, self.batch)
        threads = torch.get_num_threads()
        # Heads alone share out the work where they can; then the gradient of a table is summed over the batch in place.
        self.groups = 1 if self.heads % threads == 0 else min(self.batch, threads)

    def zeros(self, *shape: int) -> Tensor:
        """To add to, for each group of sequences and each head."""
        return torch.zeros(self.groups, *shape, dtype=self.real)

    def run(self, direction: str, **arrays: Tensor) -> None:
        """Call the kernel; ``arrays`` are what it writes, and what only the backward pass reads."""
        geometry, settings = self.settings.geometry, self.settings
        kernel: AttentionKernel | None = attention_kernel(settings.storage)
        assert kernel is not None
        rule = keep_rule(settings.dropatt) if settings.dropatt > 0.0 else None
        kernel(
            direction,
            {
                "batch": self.batch, "heads": self.heads, "rows": self.rows, "keys": self.keys, "size": self.size,
                "groups": self.groups, "distances": self.position_key.shape[0],
                "columns": self.numbers.forward_layout.shape[0], "shift_rows": geometry.shift_rows,
                "tile_rows": tile_rows(self.keys),
                "low": geometry.lowest_distance, "high": geometry.highest_distance,
                "lowest_column": geometry.shift_rows + self.keys - 1 if geometry.shift_rows else 0,
                "reach": -1 if not geometry.causal else 2**31 - 1 if geometry.reach is None else geometry.reach,
                "threshold": 0 if rule is None else rule.threshold, "seed": settings.seed,
                "threads": torch.get_num_threads(), "scale": scale_of(settings.dropatt),
                "units": self.size**-0.5 * LOG2_E,
            },
            {
                **vars(self.numbers), **arrays, **self.biases, "position_key": self.position_key,
                "query": self.query, "key": self.key, "value": self.value,
            },
            SCRATCH,
        )  # fmt: skip


class CompiledAttention(torch.autograd.Function):
    """Saves the inputs and two numbers a row and head: the highest score and the softmax denominator."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
        *shared, settings = others
        call = Call(settings, query, key, value, shared)
        out = torch.empty_like(call.query)
        tops = torch.empty(call.batch, call.heads, call.rows, dtype=call.real)
        inverses = torch.empty_like(tops)
        call.run("forward", out=out, top=tops, inverse=inverses)
        ctx.save_for_backward(query, key, value, *shared, tops, inverses)
        ctx.settings = settings
        return out.to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *shared, tops, inverses = ctx.saved_tensors
        call = Call(ctx.settings, query, key, value, shared)
        heads, size = call.heads, call.size
        found = {
            "query_gradient": torch.empty_like(call.query),
            "key_gradient": torch.empty_like(call.key),
            "value_gradient": torch.empty_like(call.key),
            "content_gradient": call.zeros(heads, size),
            "position_gradient": call.zeros(heads, size),
            "segment_gradient": call.zeros(heads, 1),
            "embedding_gradient": call.zeros(heads, size),
            "table_gradient": call.zeros(*call.position_key.shape),
        }
        upstream = gradient.to(call.settings.storage).contiguous()
        call.run("backward", upstream=upstream, top=tops, inverse=inverses, **found)
        inputs = (query, key, value, *shared)
        return (*(total.to(given.dtype) for total, given in zip(gradients(call, found), inputs, strict=True)), None)


def gradients(call: Call, found: dict[str, Tensor]) -> list[Tensor]:
    """From what the kernel found to the gradients of the inputs, in their order."""
    kinds = ("content", "position", "segment", "embedding", "table")
    content, position, segment, embedding, table = (found[f"{kind}_gradient"].sum(dim=0) for kind in kinds)
    return [
        found["query_gradient"], found["key_gradient"], found["value_gradient"], table, content, position,
        segment * call.biases["difference"], torch.stack([-embedding, embedding]),
    ]  # fmt: skip
