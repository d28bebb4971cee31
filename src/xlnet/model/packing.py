"""Ragged batches without padding: texts laid one after another in few rows, each seeing itself alone.

Only differences of positions count in XLNet (§2.5 and Appendix A.2), so a text means the same wherever it stands in a
row; the rest is a question of who sees whom. What a dense layer would spend on padding is saved, and the result is
that of the padded batch up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_REAL = 0.85
"""A batch is packed if at most this share of its positions is real."""


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a padded batch ``[B, L]`` stand in packed rows ``[G, T]``.

    Attributes:
        shape: B and L.
        padded: ``[N]`` int64, places of the real tokens in the flattened padded batch.
        packed: ``[N]`` int64, places of the same tokens in the flattened packed rows.
        text: ``[G, T]`` int64, number of the text at a packed place, -1 for none.
        longest: tokens of the longest text.
    """

    shape: tuple[int, int]
    padded: Tensor
    packed: Tensor
    text: Tensor
    longest: int

    @property
    def visible(self) -> Tensor:
        """``[G, T, T]`` bool: a token sees those of its own text."""
        return (self.text[:, :, None] == self.text[:, None, :]) & (self.text >= 0)[:, :, None]

    def pack(self, values: Tensor) -> Tensor:
        """Integers ``[B, L]`` to ``[G, T]``, zero where no token stands."""
        rows = values.new_zeros(self.text.numel())
        rows[self.packed] = values.flatten()[self.padded]
        return rows.view(self.text.shape)

    def unpack(self, states: Tensor) -> Tensor:
        """States ``[G, T, D]`` to ``[B, L, D]``, zeros at padding."""
        flat = states.new_zeros(self.shape[0] * self.shape[1], states.shape[-1])
        real = states.flatten(0, 1).index_select(0, self.packed)
        return flat.index_copy(0, self.padded, real).view(*self.shape, -1)


def plan_packing(attention_mask: Tensor, position_cost: float) -> Packing | None:
    """How to pack a batch, or None where that does not pay or a text has padding in its middle.

    Args:
        attention_mask: ``[B, L]`` bool, True for real tokens, padding on any side.
        position_cost: what dense layers spend on a position, in units of what attention spends on a pair.
    """
    batch, length = attention_mask.shape
    lengths = attention_mask.sum(dim=1)
    first = attention_mask.to(torch.int8).argmax(dim=1)
    place = torch.arange(length, device=attention_mask.device)
    whole = (place >= first[:, None]) & (place < (first + lengths)[:, None])
    total = int(lengths.sum())
    if total == 0 or total > MOST_REAL * batch * length or not torch.equal(whole, attention_mask):
        return None
    starts, rows, wide = cheapest_rows(lengths.tolist(), position_cost)
    if rows * wide > MOST_REAL * batch * length:
        return None
    padded = attention_mask.flatten().nonzero().flatten()
    owner = padded // length
    packed = torch.tensor(starts, device=padded.device)[owner] + padded % length - first[owner]
    text = torch.full((rows * wide,), -1, dtype=torch.int64, device=padded.device)
    text[packed] = owner
    return Packing((batch, length), padded, packed, text.view(rows, wide), int(lengths.max()))


def cheapest_rows(lengths: list[int], position_cost: float) -> tuple[list[int], int, int]:
    """Few long rows leave few places empty, many short ones keep attention small: the cheapest of some numbers of rows.

    Returns:
        Where each text starts in the flattened rows, how many rows there are, and how long they are.
    """
    total, longest = sum(lengths), max(lengths)
    tried = {
        max(longest, -(-total // rows)) for rows in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if rows <= len(lengths)
    }
    plans = [(*first_fit(lengths, wide), wide) for wide in sorted({*tried, longest})]
    return min(plans, key=lambda plan: plan[1] * plan[2] * (position_cost + plan[2]))


def first_fit(lengths: list[int], wide: int) -> tuple[list[int], int]:
    """Texts from long to short, each into the first row of ``wide`` places with room for it.

    Returns:
        Where each text starts in the flattened rows, and how many rows there are.
    """
    used: list[int] = []
    starts = [0] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((r for r, full in enumerate(used) if full + lengths[number] <= wide), len(used))
        if row == len(used):
            used.append(0)
        starts[number] = row * wide + used[row]
        used[row] += lengths[number]
    return starts, len(used)
