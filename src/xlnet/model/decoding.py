"""Decoding: a second entry into the encoder, a few rows at a time against cached keys and values.

Every row and every key carries (position, segment, order, valid); who sees whom and at which distance follows from
these four, exactly as in `geometry.py`. Nothing else is needed for left-to-right text, blanks in any order, drafts and
their verification: those are only choices of positions and orders.

    cache = KeyValueCache(encoder, batch_size=1)
    decoded = decode(encoder, cache, ids, content=Tokens(position, order), query=Tokens(next_position, next_order))

A content row becomes a key; it sees keys with ``order <= its own``. A query row sees keys with ``order < its own``.
What a decided token sees never changes, so cached keys are final and cached equals uncached (XLNet §2.3, §2.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from xlnet.errors import InputError
from xlnet.model import decode_attention
from xlnet.model.cache import KeyValueCache, Tokens, layers_of
from xlnet.model.decode_view import View
from xlnet.model.encoder import XLNetModel
from xlnet.model.few_rows import Linear
from xlnet.model.layer import AttentionBiases, Layer, RelativeAttention, activation


@dataclass(frozen=True)
class Decoded:
    """Last states of the rows of one call.

    Attributes:
        content: ``[B, T, D]``, or None where it was not asked for.
        query: ``[B, Q, D]``, or None without query rows.
        cache: the cache that was given, now holding the content rows too.
    """

    content: Tensor | None
    query: Tensor | None
    cache: KeyValueCache


@torch.no_grad()
def decode(
    encoder: XLNetModel,
    cache: KeyValueCache,
    ids: Tensor | None,
    content: Tokens | None,
    query: Tokens | None = None,
    *,
    need_content: bool = False,
) -> Decoded:
    """Run content rows (which join the cache) and query rows (which do not) through all layers.

    Args:
        encoder: in evaluation mode; dropout is never applied here.
        cache: keys so far; grows in place by T.
        ids: ``[B, T]`` int64, the tokens of the content rows; None for no content rows.
        content: ``[B, T]`` each: where they stand, their place in the order, segment, and which are real.
        query: ``[B, Q]`` each: rows that predict the token at ``position`` from every key with a lower order.
        need_content: also return the last content states; otherwise they are skipped in the last layer.

    Raises:
        InputError: shapes that do not belong together.
    """
    _check(cache, ids, content, query)
    length = 0 if ids is None else ids.shape[1]
    parts: list[Tensor] = []
    if ids is not None and content is not None and length:
        parts.append(encoder.word_embedding(ids))
        cache.reserve(content)
    if query is not None:
        parts.append(encoder.mask_embedding.expand(*query.position.shape, -1))
    if not parts:
        return Decoded(None, None, cache)
    rows = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    view = _lay_out(cache, content if length else None, query, length, rows.dtype)
    cache.positions.cover(view.low, view.high)
    if cache.step is not None and cache.step.serves(rows, cache.layer(0, view.start, view.stop)[0]):
        keys, values = cache.all_layers(view.start, view.stop)
        rows = cache.step.run(
            rows, length, need_content, keys, values, cache.positions.all_keys(view.low, view.high), view
        )  # fmt: skip
        length = length if need_content else 0
    else:
        rows, length = _run_layers(encoder, cache, rows, length, view, need_content)
    return Decoded(
        content=rows[:, :length] if length else None,
        query=rows[:, length:] if query is not None else None,
        cache=cache,
    )


def _check(cache: KeyValueCache, ids: Tensor | None, content: Tokens | None, query: Tokens | None) -> None:
    if (ids is None) != (content is None):
        raise InputError("ids and content belong together: give both, or neither for no content rows.")
    for name, tokens in (("content", content), ("query", query)):
        if tokens is not None and tokens.position.shape[0] != cache.batch_size:
            raise InputError(f"{name} has {tokens.position.shape[0]} rows; the cache has {cache.batch_size}.")
    if ids is not None and content is not None and ids.shape != content.position.shape:
        raise InputError(f"ids has shape {list(ids.shape)}; content has {list(content.position.shape)}.")


def _lay_out(
    cache: KeyValueCache, content: Tokens | None, query: Tokens | None, length: int, dtype: torch.dtype
) -> View:
    """Visibility, distances and segments of all rows of one call."""
    keys = cache.visible_keys(length)
    real = keys.valid
    row_position, sees, row_segment = _rows(content, query)
    visible = keys.order[:, None, :] <= sees[:, :, None]
    if real is not None:
        visible = visible & real[:, None, :]
    back = row_position[:, :, None] - keys.position[:, None, :]
    if cache.causal:
        visible = visible & (back >= 0)
    if cache.reach is not None:
        visible = visible & (back <= cache.reach)
    hidden, blind = None, None
    if not bool(visible.all()):
        # In half precision the sum of the most negative value and a score would be an infinity: hence float32.
        wide = torch.promote_types(dtype, torch.float32)
        hidden = torch.zeros(visible.shape, dtype=wide, device=visible.device)
        hidden = hidden.masked_fill_(~visible, torch.finfo(wide).min)[:, None]
        seeing = visible.any(dim=-1)
        blind = None if bool(seeing.all()) else ~seeing
    # Padding may claim any position: it must not widen the range of distances.
    counted = visible
    for tokens, rows in ((content, slice(0, length)), (query, slice(length, None))):
        if tokens is not None and tokens.valid is not None:
            counted = counted.clone() if counted is visible else counted
            counted[:, rows] &= tokens.valid[:, :, None]
    low, high = _range(back, counted)
    if cache.clamp_len > 0:
        low, high = max(low, -cache.clamp_len), min(high, cache.clamp_len)
        low, high = min(low, cache.clamp_len), max(high, -cache.clamp_len)
    other = None
    if cache.has_segments and keys.segment is not None:
        other = (row_segment[:, :, None] != keys.segment[:, None, :]).to(dtype)[:, None]
    index = back.clamp_(low, high).sub_(low)
    start = cache.length - keys.position.shape[1]
    return View(start, cache.length, low, high, index, hidden, blind, other)


def _rows(content: Tokens | None, query: Tokens | None) -> tuple[Tensor, Tensor, Tensor]:
    """Position, highest order seen, and segment of content rows followed by query rows."""
    position, sees, segment = [], [], []
    for tokens, below in ((content, 0), (query, 1)):
        if tokens is not None:
            position.append(tokens.position)
            sees.append(tokens.order - below)
            segment.append(torch.zeros_like(tokens.position) if tokens.segment is None else tokens.segment)
    if len(position) == 1:
        return position[0], sees[0], segment[0]
    return torch.cat(position, 1), torch.cat(sees, 1), torch.cat(segment, 1)


def _range(back: Tensor, visible: Tensor) -> tuple[int, int]:
    """Lowest and highest distance among visible pairs; (0, 0) where there is none."""
    if back.numel() == 0:
        return 0, 0
    far = 1 << 40
    low = int(torch.where(visible, back, far).min())
    high = int(torch.where(visible, back, -far).max())
    return (low, high) if low <= high else (0, 0)


def _run_layers(
    encoder: XLNetModel, cache: KeyValueCache, rows: Tensor, length: int, view: View, need_content: bool
) -> tuple[Tensor, int]:
    """Layer by layer, for any number of rows; last states, and how many of them are of content rows."""
    config = encoder.config
    for number, layer in enumerate(layers_of(encoder)):
        if length:
            cache.store(number, *_projected_keys(layer.attention, rows[:, :length], cache.linear))
        if number == config.n_layer - 1 and not need_content and length:
            rows, view = rows[:, length:], view.rows_from(length)
            length = 0
        biases = cast(AttentionBiases, encoder.attention_biases[number if config.untie_r else 0])
        if rows.shape[1]:
            rows = _run_layer(layer, biases, rows, cache, number, view)
    return rows, length


def _projected_keys(attention: RelativeAttention, states: Tensor, linear: Linear) -> tuple[Tensor, Tensor]:
    """Keys and values ``[B, N, T, H]`` of content states ``[B, T, D]``."""
    config = attention.config
    heads = (*states.shape[:2], config.n_head, config.d_head)
    key, value = (linear(states, part.weight, None).view(heads) for part in (attention.key, attention.value))
    return key.transpose(1, 2), value.transpose(1, 2)


def _run_layer(
    layer: Layer, biases: AttentionBiases, rows: Tensor, cache: KeyValueCache, number: int, view: View
) -> Tensor:
    attention, feed_forward, linear = layer.attention, layer.feed_forward, cache.linear
    query = linear(rows, attention.query.weight, None)
    attended = _attend(attention, biases, query, cache, number, view)
    rows = _normalized(attention.norm, linear(attended, attention.output.weight, None).add_(rows))
    inner = linear(rows, feed_forward.inner.weight, feed_forward.inner.bias)
    inner = activation(inner, attention.config.ff_activation)
    added = linear(inner, feed_forward.outer.weight, feed_forward.outer.bias).add_(rows)
    return _normalized(feed_forward.norm, added)


def _normalized(norm: nn.LayerNorm, states: Tensor) -> Tensor:
    # Without the call of the module: at a row or two its overhead is half of the time.
    return torch.layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _attend(
    attention: RelativeAttention, biases: AttentionBiases, query: Tensor, cache: KeyValueCache, number: int, view: View
) -> Tensor:
    """``query [B, R, N * H]`` over the cached keys to ``[B, R, N * H]``: the score of `attention.py`, by gather."""
    config = attention.config
    batch, rows, _ = query.shape
    keys, values = cache.layer(number, view.start, view.stop)
    if keys.shape[2] == 0:
        return torch.zeros_like(query)
    query = query.view(batch, rows, config.n_head, config.d_head)
    if cache.compiled and decode_attention.serves(query, keys):
        attended = decode_attention.attend(
            query, keys, values, cache.positions.keys(number, view.low, view.high),
            (biases.content, biases.position, biases.segment),
            None if view.other_segment is None else attention.segment_embedding[1] - attention.segment_embedding[0],
            view,
        )  # fmt: skip
        return attended.reshape(batch, rows, -1)
    scale = config.d_head**-0.5
    by_content = ((query + biases.content) * scale).transpose(1, 2)
    by_place = ((query + biases.position) * scale).transpose(1, 2)
    table = cache.positions.keys(number, view.low, view.high)
    distance = torch.matmul(by_place, table.transpose(1, 2))
    index = view.index[:, None].expand(-1, config.n_head, -1, -1)
    score = torch.matmul(by_content, keys.transpose(2, 3)).add_(distance.gather(-1, index))
    if view.other_segment is not None:
        difference = attention.segment_embedding[1] - attention.segment_embedding[0]
        by_segment = ((query + biases.segment) * difference).sum(-1).transpose(1, 2) * scale
        score = score.addcmul_(by_segment[..., None], view.other_segment)
    score = score.to(torch.promote_types(score.dtype, torch.float32))
    if view.hidden is not None:
        score = score.add_(view.hidden)
    weights = nn.functional.softmax(score, dim=-1)
    if view.blind is not None:
        weights = weights.masked_fill_(view.blind[:, None, :, None], 0.0)
    return torch.matmul(weights.to(values.dtype), values).transpose(1, 2).reshape(batch, rows, -1)
