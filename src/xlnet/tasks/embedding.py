"""Vectors of texts: the last states of the encoder, pooled over real tokens only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.float32 import float32_products
from xlnet.model import PretrainedModel
from xlnet.model.summary import boundary
from xlnet.tasks.contract import pad_sequences
from xlnet.tasks.families.sequences import encode_texts, fit_sequences
from xlnet.tasks.predicting import Advance
from xlnet.text import XLNetTokenizer
from xlnet.training.evaluation import evaluating
from xlnet.training.freed_memory import freed_memory_kept

Pooling = Literal["mean", "last", "first"]
POOLING = ("mean", "last", "first")


def embed_texts(
    model: PretrainedModel,
    tokenizer: XLNetTokenizer,
    texts: Sequence[str],
    *,
    pooling: Pooling = "mean",
    max_length: int = 512,
    batch_size: int = 32,
    advance: Advance | None = None,
) -> Tensor:
    """One vector a text, ``[N, D]`` float32 on the CPU, independent of what it is batched with.

    Args:
        model: an encoder, or any model with one; used in eval mode.
        tokenizer: the model's.
        texts: may be empty strings; texts beyond ``max_length`` lose their end.
        pooling: mean over the text's pieces (of ``<sep>`` and ``<cls>`` where it has none), or the state of the last
            token (``<cls>``) or of the first.
        max_length: tokens at most, ``<sep>`` and ``<cls>`` included.
        batch_size: texts at once.
        advance: called with the number of texts done.

    Raises:
        ConfigurationError: an unknown pooling.
        InputError: a string instead of a list.
    """
    if isinstance(texts, str):
        raise InputError("embed takes a list of texts, not one string. Write embed([text]).")
    if pooling not in POOLING:
        raise ConfigurationError(
            f"pooling={pooling!r} must be one of {', '.join(POOLING)}.{did_you_mean(pooling, POOLING)}"
        )
    encoder = getattr(model, "encoder", model)
    sequences = [fit_sequences(ids, None, max_length)[0] for ids in encode_texts(tokenizer, texts)]
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    vectors = torch.zeros(len(sequences), model.config.d_model)
    with float32_products("auto", model.device), freed_memory_kept(model.device), evaluating(model):
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            inputs = {
                key: value.to(model.device) for key, value in pad_sequences([sequences[i] for i in places]).items()
            }
            states = encoder(**inputs).content.float()
            vectors[places] = pool(states, inputs["attention_mask"], pooling).cpu()
            if advance is not None:
                advance(len(places))
    return vectors


def pool(states: Tensor, attention_mask: Tensor, pooling: Pooling) -> Tensor:
    """``[B, L, D]`` with left padding and two marks at the end to ``[B, D]``."""
    if pooling != "mean":
        return states[torch.arange(len(states), device=states.device), boundary(attention_mask, pooling)]
    text = attention_mask.clone()
    text[:, -2:] = False
    chosen = torch.where(text.any(dim=1, keepdim=True), text, attention_mask)[..., None].to(states.dtype)
    return (states * chosen).sum(dim=1) / chosen.sum(dim=1)
