"""One vector for a sequence: the last real token's state by default (the release's ``summarize_sequence``)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlnet.configuration import XLNetConfig
from xlnet.model.dropout import dropout


class SummaryAttention(nn.Module):
    """A learnt query attends to all real tokens; layer normalization without residual, as released."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.n_head * config.d_head
        self.query = nn.Linear(config.d_model, inner, bias=False)
        self.key = nn.Linear(config.d_model, inner, bias=False)
        self.value = nn.Linear(config.d_model, inner, bias=False)
        self.output = nn.Linear(inner, config.d_model, bias=False)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(self, asked: Tensor, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """``asked [D]`` and ``states [B, L, D]`` to ``[B, D]``; padding is not attended to."""
        config = self.config
        heads = (*states.shape[:2], config.n_head, config.d_head)
        query = self.query(asked).view(config.n_head, config.d_head)
        score = torch.einsum("nh,blnh->bnl", query, self.key(states).view(heads)) * config.d_head**-0.5
        if attention_mask is not None:
            score = score.masked_fill(~attention_mask[:, None], torch.finfo(score.dtype).min)
        weights = dropout(score.softmax(dim=-1), config.dropatt, self.training)
        attended = torch.einsum("bnl,blnh->bnh", weights, self.value(states).view(heads))
        return self.norm(dropout(self.output(attended.flatten(1)), config.dropout, self.training))


class SequenceSummary(nn.Module):
    """Pool, project, activate, drop; each step as the configuration says."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        if config.summary_type == "attn":
            self.query = nn.Parameter(torch.empty(config.d_model))
            self.attention = SummaryAttention(config)
        if config.summary_use_proj:
            self.projection = nn.Linear(config.d_model, config.d_model)

    def pool(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """``[B, L, D]`` to ``[B, D]``; ``first``, ``last`` and ``mean`` count real tokens only, padding on any side."""
        kind = self.config.summary_type
        if kind == "attn":
            return self.attention(self.query, states, attention_mask)
        if attention_mask is None:
            return {"last": states[:, -1], "first": states[:, 0]}.get(kind, states.mean(dim=1))
        if kind == "mean":
            real = attention_mask[..., None].to(states.dtype)
            return (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        return states[torch.arange(states.shape[0], device=states.device), boundary(attention_mask, kind)]

    def forward(self, states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """``states [B, L, D]`` and ``attention_mask [B, L]`` bool to a summary ``[B, D]``."""
        summary = self.pool(states, attention_mask)
        if self.config.summary_use_proj:
            summary = self.projection(summary)
            if self.config.summary_activation == "tanh":
                summary = summary.tanh()
        return dropout(summary, self.config.summary_dropout, self.training)


def boundary(attention_mask: Tensor, kind: str = "last") -> Tensor:
    """``[B]`` index of the first or last real token of each row of ``attention_mask [B, L]``."""
    real = attention_mask.to(torch.int8)
    if kind == "first":
        return real.argmax(dim=1)
    return attention_mask.shape[1] - 1 - real.flip(1).argmax(dim=1)
