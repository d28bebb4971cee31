"""Configurations of the release and of Hugging Face, from and to :class:`XLNetConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError, ConfigurationError, did_you_mean

_RELEASE_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}
_RELEASE_REQUIRED = ("n_token", "n_layer", "d_model", "n_head", "d_head", "d_inner", "ff_activation", "untie_r")
# Hugging Face's XLNet computes the erf form under the word gelu; the others are its names of the tanh form.
_HF_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
_HF_SUMMARIES = {"last": "last", "first": "first", "mean": "mean", "cls_index": "last"}
_HF_NUMBERS = {
    "vocab_size": 32000,
    "n_layer": 24,
    "d_model": 1024,
    "n_head": 16,
    "d_inner": 4096,
    "attn_type": "bi",
    "same_length": False,
    "clamp_len": -1,
    "dropout": 0.1,
    "mem_len": 512,
    "reuse_len": None,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "summary_use_proj": True,
    "start_n_top": 5,
    "end_n_top": 5,
}
"""Keys we share with Hugging Face, and what a missing one means there."""

_HF_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "n_token": "vocab_size",  # in pytorch-transformers
}


@dataclass(frozen=True)
class Settings:
    """A configuration, the head it was saved for (None: not said), and what could not be taken over."""

    config: XLNetConfig
    head: Head | None
    notes: tuple[str, ...] = ()


def from_release(values: Mapping[str, Any], source: str) -> Settings:
    """The release's ``xlnet_config.json``: ``n_token`` is ``vocab_size``, its ``gelu`` is the tanh form.

    Keys that the file lacks (dropout ...) are ours by default. The file does not tell ``attn_type``: the released
    code always runs ``bi``.

    Raises:
        CheckpointError: a key is missing or unknown, or a value cannot be used; names ``source``.
    """
    values = dict(values)
    known = {field.name for field in fields(XLNetConfig)} | {"n_token"}
    for key in values:
        if key not in known:
            raise CheckpointError(f"{source}: key {key!r} is not known.{did_you_mean(key, known)}")
    missing = [key for key in _RELEASE_REQUIRED if key not in values]
    if missing:
        raise CheckpointError(f"{source} lacks {', '.join(missing)}, which the release's configuration has.")
    values["vocab_size"] = values.pop("n_token")
    values["ff_activation"] = _activation(values["ff_activation"], _RELEASE_ACTIVATIONS, source)
    return Settings(_build(values, source), None)


def from_hugging_face(values: Mapping[str, Any], source: str, release_gelu: bool = False) -> Settings:
    """Hugging Face's ``config.json``.

    Its ``gelu`` stays the erf form, so that outputs match there, unless ``release_gelu`` asks for the tanh form that
    the released weights were trained with. One dropout rate serves ``dropout`` and ``dropatt`` there. Every layer has
    its own attention biases there whatever ``untie_r`` says.

    Raises:
        CheckpointError: a value that our model cannot express; names ``source``.
    """
    if values.get("model_type", "xlnet") != "xlnet":
        raise CheckpointError(f"{source}: model_type={values['model_type']!r} is another kind of model, not 'xlnet'.")
    values = _without_aliases(values, source)
    ours: dict[str, Any] = {key: values.get(key, default) for key, default in _HF_NUMBERS.items()}
    for key in ("mem_len", "reuse_len"):
        ours[key] = ours[key] or 0
    ours["clamp_len"] = ours["clamp_len"] if ours["clamp_len"] not in (None, 0) else -1
    ours["dropatt"] = ours["dropout"]
    ours["untie_r"] = True
    ours["d_head"] = _head_size(values, ours, source)
    ours["ff_activation"] = _activation(values.get("ff_activation", "gelu"), _HF_ACTIVATIONS, source)
    if release_gelu and ours["ff_activation"] == "gelu":
        ours["ff_activation"] = "gelu_tanh"
    summary = values.get("summary_type", "last")
    if summary not in _HF_SUMMARIES:
        raise CheckpointError(f"{source}: summary_type={summary!r} must be one of {', '.join(_HF_SUMMARIES)}.")
    ours["summary_type"] = _HF_SUMMARIES[summary]
    head = _head(values)
    ours["summary_activation"] = _summary_activation(values, head, source)
    ours["summary_dropout"] = values.get("summary_last_dropout", 0.1)
    ours["num_labels"], ours["labels"] = _labels(values, source)
    notes = []
    if values.get("bi_data"):
        notes.append("bi_data=true: give direction=-1 to the rows of reversed text, here it belongs to the batch")
    if values.get("summary_first_dropout"):
        notes.append("summary_first_dropout: there is no dropout before the summary's projection here")
    if values.get("problem_type") == "multi_label_classification":
        notes.append("problem_type=multi_label_classification: weights load, the loss here is for one label a text")
    return Settings(_build(ours, source), head, tuple(notes))


def to_hugging_face(config: XLNetConfig, head: Head) -> dict[str, Any]:
    """Our configuration as Hugging Face's ``config.json``.

    Raises:
        CheckpointError: lists everything that Hugging Face's XLNet cannot express.
    """
    reasons = inexpressible(config, head)
    if reasons:
        raise CheckpointError("Hugging Face's XLNet cannot express this model: " + "; ".join(reasons) + ".")
    values: dict[str, Any] = {"architectures": [CLASS_NAMES[head]], "model_type": "xlnet"}
    values |= {key: getattr(config, key) for key in _HF_NUMBERS}
    values |= {key: getattr(config, key) or None for key in ("mem_len", "reuse_len")}
    values |= {
        "d_head": config.d_head,
        "ff_activation": {"gelu_tanh": "gelu_new"}.get(config.ff_activation, config.ff_activation),
        "summary_type": "last" if config.summary_type == "attn" else config.summary_type,
        # There, the activation works without a projection too; and it must be a string, an empty one for none.
        "summary_activation": "tanh" if config.summary_use_proj and config.summary_activation == "tanh" else "",
        "summary_last_dropout": config.summary_dropout,
        "bi_data": False,
        "untie_r": True,
        "use_mems_eval": True,
        "use_mems_train": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 5,
    }
    if head in ("classification", "token_classification"):
        names = config.labels or tuple(f"LABEL_{i}" for i in range(config.num_labels))
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
        values["label2id"] = {name: i for i, name in enumerate(names)}
    return values


def inexpressible(config: XLNetConfig, head: Head) -> list[str]:
    """Why Hugging Face's XLNet would compute something else than this model; empty if it would not."""
    reasons = []
    if config.n_head * config.d_head != config.d_model:
        reasons.append(
            f"n_head * d_head = {config.n_head} * {config.d_head} must equal d_model = {config.d_model} there"
        )
    if config.summary_type == "attn" and head in ("classification", "multiple_choice"):
        reasons.append("summary_type='attn' is not implemented there")
    if len(set(config.labels)) != len(config.labels):
        reasons.append("two labels have the same name, but label2id there needs each once")
    return reasons


def changes_in_hugging_face(config: XLNetConfig) -> list[str]:
    """What a saved Hugging Face folder does otherwise than this model though its weights are equal."""
    changes = []
    if not config.untie_r:
        changes.append("untie_r=False: every layer gets a copy of the shared attention biases; training unties them")
    if config.dropatt != config.dropout:
        changes.append(f"dropatt={config.dropatt} is lost: dropout={config.dropout} serves the attention there too")
    return changes


def _without_aliases(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    values = dict(given)
    for alias, key in _HF_ALIASES.items():
        if alias in values:
            value = values.pop(alias)
            if values.setdefault(key, value) != value:
                raise CheckpointError(
                    f"{source}: {alias}={value!r} and {key}={values[key]!r} are two words for one setting and must be "
                    "equal; remove the wrong one."
                )
    return values


def _activation(value: object, known: Mapping[str, str], source: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise CheckpointError(
            f"{source}: ff_activation={value!r} is not known; it must be one of {', '.join(known)}."
            + did_you_mean(str(value), known)
        )
    return known[value]


def _summary_activation(values: Mapping[str, Any], head: Head | None, source: str) -> str:
    activation = values.get("summary_activation", "tanh")
    if activation in (None, "", "linear"):
        return "none"
    if activation != "tanh":
        raise CheckpointError(f"{source}: summary_activation={activation!r} must be 'tanh' or empty.")
    if not values.get("summary_use_proj", True) and head in (None, "classification", "multiple_choice"):
        raise CheckpointError(
            f"{source}: summary_activation='tanh' with summary_use_proj=false is tanh of the bare state there; here "
            "tanh belongs to the projection. Such a head cannot be loaded."
        )
    return "tanh"


def _head_size(values: Mapping[str, Any], ours: Mapping[str, Any], source: str) -> int:
    width, heads = ours["d_model"], ours["n_head"]
    if not isinstance(width, int) or not isinstance(heads, int) or heads < 1 or width % heads:
        raise CheckpointError(f"{source}: d_model={width!r} must be a multiple of n_head={heads!r}.")
    if values.get("d_head", width // heads) != width // heads:
        raise CheckpointError(
            f"{source}: d_head={values['d_head']!r} must be d_model / n_head = {width // heads} "
            "in a Hugging Face model."
        )
    return width // heads


def _labels(values: Mapping[str, Any], source: str) -> tuple[int, list[str]]:
    names = values.get("id2label")
    if not names:
        return values.get("num_labels", 2), []
    try:
        labels = [str(names[key]) for key in sorted(names, key=int)]
        complete = sorted(int(key) for key in names) == list(range(len(names)))
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{source}: id2label={names!r} must map class numbers to names.") from error
    if not complete:
        raise CheckpointError(f"{source}: id2label must name the classes 0 to {len(names) - 1} without gaps.")
    made_up = all(name == f"LABEL_{i}" for i, name in enumerate(labels))
    return len(labels), [] if made_up else labels


def _head(values: Mapping[str, Any]) -> Head | None:
    architectures = values.get("architectures") or []
    for head, name in CLASS_NAMES.items():
        if name in architectures:
            return head
    return None


def _build(values: dict[str, Any], source: str) -> XLNetConfig:
    try:
        return XLNetConfig.from_dict(values, source)
    except ConfigurationError as error:
        text = str(error)
        raise CheckpointError(text if text.startswith(source) else f"{source}: {text}") from error
