"""The tiles of ``attention_tiles`` with all that lies between their matrix products in one kernel of C.

The mathematics and what is kept for the backward pass are those of ``attention_tiles``; a tile is a few heads of one
sequence or, for short sequences, several sequences for one head. Dropout follows from a seed and the number of a row,
so it does not depend on how rows are cut into tiles. bfloat16 stays bfloat16 in the products where the processor has
them. The kernel is ``attention_rows.c``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.attention_tiles import LN_2, LOG2_E, tiled_attention
from xlnet.model.compiled import has_bfloat16_products
from xlnet.model.dropout import keep_rule, scale_of
from xlnet.model.geometry import Geometry
from xlnet.model.row_kernels import RowKernels, TileArguments, row_kernels
from xlnet.model.row_numbers import RowNumbers
from xlnet.model.scratch import Scratch
from xlnet.model.tiles import Plan

TILE_ROWS = 128
TILE_ENTRIES = 256 * 1024
SCRATCH = Scratch()


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
    settings = Settings(inputs.geometry, inputs.dropatt, seed, storage)
    with torch.autocast("cpu", enabled=False):  # products here have their dtypes already
        return CompiledAttention.apply(
            inputs.query, inputs.key, inputs.value, inputs.position_key, inputs.content_bias, inputs.position_bias,
            inputs.segment_bias, inputs.segment_embedding, settings,
        )  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What does not carry a gradient; ``storage`` is the dtype of the large arrays and of the products."""

    geometry: Geometry
    dropatt: float
    seed: int
    storage: torch.dtype


@dataclass(frozen=True)
class Block:
    """Rows ``first .. last`` of heads ``heads`` of sequences ``numbers``; one of the two has a single member.

    Attributes:
        low, high: the window of the table of distances that the block reads.
        shift: whether its rows are consecutive.
    """

    heads: slice
    numbers: slice
    first: int
    last: int
    low: int
    high: int
    shift: bool

    @property
    def of_heads(self) -> bool:
        """Items are heads of one sequence; else sequences for one head."""
        return self.numbers.stop - self.numbers.start == 1

    @property
    def items(self) -> int:
        return (self.heads.stop - self.heads.start) * (self.numbers.stop - self.numbers.start)

    def pick(self, tensor: Tensor) -> Tensor:
        """``[items, ...]`` of ``[N, B, ...]``."""
        return tensor[self.heads, self.numbers.start] if self.of_heads else tensor[self.heads.start, self.numbers]

    def rows_of(self, tensor: Tensor) -> Tensor:
        """``[items, r, ...]`` of ``[N, B, R, ...]``."""
        return self.pick(tensor)[:, self.first : self.last]

    def window(self, table: Tensor) -> Tensor:
        """``[heads, W, H]`` of ``[N, T, H]``."""
        return table[self.heads, self.low : self.high]


class Call:
    """One call of attention: its inputs heads first, and the blocks it is cut into.

    Attributes:
        key, value: ``[N, B, S, H]`` in the storage dtype.
        by_content, by_position: ``[N, B, R, H]``, ``(q + u)`` and ``(q + v)`` times the scale, in the storage dtype.
        by_segment: ``[N, B, R]``, ``(q + b) . (other - same)`` times the scale.
        real: float64 for float64 storage, else float32.
    """

    def __init__(self, settings: Settings, query: Tensor, key: Tensor, value: Tensor, shared: list[Tensor]) -> None:
        storage = settings.storage
        self.settings, self.geometry = settings, settings.geometry
        self.real = torch.promote_types(storage, torch.float32)
        position_key, content_bias, position_bias, segment_bias, segment_embedding = shared
        self.query = query.to(self.real)
        self.segment_bias = segment_bias.to(self.real)
        self.difference = (segment_embedding[1] - segment_embedding[0]).to(self.real)
        self.scale = query.shape[-1] ** -0.5
        units = self.scale * LOG2_E
        self.by_content = heads_first(((self.query + content_bias.to(self.real)) * units).to(storage))
        self.by_position = heads_first(((self.query + position_bias.to(self.real)) * units).to(storage))
        self.key, self.value = heads_first(key.to(storage)), heads_first(value.to(storage))
        self.by_segment = torch.zeros(())
        if self.geometry.has_segments:
            dot = torch.einsum("brnh,nh->nbr", self.query + self.segment_bias, self.difference)
            self.by_segment = (dot * units).contiguous()
        self.batch, self.rows, self.heads, self.size = query.shape
        self.keys = key.shape[1]
        self.plan = Plan(self.geometry, self.heads, storage)
        self.position_key = position_key.to(storage)
        self.numbers = RowNumbers.of(self.geometry, self.batch)
        found = row_kernels(storage)
        assert found is not None
        self.kernels: RowKernels = found

    def blocks(self) -> Iterator[Block]:
        """All blocks; none mixes rows that shift with rows that gather, nor directions."""
        shift = self.geometry.shift_rows
        for start, stop, shifts in ((0, shift, True), (shift, self.rows, False)):
            for first in range(start, stop, TILE_ROWS):
                last = min(first + TILE_ROWS, stop)
                group = max(1, TILE_ENTRIES // ((last - first) * self.keys))
                for heads, numbers in self.groups(group):
                    low, high = self.window(numbers, first, last, shifts)
                    yield Block(heads, numbers, first, last, low, high, shifts)

    def groups(self, group: int) -> Iterator[tuple[slice, slice]]:
        """Heads and sequences of about ``group`` items: all heads of one sequence are few for short sequences."""
        many = group >= 2 * self.heads
        for start, stop in self.runs():
            step = min(group, stop - start) if many else 1
            for number in range(start, stop, step):
                numbers = slice(number, min(number + step, stop))
                count = 1 if numbers.stop - number > 1 else min(group, self.heads)
                for head in range(0, self.heads, count):
                    yield slice(head, min(head + count, self.heads)), numbers

    def runs(self) -> Iterator[tuple[int, int]]:
        """Neighbouring sequences of the same direction."""
        start = 0
        for number in range(1, self.batch + 1):
            if number == self.batch or self.plan.sign(number) != self.plan.sign(start):
                yield start, number
                start = number

    def window(self, numbers: slice, first: int, last: int, shifts: bool) -> tuple[int, int]:
        """Columns of the table that these rows read."""
        if shifts:
            low = self.geometry.shift_rows - last
            return low, low + self.keys + last - first - 1
        rows = self.numbers.row_position[numbers, first:last]
        keys = self.numbers.key_position[numbers]
        ends = (int(rows.min() - keys.max()), int(rows.max() - keys.min()))
        nearest, farthest = sorted(self.plan.sign(numbers.start) * end for end in ends)
        lowest, highest = self.geometry.lowest_distance, self.geometry.highest_distance
        columns = self.geometry.shift_rows + self.keys - 1 if self.geometry.shift_rows else 0
        low, high = (min(max(end, lowest), highest) - lowest for end in (nearest, farthest))
        return columns + low, columns + high + 1

    def table(self, block: Block) -> Tensor:
        """``[heads, W, H]`` of the positions that a block reads."""
        return block.window(self.plan.table(self.position_key, block.numbers.start))

    def take(self, name: str, block: Block, width: int) -> Tensor:
        """Scratch ``[items, r, width]`` in the storage dtype."""
        shape = (block.items, block.last - block.first, width)
        return SCRATCH.take(name, shape, self.settings.storage, torch.device("cpu"))

    def scores(self, block: Block, table: Tensor) -> tuple[Tensor, Tensor]:
        """Scores by content ``[items, r, S]`` and by distance ``[items, r, W]``, in scratch."""
        content = self.take("content", block, self.keys)
        torch.bmm(block.rows_of(self.by_content), block.pick(self.key).transpose(1, 2), out=content)
        distance = self.take("distance", block, table.shape[1])
        query = block.rows_of(self.by_position)
        if block.of_heads:
            torch.bmm(query, table.transpose(1, 2), out=distance)
        else:
            torch.mm(query.flatten(0, 1), table[0].t(), out=distance.flatten(0, 1))
        return content, distance

    def arguments(self, block: Block, by_row: dict[str, Tensor], **arrays: Tensor) -> TileArguments:
        """What the kernels want to know of a block, by the names of ``attention_rows.c``.

        Args:
            block: which rows.
            by_row: arrays of the whole call ``[N, B, R]``.
            arrays: arrays of the block.
        """
        numbers, geometry, settings = self.numbers, self.geometry, self.settings
        head, number, first = block.heads.start, block.numbers.start, block.first
        columns = geometry.shift_rows + self.keys - 1 if geometry.shift_rows else 0
        heads = block.of_heads
        rule = keep_rule(settings.dropatt) if settings.dropatt > 0.0 else None
        tile = TileArguments(
            items=block.items, rows=block.last - first, keys=self.keys, wide=block.high - block.low,
            row_stride=0 if heads else self.rows, key_stride=0 if heads else self.keys,
            explicit_stride=0 if heads else self.rows * self.keys,
            value_stride=self.batch * self.rows if heads else self.rows,
            shift=block.shift, sign=self.plan.sign(number), low=geometry.lowest_distance,
            high=geometry.highest_distance, start=block.low - columns + geometry.lowest_distance,
            reach=-1 if not geometry.causal else 2**31 - 1 if geometry.reach is None else geometry.reach,
            first_number=(number * self.heads + head) * self.rows + first,
            number_stride=self.rows if heads else self.heads * self.rows,
            seed=settings.seed, threshold=0 if rule is None else rule.threshold, threads=torch.get_num_threads(),
        )  # fmt: skip
        for name in ("row_position", "sees", "row_segment", "explicit"):
            values = getattr(numbers, name)
            if values is not None:
                setattr(tile, name, values[number, first:].data_ptr())
        for name in ("key_position", "order", "key_segment"):
            values = getattr(numbers, name)
            if values is not None:
                setattr(tile, name, values[number].data_ptr())
        tile.own = numbers.own[first:].data_ptr()
        if geometry.has_segments:
            tile.by_segment = self.by_segment[head, number, first:].data_ptr()
        for name, array in by_row.items():
            setattr(tile, name, array[head, number, first:].data_ptr())
        for name, array in arrays.items():
            setattr(tile, name, array.data_ptr())
        return tile


def heads_first(tensor: Tensor) -> Tensor:
    """``[B, X, N, H]`` to contiguous ``[N, B, X, H]``."""
    return tensor.permute(2, 0, 1, 3).contiguous()


def add_product(total: Tensor, left: Tensor, right: Tensor, factor: float = 1.0) -> None:
    """``total += factor * left @ right`` for batches of matrices; the sum is kept in the dtype of ``total``."""
    if left.dtype == total.dtype:
        total.baddbmm_(left, right, alpha=factor)
    else:
        total.add_(torch.bmm(left, right), alpha=factor)


class CompiledAttention(torch.autograd.Function):
    """Saves the inputs, the output and two numbers a row and head: the highest score and the softmax denominator."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
        *shared, settings = others
        call = Call(settings, query, key, value, shared)
        out = torch.empty(query.shape, dtype=call.real)
        target = out.permute(2, 0, 1, 3)
        tops = torch.empty(call.heads, call.batch, call.rows, dtype=call.real)
        inverses = torch.empty_like(tops)
        for block in call.blocks():
            content, distance = call.scores(block, call.table(block))
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
        upstream: ``[N, B, R, H]`` gradient of the output times the dropout scale, over the softmax denominator.
        inner: ``[N, B, R]``, gradient . output (the sum over keys of probability times its gradient), over the same.
        by_content, by_position: ``[N, B, R, H]`` gradients of ``q + u`` and ``q + v`` before the scale.
        by_segment: ``[N, B, R]`` gradient of the segment number before the scale.
    """

    def __init__(self, call: Call, gradient: Tensor, out: Tensor, inverses: Tensor) -> None:
        self.call = call
        storage, real = call.settings.storage, call.real
        upstream = gradient.to(real).permute(2, 0, 1, 3)
        self.inner = ((upstream * out.permute(2, 0, 1, 3)).sum(dim=-1) * inverses).contiguous()
        factor = inverses[..., None] * scale_of(call.settings.dropatt)
        self.upstream = (upstream * factor).to(storage).contiguous()
        self.by_content = torch.empty(self.upstream.shape, dtype=storage)
        self.by_position = torch.empty_like(self.by_content)
        self.by_segment = torch.zeros_like(inverses)
        self.key = torch.zeros(call.key.shape, dtype=real)
        self.value = torch.zeros(call.key.shape, dtype=real)
        self.tables = call.plan.gradients

    def add(self, block: Block, tops: Tensor) -> None:
        """What one block contributes."""
        call = self.call
        table = call.table(block)
        content, distance = call.scores(block, table)
        upstream = block.rows_of(self.upstream)
        weight_gradient = call.take("weight_gradient", block, call.keys)
        torch.bmm(upstream, block.pick(call.value).transpose(1, 2), out=weight_gradient)
        # Each row is read before it is written: gradients take the place of what they are computed from.
        by_row = {"top": tops, "inner": self.inner, "segment_gradient": self.by_segment}
        call.kernels.backward(
            call.arguments(
                block, by_row, content=content, distance=distance, weight=content, weight_gradient=weight_gradient,
                score_gradient=weight_gradient, distance_gradient=distance,
            )
        )  # fmt: skip
        add_product(block.pick(self.value), content.transpose(1, 2), upstream)
        query = block.rows_of(call.by_content)
        torch.bmm(weight_gradient, block.pick(call.key), out=block.rows_of(self.by_content))
        add_product(block.pick(self.key), weight_gradient.transpose(1, 2), query, LN_2)
        self.add_distances(block, table, distance)

    def add_distances(self, block: Block, table: Tensor, gradient: Tensor) -> None:
        """Gradients of the query and of the table of positions from those of the scores by distance."""
        call = self.call
        query, target = block.rows_of(call.by_position), block.rows_of(self.by_position)
        total = block.window(call.plan.table_gradient(block.numbers.start, call.real))
        if not block.of_heads:
            gradient, query = gradient.flatten(0, 1)[None], query.flatten(0, 1)[None]
            target.copy_(torch.mm(gradient[0], table[0]).view(target.shape))
        else:
            torch.bmm(gradient, table, out=target)
        add_product(total, gradient.transpose(1, 2), query, LN_2)

    def results(self) -> list[Tensor]:
        """In the order of the inputs."""
        call, scale = self.call, self.call.scale
        content, position = self.by_content.to(call.real), self.by_position.to(call.real)
        along = self.by_segment[..., None] * call.difference[:, None, None]
        query = ((content + position + along) * scale).permute(1, 2, 0, 3)
        embedding = torch.einsum("nbr,brnh->nh", self.by_segment, call.query + call.segment_bias) * scale
        table = torch.zeros(call.position_key.shape, dtype=call.real)
        call.plan.add_table_gradients(table)
        return [
            query, self.key.permute(1, 2, 0, 3), self.value.permute(1, 2, 0, 3), table,
            content.sum(dim=(1, 2)) * scale, position.sum(dim=(1, 2)) * scale,
            self.by_segment.sum(dim=(1, 2))[:, None] * call.difference * scale, torch.stack([-embedding, embedding]),
        ]  # fmt: skip
