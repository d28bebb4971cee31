"""The tiles of ``attention_tiles`` with all that lies between their matrix products in one kernel of C.

The mathematics and what is kept for the backward pass are those of ``attention_tiles``; a tile is a few heads of one
sequence or, for short sequences, several sequences for one head. Dropout follows from a seed and the number of a row,
so it does not depend on how rows are cut into tiles. bfloat16 stays bfloat16 in the products where the processor has
them. The kernel is ``attention_rows.c``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.attention_tiles import LN_2, tiled_attention
from xlnet.model.compiled import has_bfloat16_products
from xlnet.model.compiled_call import Block, Call, StoredSettings
from xlnet.model.dropout import keep_rule, scale_of
from xlnet.model.row_kernels import row_kernels


def can_compile() -> bool:
    """Whether the kernels can be had on this machine; builds them at the first call."""
    return row_kernels(torch.float32) is not None


def compiled_attention(inputs: AttentionInputs) -> Tensor:
    """The fastest exact path on CPU, in training and without gradients. Returns ``[B, R, N, H]``.

    float16, dropout rates below 1/256 and other devices are served by ``tiled_attention``.
    """
    storage = inputs.query.dtype
    if storage == torch.bfloat16 and not has_bfloat16_products():
        storage = torch.float32
    rare = inputs.dropatt > 0.0 and keep_rule(inputs.dropatt) is None
    if inputs.query.device.type != "cpu" or storage == torch.float16 or rare or row_kernels(storage) is None:
        return tiled_attention(inputs)
    seed = int(torch.randint(0, 2**62, ())) if inputs.dropatt > 0.0 else 0
    settings = StoredSettings(inputs.geometry, inputs.dropatt, seed, storage)
    with torch.autocast("cpu", enabled=False):  # products here have their dtypes already
        return CompiledAttention.apply(*inputs.tensors, settings)


def add_product(total: Tensor, rows: Tensor, scores: Tensor, factor: float = 1.0) -> None:
    """``total [m, H, S] += factor * rows [m, r, H]^T @ scores [m, r, S]``, summed in the dtype of ``total``."""
    if rows.dtype == total.dtype:
        total.baddbmm_(rows.transpose(1, 2), scores, alpha=factor)
    else:
        total.add_(torch.bmm(rows.transpose(1, 2), scores), alpha=factor)


class CompiledAttention(torch.autograd.Function):
    """Saves the inputs, the output and two numbers a row and head: the highest score and the softmax denominator."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
        *shared, settings = others
        call = Call(settings, query, key, value, shared)
        out = torch.empty(query.shape, dtype=call.real)
        target = out.transpose(1, 2)
        tops = torch.empty(call.batch, call.heads, call.rows, dtype=call.real)
        inverses = torch.empty_like(tops)
        for block in call.blocks():
            content, distance = call.scores(block)
            # The weights take the place of the scores by content.
            by_row = {"top": tops, "inverse": inverses}
            call.kernels.forward(call.arguments(block, by_row, content=content, distance=distance, weight=content))
            attended = torch.bmm(content, block.pick(call.value))
            factor = block.rows_of(inverses)[..., None] * scale_of(settings.dropatt)
            torch.mul(attended, factor, out=block.rows_of(target))
        ctx.save_for_backward(query, key, value, *shared, out, tops, inverses)
        ctx.settings = settings
        return out.to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *shared, out, tops, inverses = ctx.saved_tensors
        call = Call(ctx.settings, query, key, value, shared)
        sums = Sums(call, gradient, out, inverses)
        for block in call.blocks():
            sums.add(block, tops)
        inputs = (query, key, value, *shared)
        return (*(total.to(given.dtype) for total, given in zip(sums.results(), inputs, strict=True)), None)


class Sums:
    """Gradients of a call, gathered block by block.

    Attributes:
        upstream: ``[B, N, R, H]`` gradient of the output times the dropout scale, over the softmax denominator.
        inner: ``[B, N, R]``, gradient . output (the sum over keys of probability times its gradient), over the same.
        by_content, by_position: ``[B, N, R, H]`` gradients of ``q + u`` and ``q + v`` before the scale.
        by_segment: ``[B, N, R]`` gradient of the segment number before the scale.
        key, value: ``[B, N, H, S]``; tables: ``[N, H, T]`` for each direction.
    """

    def __init__(self, call: Call, gradient: Tensor, out: Tensor, inverses: Tensor) -> None:
        self.call = call
        storage, real = call.settings.storage, call.real
        upstream = gradient.to(real).transpose(1, 2)
        self.inner = ((upstream * out.transpose(1, 2)).sum(dim=-1) * inverses).contiguous()
        factor = inverses[..., None] * scale_of(call.settings.dropatt)
        self.upstream = (upstream * factor).to(storage).contiguous()
        self.by_content = torch.empty(self.upstream.shape, dtype=storage)
        self.by_position = torch.empty_like(self.by_content)
        self.by_segment = torch.zeros_like(inverses)
        self.key = torch.zeros(call.key_across.shape, dtype=real)
        self.value = torch.zeros_like(self.key)
        width = call.plan.table(call.position_key, 0).shape[1]
        self.tables = {
            sign: torch.zeros(call.heads, call.size, width, dtype=real) for sign in sorted(set(call.plan.signs))
        }

    def add(self, block: Block, tops: Tensor) -> None:
        """What one block contributes."""
        call = self.call
        content, distance = call.scores(block)
        upstream = block.rows_of(self.upstream)
        weight_gradient = call.take("weight_gradient", block, call.keys)
        torch.bmm(upstream, block.pick(call.value_across), out=weight_gradient)
        # Each row is read before it is written: gradients take the place of what they are computed from.
        by_row = {"top": tops, "inner": self.inner, "segment_gradient": self.by_segment}
        call.kernels.backward(
            call.arguments(
                block, by_row, content=content, distance=distance, weight=content, weight_gradient=weight_gradient,
                score_gradient=weight_gradient, distance_gradient=distance,
            )
        )  # fmt: skip
        add_product(block.pick(self.value), upstream, content)
        query = block.rows_of(call.by_content)
        torch.bmm(weight_gradient, block.pick(call.key), out=block.rows_of(self.by_content))
        add_product(block.pick(self.key), query, weight_gradient, LN_2)
        self.add_distances(block, distance)

    def add_distances(self, block: Block, gradient: Tensor) -> None:
        """Gradients of the query and of the table of positions from those of the scores by distance."""
        call, table = self.call, self.call.table(block)
        query, target = block.rows_of(call.by_position), block.rows_of(self.by_position)
        if block.of_heads:
            torch.bmm(gradient, table, out=target)
        else:
            gradient, query = gradient.flatten(0, 1)[None], query.flatten(0, 1)[None]
            target.copy_(torch.mm(gradient[0], table[0]).view(target.shape))
        sign = call.plan.sign(block.numbers.start)
        add_product(self.tables[sign][block.heads, :, block.low : block.high], query, gradient, LN_2)

    def results(self) -> list[Tensor]:
        """In the order of the inputs."""
        call, scale = self.call, self.call.scale
        content, position = self.by_content.to(call.real), self.by_position.to(call.real)
        along = self.by_segment[..., None] * call.difference[:, None]
        query = ((content + position + along) * scale).transpose(1, 2)
        embedding = torch.einsum("bnr,brnh->nh", self.by_segment, call.query + call.segment_bias) * scale
        table = torch.zeros(call.position_key.shape, dtype=call.real)
        call.plan.add_table_gradients(table, {sign: total.permute(2, 0, 1) for sign, total in self.tables.items()})
        return [
            query, self.key.permute(0, 3, 1, 2), self.value.permute(0, 3, 1, 2), table,
            content.sum(dim=(0, 2)) * scale, position.sum(dim=(0, 2)) * scale,
            self.by_segment.sum(dim=(0, 2))[:, None] * call.difference * scale, torch.stack([-embedding, embedding]),
        ]  # fmt: skip
