"""Fitting loaded weights to another vocabulary size: pieces are added at the end or dropped there, by rule."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlnet.model import XLNetLMHeadModel


@torch.no_grad()
def resize_vocabulary(model: XLNetLMHeadModel, vocab_size: int) -> str:
    """Change the number of pieces in place; ids that exist before and after keep their weights.

    New pieces start at the mean of the existing embeddings, plus noise as small as fresh weights, and at the mean
    output bias: they begin as an average word rather than an impossible one.

    Args:
        model: with embedding and output bias of the old size.
        vocab_size: the new number of pieces.

    Returns:
        A sentence that reports what was done.
    """
    old = model.config.vocab_size
    if vocab_size == old:
        return f"The vocabulary has {old} pieces already."
    spread = model.config.initializer_range

    def resized(weights: Tensor, noise: float) -> nn.Parameter:
        kept = weights[: min(old, vocab_size)]
        added = weights.mean(dim=0, keepdim=True).expand(max(0, vocab_size - old), *weights.shape[1:])
        return nn.Parameter(torch.cat([kept, added + noise * torch.randn(added.shape, device=weights.device)]))

    embedding = nn.Embedding(1, model.config.d_model)
    embedding.weight = resized(model.encoder.word_embedding.weight, spread)
    embedding.num_embeddings = vocab_size
    model.encoder.word_embedding = embedding
    model.lm_bias = resized(model.lm_bias, 0.0)
    if not model.config.tie_word_embeddings:
        model.lm_projection.weight = resized(model.lm_projection.weight, spread)
        model.lm_projection.out_features = vocab_size
    model.config = model.encoder.config = model.config.replace(vocab_size=vocab_size)
    change = f"{vocab_size - old} pieces were added" if vocab_size > old else f"{old - vocab_size} pieces were dropped"
    return f"The vocabulary went from {old} to {vocab_size}: {change} at the end."
