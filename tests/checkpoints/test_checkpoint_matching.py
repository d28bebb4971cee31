"""Strict and kind: everything that does not fit stands in one message, with nearest names."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from hugging_face_peers import HEADS, our_model

import xlnet.model
from xlnet.checkpoints.matching import match, may_be_new
from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.errors import CheckpointError
from xlnet.model import XLNetForMultipleChoice, XLNetForSequenceClassification, XLNetLMHeadModel, XLNetModel


def stored(head: Head = "language_model") -> dict[str, torch.Tensor]:
    return dict(our_model(head).state_dict())


def shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def test_all_faults_stand_in_one_message() -> None:
    state = stored()
    expected = shapes(state)
    state["encoder.layers.0.attention.qeury.weight"] = state.pop("encoder.layers.0.attention.query.weight")
    state["encoder.layers.1.feed_forward.inner.bias"] = torch.zeros(7)
    del state["lm_bias"]
    with pytest.raises(CheckpointError) as caught:
        match(expected, state, "folder/x")
    text = str(caught.value)
    assert text.startswith("folder/x does not fit this model.")
    assert "missing (2)" in text and "lm_bias" in text
    assert "encoder.layers.0.attention.query.weight (is it 'encoder.layers.0.attention.qeury.weight'?)" in text
    assert "unexpected (1): encoder.layers.0.attention.qeury.weight" in text
    assert "wrong shape (1): encoder.layers.1.feed_forward.inner.bias [7], should be [36]" in text


def test_long_lists_are_cut_and_counted() -> None:
    with pytest.raises(CheckpointError, match=r"missing \(\d\d\).*and \d+ more"):
        match(shapes(stored()), {}, "x")


def test_a_lone_encoder_takes_from_a_whole_model_and_back() -> None:
    whole = stored()
    alone = dict(our_model("encoder").state_dict())
    found = match(shapes(alone), whole, "x")
    assert found.unused == ("lm_bias",) and set(found.names) == set(alone) and found.new == ()
    back = match(shapes(whole), {f"encoder.{n}": v for n, v in alone.items()}, "x", may_be_new=("lm_bias",))
    assert back.new == ("lm_bias",)


def test_copy_into_converts_the_type() -> None:
    state = stored()
    found = match(shapes(state), state, "x")
    targets = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in state.items()}
    found.copy_into(targets)
    assert all(torch.equal(targets[name], value.double()) for name, value in state.items())


def test_half_a_head_is_damage() -> None:
    state = stored("classification")
    expected = shapes(state)
    del state["classifier.bias"]
    with pytest.raises(CheckpointError, match=r"missing \(1\): classifier\.bias"):
        match(expected, state, "x", may_be_new("classification", new_head=True))
    del state["classifier.weight"]
    assert match(expected, state, "x", may_be_new("classification", new_head=True)).new == (
        "classifier.weight",
        "classifier.bias",
    )
    with pytest.raises(CheckpointError, match=r"missing \(2\)"):
        match(expected, state, "x", may_be_new("classification", new_head=False))


@pytest.mark.parametrize("head", HEADS)
def test_a_new_head_must_be_asked_for(tmp_path: Path, head: Head, caplog: pytest.LogCaptureFixture) -> None:
    our_model("encoder").save_pretrained(tmp_path)
    kind = getattr(xlnet.model, CLASS_NAMES[head])
    if head == "encoder":
        kind.from_pretrained(tmp_path)
        return
    with pytest.raises(CheckpointError, match="new_head=True"):
        kind.from_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        model = kind.from_pretrained(tmp_path, new_head=True)
    new = [name for name in model.state_dict() if not name.startswith("encoder.")]
    assert new and all(name in caplog.text for name in new)
    for name, value in our_model("encoder").state_dict().items():
        assert torch.equal(model.state_dict()[f"encoder.{name}"], value)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_a_classifier_of_other_classes_starts_afresh_and_keeps_its_summary(tmp_path: Path) -> None:
    source = our_model("classification")
    source.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"classifier\.weight \[3, 24\], should be \[5, 24\]"):
        XLNetForSequenceClassification.from_pretrained(tmp_path, num_labels=5, labels=())
    model = XLNetForSequenceClassification.from_pretrained(tmp_path, num_labels=5, labels=(), new_head=True)
    assert model.classifier.weight.shape == (5, 24)
    assert torch.equal(model.summary.projection.weight, source.summary.projection.weight)


def test_a_head_of_another_kind_is_never_taken_for_ones_own(tmp_path: Path) -> None:
    """Names and shapes of a text classifier and a token classifier agree; their meaning does not."""
    source = our_model("token_classification")
    source.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"missing \(4\)"):
        XLNetForSequenceClassification.from_pretrained(tmp_path)
    model = XLNetForSequenceClassification.from_pretrained(tmp_path, new_head=True)
    assert not torch.equal(model.classifier.weight, source.classifier.weight)
    our_model("classification", num_labels=1, labels=()).save_pretrained(tmp_path / "regression")
    with pytest.raises(CheckpointError, match="new_head=True"):
        XLNetForMultipleChoice.from_pretrained(tmp_path / "regression")


def test_a_language_model_needs_its_mask_embedding_and_others_do_not(tmp_path: Path) -> None:
    from xlnet.checkpoints import write_native

    model = our_model("language_model")
    state = {name: value for name, value in model.state_dict().items() if "mask_embedding" not in name}
    write_native(tmp_path, model.config, state, "language_model")
    with pytest.raises(CheckpointError, match=r"missing \(1\): encoder\.mask_embedding"):
        XLNetLMHeadModel.from_pretrained(tmp_path)
    XLNetModel.from_pretrained(tmp_path)
    XLNetForSequenceClassification.from_pretrained(tmp_path, new_head=True)


def test_more_layers_than_the_model_has_are_not_dropped_in_silence(tmp_path: Path) -> None:
    our_model("encoder").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"unexpected \(\d+\).*layers\.1\."):
        XLNetModel.from_pretrained(tmp_path, n_layer=1)
