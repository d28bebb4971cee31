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
from xlnet.model.row_numbers import RowNumbers
from xlnet.model.scratch import Scratch
from xlnet.model.tiles import Plan

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
    """The inputs of one call as the kernel takes them, heads first.

    Attributes:
        real: float64 for float64 storage, else float32.
        key, value: ``[B, N, S, H]``.
        by_content, by_position: ``[B, N, R, H]``, ``(q + u)`` and ``(q + v)`` times the scale, in units of log 2.
        by_segment: ``[B, N, R]``, ``(q + b) . (other - same)``, likewise, or None without segments.
        tables: ``[N, T, H]`` for each direction that occurs.
    """

    def __init__(
        self, settings: StoredSettings, query: Tensor, key: Tensor, value: Tensor, shared: list[Tensor]
    ) -> None:
        storage = settings.storage
        self.settings = settings
        self.real = torch.promote_types(storage, torch.float32)
        position_key, content_bias, position_bias, segment_bias, segment_embedding = shared
        self.query = query.to(self.real)
        self.segment_bias = segment_bias.to(self.real)
        self.difference = (segment_embedding[1] - segment_embedding[0]).to(self.real)
        self.scale = query.shape[-1] ** -0.5
        units = self.scale * LOG2_E
        self.by_content = heads_first((self.query + content_bias.to(self.real)).mul_(units), storage)
        self.by_position = heads_first((self.query + position_bias.to(self.real)).mul_(units), storage)
        self.key, self.value = heads_first(key, storage), heads_first(value, storage)
        self.by_segment: Tensor | None = None
        if settings.geometry.has_segments:
            dot = torch.einsum("brnh,nh->bnr", self.query + self.segment_bias, self.difference)
            self.by_segment = (dot * units).contiguous()
        self.batch, self.rows, self.heads, self.size = query.shape
        self.keys = key.shape[1]
        self.plan = Plan(settings.geometry, self.heads, storage)
        self.position_key = position_key.to(storage)
        signs = [self.plan.sign(number) for number in range(self.batch)]
        self.signs = torch.tensor(signs)
        self.tables = {
            sign: self.plan.table(self.position_key, signs.index(sign)).contiguous() for sign in sorted(set(signs))
        }
        self.columns = next(iter(self.tables.values())).shape[1]
        threads = torch.get_num_threads()
        # Heads alone share out the work where they can; then the gradient of a table is summed over the batch in place.
        self.groups = 1 if self.heads % threads == 0 else min(self.batch, threads)

    def run(self, direction: str, **arrays: Tensor) -> None:
        """Call the kernel; ``arrays`` are what it writes, and what only the backward pass reads."""
        geometry, settings = self.settings.geometry, self.settings
        kernel: AttentionKernel | None = attention_kernel(settings.storage)
        assert kernel is not None
        rule = keep_rule(settings.dropatt) if settings.dropatt > 0.0 else None
        threads, rows = torch.get_num_threads(), tile_rows(self.keys)
        numbers = vars(RowNumbers.of(geometry, self.batch))
        kernel(
            direction,
            {
                "batch": self.batch, "heads": self.heads, "rows": self.rows, "keys": self.keys, "size": self.size,
                "groups": self.groups, "columns": self.columns, "shift_rows": geometry.shift_rows, "tile_rows": rows,
                "low": geometry.lowest_distance, "high": geometry.highest_distance,
                "lowest_column": geometry.shift_rows + self.keys - 1 if geometry.shift_rows else 0,
                "reach": -1 if not geometry.causal else 2**31 - 1 if geometry.reach is None else geometry.reach,
                "threshold": 0 if rule is None else rule.threshold, "seed": settings.seed, "threads": threads,
                "scale": scale_of(settings.dropatt),
            },
            {
                **numbers, **arrays, "sign": self.signs, "by_content": self.by_content, "by_position": self.by_position,
                "by_segment": self.by_segment, "key": self.key, "value": self.value,
                "forward_table": self.tables.get(1), "reversed_table": self.tables.get(-1),
            },
            SCRATCH,
        )  # fmt: skip


def heads_first(tensor: Tensor, storage: torch.dtype) -> Tensor:
    """``[B, X, N, H]`` to contiguous ``[B, N, X, H]`` in ``storage``."""
    return tensor.transpose(1, 2).to(storage, memory_format=torch.contiguous_format).contiguous()


class CompiledAttention(torch.autograd.Function):
    """Saves the inputs and two numbers a row and head: the highest score and the softmax denominator."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
        *shared, settings = others
        call = Call(settings, query, key, value, shared)
        out = torch.empty(call.by_content.shape, dtype=call.real)
        tops = torch.empty(out.shape[:3], dtype=call.real)
        inverses = torch.empty_like(tops)
        call.run("forward", out=out, top=tops, inverse=inverses)
        ctx.save_for_backward(query, key, value, *shared, tops, inverses)
        ctx.settings = settings
        return out.transpose(1, 2).to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *shared, tops, inverses = ctx.saved_tensors
        call = Call(ctx.settings, query, key, value, shared)
        found = {
            "content_gradient": torch.empty(call.by_content.shape, dtype=call.real),
            "position_gradient": torch.empty(call.by_content.shape, dtype=call.real),
            "segment_gradient": torch.zeros_like(tops),
            "key_gradient": torch.zeros(call.key.shape, dtype=call.real),
            "value_gradient": torch.zeros(call.key.shape, dtype=call.real),
            "table_gradient": torch.zeros(call.groups, 2, call.heads, call.columns, call.size, dtype=call.real),
        }
        factor = inverses[..., None] * scale_of(ctx.settings.dropatt)
        upstream = (gradient.transpose(1, 2) * factor).to(call.settings.storage).contiguous()
        call.run("backward", upstream=upstream, top=tops, inverse=inverses, **found)
        inputs = (query, key, value, *shared)
        return (*(total.to(given.dtype) for total, given in zip(gradients(call, found), inputs, strict=True)), None)


def gradients(call: Call, found: dict[str, Tensor]) -> list[Tensor]:
    """From what the kernel found to the gradients of the inputs, in their order."""
    content, position, by_segment = (found[f"{name}_gradient"] for name in ("content", "position", "segment"))
    scale = call.scale
    query = (content + position).addcmul_(by_segment[..., None], call.difference[:, None]).mul_(scale)
    embedding = torch.einsum("bnr,brnh->nh", by_segment, call.query + call.segment_bias) * scale
    table = torch.zeros(call.position_key.shape, dtype=call.real)
    both = found["table_gradient"].sum(dim=0).transpose(1, 2)
    call.plan.add_table_gradients(table, {sign: both[int(sign < 0)] for sign in call.tables})
    return [
        query.transpose(1, 2), found["key_gradient"].transpose(1, 2), found["value_gradient"].transpose(1, 2), table,
        content.sum(dim=(0, 2)) * scale, position.sum(dim=(0, 2)) * scale,
        by_segment.sum(dim=(0, 2))[:, None] * call.difference * scale, torch.stack([-embedding, embedding]),
    ]  # fmt: skip
