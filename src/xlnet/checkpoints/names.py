"""The one table of names: ours, those of Hugging Face, and those of the TensorFlow release.

Every other module that needs a name of a stored array derives it from ``ENCODER`` and ``HEAD_ROWS``. A name holds
``{i}`` where a layer number stands. Where ours has ``{i}`` and theirs has not, theirs is one array stacked over the
layers. The release calls a classifier after its task: ``{task}`` stands for that word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from xlnet.checkpoints.layouts import Layout

Family = Literal["hf", "tensorflow"]
Head = Literal[
    "encoder",
    "language_model",
    "classification",
    "token_classification",
    "multiple_choice",
    "question_answering",
]

ENCODER_PREFIX = "encoder."
FAMILY_PREFIX: dict[Family, str] = {"hf": "transformer.", "tensorflow": "model/transformer/"}
CLASS_NAMES: dict[Head, str] = {
    "encoder": "XLNetModel",
    "language_model": "XLNetLMHeadModel",
    "classification": "XLNetForSequenceClassification",
    "token_classification": "XLNetForTokenClassification",
    "multiple_choice": "XLNetForMultipleChoice",
    "question_answering": "XLNetForQuestionAnswering",
}


class Theirs(NamedTuple):
    """A foreign name and the layout of its array."""

    name: str
    layout: Layout = "same"


class Row(NamedTuple):
    """One line of the table; None where a format has no such array."""

    ours: str
    hugging_face: Theirs | None
    tensorflow: Theirs | None

    def theirs(self, family: Family) -> Theirs | None:
        """The column of one format."""
        return self.hugging_face if family == "hf" else self.tensorflow


_PROJECTIONS: tuple[tuple[str, str, Layout], ...] = (
    ("query", "q", "heads_in"),
    ("key", "k", "heads_in"),
    ("value", "v", "heads_in"),
    ("position", "r", "heads_in"),
    ("output", "o", "heads_out"),
)
_ATTENTION = "layers.{i}.attention."
_FEED_FORWARD = "layers.{i}.feed_forward."
_HF_ATTENTION = "layer.{i}.rel_attn."
_HF_FEED_FORWARD = "layer.{i}.ff."
_TF_ATTENTION = "layer_{i}/rel_attn/"
_TF_FEED_FORWARD = "layer_{i}/ff/"

ENCODER: tuple[Row, ...] = (
    Row("word_embedding.weight", Theirs("word_embedding.weight"), Theirs("word_embedding/lookup_table")),
    Row("mask_embedding", Theirs("mask_emb", "row"), Theirs("mask_emb/mask_emb", "row")),
    Row("attention_biases.{i}.content", Theirs(_HF_ATTENTION + "r_w_bias"), Theirs("r_w_bias")),
    Row("attention_biases.{i}.position", Theirs(_HF_ATTENTION + "r_r_bias"), Theirs("r_r_bias")),
    Row("attention_biases.{i}.segment", Theirs(_HF_ATTENTION + "r_s_bias"), Theirs("r_s_bias")),
    Row(_ATTENTION + "segment_embedding", Theirs(_HF_ATTENTION + "seg_embed"), Theirs("seg_embed")),
    *(
        Row(
            f"{_ATTENTION}{long}.weight",
            Theirs(_HF_ATTENTION + short, layout),
            Theirs(f"{_TF_ATTENTION}{short}/kernel", layout),
        )
        for long, short, layout in _PROJECTIONS
    ),
    Row(
        _ATTENTION + "norm.weight",
        Theirs(_HF_ATTENTION + "layer_norm.weight"),
        Theirs(_TF_ATTENTION + "LayerNorm/gamma"),
    ),
    Row(_ATTENTION + "norm.bias", Theirs(_HF_ATTENTION + "layer_norm.bias"), Theirs(_TF_ATTENTION + "LayerNorm/beta")),
    *(
        row
        for ours, theirs in (("inner", "layer_1"), ("outer", "layer_2"))
        for row in (
            Row(
                f"{_FEED_FORWARD}{ours}.weight",
                Theirs(f"{_HF_FEED_FORWARD}{theirs}.weight"),
                Theirs(f"{_TF_FEED_FORWARD}{theirs}/kernel", "kernel"),
            ),
            Row(
                f"{_FEED_FORWARD}{ours}.bias",
                Theirs(f"{_HF_FEED_FORWARD}{theirs}.bias"),
                Theirs(f"{_TF_FEED_FORWARD}{theirs}/bias"),
            ),
        )
    ),
    Row(
        _FEED_FORWARD + "norm.weight",
        Theirs(_HF_FEED_FORWARD + "layer_norm.weight"),
        Theirs(_TF_FEED_FORWARD + "LayerNorm/gamma"),
    ),
    Row(
        _FEED_FORWARD + "norm.bias",
        Theirs(_HF_FEED_FORWARD + "layer_norm.bias"),
        Theirs(_TF_FEED_FORWARD + "LayerNorm/beta"),
    ),
)


def _dense(ours: str, hugging_face: str, tensorflow: str | None, bias: bool = True) -> tuple[Row, ...]:
    """The rows of one dense layer; TensorFlow stores its matrix as ``[in, out]``."""
    weight = Row(
        f"{ours}.weight",
        Theirs(f"{hugging_face}.weight"),
        Theirs(f"{tensorflow}/kernel", "kernel") if tensorflow else None,
    )
    if not bias:
        return (weight,)
    return weight, Row(
        f"{ours}.bias", Theirs(f"{hugging_face}.bias"), Theirs(f"{tensorflow}/bias") if tensorflow else None
    )


_SCOPE = "model/sequnece_summary/"  # spelled like this in the release
_SUMMARY: tuple[Row, ...] = _dense("summary.projection", "sequence_summary.summary", _SCOPE + "summary")
_ATTENTIVE_SUMMARY: tuple[Row, ...] = (
    Row("summary.query", None, Theirs(_SCOPE + "summary_bias")),
    *(
        Row(f"summary.attention.{long}.weight", None, Theirs(f"{_SCOPE}abs_attn/{short}/kernel", layout))
        for long, short, layout in _PROJECTIONS
        if long != "position"
    ),
    Row("summary.attention.norm.weight", None, Theirs(_SCOPE + "abs_attn/LayerNorm/gamma")),
    Row("summary.attention.norm.bias", None, Theirs(_SCOPE + "abs_attn/LayerNorm/beta")),
)

HEAD_ROWS: dict[Head, tuple[Row, ...]] = {
    "encoder": (),
    "language_model": (
        Row("lm_bias", Theirs("lm_loss.bias"), Theirs("model/lm_loss/bias")),
        Row("lm_projection.weight", Theirs("lm_loss.weight"), Theirs("model/lm_loss/weight")),
    ),
    "classification": (
        *_SUMMARY,
        *_ATTENTIVE_SUMMARY,
        *_dense("classifier", "logits_proj", "model/{task}/logit"),
    ),
    "token_classification": _dense("classifier", "classifier", None),
    "multiple_choice": (
        *_SUMMARY,
        *_ATTENTIVE_SUMMARY,
        *_dense("classifier", "logits_proj", "logits/dense"),
    ),
    "question_answering": (
        *_dense("start", "start_logits.dense", "start_logits/dense"),
        *_dense("end.hidden", "end_logits.dense_0", "end_logits/dense_0"),
        Row("end.norm.weight", Theirs("end_logits.LayerNorm.weight"), Theirs("end_logits/LayerNorm/gamma")),
        Row("end.norm.bias", Theirs("end_logits.LayerNorm.bias"), Theirs("end_logits/LayerNorm/beta")),
        *_dense("end.output", "end_logits.dense_1", "end_logits/dense_1"),
        *_dense("answerable.hidden", "answer_class.dense_0", "answer_class/dense_0"),
        *_dense("answerable.output", "answer_class.dense_1", "answer_class/dense_1", bias=False),
    ),
}

TASK = re.compile(r"model/((?:classification|regression)_[^/]+)/logit/(?:kernel|bias)")
"""How the release names a classifier; the group is what ``{task}`` stands for."""


@dataclass(frozen=True)
class Pair:
    """One of our arrays and the foreign array it comes from.

    Attributes:
        ours: our name, with the prefix ``encoder.`` where it belongs to the encoder.
        theirs: the foreign name.
        layout: how the foreign array is laid out.
        layer: which slice of a foreign array that is stacked over layers; None if it is not stacked.
    """

    ours: str
    theirs: str
    layout: Layout
    layer: int | None = None


def pairs(family: Family, head: Head, n_layer: int, tied_biases: bool = False, task: str | None = None) -> list[Pair]:
    """Every array of a model and its name in another format.

    Args:
        family: the other format.
        head: which model.
        n_layer: number of layers.
        tied_biases: all layers share one set of attention biases (``untie_r`` is False).
        task: the release's name of a classifier, such as ``classification_mnli``.

    Returns:
        Pairs in the order of the table. With tied biases, Hugging Face has a copy in every layer, so one of our
        names stands in several pairs; the release has a single array that is not stacked.
    """
    found: list[Pair] = []
    for row in ENCODER:
        theirs = row.theirs(family)
        if theirs is None:
            continue
        name = FAMILY_PREFIX[family] + theirs.name
        tied = tied_biases and row.ours.startswith("attention_biases")
        stacked = "{i}" in row.ours and "{i}" not in theirs.name
        if "{i}" not in row.ours or (tied and stacked):
            found.append(Pair(ENCODER_PREFIX + row.ours.replace("{i}", "0"), name, theirs.layout))
            continue
        for i in range(n_layer):
            ours = ENCODER_PREFIX + row.ours.replace("{i}", "0" if tied else str(i))
            found.append(Pair(ours, name.replace("{i}", str(i)), theirs.layout, i if stacked else None))
    for row in HEAD_ROWS[head]:
        theirs = row.theirs(family)
        if theirs is not None and ("{task}" not in theirs.name or task is not None):
            found.append(Pair(row.ours, theirs.name.replace("{task}", task or ""), theirs.layout))
    return found
