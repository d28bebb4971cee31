"""Scores by distance as a whole: a shift for consecutive rows, a gather for the others."""

from __future__ import annotations

import torch
from torch import Tensor

from xlnet.model.geometry import Geometry
from xlnet.model.tiles import Plan


def distance_scores(query: Tensor, position_key: Tensor, geometry: Geometry) -> Tensor:
    """``(q_i + v) . r_{i-j}`` for all pairs.

    Args:
        query: ``[B, R, N, H]``, with the position bias added.
        position_key: ``[T, N, H]``.
        geometry: rows against keys.

    Returns:
        ``[B, N, R, S]``.
    """
    shift, rows = geometry.shift_rows, query.shape[1]
    parts = []
    if shift:
        parts.append(_shifted(query[:, :shift], position_key, geometry))
    if shift < rows:
        by_distance = torch.einsum("brnh,tnh->bnrt", query[:, shift:], position_key)
        index = geometry.distance_index[:, None, shift:]
        parts.append(by_distance.gather(-1, index.expand(*by_distance.shape[:3], index.shape[-1])))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _shifted(query: Tensor, position_key: Tensor, geometry: Geometry) -> Tensor:
    """Consecutive rows: each reads one column further left than the one above, which a strided view expresses."""
    plan = Plan(geometry, query.shape[2], query.dtype)
    keys = plan.keys
    if len(set(plan.signs)) == 1:
        columns = position_key[plan.layout(plan.signs[0])]
        wide = torch.einsum("brnh,tnh->bnrt", query, columns).contiguous()
    else:
        of_sequence = torch.stack([plan.layout(sign) for sign in plan.signs])
        wide = torch.einsum("brnh,btnh->bnrt", query, position_key[of_sequence]).contiguous()
    batch, heads, rows, width = wide.shape
    strides = (heads * rows * width, rows * width, width - 1, 1)
    return wide.as_strided((batch, heads, rows, keys), strides, wide.storage_offset() + rows - 1)
