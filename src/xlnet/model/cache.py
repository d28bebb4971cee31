"""What decoding keeps between calls: projected keys and values of every layer, and projected codes of distances.

Storage is allocated ahead and filled in place, so a token's cost does not grow with copying. With a ``window`` the
cache drops what is older, as segment recurrence does: cost per token and memory stay constant for texts of any length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from xlnet.errors import ConfigurationError, InputError
from xlnet.model.decode_step import DecodeStep
from xlnet.model.encoder import XLNetModel
from xlnet.model.few_rows import Products, choose_linear
from xlnet.model.geometry import ALWAYS_SEEN
from xlnet.model.layer import Layer
from xlnet.model.memory import Memory
from xlnet.model.positions import sinusoids


@dataclass(frozen=True)
class Tokens:
    """Where rows or keys stand; all ``[B, T]``.

    Attributes:
        position: int64 place in the text.
        order: int64 place in the factorization order.
        segment: int64; only equality matters; None counts as segment 0.
        valid: bool, False for padding; None where all are real.
    """

    position: Tensor
    order: Tensor
    segment: Tensor | None = None
    valid: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("order", "segment", "valid"):
            value = getattr(self, name)
            if value is not None and value.shape != self.position.shape:
                raise InputError(
                    f"{name} has shape {list(value.shape)}; position has {list(self.position.shape)}: they must agree."
                )


class PositionKeys:
    """Projected sinusoids of the distances ``low .. high`` for every layer; the range grows by doubling.

    Exact because the weights are frozen while decoding; a decode step then never projects a table.
    """

    def __init__(self, encoder: XLNetModel) -> None:
        self._encoder = encoder
        self.low, self.high = 0, -1
        self._tables: list[Tensor] = []

    def cover(self, low: int, high: int) -> None:
        """Make sure that the distances ``low .. high`` are there."""
        if self.low <= low and high <= self.high:
            return
        if self.high < self.low:
            self._tables = self._project(low, high + 16)
            self.low, self.high = low, high + 16
            return
        size = self.high - self.low + 1
        new_low = self.low if low >= self.low else min(low, self.low - size)
        new_high = self.high if high <= self.high else max(high, self.high + size)
        if new_low < self.low:
            before = self._project(new_low, self.low - 1)
            self._tables = [torch.cat(pair, dim=1) for pair in zip(before, self._tables, strict=True)]
        if new_high > self.high:
            after = self._project(self.high + 1, new_high)
            self._tables = [torch.cat(pair, dim=1) for pair in zip(self._tables, after, strict=True)]
        self.low, self.high = new_low, new_high

    def _project(self, low: int, high: int) -> list[Tensor]:
        encoder = self._encoder
        config = encoder.config
        distances = torch.arange(low, high + 1, device=encoder.device)
        table = sinusoids(distances, config.d_model, encoder.word_embedding.weight.dtype)
        heads = (-1, config.n_head, config.d_head)
        projected = [layer.attention.position(table).view(heads) for layer in layers_of(encoder)]
        return [keys.transpose(0, 1).contiguous() for keys in projected]

    def keys(self, layer: int, low: int, high: int) -> Tensor:
        """``[N, high - low + 1, H]`` position keys of one layer."""
        return self._tables[layer][:, low - self.low : high + 1 - self.low]

    def all_keys(self, low: int, high: int) -> list[Tensor]:
        """The same of every layer."""
        return [self.keys(number, low, high) for number in range(len(self._tables))]


class KeyValueCache:
    """Keys, values and their tokens; B sequences, grown in place.

    Args:
        encoder: whose layers the keys belong to; its weights must not change while the cache lives.
        batch_size: B.
        capacity: columns to allocate at first; doubled when full.
        window: how many columns before the current call may be seen; None for all of them. Old ones are dropped.
        reach: how many positions back a row sees at most (``same_length``); None is no limit.
        clamp_len: largest distance told apart; None takes the configuration's.
        products: which matrix product decodes; see :func:`~xlnet.model.few_rows.choose_linear`. ``torch`` keeps
            everything to torch; otherwise a few rows take the kernels of ``decode_step.c``, or of ``decode.c`` for
            attention alone, where they can be built.
    """

    def __init__(
        self,
        encoder: XLNetModel,
        batch_size: int,
        *,
        capacity: int = 64,
        window: int | None = None,
        reach: int | None = None,
        clamp_len: int | None = None,
        products: Products = "auto",
    ) -> None:
        if batch_size < 1:
            raise ConfigurationError(f"batch_size={batch_size} must be at least 1.")
        if window is not None and window < 0:
            raise ConfigurationError(f"window={window} must not be negative; None keeps everything.")
        config = encoder.config
        self._encoder = encoder
        self.batch_size, self.length, self.window = batch_size, 0, window
        self.reach, self.causal = reach, config.attn_type == "uni"
        self.clamp_len = config.clamp_len if clamp_len is None else clamp_len
        if reach is None and self.causal and config.same_length:
            self.reach = 0 if window is None else window
        self.linear = choose_linear(products)
        self.compiled = products != "torch"
        self.step = DecodeStep.of(encoder) if self.compiled else None
        self.has_segments = False
        self.positions = PositionKeys(encoder)
        self._pending = 0
        shape = (batch_size, config.n_head, max(1, capacity), config.d_head)
        like = encoder.word_embedding.weight
        self._keys = [torch.empty(shape, dtype=like.dtype, device=like.device) for _ in encoder.layers]
        self._values = [torch.empty_like(keys) for keys in self._keys]
        integers = torch.zeros(3, batch_size, shape[2], dtype=torch.int64, device=like.device)
        self._position, self._order, self._segment = integers[0], integers[1], integers[2]
        self._valid = torch.zeros(batch_size, shape[2], dtype=torch.bool, device=like.device)

    @property
    def capacity(self) -> int:
        """Columns allocated."""
        return self._valid.shape[1]

    def reserve(self, tokens: Tokens) -> None:
        """Add columns for new tokens; :meth:`store` then fills them layer by layer."""
        count = tokens.position.shape[1]
        self._make_room(count)
        place = slice(self.length, self.length + count)
        self._position[:, place] = tokens.position
        self._order[:, place] = tokens.order
        self._segment[:, place] = 0 if tokens.segment is None else tokens.segment
        self._valid[:, place] = True if tokens.valid is None else tokens.valid
        self.has_segments = self.has_segments or tokens.segment is not None
        self.length += count
        self._pending = count

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keys and values ``[B, N, T, H]`` of the columns reserved last."""
        place = slice(self.length - self._pending, self.length)
        self._keys[layer][:, :, place] = keys
        self._values[layer][:, :, place] = values

    def layer(self, number: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Views ``[B, N, stop - start, H]`` of one layer's keys and values."""
        return self._keys[number][:, :, start:stop], self._values[number][:, :, start:stop]

    def all_layers(self, start: int, stop: int) -> tuple[list[Tensor], list[Tensor]]:
        """The same of every layer."""
        place = slice(start, stop)
        return [keys[:, :, place] for keys in self._keys], [values[:, :, place] for values in self._values]

    def visible_keys(self, current: int) -> Tokens:
        """The tokens that rows of a call with ``current`` new columns may see at all."""
        start = 0 if self.window is None else max(0, self.length - current - self.window)
        place = slice(start, self.length)
        valid = self._valid[:, place]
        return Tokens(self._position[:, place], self._order[:, place], self._segment[:, place], valid)

    def remember(self, memory: Memory) -> None:
        """Start from hidden states of earlier segments: projected once, exact because the weights are frozen.

        Raises:
            InputError: the memory belongs to another model or batch, is of reversed text, or the cache is in use.
        """
        memory.check(self._encoder.config, self.batch_size, None)
        if self.length:
            raise InputError("A memory can only start a cache: this one already holds tokens.")
        if bool((memory.direction != 1).any()):
            raise InputError("The memory was read from reversed text; decoding runs forward.")
        past = torch.arange(-memory.length, 0, device=memory.valid.device).expand(self.batch_size, -1)
        self.reserve(Tokens(past, torch.full_like(past, ALWAYS_SEEN), None, memory.valid))
        if self.causal and self._encoder.config.same_length:
            self.reach = memory.length
        with torch.no_grad():
            for number, layer in enumerate(layers_of(self._encoder)):
                key, value = layer.attention.project_keys(memory.states[number].to(self._keys[number].dtype))
                self.store(number, key.transpose(1, 2), value.transpose(1, 2))

    def forget(self, limit: Tensor) -> None:
        """Drop the keys whose order is at or above ``limit [B]`` (drafts that were not accepted)."""
        kept = self._order[:, : self.length] < limit[:, None]
        self._valid[:, : self.length] &= kept
        used = self._valid[:, : self.length].any(dim=0).nonzero()
        self.length = int(used[-1]) + 1 if used.numel() else 0

    def select(self, rows: Tensor) -> None:
        """Keep, drop, repeat or reorder sequences: afterwards row i is what row ``rows[i]`` was."""
        self.batch_size = rows.shape[0]
        self._keys = [_take(part, rows, 2, self.length) for part in self._keys]
        self._values = [_take(part, rows, 2, self.length) for part in self._values]
        self._position, self._order = self._position[rows], self._order[rows]
        self._segment, self._valid = self._segment[rows], self._valid[rows]

    def _make_room(self, count: int) -> None:
        needed = self.length + count
        if self.window is not None and self.length > 2 * self.window + count:
            self._resize(max(self.capacity, self.window + count), first=self.length - self.window)
            needed = self.length + count
        if needed > self.capacity:
            self._resize(max(needed, 2 * self.capacity), first=0)

    def _resize(self, capacity: int, first: int) -> None:
        """New storage of ``capacity`` columns holding the columns from ``first`` on."""
        kept = slice(first, self.length)
        count = self.length - first
        self._keys = [_moved(part, kept, 2, capacity) for part in self._keys]
        self._values = [_moved(part, kept, 2, capacity) for part in self._values]
        self._position, self._order = (_moved(part, kept, 1, capacity) for part in (self._position, self._order))
        self._segment, self._valid = (_moved(part, kept, 1, capacity) for part in (self._segment, self._valid))
        self.length = count


def layers_of(encoder: XLNetModel) -> list[Layer]:
    """The encoder's layers, with their type."""
    return [cast(Layer, layer) for layer in encoder.layers]


def _moved(part: Tensor, kept: slice, axis: int, capacity: int) -> Tensor:
    """A tensor with ``capacity`` columns on ``axis`` that starts with the kept columns of ``part``."""
    shape = list(part.shape)
    shape[axis] = capacity
    moved = part.new_zeros(shape)
    count = kept.stop - kept.start
    moved.narrow(axis, 0, count).copy_(part.narrow(axis, kept.start, count))
    return moved


def _take(part: Tensor, rows: Tensor, axis: int, used: int) -> Tensor:
    """Rows of a storage tensor; columns that hold nothing are not copied."""
    shape = (rows.shape[0], *part.shape[1:])
    taken = part.new_empty(shape)
    taken.narrow(axis, 0, used).copy_(part.narrow(axis, 0, used)[rows])
    return taken
