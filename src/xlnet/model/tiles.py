"""How an attention call is cut into tiles, and what of its geometry one tile needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from xlnet.model.geometry import Geometry

TILE_ROWS = 128
TILE_ENTRIES = 256 * 1024


@dataclass(frozen=True)
class Tile:
    """Rows ``first .. last`` of one sequence against all its keys.

    Attributes:
        first, last: the range of rows.
        keys: how many keys there are.
        low, high: the window of the table that the tile reads.
        index: ``[1, r, S]`` int64 place in that window, or None where rows are consecutive and a shift does it.
        mask: ``[1, r, S]``, 0 where visible and -inf where not, or None where all is visible.
        other: ``[1, r, S]``, 1 where row and key are of different segments, or None without segments.
    """

    first: int
    last: int
    keys: int
    low: int
    high: int
    index: Tensor | None
    mask: Tensor | None
    other: Tensor | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first

    def shifted(self, wide: Tensor) -> Tensor:
        """The band of ``wide [n, r, S + r - 1]`` in which row i starts ``r - 1 - i`` columns in, as ``[n, r, S]``."""
        count, rows, width = wide.shape
        offset = wide.storage_offset() + rows - 1
        return wide.as_strided((count, rows, self.keys), (rows * width, width - 1, 1), offset)


class Plan:
    """The tiles of every sequence, the groups of heads, and the position table in the order that shifts read it.

    For consecutive rows the table is laid out so that keys from left to right read it from low to high: column
    ``t`` belongs to the distance of the last row to the t-th key, going on to the first row's distances. A reversed
    lane has its own layout, since its distances count the other way.
    """

    def __init__(self, geometry: Geometry, n_head: int, dtype: torch.dtype) -> None:
        self.geometry, self.dtype = geometry, dtype
        self.rows, self.keys = geometry.rows.own_key.shape[0], geometry.keys.position.shape[1]
        group = max(1, min(n_head, TILE_ENTRIES // (min(self.rows, TILE_ROWS) * self.keys)))
        self.heads = [slice(start, min(start + group, n_head)) for start in range(0, n_head, group)]
        self.signs = [1] if geometry.direction is None else [int(sign) for sign in geometry.direction.tolist()]
        self.layouts: dict[int, Tensor] = {}
        self.tables: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}

    def sign(self, number: int) -> int:
        """Direction of a sequence, +1 or -1."""
        return self.signs[number] if len(self.signs) > 1 else self.signs[0]

    def layout(self, sign: int) -> Tensor:
        """:func:`shift_layout`, made once."""
        if sign not in self.layouts:
            self.layouts[sign] = shift_layout(self.geometry, sign)
        return self.layouts[sign]

    def table(self, position_key: Tensor, number: int) -> Tensor:
        """``[N, T', H]``: the laid-out columns first, then the table as it is for rows that gather."""
        sign = self.sign(number)
        if sign not in self.tables:
            columns = position_key
            if self.geometry.shift_rows:
                columns = torch.cat([position_key[self.layout(sign)], position_key])
            self.tables[sign] = columns
        return self.tables[sign].transpose(0, 1)

    def table_gradient(self, number: int) -> Tensor:
        """Zeros like :meth:`table`, to add to."""
        sign = self.sign(number)
        if sign not in self.gradients:
            self.gradients[sign] = torch.zeros_like(self.tables[sign])
        return self.gradients[sign].transpose(0, 1)

    def add_table_gradients(self, position_key: Tensor, gradients: dict[int, Tensor]) -> None:
        """Bring the gradients of all layouts, ``[T', N, H]``, back to the rows of the position table ``[T, N, H]``."""
        for sign, gradient in gradients.items():
            columns = gradient.shape[0] - position_key.shape[0]
            position_key.add_(gradient[columns:])
            if columns:
                position_key.index_add_(0, self.layout(sign), gradient[:columns])

    def tiles(self, number: int) -> Iterator[Tile]:
        """All tiles of a sequence; no tile mixes rows that shift with rows that gather."""
        shift = self.geometry.shift_rows
        for start, stop in ((0, shift), (shift, self.rows)):
            for first in range(start, stop, TILE_ROWS):
                yield self.tile(number, first, min(first + TILE_ROWS, stop))

    def tile(self, number: int, first: int, last: int) -> Tile:
        """One tile with its masks."""
        shift = self.geometry.shift_rows
        part = self.geometry.crop(number, first, last)
        index = None
        if last <= shift:
            low = shift - last
            high = low + self.keys + last - first - 1
        else:
            index = part.distance_index
            start, stop = int(index.min()), int(index.max()) + 1
            index = index - start
            columns = shift + self.keys - 1 if shift else 0
            low, high = columns + start, columns + stop
        mask = None if part.visible is None else hiding(part.visible, self.dtype)
        other = None if part.other_segment is None else part.other_segment.view(torch.uint8).to(self.dtype)
        return Tile(first, last, self.keys, low, high, index, mask, other)


def shift_layout(geometry: Geometry, sign: int) -> Tensor:
    """``[R_shift + S - 1]`` int64: which row of the position table each column reads."""
    shift, keys = geometry.shift_rows, geometry.keys.position.shape[1]
    # The last row is at shift - 1 and the first key at shift - keys; columns go from far left to far right.
    distance = sign * torch.arange(keys - 1, -shift, -1, device=geometry.rows.own_key.device)
    return distance.clamp(geometry.lowest_distance, geometry.highest_distance) - geometry.lowest_distance


def hiding(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where visible, -inf where not; as ``1 - 1 / visible``, many times faster than filling by a boolean."""
    return visible.view(torch.uint8).to(dtype).reciprocal_().neg_().add_(1.0)


def tiles_of(geometry: Geometry, n_head: int, dtype: torch.dtype) -> Plan:
    """The plan of an attention call with ``n_head`` heads, computed in ``dtype``."""
    return Plan(geometry, n_head, dtype)
