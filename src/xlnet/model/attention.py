"""Two-stream relative attention: one call for content and query rows alike (XLNet §2.3 and §2.5, eq. of Appendix A.2).

    score(i, j) = ((q_i + u) . k_j  +  (q_i + v) . r_{i-j}  +  (q_i + b) . s_{ij}) / sqrt(H)

with content bias u, position bias v, segment bias b, projected sinusoid r and the segment embedding s of "same" or
"different". This page holds the readable reference and the choice of backend; fast paths share its signature.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from xlnet.configuration import AttentionBackend
from xlnet.errors import ConfigurationError
from xlnet.model.attention_compiled import can_compile, compiled_attention
from xlnet.model.attention_flex import flexible_attention
from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.attention_sdpa import sdpa_attention
from xlnet.model.attention_tiles import tiled_attention
from xlnet.model.dropout import dropout
from xlnet.model.tracing import being_traced

# Below so many scores the plain formula, whose scores still fit the cache, is as fast on CPU.
_WORTH_TILES = 4_000_000
_WORTH_KERNELS = 400_000
_WORTH_KERNELS_IN_TRAINING = 50_000  # the plain formula's backward pass is the slower one much earlier

Backend = Callable[[AttentionInputs], Tensor]


def reference_probabilities(inputs: AttentionInputs) -> Tensor:
    """Attention probabilities ``[B, N, R, S]``, before dropout, in at least float32.

    A row that sees nothing attends to nothing: its probabilities are all zero. (Adding -1e30 as the release does would
    make them uniform over every key, the hidden ones included.)
    """
    geometry = inputs.geometry
    scale = inputs.query.shape[-1] ** -0.5
    score = torch.einsum("brnh,bsnh->bnrs", inputs.query + inputs.content_bias, inputs.key)
    by_distance = torch.einsum("brnh,tnh->bnrt", inputs.query + inputs.position_bias, inputs.position_key)
    index = geometry.distance_index[:, None].expand(score.shape)
    score = score + by_distance.gather(-1, index)
    if geometry.other_segment is not None:
        # Softmax ignores what is constant along a row, so only the difference of the two embeddings matters.
        difference = inputs.segment_embedding[1] - inputs.segment_embedding[0]
        by_segment = torch.einsum("brnh,nh->bnr", inputs.query + inputs.segment_bias, difference)
        score = score + by_segment[..., None] * geometry.other_segment[:, None]
    score = (score * scale).to(torch.promote_types(score.dtype, torch.float32))
    if geometry.visible is None:
        return score.softmax(dim=-1)
    visible = geometry.visible[:, None]
    hidden = torch.finfo(score.dtype).min
    probabilities = torch.where(visible, score, hidden).softmax(dim=-1)
    return probabilities * visible.any(dim=-1, keepdim=True)


def reference_attention(inputs: AttentionInputs) -> Tensor:
    """The readable path: materializes every score. Returns ``[B, R, N, H]``."""
    return weigh_values(reference_probabilities(inputs), inputs)


def weigh_values(probabilities: Tensor, inputs: AttentionInputs) -> Tensor:
    """Sum of the values under the (dropped-out) probabilities ``[B, N, R, S]``, as ``[B, R, N, H]``."""
    weights = dropout(probabilities, inputs.dropatt, training=True).to(inputs.value.dtype)
    return torch.einsum("bnrs,bsnh->brnh", weights, inputs.value)


BACKENDS: dict[str, Backend] = {
    "reference": reference_attention,
    "tiles": tiled_attention,
    "compiled": compiled_attention,
    "sdpa": sdpa_attention,
    "flex": flexible_attention,
}


def choose_backend(name: AttentionBackend, inputs: AttentionInputs) -> Backend:
    """The implementation that a configuration asks for; ``auto`` takes the fastest one that can serve these inputs.

    Raises:
        ConfigurationError: the named backend is not available here.
    """
    if name == "auto":
        # A tracer would unroll every tile; the plain formula is what compilers and exporters understand.
        if being_traced():
            return reference_attention
        if inputs.query.device.type != "cpu":
            return sdpa_attention
        batch, rows, heads, _ = inputs.query.shape
        scores = batch * heads * rows * inputs.key.shape[1]
        training = torch.is_grad_enabled() and inputs.query.requires_grad
        if scores > (_WORTH_KERNELS_IN_TRAINING if training else _WORTH_KERNELS) and can_compile():
            return compiled_attention
        return tiled_attention if scores > _WORTH_TILES else reference_attention
    if name == "compiled" and not can_compile():
        raise ConfigurationError(
            "attention_backend='compiled' needs Linux and a C compiler (cc, gcc or clang); use 'auto' or 'tiles'."
        )
    if name not in BACKENDS:
        raise ConfigurationError(
            f"attention_backend={name!r} is not available here; available: auto, {', '.join(BACKENDS)}."
        )
    return BACKENDS[name]
