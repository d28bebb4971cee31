"""The integers by which the compiled kernels know rows and keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from xlnet.model.geometry import SEES_NOTHING, Geometry
from xlnet.model.tiles import shift_layout


@dataclass(frozen=True)
class RowNumbers:
    """A geometry in contiguous int32; B sequences, R rows, S keys.

    Attributes:
        row_position, key_position: ``[B, R]`` and ``[B, S]``.
        sees, order: ``[B, R]`` and ``[B, S]``, or None where every row sees every key.
        row_segment, key_segment: the same shapes, or None.
        own: ``[R]``.
        explicit: ``[B, R, S]`` uint8 that replaces orders, or None.
        sign: ``[B]`` int64, +1 forward, -1 reversed.
        forward_layout, reversed_layout: int32, which row of the position table each column is that tiles read: first
            those that consecutive rows read by a shift (see ``tiles.Plan``), then the table as it is.
    """

    row_position: Tensor
    key_position: Tensor
    sees: Tensor | None
    order: Tensor | None
    row_segment: Tensor | None
    key_segment: Tensor | None
    own: Tensor
    explicit: Tensor | None
    sign: Tensor
    forward_layout: Tensor
    reversed_layout: Tensor

    @classmethod
    def of(cls, geometry: Geometry, batch: int) -> RowNumbers:
        """Of a batch of ``batch`` sequences; a padded key has an order that no row sees."""
        rows, keys = geometry.rows, geometry.keys
        sees, order = rows.sees, keys.order
        if geometry.explicit is not None or sees is None or order is None:
            sees = order = None
        if keys.valid is not None:
            highest = torch.iinfo(torch.int32).max
            order = torch.zeros_like(keys.valid, dtype=torch.int64) if order is None else order
            order = torch.where(keys.valid, order, highest)
            sees = torch.zeros_like(rows.position) if sees is None else sees
        segments, direction = geometry.has_segments, geometry.direction
        return cls(
            row_position=_narrow(rows.position, batch),
            key_position=_narrow(keys.position, batch),
            sees=None if sees is None else _narrow(sees, batch),
            order=None if order is None else _narrow(order, batch),
            row_segment=_narrow(rows.segment, batch) if segments and rows.segment is not None else None,
            key_segment=_narrow(keys.segment, batch) if segments and keys.segment is not None else None,
            own=rows.own_key.to(torch.int32).contiguous(),
            explicit=_explicit(geometry, batch),
            sign=torch.ones(batch, dtype=torch.int64) if direction is None else direction.expand(batch).contiguous(),
            forward_layout=_layout(geometry, 1),
            reversed_layout=_layout(geometry, -1),
        )


def row_numbers(geometry: Geometry, batch: int) -> RowNumbers:
    """Those of a batch, made at the first call and kept with the geometry."""
    key = f"row numbers of {batch}"
    if key not in geometry.derived:
        geometry.derived[key] = RowNumbers.of(geometry, batch)
    found: RowNumbers = geometry.derived[key]
    return found


def _narrow(values: Tensor, batch: int) -> Tensor:
    """int64 ``[B1, X]`` to int32 ``[B, X]``; the two lowest int64 have a meaning and become the two lowest int32."""
    lowest, highest = torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max
    special = values < lowest // 2
    small = torch.where(special, values - SEES_NOTHING + lowest, values.clamp(lowest // 2, highest))
    return small.to(torch.int32).expand(batch, -1).contiguous()


def _layout(geometry: Geometry, sign: int) -> Tensor:
    table = torch.arange(geometry.highest_distance - geometry.lowest_distance + 1)
    columns = [shift_layout(geometry, sign), table] if geometry.shift_rows else [table]
    return torch.cat(columns).to(torch.int32)


def _explicit(geometry: Geometry, batch: int) -> Tensor | None:
    if geometry.explicit is None:
        return None
    return geometry.explicit.expand(batch, -1, -1).contiguous().view(torch.uint8)
