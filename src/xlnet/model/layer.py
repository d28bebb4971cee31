"""One layer: relative attention and feed-forward, each with residual connection and layer normalization (XLNet A.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlnet.configuration import XLNetConfig
from xlnet.model import pointwise
from xlnet.model.attention import choose_backend, reference_probabilities, weigh_values
from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.dropout import KeepRule, dropout, keep_rule
from xlnet.model.geometry import Geometry


def activation(states: Tensor, kind: str) -> Tensor:
    """The named activation; ``gelu_tanh`` is what the release calls gelu, ``gelu`` is the exact erf form."""
    if kind == "relu":
        return nn.functional.relu(states)
    return nn.functional.gelu(states, approximate="tanh" if kind == "gelu_tanh" else "none")


def activate_and_drop(states: Tensor, kind: str, rate: float, training: bool) -> Tensor:
    """Activation, then dropout; in one pass where the compiled kernel serves."""
    rule = keep_rule(rate) if training and rate > 0.0 else KeepRule(0, 1.0)
    if kind == "gelu_tanh" and rule is not None and pointwise.serves(states):
        return pointwise.activate_and_drop(states, True, rule.threshold, rule.scale)
    return dropout(activation(states, kind), rate, training)


class AttentionBiases(nn.Module):
    """The paper's u, v and b: how much a head cares for content, distance and segment whatever the row asks.

    One instance a layer, or one for all where ``untie_r`` is False. Each is ``[N, H]``.
    """

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        shape = (config.n_head, config.d_head)
        self.content = nn.Parameter(torch.empty(shape))
        self.position = nn.Parameter(torch.empty(shape))
        self.segment = nn.Parameter(torch.empty(shape))


class RelativeAttention(nn.Module):
    """Projections around one call of attention, then residual connection and layer normalization."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.n_head * config.d_head
        self.query = nn.Linear(config.d_model, inner, bias=False)
        self.key = nn.Linear(config.d_model, inner, bias=False)
        self.value = nn.Linear(config.d_model, inner, bias=False)
        self.position = nn.Linear(config.d_model, inner, bias=False)
        self.output = nn.Linear(inner, config.d_model, bias=False)
        self.segment_embedding = nn.Parameter(torch.empty(2, config.n_head, config.d_head))
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def project_keys(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values ``[B, S, N, H]`` of states ``[B, S, D]``."""
        heads = (*states.shape[:2], self.config.n_head, self.config.d_head)
        return self.key(states).view(heads), self.value(states).view(heads)

    def forward(
        self,
        rows: Tensor,
        keys_and_values: tuple[Tensor, Tensor],
        table: Tensor,
        biases: AttentionBiases,
        geometry: Geometry,
        need_probabilities: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend and add.

        Args:
            rows: ``[B, R, D]`` states of the rows.
            keys_and_values: two of ``[B, S, N, H]``.
            table: ``[T, D]`` sinusoids of the distances.
            biases: u, v, b.
            geometry: rows against keys.
            need_probabilities: also return them; takes the reference path.

        Returns:
            New states ``[B, R, D]`` and probabilities ``[B, N, R, S]`` or None.
        """
        config = self.config
        key, value = keys_and_values
        inputs = AttentionInputs(
            query=self.query(rows).view(*rows.shape[:2], config.n_head, config.d_head),
            key=key,
            value=value,
            position_key=self.position(table).view(-1, config.n_head, config.d_head),
            content_bias=biases.content,
            position_bias=biases.position,
            segment_bias=biases.segment,
            segment_embedding=self.segment_embedding,
            geometry=geometry,
            dropatt=config.dropatt if self.training else 0.0,
        )
        probabilities = None
        if need_probabilities:
            probabilities = reference_probabilities(inputs)
            attended = weigh_values(probabilities, inputs)
        else:
            attended = choose_backend(config.attention_backend, inputs)(inputs)
        added = dropout(self.output(attended.flatten(2)), config.dropout, self.training)
        return self.norm(rows + added), probabilities


class FeedForward(nn.Module):
    """Two dense layers with an activation between, then residual connection and layer normalization."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.inner = nn.Linear(config.d_model, config.d_inner)
        self.outer = nn.Linear(config.d_inner, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(self, states: Tensor) -> Tensor:
        """``[B, R, D]`` to ``[B, R, D]``; dropout after either dense layer, as released."""
        rate = self.config.dropout
        inner = activate_and_drop(self.inner(states), self.config.ff_activation, rate, self.training)
        return self.norm(states + dropout(self.outer(inner), rate, self.training))


class Layer(nn.Module):
    """Attention, then feed-forward; both streams pass through the same weights as rows of one tensor."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.attention = RelativeAttention(config)
        self.feed_forward = FeedForward(config)

    def forward(
        self,
        rows: Tensor,
        key_states: Tensor,
        table: Tensor,
        biases: AttentionBiases,
        geometry: Geometry,
        need_probabilities: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """``rows [B, R, D]`` attend to ``key_states [B, S, D]`` (memory, then content)."""
        keys_and_values = self.attention.project_keys(key_states)
        attended, probabilities = self.attention(rows, keys_and_values, table, biases, geometry, need_probabilities)
        return self.feed_forward(attended), probabilities
