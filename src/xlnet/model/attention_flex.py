"""Attention through FlexAttention: one fused kernel that asks two small functions about each pair of row and key.

``score_rule`` adds what distance and segments are worth, ``mask_rule`` says who sees whom. Both read the numbers of
rows and keys; of size R times S there is only what a user gives as ``visible``. The scores by distance ``[B, N, R, T]``
do exist before the kernel: memory grows with the square of the length, as with SDPA.

The kernel (``torch.nn.attention.flex_attention``) serves CUDA, compiled at its first use; no GPU was at hand, so that
it has not run yet (``benchmarks/gpu.py`` checks it). On CPU it has no backward pass, and torch 2.13 failed to build it
in the case that was tried. Everywhere but on CUDA, and there in float64 and for heads below 16 numbers, the same two
functions are asked about all pairs at once and a plain softmax follows: equal numbers and all gradients, at the
reference's cost. On CUDA the kernel sums gradients of the scores by distance and by segment in no fixed order, so equal
runs agree to rounding only. It knows no dropout of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from xlnet.errors import ConfigurationError
from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.geometry import Geometry

# Given the numbers of a sequence, a head, a row and a key. In the kernel these are scalars, else shapes that broadcast.
ScoreRule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

Found = TypeVar("Found")

_SMALLEST_HEAD = 16  # of the kernel's matrix products


def flexible_attention(inputs: AttentionInputs) -> Tensor:
    """Returns ``[B, R, N, H]``; a row that sees nothing gives zeros.

    Raises:
        ConfigurationError: dropout of attention weights is asked for.
    """
    if inputs.dropatt > 0.0:
        raise ConfigurationError(
            f"dropatt={inputs.dropatt} in training, but attention_backend='flex' has no dropout of attention weights; "
            "set dropatt to 0, or attention_backend to 'auto'."
        )
    geometry, batch = inputs.geometry, inputs.query.shape[0]
    scale = inputs.query.shape[-1] ** -0.5
    # Under autocast the biases are float32 and make the sum so; the kernel wants one dtype.
    query = (inputs.query + inputs.content_bias).to(inputs.key.dtype).transpose(1, 2)
    key, value = inputs.key.transpose(1, 2), inputs.value.transpose(1, 2)
    rule = score_rule(inputs, scale)
    kernel = _kernel(inputs)
    if kernel is None:
        return _written_out(query, key, value, rule, scale, geometry).transpose(1, 2)
    blocks = _block_mask(geometry, batch)
    return kernel(query, key, value, score_mod=rule, block_mask=blocks, scale=scale).transpose(1, 2)


def score_rule(inputs: AttentionInputs, scale: float) -> ScoreRule:
    """What to add to a score: ``scale`` times the terms of distance and of segment."""
    numbers = _numbers(inputs.geometry, inputs.query.shape[0])
    by_distance = torch.einsum("brnh,tnh->bnrt", inputs.query + inputs.position_bias, inputs.position_key)
    by_distance = (by_distance * scale).contiguous()
    if not inputs.geometry.has_segments:
        return lambda score, b, h, r, s: score + by_distance[b, h, r, numbers.distance(b, r, s)]
    difference = inputs.segment_embedding[1] - inputs.segment_embedding[0]
    by_segment = torch.einsum("brnh,nh->bnr", inputs.query + inputs.segment_bias, difference) * scale

    # Each table is read in one place only: the kernel's backward pass knows no more.
    def with_segments(score: Tensor, b: Tensor, h: Tensor, r: Tensor, s: Tensor) -> Tensor:
        score = score + by_distance[b, h, r, numbers.distance(b, r, s)]
        return score + by_segment[b, h, r] * numbers.other_segment(b, r, s)

    return with_segments


def mask_rule(geometry: Geometry, batch: int) -> MaskRule | None:
    """``Geometry.visible`` as a function of a pair; None where every row sees every key."""
    numbers = _numbers(geometry, batch)
    if numbers.explicit is None and numbers.sees is None and numbers.valid is None and not geometry.causal:
        return None
    return lambda b, h, r, s: numbers.visible(b, r, s)


@dataclass(frozen=True)
class Numbers:
    """What the rules read; B sequences, R rows, S keys.

    Attributes:
        row_position, key_position: ``[B, R]`` and ``[B, S]`` int64.
        own_key: ``[R]`` int64.
        sees, order: ``[B, R]`` and ``[B, S]`` int64, or None where no order decides.
        row_segment, key_segment: the same shapes, or None.
        valid: ``[B, S]`` bool or None.
        direction: ``[B]`` int64 or None.
        explicit: ``[B, R, S]`` bool or None.
        lowest, highest: distances of the table.
        causal, reach: of the geometry.
    """

    row_position: Tensor
    key_position: Tensor
    own_key: Tensor
    sees: Tensor | None
    order: Tensor | None
    row_segment: Tensor | None
    key_segment: Tensor | None
    valid: Tensor | None
    direction: Tensor | None
    explicit: Tensor | None
    lowest: int
    highest: int
    causal: bool
    reach: int | None

    @classmethod
    def of(cls, geometry: Geometry, batch: int) -> Numbers:
        """Of a batch of ``batch`` sequences."""

        def whole(values: Tensor | None, wanted: bool = True) -> Tensor | None:
            return None if values is None or not wanted else values.expand(batch, *values.shape[1:]).contiguous()

        rows, keys, segments = geometry.rows, geometry.keys, geometry.has_segments
        ordered = geometry.explicit is None and rows.sees is not None and keys.order is not None
        return cls(
            row_position=rows.position.expand(batch, -1).contiguous(),
            key_position=keys.position.expand(batch, -1).contiguous(),
            own_key=rows.own_key,
            sees=whole(rows.sees, ordered),
            order=whole(keys.order, ordered),
            row_segment=whole(rows.segment, segments),
            key_segment=whole(keys.segment, segments),
            valid=whole(keys.valid),
            direction=whole(geometry.direction),
            explicit=whole(geometry.explicit),
            lowest=geometry.lowest_distance,
            highest=geometry.highest_distance,
            causal=geometry.causal,
            reach=geometry.reach,
        )

    def distance(self, b: Tensor, r: Tensor, s: Tensor) -> Tensor:
        """Which row of the position table a pair reads."""
        distance = self.row_position[b, r] - self.key_position[b, s]
        if self.direction is not None:
            distance = distance * self.direction[b]
        return distance.clamp(self.lowest, self.highest) - self.lowest

    def other_segment(self, b: Tensor, r: Tensor, s: Tensor) -> Tensor:
        """Whether row and key belong to different segments."""
        assert self.row_segment is not None and self.key_segment is not None
        return self.row_segment[b, r] != self.key_segment[b, s]

    def visible(self, b: Tensor, r: Tensor, s: Tensor) -> Tensor:
        """Whether the row may attend to the key: the rules that are given, or that the key is the row itself."""
        rules: list[Tensor] = []
        if self.explicit is not None:
            rules.append(self.explicit[b, r, s])
        elif self.sees is not None and self.order is not None:
            rules.append(self.order[b, s] <= self.sees[b, r])
        if self.valid is not None:
            rules.append(self.valid[b, s])
        if self.causal:
            back = self.row_position[b, r] - self.key_position[b, s]
            rules.append(back >= 0)
            if self.reach is not None:
                rules.append(back <= self.reach)
        seen = rules[0]
        for rule in rules[1:]:
            seen = seen & rule
        return seen | (s == self.own_key[r])


def _numbers(geometry: Geometry, batch: int) -> Numbers:
    """Those of a batch."""
    return _kept(geometry, f"flex numbers of {batch}", lambda: Numbers.of(geometry, batch))


def _block_mask(geometry: Geometry, batch: int) -> BlockMask | None:
    """Which blocks of keys a block of rows may skip."""
    rule, own_key, keys = mask_rule(geometry, batch), geometry.rows.own_key, geometry.keys.position.shape[1]
    if rule is None:
        return None
    size, device = (batch, None, own_key.shape[0], keys), own_key.device
    return _kept(geometry, f"flex blocks of {batch}", lambda: create_block_mask(rule, *size, device=device))


def _kept(geometry: Geometry, name: str, make: Callable[[], Found]) -> Found:
    """What ``make`` gives, kept with the geometry for the other layers; a compiler sees by itself what is the same."""
    if torch.compiler.is_compiling():  # and it does not follow the lock of ``derived``
        return make()
    if name not in geometry.derived:
        geometry.derived[name] = make()
    found: Found = geometry.derived[name]
    return found


def _kernel(inputs: AttentionInputs) -> Callable[..., Any] | None:
    """The fused kernel where it can serve these inputs, else None."""
    query = inputs.query
    if query.device.type != "cuda" or query.dtype == torch.float64 or query.shape[-1] < _SMALLEST_HEAD:
        return None
    if torch.jit.is_tracing() or torch.compiler.is_exporting() or find_spec("triton") is None:  # type: ignore[attr-defined]
        return None
    return flex_attention if torch.compiler.is_compiling() else _compiled_kernel()


@cache
def _compiled_kernel() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def _written_out(
    query: Tensor, key: Tensor, value: Tensor, rule: ScoreRule, scale: float, geometry: Geometry
) -> Tensor:
    """The same rules about all pairs at once: ``[B, N, R, H]`` and twice ``[B, N, S, H]`` to ``[B, N, R, H]``."""
    real = torch.promote_types(query.dtype, torch.float32)
    score = (query.to(real) @ key.to(real).transpose(-2, -1)).to(real) * scale
    b, h, r, s = _everywhere(score)
    score = rule(score, b, h, r, s)
    visible = mask_rule(geometry, query.shape[0])
    if visible is None:
        return score.softmax(dim=-1).to(value.dtype) @ value
    seen = visible(b, h, r, s)
    probabilities = torch.where(seen, score, torch.finfo(score.dtype).min).softmax(dim=-1)
    # A row that sees nothing attends to nothing, as in the kernel.
    return (probabilities * seen.any(dim=-1, keepdim=True)).to(value.dtype) @ value


def _everywhere(score: Tensor) -> list[Tensor]:
    """The numbers along each axis of ``score``, as ``[B, 1, 1, 1]``, ``[N, 1, 1]``, ``[R, 1]`` and ``[S]``."""
    sizes = enumerate(score.shape)
    return [torch.arange(n, device=score.device).view(-1, *[1] * (score.dim() - 1 - axis)) for axis, n in sizes]
