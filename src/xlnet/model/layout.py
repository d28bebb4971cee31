"""From what a caller gives (order, targets, padding, segments, memory) to rows and keys (XLNet §2.3; design: one
integer per token replaces every mask)."""

from __future__ import annotations

import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import InputError
from xlnet.model.geometry import ALWAYS_SEEN, SEES_NOTHING, Geometry, Keys, Rows
from xlnet.model.memory import Memory
from xlnet.model.positions import distance_range


def check_inputs(
    input_ids: Tensor,
    order: Tensor | None,
    visible: Tensor | None,
    target_positions: Tensor | None,
    per_token: dict[str, Tensor | None],
) -> None:
    """Refuse shapes that do not belong together.

    Raises:
        InputError: naming the argument, its shape and the shape it must have.
    """
    if input_ids.ndim != 2:
        raise InputError(f"input_ids has shape {list(input_ids.shape)}; it must be [batch, length].")
    batch, length = input_ids.shape
    if length == 0:
        raise InputError("input_ids holds no position at all: a sequence needs at least one token.")
    for name, value in {**per_token, "order": order}.items():
        if value is not None and value.shape != input_ids.shape:
            raise InputError(f"{name} has shape {list(value.shape)}; it must be {[batch, length]} like input_ids.")
    if order is not None and visible is not None:
        raise InputError("Give order or visible, not both: each of them alone says who sees whom.")
    if visible is not None and (visible.shape != (batch, length, length) or visible.dtype != torch.bool):
        raise InputError(
            f"visible has shape {list(visible.shape)} and dtype {visible.dtype}; "
            f"it must be a boolean {[batch, length, length]}, True where the row may see the column."
        )
    if target_positions is not None:
        if order is None and visible is None:
            raise InputError(
                "target_positions needs order (or visible): without it a prediction would see its own answer."
            )
        if target_positions.ndim != 2 or target_positions.shape[0] != batch:
            raise InputError(
                f"target_positions has shape {list(target_positions.shape)}; it must be [{batch}, P], -1 for none."
            )


def key_positions(
    length: int, memory_length: int, attention_mask: Tensor | None, position_ids: Tensor | None, device: torch.device
) -> Tensor:
    """Positions of memory and tokens, ``[B1, M + L]``: memory ends at -1, the first real token of each row is 0.

    Leading padding is not counted, so it cannot push a text away from its memory. Without memory only differences
    count, and plain indices serve.
    """
    past = torch.arange(-memory_length, 0, device=device)[None]
    if position_ids is not None:
        return torch.cat([past.expand(position_ids.shape[0], -1), position_ids], dim=1)
    current = torch.arange(length, device=device)[None]
    if memory_length and attention_mask is not None:
        current = current - attention_mask.to(torch.int8).argmax(dim=1, keepdim=True)
        past = past.expand(current.shape[0], -1)
    return torch.cat([past, current], dim=1)


def _rows_at(values: Tensor, target_positions: Tensor) -> Tensor:
    """``values [B1, L]`` at ``target_positions [B, P]``; an unused place reads position 0 and is blinded elsewhere."""
    values = values.expand(target_positions.shape[0], -1)
    return values.gather(1, target_positions.clamp(min=0))


def lay_out(
    config: XLNetConfig,
    input_ids: Tensor,
    *,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    memory: Memory | None,
    order: Tensor | None,
    visible: Tensor | None,
    target_positions: Tensor | None,
    direction: Tensor | None,
    position_ids: Tensor | None,
    longest: int | None = None,
) -> Geometry:
    """Rows (L content tokens, then P targets) and keys (M memories, then L tokens) of a forward pass.

    ``longest`` bounds the length of a text where several stand in a row: no larger distance is ever read.
    """
    batch, length = input_ids.shape
    device = input_ids.device
    past = memory.length if memory is not None else 0
    padded = (batch, past)

    position = key_positions(length, past, attention_mask, position_ids, device)
    valid = None
    if attention_mask is not None or memory is not None:
        kept = memory.valid if memory is not None else input_ids.new_zeros(padded, dtype=torch.bool)
        real = attention_mask if attention_mask is not None else torch.ones_like(input_ids, dtype=torch.bool)
        valid = torch.cat([kept, real], dim=1)
    segment = None
    if token_type_ids is not None:
        segment = torch.cat([token_type_ids.new_zeros(padded), token_type_ids], dim=1)
    key_order = None
    if order is not None:
        key_order = torch.cat([order.new_full(padded, ALWAYS_SEEN), order], dim=1)
    keys = Keys(position, key_order, segment, valid)

    own_key = torch.arange(past, past + length, device=device)
    row_position, row_segment, sees, explicit = position[:, past:], token_type_ids, order, None
    if visible is not None:
        explicit = torch.cat([visible.new_ones(batch, length, past), visible], dim=2)
    if target_positions is not None:
        count = target_positions.shape[1]
        own_key = torch.cat([own_key, own_key.new_full((count,), -1)])
        row_position = torch.cat([row_position.expand(batch, -1), _rows_at(row_position, target_positions)], dim=1)
        if row_segment is not None:
            row_segment = torch.cat([row_segment, _rows_at(row_segment, target_positions)], dim=1)
        unused = target_positions < 0
        if order is not None:
            before = _rows_at(order, target_positions) - 1
            sees = torch.cat([order, before.masked_fill(unused, SEES_NOTHING)], dim=1)
        if explicit is not None:
            rows = target_positions.clamp(min=0)[:, :, None].expand(-1, -1, past + length)
            explicit = torch.cat([explicit, explicit.gather(1, rows) & ~unused[:, :, None]], dim=1)

    farthest = (length if longest is None else longest) - 1
    if position_ids is not None:
        farthest = int(position_ids.max() - position_ids.min().clamp(max=0))
    low, high = distance_range(
        farthest + past, farthest, both_directions=direction is not None, clamp_len=config.clamp_len
    )
    regular = position_ids is None and (past == 0 or attention_mask is None)
    return Geometry(
        rows=Rows(row_position, own_key, sees, row_segment),
        keys=keys,
        lowest_distance=low,
        highest_distance=high,
        direction=direction,
        explicit=explicit,
        causal=config.attn_type == "uni",
        reach=past if config.attn_type == "uni" and config.same_length else None,
        shift_rows=length if regular else 0,
    )
