"""The shape of every array of a model, from its configuration alone: what is stored is compared with it."""

from __future__ import annotations

from xlnet.checkpoints.names import ENCODER, ENCODER_PREFIX, HEAD_ROWS, Head
from xlnet.configuration import XLNetConfig

Shape = tuple[int, ...]


def expected_shapes(config: XLNetConfig, head: Head) -> dict[str, Shape]:
    """Names (the encoder's with their prefix) and shapes of the arrays that a model with ``head`` has."""
    width, inner, heads = config.d_model, config.d_inner, config.n_head * config.d_head
    known: dict[str, Shape] = {
        "word_embedding.weight": (config.vocab_size, width),
        "content": (config.n_head, config.d_head),
        "position": (config.n_head, config.d_head),
        "segment": (config.n_head, config.d_head),
        "segment_embedding": (2, config.n_head, config.d_head),
        **{f"attention.{name}.weight": (heads, width) for name in ("query", "key", "value", "position")},
        "attention.output.weight": (width, heads),
        "feed_forward.inner.weight": (inner, width),
        "feed_forward.inner.bias": (inner,),
        "feed_forward.outer.weight": (width, inner),
        "lm_bias": (config.vocab_size,),
        "lm_projection.weight": (config.vocab_size, width),
        "projection.weight": (width, width),
        **_dense("classifier", _labels(config, head), width),
        **_dense("start", 1, width),
        **_dense("end.hidden", width, 2 * width),
        **_dense("end.output", 1, width),
        **_dense("answerable.hidden", width, 2 * width),
        **_dense("answerable.output", 1, width),
    }
    names = []
    for row in ENCODER:
        tied = row.ours.startswith("attention_biases") and not config.untie_r
        count = config.n_layer if "{i}" in row.ours and not tied else 1
        names += [ENCODER_PREFIX + row.ours.replace("{i}", str(i)) for i in range(count)]
    names += [row.ours for row in HEAD_ROWS[head] if _is_used(row.ours, config)]
    return {name: _shape(name, known, width) for name in names}


def _shape(name: str, known: dict[str, Shape], width: int) -> Shape:
    """By the longest ending that is known; what has none (norms, biases, single vectors) is as wide as the model."""
    parts = name.split(".")
    endings = (".".join(parts[i:]) for i in range(len(parts)))
    return next((known[ending] for ending in endings if ending in known), (width,))


def _dense(name: str, outputs: int, inputs: int) -> dict[str, Shape]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _labels(config: XLNetConfig, head: Head) -> int:
    return 1 if head == "multiple_choice" else config.num_labels


def _is_used(name: str, config: XLNetConfig) -> bool:
    if name.startswith("summary.projection"):
        return config.summary_use_proj
    if name.startswith("summary."):
        return config.summary_type == "attn"
    return name != "lm_projection.weight" or not config.tie_word_embeddings
