"""Exact attention tile by tile: memory linear in length, scores kept in cache, probabilities recomputed in backward.

One tile is a few heads of a few consecutive rows of one sequence against all keys. Three things make it cheap:

* Scores by distance of consecutive rows are one small product with a window of the position table; the diagonal shift
  that follows is a strided view of it (row stride one less than the width), never a copy.
* Visibility is added as a tile of 0 and -inf that all heads share; rows that see nothing come out as exact zeros.
* Dropout decisions are bytes, drawn again from the same seed in the backward pass instead of being stored.

Chosen rows (the query stream) gather their distances instead. Scores are in units of log 2, so that exp2 serves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.dropout import fill_keep, scale_of, word_count
from xlnet.model.geometry import Geometry
from xlnet.model.scratch import Scratch
from xlnet.model.tiles import Tile, tiles_of

LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)
SCRATCH = Scratch()


@dataclass(frozen=True)
class Settings:
    """What does not carry a gradient."""

    geometry: Geometry
    dropatt: float
    seed: int


def tiled_attention(inputs: AttentionInputs) -> Tensor:
    """The fast exact path for training. Returns ``[B, R, N, H]``.

    float16 and bfloat16 inputs are computed in float32, tile by tile.
    """
    # The seed comes from the ordinary generator: the same run for the same torch.manual_seed, also when recomputing.
    seed = int(torch.randint(0, 2**62, ())) if inputs.dropatt > 0.0 else 0
    settings = Settings(inputs.geometry, inputs.dropatt, seed)
    return TiledAttention.apply(*inputs.tensors, settings)


@dataclass(frozen=True)
class Weights:
    """What all sequences share, in the dtype of the computation: ``[T, N, H]``, three ``[N, H]`` and ``[2, N, H]``."""

    position_key: Tensor
    content_bias: Tensor
    position_bias: Tensor
    segment_bias: Tensor
    segment_embedding: Tensor

    @property
    def segment_difference(self) -> Tensor:
        """``[N, H]``: softmax ignores what is constant along a row, so only the difference counts."""
        return self.segment_embedding[1] - self.segment_embedding[0]


class Sequence:
    """One sequence of the batch, heads first, with the biases added and the scale multiplied in.

    Attributes:
        key, value: ``[N, S, H]`` views.
        by_content, by_position: ``[N, R, H]``, ``(q + u)`` and ``(q + v)`` times the scale.
        by_segment: ``[N, R, 1]``, ``(q + b) . (other - same)`` times the scale, or None without segments.
    """

    def __init__(self, tensors: list[Tensor], weights: Weights, with_segments: bool) -> None:
        query, key, value = tensors
        scale = query.shape[-1] ** -0.5 * LOG2_E
        self.key, self.value = key.transpose(0, 1), value.transpose(0, 1)
        self.by_content = ((query + weights.content_bias) * scale).transpose(0, 1)
        self.by_position = ((query + weights.position_bias) * scale).transpose(0, 1)
        self.by_segment: Tensor | None = None
        if with_segments:
            dot = ((query + weights.segment_bias) * weights.segment_difference).sum(dim=-1) * scale
            self.by_segment = dot.transpose(0, 1)[..., None]


def tile_scores(tile: Tile, heads: slice, sequence: Sequence, table: Tensor) -> Tensor:
    """Scores ``[n, r, S]`` of some heads of a tile in units of log 2, hidden keys at -inf.

    ``table`` is ``[N, T, H]``. The result lives in scratch until the next tile.
    """
    rows = slice(tile.first, tile.last)
    query = sequence.by_position[heads, rows]
    window = table[heads, tile.low : tile.high]
    count = query.shape[0]
    shape = (count, tile.rows, tile.keys)
    take, dtype, device = SCRATCH.take, query.dtype, query.device
    wide = take("by_distance", (count, tile.rows, tile.high - tile.low), dtype, device)
    torch.bmm(query, window.transpose(1, 2), out=wide)
    if tile.index is not None:
        score = take("score", shape, dtype, device)
        torch.gather(wide, 2, tile.index.expand(shape), out=score)
        if tile.mask is not None:
            score.add_(tile.mask)
    elif tile.mask is not None:
        score = torch.add(tile.shifted(wide), tile.mask, out=take("score", shape, dtype, device))
    else:
        score = tile.shifted(wide)
    if tile.other is not None and sequence.by_segment is not None:
        score.addcmul_(sequence.by_segment[heads, rows], tile.other)
    return score.baddbmm_(sequence.by_content[heads, rows], sequence.key[heads].transpose(1, 2))


def draw_keep(shape: tuple[int, ...], settings: Settings, generator: torch.Generator) -> Tensor:
    """The next dropout decisions ``shape`` as uint8, in scratch."""
    count = math.prod(shape)
    words = SCRATCH.take("words", (word_count(count),), torch.int64, generator.device)
    return fill_keep(words, count, settings.dropatt, generator).view(shape)


class TiledAttention(torch.autograd.Function):
    """Saves the inputs, the output and two numbers a row and head: the highest score and the softmax denominator."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
        *shared, settings = others
        compute = torch.promote_types(query.dtype, torch.float32)
        weights = Weights(*(tensor.to(compute) for tensor in shared))
        plan = tiles_of(settings.geometry, key.shape[2], compute)
        generator = torch.Generator(query.device).manual_seed(settings.seed)
        out = torch.empty(query.shape, dtype=compute, device=query.device)
        tops = out.new_empty(query.shape[0], query.shape[2], query.shape[1], 1)
        inverses = torch.empty_like(tops)
        for number in range(query.shape[0]):
            tensors = [tensor[number].to(compute) for tensor in (query, key, value)]
            sequence = Sequence(tensors, weights, settings.geometry.has_segments)
            target = out[number].transpose(0, 1)
            table = plan.table(weights.position_key, number)
            for tile in plan.tiles(number):
                rows = slice(tile.first, tile.last)
                for heads in plan.heads:
                    score = tile_scores(tile, heads, sequence, table)
                    # A row that sees nothing has a top of -inf: a finite one makes all its weights zero.
                    top, inverse = tops[number, heads, rows], inverses[number, heads, rows]
                    torch.amax(score, dim=-1, keepdim=True, out=top).clamp_(min=torch.finfo(compute).min)
                    score.sub_(top).exp2_()
                    torch.sum(score, dim=-1, keepdim=True, out=inverse).clamp_(min=1.0).reciprocal_()
                    if settings.dropatt > 0.0:
                        score.mul_(draw_keep(tuple(score.shape), settings, generator))
                    attended = target[heads, rows]
                    torch.bmm(score, sequence.value[heads], out=attended)
                    attended.mul_(inverse * scale_of(settings.dropatt))
        ctx.save_for_backward(query, key, value, *shared, out, tops, inverses)
        ctx.settings = settings
        return out.to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        query, key, value, *shared, out, tops, inverses = saved
        settings = ctx.settings
        compute = out.dtype
        weights = Weights(*(tensor.to(compute) for tensor in shared))
        plan = tiles_of(settings.geometry, key.shape[2], compute)
        generator = torch.Generator(query.device).manual_seed(settings.seed)
        grads = Gradients(query, key, weights)
        for number in range(query.shape[0]):
            tensors = [tensor[number].to(compute) for tensor in (query, key, value)]
            sequence = Sequence(tensors, weights, settings.geometry.has_segments)
            upstream = gradient[number].to(compute)
            part = SequenceGradients(grads, number, upstream, out[number], inverses[number], scale_of(settings.dropatt))
            table = plan.table(weights.position_key, number)
            table_gradient = plan.table_gradient(number)
            for tile in plan.tiles(number):
                for heads in plan.heads:
                    score = tile_scores(tile, heads, sequence, table)
                    weight = score.sub_(tops[number, heads, tile.first : tile.last]).exp2_()
                    keep = None
                    if settings.dropatt > 0.0:
                        keep = draw_keep(tuple(score.shape), settings, generator)
                    tile_backward(tile, heads, sequence, table, weight, keep, part, table_gradient)
            part.finish(tensors[0], weights)
        plan.add_table_gradients(grads.position_key, plan.gradients)
        return (*grads.results(saved), None)


class Gradients:
    """Sums over the batch, in the dtype of the computation and the layout of the inputs."""

    def __init__(self, query: Tensor, key: Tensor, weights: Weights) -> None:
        dtype = weights.position_key.dtype
        self.query = torch.empty(query.shape, dtype=dtype, device=query.device)
        self.key = torch.zeros(key.shape, dtype=dtype, device=key.device)
        self.value = torch.zeros_like(self.key)
        self.position_key = torch.zeros_like(weights.position_key)
        self.content_bias = torch.zeros_like(weights.content_bias)
        self.position_bias = torch.zeros_like(weights.content_bias)
        self.segment_bias = torch.zeros_like(weights.content_bias)
        self.segment_embedding = torch.zeros_like(weights.segment_embedding)

    def results(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """In the order and the dtypes of the inputs."""
        sums = (self.query, self.key, self.value, self.position_key, self.content_bias, self.position_bias,
                self.segment_bias, self.segment_embedding)  # fmt: skip
        return [total.to(given.dtype) for total, given in zip(sums, inputs, strict=False)]


class SequenceGradients:
    """What the tiles of one sequence add to.

    Attributes:
        upstream: ``[N, R, H]`` gradient of the output times the dropout scale, over the softmax denominator.
        inner: ``[N, R, 1]``, gradient . output (the sum over keys of probability times its gradient), over the same.
        by_content, by_position: ``[N, R, H]`` gradients of ``q + u`` and ``q + v`` before the scale.
        by_segment: ``[N, R, 1]`` gradient of the segment number before the scale.
    """

    def __init__(
        self, grads: Gradients, number: int, upstream: Tensor, out: Tensor, inverse: Tensor, dropout_scale: float
    ) -> None:
        self.grads, self.number = grads, number
        self.inner = (upstream * out).sum(dim=-1).transpose(0, 1)[..., None] * inverse
        self.upstream = upstream.transpose(0, 1) * (inverse * dropout_scale)
        self.key = grads.key[number].transpose(0, 1)
        self.value = grads.value[number].transpose(0, 1)
        self.by_content = torch.empty_like(out).transpose(0, 1)
        self.by_position = torch.empty_like(out).transpose(0, 1)
        self.by_segment = torch.zeros_like(self.inner)

    def finish(self, query: Tensor, weights: Weights) -> None:
        """Turn the gradients of the scaled sums into those of the query and the biases."""
        scale = query.shape[-1] ** -0.5
        grads = self.grads
        content, position = self.by_content.transpose(0, 1), self.by_position.transpose(0, 1)
        segment = self.by_segment.transpose(0, 1)
        torch.add(content, position, out=grads.query[self.number])
        grads.query[self.number].addcmul_(segment, weights.segment_difference).mul_(scale)
        grads.content_bias.add_(content.sum(dim=0), alpha=scale)
        grads.position_bias.add_(position.sum(dim=0), alpha=scale)
        grads.segment_bias.add_(segment.sum(dim=0) * weights.segment_difference, alpha=scale)
        difference = (segment * (query + weights.segment_bias)).sum(dim=0)
        grads.segment_embedding[0].sub_(difference, alpha=scale)
        grads.segment_embedding[1].add_(difference, alpha=scale)


def tile_backward(
    tile: Tile,
    heads: slice,
    sequence: Sequence,
    table: Tensor,
    weight: Tensor,
    keep: Tensor | None,
    part: SequenceGradients,
    table_gradient: Tensor,
) -> None:
    """Add what one tile contributes to every gradient; ``weight`` are probabilities times their denominator."""
    rows = slice(tile.first, tile.last)
    take, dtype, device = SCRATCH.take, weight.dtype, weight.device
    shape = tuple(weight.shape)
    upstream = part.upstream[heads, rows]
    kept = weight
    if keep is not None:
        kept = torch.mul(weight, keep, out=take("kept", shape, dtype, device))
    part.value[heads].baddbmm_(kept.transpose(1, 2), upstream)
    wide = take("wide_gradient", (shape[0], tile.rows, tile.high - tile.low), dtype, device).zero_()
    score = tile.shifted(wide) if tile.index is None else take("score_gradient", shape, dtype, device)
    torch.bmm(upstream, sequence.value[heads].transpose(1, 2), out=score)
    score.mul_(kept).addcmul_(weight, part.inner[heads, rows], value=-1.0)
    if tile.index is not None:
        wide.scatter_add_(2, tile.index.expand(shape), score)
    if tile.other is not None:
        torch.mul(score, tile.other, out=kept)
        torch.sum(kept, dim=-1, keepdim=True, out=part.by_segment[heads, rows])
    torch.bmm(score, sequence.key[heads], out=part.by_content[heads, rows])
    torch.bmm(wide, table[heads, tile.low : tile.high], out=part.by_position[heads, rows])
    part.key[heads].baddbmm_(score.transpose(1, 2), sequence.by_content[heads, rows], alpha=LN_2)
    window = table_gradient[heads, tile.low : tile.high]
    window.baddbmm_(wide.transpose(1, 2), sequence.by_position[heads, rows], alpha=LN_2)
