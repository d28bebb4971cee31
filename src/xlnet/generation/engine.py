"""The engine: asks the model for distributions at chosen places, given chosen tokens, for many samples at once.

A decoding method speaks in :class:`Rows`: these tokens are decided now (content rows), tell me the distribution at
those places (query rows). The cached engine answers through `model/decoding.py`; the uncached one encodes everything
afresh through the encoder's own forward pass and is the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from xlnet.batch import check_ids
from xlnet.errors import InputError
from xlnet.float32 import float32_products
from xlnet.model.cache import KeyValueCache, Tokens
from xlnet.model.decoding import decode
from xlnet.model.few_rows import Linear, Products
from xlnet.model.language_model import XLNetLMHeadModel
from xlnet.model.memory import Memory


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients, and the ``auto`` products of :mod:`xlnet.float32` inside; restored afterwards."""
    device = next(model.parameters()).device
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with float32_products("auto", device), torch.inference_mode():
            yield
    finally:
        for module, training in was_training.items():
            module.training = training


@dataclass
class Rows:
    """What one sample asks of one call.

    Attributes:
        content: (position, order, id) of tokens that join the keys.
        query: (position, order): predict the token at the position from every key of a lower order.
        forget_from: before the call, drop keys at or above this order (drafts that were refused).
    """

    content: Sequence[tuple[int, int, int]] = ()
    query: Sequence[tuple[int, int]] = ()
    forget_from: int | None = None


class Conditionals(Protocol):
    """Anything that answers :class:`Rows`: the cached model, the uncached model, a table in a test."""

    def ask(self, rows: Sequence[Rows]) -> list[Tensor]:
        """One ``[Q_i, V]`` tensor of logits for each sample."""
        ...

    def select(self, rows: Sequence[int]) -> None:
        """Keep, repeat or reorder samples."""
        ...


class CachedConditionals:
    """The model behind a key/value cache.

    Args:
        model: a language model in evaluation mode.
        samples: how many sequences run side by side.
        memory: hidden states of earlier text of each sample, or None.
        window: how many positions a token may look back over; None is all. Older ones leave the cache.
    """

    def __init__(
        self,
        model: XLNetLMHeadModel,
        samples: int,
        memory: Memory | None = None,
        window: int | None = None,
        products: Products = "auto",
    ) -> None:
        self._model = model
        self._cache = KeyValueCache(model.encoder, samples, window=window, reach=window, products=products)
        if memory is not None:
            self._cache.remember(memory)

    def ask(self, rows: Sequence[Rows]) -> list[Tensor]:
        """See :class:`Conditionals`."""
        model, cache = self._model, self._cache
        if any(row.forget_from is not None for row in rows):
            never = torch.iinfo(torch.int64).max
            limits = [never if row.forget_from is None else row.forget_from for row in rows]
            cache.forget(torch.tensor(limits, device=model.device))
        content, ids = _content_tokens(rows, model)
        query = _query_tokens(rows, model.device)
        states = decode(model.encoder, cache, ids, content, query).query
        return _logits(model, states, rows, cache.linear)

    def select(self, rows: Sequence[int]) -> None:
        """See :class:`Conditionals`."""
        self._cache.select(torch.tensor(list(rows), device=self._model.device))


@dataclass
class _Text:
    """Keys of one sample so far."""

    keys: list[tuple[int, int, int]] = field(default_factory=list)


class UncachedConditionals:
    """The same answers through the encoder's forward pass over everything decided so far, call after call."""

    def __init__(self, model: XLNetLMHeadModel, samples: int, memory: Memory | None = None) -> None:
        self._model = model
        self._memory = memory
        self._texts = [_Text() for _ in range(samples)]

    def ask(self, rows: Sequence[Rows]) -> list[Tensor]:
        """See :class:`Conditionals`. Every query row gets a place of its own that nobody else sees."""
        model = self._model
        for text, row in zip(self._texts, rows, strict=True):
            if row.forget_from is not None:
                limit = row.forget_from
                text.keys = [key for key in text.keys if key[1] < limit]
            text.keys.extend(row.content)
        if not any(row.query for row in rows):
            return [torch.empty(0, model.config.vocab_size, device=model.device) for _ in rows]
        length = max(1, max(len(text.keys) + len(row.query) for text, row in zip(self._texts, rows, strict=True)))
        widest = max(len(row.query) for row in rows)
        shape = (len(rows), length)
        ids, position, order = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
        real, is_key = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        targets = torch.full((len(rows), widest), -1)
        for i, (text, row) in enumerate(zip(self._texts, rows, strict=True)):
            places = [*((p, o, t) for p, o, t in text.keys), *((p, o, 0) for p, o in row.query)]
            used, keys = len(places), len(text.keys)
            if used:
                packed = torch.tensor(places)
                position[i, :used], order[i, :used], ids[i, :used] = packed[:, 0], packed[:, 1], packed[:, 2]
            real[i, :used], is_key[i, :keys] = True, True
            targets[i, : used - keys] = torch.arange(keys, used)
        seen = order[:, None, :] <= (order - (~is_key).to(torch.int64))[:, :, None]
        visible = seen & is_key[:, None, :]
        check_ids(ids, model.config.vocab_size, "tokens")
        device = model.device
        encoded = model.encoder(
            ids.to(device), real.to(device), memory=self._memory, visible=visible.to(device),
            target_positions=targets.to(device), position_ids=position.to(device),
        )  # fmt: skip
        return _logits(model, encoded.query, rows)

    def select(self, rows: Sequence[int]) -> None:
        """See :class:`Conditionals`."""
        self._texts = [_Text(list(self._texts[row].keys)) for row in rows]
        if self._memory is not None:
            self._memory = self._memory.select(torch.tensor(list(rows), device=self._model.device))


def conditionals(
    model: XLNetLMHeadModel,
    samples: int,
    *,
    memory: Memory | None = None,
    window: int | None = None,
    cached: bool = True,
    products: Products = "auto",
) -> Conditionals:
    """The engine for a model.

    Raises:
        InputError: a window without a cache.
    """
    if cached:
        return CachedConditionals(model, samples, memory, window, products)
    if window is not None:
        raise InputError(f"window={window} needs the cache: set cached=True, or window=None.")
    return UncachedConditionals(model, samples, memory)


def _logits(
    model: XLNetLMHeadModel, states: Tensor | None, rows: Sequence[Rows], linear: Linear = nn.functional.linear
) -> list[Tensor]:
    """Logits of the real query rows only, split by sample."""
    weight = model.output_weight
    counts = [len(row.query) for row in rows]
    if states is None:
        return [torch.empty(0, model.config.vocab_size, device=model.device) for _ in rows]
    if len(set(counts)) == 1:
        return list(linear(states, weight, model.lm_bias))
    packed = torch.cat([states[i, :count] for i, count in enumerate(counts)])
    return list(linear(packed, weight, model.lm_bias).split(counts))


def _content_tokens(rows: Sequence[Rows], model: XLNetLMHeadModel) -> tuple[Tokens | None, Tensor | None]:
    counts = [len(row.content) for row in rows]
    widest = max(counts)
    if widest == 0:
        return None, None
    padded = [[*row.content, *[(0, 0, 0)] * (widest - len(row.content))] for row in rows]
    packed = torch.tensor(padded)
    check_ids(packed[..., 2], model.config.vocab_size, "tokens")
    packed = packed.to(model.device)
    return Tokens(packed[..., 0], packed[..., 1], None, _valid(counts, widest, model.device)), packed[..., 2]


def _query_tokens(rows: Sequence[Rows], device: torch.device) -> Tokens | None:
    counts = [len(row.query) for row in rows]
    widest = max(counts)
    if widest == 0:
        return None
    filler = next(row.query[0] for row in rows if row.query)
    packed = torch.tensor([[*row.query, *[filler] * (widest - len(row.query))] for row in rows], device=device)
    return Tokens(packed[..., 0], packed[..., 1])


def _valid(counts: Sequence[int], widest: int, device: torch.device) -> Tensor | None:
    if min(counts) == widest:
        return None
    return torch.arange(widest, device=device) < torch.tensor(counts, device=device)[:, None]
