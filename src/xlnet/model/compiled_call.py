"""One call of the compiled attention: its inputs heads first, and the blocks it is cut into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from xlnet.model.attention_tiles import LOG2_E, Settings
from xlnet.model.dropout import keep_rule
from xlnet.model.row_kernels import RowKernels, TileArguments, row_kernels
from xlnet.model.row_numbers import RowNumbers
from xlnet.model.scratch import Scratch
from xlnet.model.tiles import Plan

SCRATCH = Scratch()


def tile_size(storage: torch.dtype) -> tuple[int, int]:
    """Most rows and about how many entries a tile has: a megabyte of scores, measured to be the fastest."""
    size = storage.itemsize
    return 512 // size, (1 << 20) // size


@dataclass(frozen=True)
class StoredSettings(Settings):
    """``storage`` is the dtype of the large arrays and of the products."""

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
        """``[items, ...]`` of ``[B, N, ...]``."""
        return tensor[self.numbers.start, self.heads] if self.of_heads else tensor[self.numbers, self.heads.start]

    def rows_of(self, tensor: Tensor) -> Tensor:
        """``[items, r, ...]`` of ``[B, N, R, ...]``."""
        return self.pick(tensor)[:, self.first : self.last]

    def window(self, table: Tensor) -> Tensor:
        """``[heads, W, H]`` of ``[N, T, H]``."""
        return table[self.heads, self.low : self.high]


class Call:
    """One call of attention: its inputs heads first, and the blocks it is cut into.

    Products whose right matrix has long rows are the fast ones, so keys and values also exist with their last two
    dimensions exchanged.

    Attributes:
        key, value: ``[B, N, S, H]`` in the storage dtype.
        key_across, value_across: the same as ``[B, N, H, S]``.
        by_content, by_position: ``[B, N, R, H]``, ``(q + u)`` and ``(q + v)`` times the scale, in the storage dtype.
        by_segment: ``[B, N, R]``, ``(q + b) . (other - same)`` times the scale.
        real: float64 for float64 storage, else float32.
    """

    def __init__(
        self, settings: StoredSettings, query: Tensor, key: Tensor, value: Tensor, shared: list[Tensor]
    ) -> None:
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
        self.key_across = self.key.transpose(2, 3).contiguous()
        self.windows: dict[tuple[int, int, int, int], Tensor] = {}
        self.by_segment = torch.zeros(())
        if self.geometry.has_segments:
            dot = torch.einsum("brnh,nh->bnr", self.query + self.segment_bias, self.difference)
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
        most_rows, entries = tile_size(self.settings.storage)
        for start, stop, shifts in ((0, shift, True), (shift, self.rows, False)):
            for first in range(start, stop, most_rows):
                last = min(first + most_rows, stop)
                group = max(1, entries // ((last - first) * self.keys))
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

    @cached_property
    def value_across(self) -> Tensor:
        return self.value.transpose(2, 3).contiguous()

    def table(self, block: Block) -> Tensor:
        """``[heads, W, H]`` of the positions that a block reads."""
        return block.window(self.plan.table(self.position_key, block.numbers.start))

    def table_across(self, block: Block) -> Tensor:
        """The same as ``[heads, H, W]``; blocks of other sequences share it."""
        mark = (self.plan.sign(block.numbers.start), block.heads.start, block.low, block.high)
        if mark not in self.windows:
            self.windows[mark] = self.table(block).transpose(1, 2).contiguous()
        return self.windows[mark]

    def take(self, name: str, block: Block, width: int) -> Tensor:
        """Scratch ``[items, r, width]`` in the storage dtype."""
        shape = (block.items, block.last - block.first, width)
        return SCRATCH.take(name, shape, self.settings.storage, torch.device("cpu"))

    def scores(self, block: Block) -> tuple[Tensor, Tensor]:
        """Scores by content ``[items, r, S]`` and by distance ``[items, r, W]``, in scratch."""
        content = self.take("content", block, self.keys)
        torch.bmm(block.rows_of(self.by_content), block.pick(self.key_across), out=content)
        table = self.table_across(block)
        distance = self.take("distance", block, table.shape[2])
        query = block.rows_of(self.by_position)
        if block.of_heads:
            torch.bmm(query, table, out=distance)
        else:
            torch.mm(query.flatten(0, 1), table[0], out=distance.flatten(0, 1))
        return content, distance

    def arguments(self, block: Block, by_row: dict[str, Tensor], **arrays: Tensor) -> TileArguments:
        """What the kernels want to know of a block, by the names of ``attention_rows.c``.

        Args:
            block: which rows.
            by_row: arrays of the whole call ``[B, N, R]``.
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
            value_stride=self.rows if heads else self.heads * self.rows,
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
                setattr(tile, name, address(values, number, first))
        for name in ("key_position", "order", "key_segment"):
            values = getattr(numbers, name)
            if values is not None:
                setattr(tile, name, address(values, number))
        tile.own = address(numbers.own, first)
        if geometry.has_segments:
            tile.by_segment = address(self.by_segment, number, head, first)
        for name, array in by_row.items():
            setattr(tile, name, address(array, number, head, first))
        for name, array in arrays.items():
            setattr(tile, name, array.data_ptr())
        return tile


def address(tensor: Tensor, *index: int) -> int:
    """Where ``tensor[index]`` begins in memory."""
    steps = sum(i * step for i, step in zip(index, tensor.stride(), strict=False))
    return tensor.data_ptr() + steps * tensor.element_size()


def heads_first(tensor: Tensor) -> Tensor:
    """``[B, X, N, H]`` to contiguous ``[B, N, X, H]``."""
    return tensor.transpose(1, 2).contiguous()
