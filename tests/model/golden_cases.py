"""Recorded cases: variables of the release into our parameters, gradients back, time-major arrays to batch first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xlnet.configuration import XLNetConfig

SHAPE_KEYS = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "untie_r", "attn_type", "same_length", "clamp_len")


class Case:
    """One ``.npz`` of ``tests/golden/model`` in a chosen precision."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        self.arrays: Mapping[str, np.ndarray] = np.load(path)
        self.dtype = dtype
        self.meta: dict[str, Any] = json.loads(str(self.arrays["meta/config"]))

    def config(self, **changes: Any) -> XLNetConfig:
        values = {key: self.meta[key] for key in SHAPE_KEYS if key in self.meta}
        activation = "gelu_tanh" if self.meta["ff_activation"] == "gelu" else self.meta["ff_activation"]
        return XLNetConfig(
            vocab_size=self.meta["n_token"],
            ff_activation=activation,
            mem_len=self.meta.get("mem_len") or 0,
            reuse_len=self.meta.get("reuse_len") or 0,
            dropout=0.0,
            dropatt=0.0,
            summary_dropout=0.0,
            **values,
        ).replace(**changes)

    def has(self, key: str) -> bool:
        return key in self.arrays.files  # type: ignore[attr-defined]

    def numbers(self, key: str) -> Tensor:
        """Floating values in the case's dtype, integers as int64."""
        tensor = torch.from_numpy(np.array(self.arrays[key]))
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor.long()

    def batch_first(self, key: str) -> Tensor:
        """A time-major array ``[T, B, ...]`` as ``[B, T, ...]``."""
        return self.numbers(key).transpose(0, 1)

    def stack(self, pattern: str) -> Tensor:
        """Arrays ``pattern/0``, ``pattern/1`` ... time-major, as ``[n_layer, B, T, D]``."""
        layers = range(self.meta["n_layer"])
        return torch.stack([self.batch_first(f"{pattern}/{i}") for i in layers])

    def fill(self, model: nn.Module) -> None:
        """Copy the recorded variables into a model; every variable must find a place."""
        places = parameters_by_release_name(model)
        for key in self.arrays:
            if key.startswith("var/"):
                name = key.removeprefix("var/")
                if is_unused(name, places):
                    continue
                for parameter, to_ours in places[name]:
                    with torch.no_grad():
                        parameter.copy_(to_ours(self.numbers(key)))

    def check_gradients(self, model: nn.Module, tolerance: float, prefix: str = "grad64/") -> int:
        """Compare every recorded gradient; returns how many there were."""
        places = parameters_by_release_name(model)
        recorded = [key for key in self.arrays if key.startswith(prefix)]
        # A few gradients are zero in exact arithmetic (a bias under a softmax): noise is judged beside the others.
        floor = 1e-2 * max(float(self.numbers(key).abs().max()) for key in recorded)
        count = 0
        for key in recorded:
            expected = self.numbers(key)
            for parameter, to_ours in places[key.removeprefix(prefix)]:
                found = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                close(found, to_ours(expected), tolerance, key, floor)
            count += 1
        assert count > 10, "no gradients were recorded under this prefix"
        return count


def is_unused(name: str, places: Mapping[str, Any]) -> bool:
    """A variable of a head that the model at hand does not have (several pooled outputs share one recorded file)."""
    return name not in places and "sequnece_summary" in name


def close(found: Tensor, expected: Tensor, tolerance: float, what: str = "", floor: float = 1e-3) -> None:
    """Largest difference relative to the largest expected value (at least ``floor``) stays below ``tolerance``."""
    assert found.shape == expected.shape, f"{what}: {list(found.shape)} is not {list(expected.shape)}"
    scale = max(float(expected.abs().max()), floor)
    error = float((found.detach().double() - expected.double()).abs().max()) / scale
    assert error <= tolerance, f"{what}: relative error {error:.2e} above {tolerance:.0e}"


def _same(value: Tensor) -> Tensor:
    return value


def _heads(value: Tensor) -> Tensor:
    """``[D, N, H]`` to the matrix ``[N * H, D]`` of a dense layer."""
    return value.flatten(1).T


def _output(value: Tensor) -> Tensor:
    """``[D, N, H]`` of the output projection to ``[D, N * H]``."""
    return value.flatten(1)


def _dense(value: Tensor) -> Tensor:
    return value.T


def parameters_by_release_name(model: nn.Module) -> dict[str, list[tuple[nn.Parameter, Any]]]:
    """Release name to our parameters and how to turn a recorded array into each of them.

    Written apart from the library's own table of names, as a second witness.
    """
    named = dict(model.named_parameters())
    encoder = {name.removeprefix("encoder."): p for name, p in named.items()}
    config = model.config
    root = "model/transformer"
    places: dict[str, list[tuple[nn.Parameter, Any]]] = {
        f"{root}/word_embedding/lookup_table": [(encoder["word_embedding.weight"], _same)],
        f"{root}/mask_emb/mask_emb": [(encoder["mask_embedding"], torch.flatten)],
        f"{root}/seg_embed": [
            (encoder[f"layers.{i}.attention.segment_embedding"], lambda v, i=i: v[i]) for i in range(config.n_layer)
        ],
    }
    for ours, theirs in (("content", "r_w_bias"), ("position", "r_r_bias"), ("segment", "r_s_bias")):
        sets = config.n_layer if config.untie_r else 1
        places[f"{root}/{theirs}"] = [
            (encoder[f"attention_biases.{i}.{ours}"], (lambda v, i=i: v[i]) if config.untie_r else _same)
            for i in range(sets)
        ]
    for i in range(config.n_layer):
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("position", "r")):
            places[f"{root}/layer_{i}/rel_attn/{theirs}/kernel"] = [
                (encoder[f"layers.{i}.attention.{ours}.weight"], _heads)
            ]
        places[f"{root}/layer_{i}/rel_attn/o/kernel"] = [(encoder[f"layers.{i}.attention.output.weight"], _output)]
        for part, theirs in (("attention", "rel_attn"), ("feed_forward", "ff")):
            for ours, leaf in (("weight", "gamma"), ("bias", "beta")):
                places[f"{root}/layer_{i}/{theirs}/LayerNorm/{leaf}"] = [
                    (encoder[f"layers.{i}.{part}.norm.{ours}"], _same)
                ]
        for ours, theirs in (("inner", "layer_1"), ("outer", "layer_2")):
            places[f"{root}/layer_{i}/ff/{theirs}/kernel"] = [
                (encoder[f"layers.{i}.feed_forward.{ours}.weight"], _dense)
            ]
            places[f"{root}/layer_{i}/ff/{theirs}/bias"] = [(encoder[f"layers.{i}.feed_forward.{ours}.bias"], _same)]
    heads = {
        "model/lm_loss/bias": ("lm_bias", _same),
        "model/sequnece_summary/summary/kernel": ("summary.projection.weight", _dense),
        "model/sequnece_summary/summary/bias": ("summary.projection.bias", _same),
        "model/sequnece_summary/summary_bias": ("summary.query", _same),
        "model/sequnece_summary/abs_attn/q/kernel": ("summary.attention.query.weight", _heads),
        "model/sequnece_summary/abs_attn/k/kernel": ("summary.attention.key.weight", _heads),
        "model/sequnece_summary/abs_attn/v/kernel": ("summary.attention.value.weight", _heads),
        "model/sequnece_summary/abs_attn/o/kernel": ("summary.attention.output.weight", _output),
        "model/sequnece_summary/abs_attn/LayerNorm/gamma": ("summary.attention.norm.weight", _same),
        "model/sequnece_summary/abs_attn/LayerNorm/beta": ("summary.attention.norm.bias", _same),
        "model/classification_mnli_matched/logit/kernel": ("classifier.weight", _dense),
        "model/classification_mnli_matched/logit/bias": ("classifier.bias", _same),
        "model/regression_sts-b/logit/kernel": ("classifier.weight", _dense),
        "model/regression_sts-b/logit/bias": ("classifier.bias", _same),
        "logits/dense/kernel": ("classifier.weight", _dense),
        "logits/dense/bias": ("classifier.bias", _same),
        "start_logits/dense/kernel": ("start.weight", _dense),
        "start_logits/dense/bias": ("start.bias", _same),
        "end_logits/dense_0/kernel": ("end.hidden.weight", _dense),
        "end_logits/dense_0/bias": ("end.hidden.bias", _same),
        "end_logits/LayerNorm/gamma": ("end.norm.weight", _same),
        "end_logits/LayerNorm/beta": ("end.norm.bias", _same),
        "end_logits/dense_1/kernel": ("end.output.weight", _dense),
        "end_logits/dense_1/bias": ("end.output.bias", _same),
        "answer_class/dense_0/kernel": ("answerable.hidden.weight", _dense),
        "answer_class/dense_0/bias": ("answerable.hidden.bias", _same),
        "answer_class/dense_1/kernel": ("answerable.output.weight", _dense),
    }
    for theirs, (ours, change) in heads.items():
        if ours in named:
            places[theirs] = [(named[ours], change)]
    return places
