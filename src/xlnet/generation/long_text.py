"""Texts of any length, walked in segments with memory: constant memory and constant cost per token (XLNet §2.5).

Each segment attends to itself and to the ``memory_length`` positions before it, through keys and values that were
computed when those were read: the same numbers as hidden-state memory, without projecting it again. Positions are
sinusoids of distances, without parameters, so the memory may be longer than in training (Transformer-XL §4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xlnet.batch import check_ids
from xlnet.errors import ConfigurationError, InputError, known_keys
from xlnet.generation.engine import evaluating
from xlnet.generation.protocols import Tokenizer
from xlnet.generation.score import chosen_log_probs
from xlnet.model.cache import KeyValueCache, Tokens
from xlnet.model.decoding import decode
from xlnet.model.encoder import XLNetModel
from xlnet.model.language_model import XLNetLMHeadModel


@known_keys
@dataclass(frozen=True, kw_only=True)
class WalkConfig:
    """How a long text is walked.

    Args:
        segment_length: tokens read at once.
        memory_length: positions before a segment that it may look at; may exceed what the model was trained with.
        same_length: every token looks back over at most ``memory_length`` positions, instead of the later ones of a
            segment over more (Transformer-XL's evaluation setting).
        clamp_len: largest distance told apart; None takes the model's own setting, -1 is no limit.
    """

    segment_length: int = 256
    memory_length: int = 384
    same_length: bool = False
    clamp_len: int | None = None

    def __post_init__(self) -> None:
        if self.segment_length < 1:
            raise ConfigurationError(f"segment_length={self.segment_length} must be at least 1.")
        if self.memory_length < 0:
            raise ConfigurationError(f"memory_length={self.memory_length} must not be negative; 0 is no memory.")
        if self.clamp_len is not None and (self.clamp_len == 0 or self.clamp_len < -1):
            raise ConfigurationError(f"clamp_len={self.clamp_len} must be positive, or -1 for no limit.")

    def cache(self, encoder: XLNetModel) -> KeyValueCache:
        """An empty cache for one text."""
        room = 2 * self.memory_length + self.segment_length
        reach = self.memory_length if self.same_length else None
        return KeyValueCache(
            encoder, 1, capacity=room, window=self.memory_length, reach=reach, clamp_len=self.clamp_len
        )


@dataclass(frozen=True)
class LongScore:
    """Left-to-right log-probability of a long text, in nats.

    Attributes:
        log_probs: float32 ``[L]``, of each piece given at most ``memory_length + segment_length`` pieces before it.
        config: how the text was walked.
    """

    log_probs: NDArray[np.float32] = field(repr=False)
    config: WalkConfig

    @property
    def token_count(self) -> int:
        """L."""
        return len(self.log_probs)

    @property
    def total(self) -> float:
        """Of the whole text."""
        return float(self.log_probs.sum(dtype=np.float64))

    @property
    def perplexity(self) -> float:
        """Per piece."""
        return math.exp(min(-self.total / self.token_count, 700.0))


def _segments(ids: Sequence[int], vocab_size: int, config: WalkConfig) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and positions ``[1, T]`` of each segment."""
    if len(ids) == 0:
        raise InputError("The text holds no piece.")
    for start in range(0, len(ids), config.segment_length):
        part = torch.as_tensor(np.asarray(ids[start : start + config.segment_length], dtype=np.int64))[None]
        check_ids(part, vocab_size, f"ids from {start} on, at ")
        yield part, torch.arange(start, start + part.shape[1])[None]


def walk_log_probs(model: XLNetLMHeadModel, ids: Sequence[int], config: WalkConfig | None = None) -> Iterator[Tensor]:
    """Log-probabilities ``[T]`` of segment after segment, left to right, in nats; memory use does not grow.

    Raises:
        InputError: no ids, or one outside the vocabulary.
    """
    config = config or WalkConfig()
    with evaluating(model):
        cache = config.cache(model.encoder)
    for part, position in _segments(ids, model.config.vocab_size, config):
        with evaluating(model):
            part, position = part.to(model.device), position.to(model.device)
            at = Tokens(position, position)
            states = decode(model.encoder, cache, part, at, at).query
            if states is None:
                continue
            values = chosen_log_probs(model, states[0], part[0])
        yield values.clone()


def score_long_text(
    model: XLNetLMHeadModel,
    tokenizer: Tokenizer,
    text: str,
    *,
    config: WalkConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LongScore:
    """Left-to-right log-probability of a text of any length.

    Args:
        model: a language model; runs in evaluation mode.
        tokenizer: of that model.
        text: what to score; nothing is added to it.
        config: segments and memory.
        progress: called with (pieces done, pieces in all) after each segment.

    Raises:
        InputError: a text without a piece.
    """
    config = config or WalkConfig()
    ids = tokenizer.encode(text, special_tokens=False).input_ids
    values = np.empty(len(ids), dtype=np.float32)
    done = 0
    for part in walk_log_probs(model, ids, config):
        values[done : done + len(part)] = part.float().cpu().numpy()
        done += len(part)
        if progress is not None:
            progress(done, len(ids))
    return LongScore(values, config)


def walk_states(
    model: XLNetLMHeadModel | XLNetModel, ids: Sequence[int], config: WalkConfig | None = None
) -> Iterator[Tensor]:
    """Content states ``[T, D]`` of segment after segment: both ways inside a segment, back into memory before it.

    Raises:
        InputError: no ids, or one outside the vocabulary.
    """
    config = config or WalkConfig()
    encoder = model.encoder if isinstance(model, XLNetLMHeadModel) else model
    with evaluating(encoder):
        cache = config.cache(encoder)
    for number, (part, position) in enumerate(_segments(ids, encoder.config.vocab_size, config)):
        with evaluating(encoder):
            part, position = part.to(encoder.device), position.to(encoder.device)
            at = Tokens(position, torch.full_like(position, number))
            states = decode(encoder, cache, part, at, need_content=True).content
        if states is not None:
            yield states[0].clone()


def loss_by_memory_length(
    model: XLNetLMHeadModel, ids: Sequence[int], lengths: Sequence[int], config: WalkConfig | None = None
) -> dict[int, float]:
    """Mean negative log-likelihood per piece, in nats, for each memory length."""
    config = config or WalkConfig()
    losses = {}
    for length in lengths:
        total = math.fsum(
            float(part.double().sum()) for part in walk_log_probs(model, ids, replace(config, memory_length=length))
        )
        losses[length] = -total / len(ids)
    return losses
