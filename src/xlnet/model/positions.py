"""Relative positions: fixed sinusoids of the distance between two tokens (Transformer-XL §3.3, XLNet §2.5).

A table row encodes one distance; which row a pair of tokens reads is a plain index (`geometry.py`). The sinusoid has no
parameters, so a model may look further back at evaluation than it ever did in training.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from xlnet.model.tracing import being_traced


def sinusoids(distances: Tensor, d_model: int, dtype: torch.dtype) -> Tensor:
    """Encode distances as ``[sin(d * f_0) ... sin(d * f_m), cos(d * f_0) ... cos(d * f_m)]``.

    Args:
        distances: ``[T]``, any integer or floating dtype; positive where the key lies to the left of the row.
        d_model: even width D of the code; the m = D/2 frequencies are ``10000 ** (-2 i / D)``.
        dtype: of the result; the angles themselves are computed in float64, where large distances stay exact.

    Returns:
        ``[T, D]``.
    """
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64, device=distances.device) / d_model
    angles = distances.to(torch.float64)[:, None] * torch.pow(10000.0, -exponent)
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)


def distance_range(longest_back: int, longest_ahead: int, *, both_directions: bool, clamp_len: int) -> tuple[int, int]:
    """The lowest and highest distance that a table must hold.

    Args:
        longest_back: largest ``row position - key position``.
        longest_ahead: largest ``key position - row position``.
        both_directions: a lane of reversed text reads distances with the sign turned, so the table covers both.
        clamp_len: distances beyond it are not told apart; -1 is no limit.
    """
    low, high = -longest_ahead, longest_back
    if both_directions:
        low, high = min(low, -high), max(high, -low)
    if clamp_len > 0:
        low, high = max(low, -clamp_len), min(high, clamp_len)
    return low, high


def position_table(low: int, high: int, d_model: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Codes of the distances ``low .. high`` as ``[high - low + 1, D]``; row t encodes distance ``low + t``."""
    if being_traced():  # lengths may be symbolic there, which no cache can hold
        return sinusoids(torch.arange(low, high + 1, device=device), d_model, dtype)
    return _cached_table(low, high, d_model, dtype, device)


@lru_cache(maxsize=8)
def _cached_table(low: int, high: int, d_model: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # A table made under inference mode could not serve a later training step, hence the switch.
    with torch.inference_mode(False), torch.no_grad():
        return sinusoids(torch.arange(low, high + 1, device=device), d_model, dtype)
