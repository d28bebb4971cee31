"""The model against arrays recorded from the official code: outputs, memories and the gradient of every variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Case, close
from torch import Tensor

from xlnet.model import (
    Memory,
    XLNetForMultipleChoice,
    XLNetForQuestionAnswering,
    XLNetForSequenceClassification,
    XLNetLMHeadModel,
    XLNetModel,
)
from xlnet.model.layout import lay_out
from xlnet.model.memory import remember
from xlnet.model.summary import SequenceSummary

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
DTYPES = [torch.float64, torch.float32]
CONTENT = ["a1_content_A", "a2_content_B", "a3_content_A_nomask_noseg", "a4_content_A_mems_perm"]
PRETRAINING = ["b1_pretrain_A", "b2_pretrain_B_full", "b5_pretrain_A_nomem"]
CORE = [
    "c01_uni_A_m0", "c02_uni_A_m8", "c04_uni_A_m12_same", "c06_uni_A_m0_same", "c08_uni_B_m8_bidata_clamp3",
    "c10_uni_A_m8_twostream_perm_map_same", "c12_uni_B_untied_gelu_m4_clamp3", "c14_bi_A_twostream_noperm_full",
]  # fmt: skip


def load(golden: Path, name: str, dtype: torch.dtype) -> Case:
    return Case(golden / "model" / f"{name}.npz", dtype)


def given_memory(case: Case, key: str, direction: Tensor | None) -> Memory | None:
    """The recorded memories, all of them attended to."""
    if not case.has(f"{key}/0"):
        return None
    states = case.stack(key)
    rows = states.shape[1]
    if direction is None:
        direction = torch.ones(rows, dtype=torch.int64)
    return Memory(states, torch.ones(states.shape[1:3], dtype=torch.bool), direction)


def lanes(case: Case, rows: int) -> Tensor | None:
    """The release's rule: with ``bi_data`` the second half of the batch is reversed text."""
    if not case.meta.get("bi_data"):
        return None
    return torch.tensor([1] * (rows // 2) + [-1] * (rows // 2))


def order_of(hidden: Tensor) -> Tensor:
    """An order that expresses a recorded ``perm_mask [B, L, L]`` (1: may not see).

    A token that sees more comes later; a target does not see itself, hence the half step.
    """
    sees = hidden < 0.5
    order = 2 * sees.sum(dim=-1) + (~sees.diagonal(dim1=1, dim2=2)).long()
    itself = torch.eye(sees.shape[1], dtype=torch.bool)
    assert torch.equal((order[:, None] <= order[:, :, None]) | itself, sees | itself)
    return order


def content_inputs(case: Case) -> dict[str, Any]:
    ids = case.batch_first("in/input_ids")
    rows, length = ids.shape
    direction = lanes(case, rows)
    return {
        "input_ids": ids,
        "attention_mask": case.batch_first("in/input_mask") == 0 if case.has("in/input_mask") else None,
        "token_type_ids": case.batch_first("in/seg_ids") if case.has("in/seg_ids") else None,
        "visible": case.numbers("in/perm_mask").permute(2, 0, 1) < 0.5 if case.has("in/perm_mask") else None,
        "memory": given_memory(case, "in/mems", direction),
        "direction": direction,
        # The release counts padding as positions; ours does not (see docs/paper.md), so the test asks for it.
        "position_ids": torch.arange(length).expand(rows, -1),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONTENT)
def test_content_stream(golden: Path, name: str, dtype: torch.dtype) -> None:
    case = load(golden, name, dtype)
    tolerance = TOLERANCE[dtype]
    model = XLNetModel(case.config()).to(dtype)
    case.fill(model)
    inputs = content_inputs(case)
    out = model(**inputs, output_hidden_states=True, output_attentions=True)
    close(out.content, case.batch_first("out64/sequence_output"), tolerance, "sequence_output")
    for layer in range(case.meta["n_layer"]):
        if case.has(f"out64/layer{layer}/out_h"):
            close(out.hidden_states[layer + 1], case.batch_first(f"out64/layer{layer}/out_h"), tolerance)
        if case.has(f"out64/layer{layer}/attn_prob_h"):
            close(out.attentions[layer], case.numbers(f"out64/layer{layer}/attn_prob_h").permute(2, 3, 0, 1), tolerance)
    if case.has("out64/new_mems/0"):
        expected = case.stack("out64/new_mems")
        # Rows with padding keep only their real positions in our memory, so only full rows are comparable.
        full = torch.ones(len(inputs["input_ids"]), dtype=torch.bool)
        if inputs["attention_mask"] is not None:
            full = inputs["attention_mask"].all(dim=1)
        assert full.any()
        close(out.memory.states[:, full], expected[:, full], tolerance, "memory")
    (out.content * case.batch_first("in/grad_weights")).sum().backward()
    case.check_gradients(model, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRETRAINING)
def test_two_stream_pretraining(golden: Path, name: str, dtype: torch.dtype) -> None:
    case = load(golden, name, dtype)
    tolerance = TOLERANCE[dtype]
    model = XLNetLMHeadModel(case.config()).to(dtype)
    case.fill(model)
    memory: Memory | None = None
    for segment in ("seg0", "seg1"):
        ids = case.numbers(f"{segment}/in/input_k")
        direction = lanes(case, len(ids))
        counted = case.numbers(f"{segment}/in/target_mask") > 0
        if case.has(f"{segment}/in/target_mapping"):
            mapping = case.numbers(f"{segment}/in/target_mapping")
            targets = torch.where(counted, mapping.argmax(dim=-1), -1)
        else:
            targets = torch.where(counted, torch.arange(ids.shape[1]), -1)
        labels = torch.where(counted, case.numbers(f"{segment}/in/target"), -100)
        given = given_memory(case, f"{segment}/in/mems", direction)
        model.zero_grad()
        out = model(
            ids,
            labels=labels,
            order=order_of(case.numbers(f"{segment}/in/perm_mask")),
            target_positions=targets,
            token_type_ids=case.numbers(f"{segment}/in/seg_id"),
            memory=given if given is not None else memory,
            direction=direction,
        )
        close(out.loss, case.numbers(f"{segment}/out64/total_loss"), tolerance, "total_loss")
        query = case.batch_first(f"{segment}/out64/query_output")
        close(out.encoder.query[counted], query[counted], tolerance, "query_output")
        if case.has(f"{segment}/out64/new_mems/0"):
            close(out.memory.states, case.stack(f"{segment}/out64/new_mems"), tolerance, "memory")
            assert out.memory.valid.all()
        out.loss.backward()
        case.check_gradients(model, tolerance, f"{segment}/grad64/")
        memory = out.memory
    if case.meta["mem_len"] == 0:
        assert memory is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CORE)
def test_core(golden: Path, name: str, dtype: torch.dtype) -> None:
    """Both attention types, memory, clamping; two-stream cases may start query rows from words (``inp_q`` 0)."""
    case = load(golden, name, dtype)
    tolerance = TOLERANCE[dtype]
    config = case.config()
    model = XLNetModel(config).to(dtype)
    case.fill(model)
    inputs = content_inputs(case)
    ids = inputs.pop("input_ids")
    rows, length = ids.shape
    masked = None
    if case.has("in/inp_q"):
        targets = torch.arange(length).expand(rows, -1)
        masked = case.batch_first("in/inp_q")
        if case.has("in/target_mapping"):
            targets = case.numbers("in/target_mapping").permute(2, 0, 1).argmax(dim=-1)
            masked = torch.ones_like(targets)
        if inputs["visible"] is None:
            inputs["visible"] = torch.ones(rows, length, length, dtype=torch.bool)
        inputs["target_positions"] = targets
    else:
        inputs["target_positions"] = None
    geometry = lay_out(config, ids, order=None, **inputs)
    content = model.word_embedding(ids)
    query = None
    if masked is not None:
        at_targets = content.gather(1, inputs["target_positions"][..., None].expand(-1, -1, config.d_model))
        query = torch.where(masked[..., None] > 0, model.mask_embedding, at_targets)
    out, layer_inputs = model.run_layers(content, query, geometry, inputs["memory"], output_hidden_states=True)
    output = out.content if query is None else out.query
    close(output, case.batch_first("out64/output"), tolerance, "output")
    if case.has("out64/new_mems/0"):
        memory = remember(torch.stack(layer_inputs), inputs["memory"], None, inputs["direction"], config)
        expected = case.stack("out64/new_mems")
        close(memory.states[:, :, -expected.shape[2] :], expected, tolerance, "memory")
        assert int(memory.valid.sum(dim=1)[0]) == expected.shape[2]
    (output * case.batch_first("in/grad_weights")).sum().backward()
    case.check_gradients(model, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("proj", [True, False])
@pytest.mark.parametrize("kind", ["last", "first", "mean", "attn"])
@pytest.mark.parametrize("name", ["a1_content_A", "a2_content_B"])
def test_pooling(golden: Path, name: str, kind: str, proj: bool, dtype: torch.dtype) -> None:
    """The release's ``first`` and ``mean`` count padding: without a mask ours do the same."""
    case = load(golden, name, dtype)
    config = case.config(summary_type=kind, summary_use_proj=proj)
    head = XLNetForSequenceClassification(config).to(dtype)
    case.fill(head)
    summary: SequenceSummary = head.summary
    states = case.batch_first("out64/sequence_output")
    # Only attention was released with the mask; the other kinds count padding in.
    mask = case.batch_first("in/input_mask") == 0 if kind == "attn" else None
    found = summary(states, mask)
    expected = case.numbers(f"out64/pooled_{kind}_{'proj' if proj else 'noproj'}")
    close(found, expected, TOLERANCE[dtype], kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["head_cls_last_A", "head_cls_mean_noproj_A", "head_reg"])
def test_classification_heads(golden: Path, name: str, dtype: torch.dtype) -> None:
    case = load(golden, name, dtype)
    labels = case.numbers("in/label_ids")
    config = case.config(
        num_labels=1 if name == "head_reg" else 3,
        summary_type=case.meta.get("summary_type", "last"),
        summary_use_proj=case.meta.get("use_summ_proj", True),
    )
    model = XLNetForSequenceClassification(config).to(dtype)
    case.fill(model)
    real = case.numbers("in/input_mask") == 0
    ids, segments = case.numbers("in/input_ids"), case.numbers("in/segment_ids")
    if config.summary_type == "mean":
        # The release averages padding too: encode with the mask, give padding its states, pool without the mask.
        model.encoder.config = config.replace(pack_padding=False)
        states = model.encoder(ids, real, segments).content
        logits = model.classifier(model.summary(states))
        loss = torch.nn.functional.cross_entropy(logits, labels)
    else:
        out = model(ids, real, labels=labels, token_type_ids=segments)
        logits, loss = out.logits, out.loss
        close(out.example_loss, case.numbers("out64/per_example_loss"), TOLERANCE[dtype], "per_example_loss")
    expected = case.numbers("out64/logits")
    close(logits.view(expected.shape), expected, TOLERANCE[dtype], "logits")
    close(loss, case.numbers("out64/total_loss"), TOLERANCE[dtype], "total_loss")
    loss.backward()
    case.check_gradients(model, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_multiple_choice_head(golden: Path, dtype: torch.dtype) -> None:
    case = load(golden, "head_race", dtype)
    model = XLNetForMultipleChoice(case.config()).to(dtype)
    case.fill(model)

    def choices(key: str) -> Tensor:
        return case.numbers(key).view(2, 4, 12)

    out = model(
        choices("in/input_ids"),
        choices("in/input_mask") == 0,
        choices("in/segment_ids"),
        labels=case.numbers("in/label_ids"),
    )
    close(out.logits, case.numbers("out64/logits"), TOLERANCE[dtype], "logits")
    close(out.loss, case.numbers("out64/total_loss"), TOLERANCE[dtype], "total_loss")
    out.loss.backward()
    case.check_gradients(model, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_question_answering_head(golden: Path, dtype: torch.dtype) -> None:
    case = load(golden, "head_squad_A", dtype)
    tolerance = TOLERANCE[dtype]
    model = XLNetForQuestionAnswering(case.config(start_n_top=5, end_n_top=4)).to(dtype)
    case.fill(model)
    shared = {
        "input_ids": case.numbers("in/input_ids"),
        "attention_mask": case.numbers("in/input_mask") == 0,
        "token_type_ids": case.numbers("in/segment_ids"),
        "p_mask": case.numbers("in/p_mask"),
        "cls_index": case.numbers("in/cls_index"),
    }
    allowed = shared["p_mask"] == 0
    out = model(
        **shared,
        start_positions=case.numbers("in/start_positions"),
        end_positions=case.numbers("in/end_positions"),
        is_impossible=case.numbers("in/is_impossible"),
    )
    close(out.start_log_probs[allowed], case.numbers("out64/train/start_log_probs")[allowed], tolerance)
    close(out.end_log_probs[allowed], case.numbers("out64/train/end_log_probs")[allowed], tolerance)
    close(out.cls_logits, case.numbers("out64/train/cls_logits"), tolerance)
    close(out.loss, case.numbers("out64/train/total_loss"), tolerance)
    out.loss.backward()
    case.check_gradients(model, tolerance)

    found = model(**shared)
    for kind in ("start_top", "end_top"):
        expected = case.numbers(f"out64/predict/{kind}_log_probs")
        real = expected > -1e20
        close(getattr(found, f"{kind}_log_probs")[real], expected[real], tolerance, kind)
        index = case.numbers(f"out64/predict/{kind}_index")
        assert torch.equal(getattr(found, f"{kind}_index")[real], index[real])
        assert (getattr(found, f"{kind}_log_probs") <= 0).all()
