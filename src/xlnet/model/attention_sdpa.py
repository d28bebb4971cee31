"""Attention through the framework's fused kernel: distances, segments and visibility go in as one additive bias.

The bias ``[B, N, R, S]`` exists as a whole, so memory grows with the square of the length; the kernel saves the rest.
It is the path for CUDA, where the memory-efficient kernel gives the gradient of a bias. On CPU the fused kernel refuses
one that needs a gradient and the framework takes its plain formula: exact, but no faster than the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.distances import distance_scores


def sdpa_attention(inputs: AttentionInputs) -> Tensor:
    """Returns ``[B, R, N, H]``; a row that sees nothing gives zeros."""
    geometry = inputs.geometry
    scale = inputs.query.shape[-1] ** -0.5
    bias = distance_scores(inputs.query + inputs.position_bias, inputs.position_key, geometry)
    if geometry.other_segment is not None:
        difference = inputs.segment_embedding[1] - inputs.segment_embedding[0]
        by_segment = torch.einsum("brnh,nh->bnr", inputs.query + inputs.segment_bias, difference)
        bias = bias + by_segment[..., None] * geometry.other_segment[:, None]
    bias = bias * scale
    sighted: Tensor | None = None
    if geometry.visible is not None:
        sighted = geometry.visible.any(dim=-1)
        # A row of -inf alone is not defined everywhere: blind rows look at everything, and are zeroed afterwards.
        hidden = ~geometry.visible & sighted[..., None]
        bias = bias.masked_fill(hidden[:, None], float("-inf"))
    attended = nn.functional.scaled_dot_product_attention(
        (inputs.query + inputs.content_bias).transpose(1, 2),
        inputs.key.transpose(1, 2),
        inputs.value.transpose(1, 2),
        attn_mask=bias,
        dropout_p=inputs.dropatt,
        scale=scale,
    ).transpose(1, 2)
    return attended if sighted is None else attended * sighted[..., None, None]
