"""The shape of a model: one frozen value that travels with every checkpoint as ``config.json``.

Keys keep the spelling of the release's ``xlnet_config.json`` where it has one (``n_layer``, ``d_model``, ``untie_r``),
because that file is a public format; ``vocab_size`` is the release's ``n_token``.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from xlnet.errors import ConfigurationError, check_choice, did_you_mean, known_keys

FeedForwardActivation = Literal["gelu_tanh", "gelu", "relu"]
AttentionType = Literal["bi", "uni"]
SummaryType = Literal["last", "first", "mean", "attn"]
AttentionBackend = Literal["auto", "reference", "tiles", "compiled", "sdpa", "flex"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "ff_activation": ("gelu_tanh", "gelu", "relu"),
    "attn_type": ("bi", "uni"),
    "summary_type": ("last", "first", "mean", "attn"),
    "attention_backend": ("auto", "reference", "tiles", "compiled", "sdpa", "flex"),
    "summary_activation": ("tanh", "none"),
}
_POSITIVE = (
    "vocab_size", "n_layer", "d_model", "n_head", "d_head", "d_inner", "num_labels", "start_n_top", "end_n_top",
)  # fmt: skip
_RATES = ("dropout", "dropatt", "summary_dropout")


@known_keys
@dataclass(frozen=True, kw_only=True)
class XLNetConfig:
    """All that is needed to build a model; nothing that only a run needs (learning rate, paths ...).

    Args:
        vocab_size: number of pieces V (``n_token`` in the release).
        n_layer: number of layers.
        d_model: width D of the hidden states.
        n_head: number of attention heads N.
        d_head: width H of a head; ``n_head * d_head`` may differ from ``d_model``.
        d_inner: width of the feed-forward layer.
        ff_activation: ``gelu_tanh`` is the release's gelu, ``gelu`` is the erf form that Hugging Face computes.
        untie_r: each layer has its own attention biases u, v, b (True), or all share one set (False).
        attn_type: ``bi``: a token may look both ways; ``uni``: only at itself and to the left.
        same_length: with ``uni``, every token looks back over equally many keys.
        clamp_len: largest distance told apart; -1 is no limit.
        dropout: rate on embeddings, positions, attention output, feed-forward and final output.
        dropatt: rate on attention probabilities.
        mem_len: positions of earlier segments kept as memory, 0 for none.
        reuse_len: positions of a segment that go into memory, 0 for all of them.
        layer_norm_eps: epsilon of layer normalization (1e-12 in the release), above 0.
        initializer_range: standard deviation of the initial weights, at least 0.
        tie_word_embeddings: the language-model head uses the word embedding as its matrix.
        summary_type: which state sums up a sequence: last real token, first, mean of real tokens, or attention.
        summary_use_proj: project the summary with a dense layer.
        summary_activation: activation after that projection.
        summary_dropout: dropout on the summary.
        num_labels: outputs of a classification head; 1 is regression.
        start_n_top: beam of answer starts in question answering.
        end_n_top: beam of answer ends for each start.
        attention_backend: which implementation computes attention; ``auto`` picks the fastest exact one. ``flex``
            trains only with ``dropatt`` 0.
        pack_padding: compute a padded batch as packed rows where that saves work (on CPU, without memory): the same
            states of real tokens, zeros at padding. False: padding has states too, as released.
        labels: names of the classes in the order of their ids, empty where none are known.
    """

    vocab_size: int = 32000
    n_layer: int = 12
    d_model: int = 768
    n_head: int = 12
    d_head: int = 64
    d_inner: int = 3072
    ff_activation: FeedForwardActivation = "gelu_tanh"
    untie_r: bool = True
    attn_type: AttentionType = "bi"
    same_length: bool = False
    clamp_len: int = -1
    dropout: float = 0.1
    dropatt: float = 0.1
    mem_len: int = 0
    reuse_len: int = 0
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    summary_type: SummaryType = "last"
    summary_use_proj: bool = True
    summary_activation: Literal["tanh", "none"] = "tanh"
    summary_dropout: float = 0.1
    num_labels: int = 2
    start_n_top: int = 5
    end_n_top: int = 5
    attention_backend: AttentionBackend = "auto"
    pack_padding: bool = True
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        for key, allowed in _CHOICES.items():
            value = getattr(self, key)
            check_choice(key, value, allowed)
        for key in _POSITIVE:
            if getattr(self, key) < 1:
                raise ConfigurationError(f"{key}={getattr(self, key)} must be at least 1.")
        for key in _RATES:
            if not 0.0 <= getattr(self, key) < 1.0:
                raise ConfigurationError(f"{key}={getattr(self, key)} must be a rate in [0, 1).")
        for key in ("mem_len", "reuse_len"):
            if getattr(self, key) < 0:
                raise ConfigurationError(f"{key}={getattr(self, key)} must not be negative; 0 switches it off.")
        if not 0.0 < self.layer_norm_eps < float("inf"):
            raise ConfigurationError(
                f"layer_norm_eps={self.layer_norm_eps} must be a finite number above 0; the release has 1e-12."
            )
        if not 0.0 <= self.initializer_range < float("inf"):
            raise ConfigurationError(
                f"initializer_range={self.initializer_range} is a standard deviation: it must be a finite number of at "
                "least 0; the release has 0.02."
            )
        if self.d_model % 2:
            raise ConfigurationError(
                f"d_model={self.d_model} must be even: a position is encoded by pairs of sine and cosine."
            )
        if self.clamp_len == 0 or self.clamp_len < -1:
            raise ConfigurationError(f"clamp_len={self.clamp_len} must be positive, or -1 for no limit.")
        if self.labels and len(self.labels) != self.num_labels:
            raise ConfigurationError(f"{len(self.labels)} label names are given for num_labels={self.num_labels}.")

    def replace(self, **changes: Any) -> XLNetConfig:
        """A copy with some keys changed; unknown keys are refused."""
        return XLNetConfig.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = dataclasses.asdict(self)
        values["labels"] = list(self.labels)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "configuration") -> XLNetConfig:
        """Build from plain values; an unknown key is an error that offers the nearest name.

        Raises:
            ConfigurationError: for an unknown key or a value of the wrong type, naming ``source``.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key, value in values.items():
            if key not in fields:
                raise ConfigurationError(f"{source}: key {key!r} is not known.{did_you_mean(key, fields)}")
            expected = type(fields[key].default)
            if expected is float and isinstance(value, int) and not isinstance(value, bool):
                continue
            if expected is tuple and isinstance(value, list):
                continue
            if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
                raise ConfigurationError(
                    f"{source}: {key}={value!r} must be of type {expected.__name__}, not {type(value).__name__}."
                )
        return cls(**values)

    def save(self, path: str | Path) -> None:
        """Write as JSON, marked as this library's own format."""
        text = json.dumps({"model_type": "xlnet", "format": "native", **self.to_dict()}, indent=2)
        Path(path).write_text(text + "\n", encoding="utf-8")
