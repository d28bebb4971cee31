"""The model through oneDNN's float32 products: recorded arrays, error against float64, rows that mind their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import Case
from test_model_golden import CONTENT, CORE, PRETRAINING
from test_model_golden import test_classification_heads as classification_heads
from test_model_golden import test_content_stream as content_stream
from test_model_golden import test_core as core
from test_model_golden import test_question_answering_head as question_answering_head
from test_model_golden import test_two_stream_pretraining as two_stream_pretraining
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.float32 import float32_products
from xlnet.model import XLNetLMHeadModel
from xlnet.model.attention import BACKENDS

pytestmark = pytest.mark.usefixtures("onednn")


@pytest.mark.parametrize("backend", BACKENDS)
def test_recorded_arrays(backend: str, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, memories and all gradients of the official code to 2e-5, through every backend."""
    of_case = Case.config
    monkeypatch.setattr(Case, "config", lambda case, **changes: of_case(case, attention_backend=backend, **changes))
    for name in PRETRAINING:
        two_stream_pretraining(golden, name, torch.float32)
    for name in CONTENT:
        content_stream(golden, name, torch.float32)


def test_other_recorded_arrays(golden: Path) -> None:
    for name in CORE:
        core(golden, name, torch.float32)
    for name in ("head_cls_last_A", "head_reg"):
        classification_heads(golden, name, torch.float32)
    question_answering_head(golden, torch.float32)


def wide_model(backend: str = "auto") -> XLNetLMHeadModel:
    """Wide enough for products of every kind to take oneDNN's way."""
    torch.manual_seed(0)
    config = XLNetConfig(
        vocab_size=300, n_layer=2, d_model=128, n_head=2, d_head=64, d_inner=512, dropout=0.0, dropatt=0.0,
        initializer_range=0.1, attention_backend=backend,
    )  # fmt: skip
    return XLNetLMHeadModel(config)


def loss_and_gradients(model: XLNetLMHeadModel) -> Tensor:
    """All numbers of a step in one row, float64, each tensor scaled to length 1."""
    torch.manual_seed(1)
    ids, order = torch.randint(0, 300, (3, 70)), torch.stack([torch.randperm(70) for _ in range(3)])
    targets = torch.stack([torch.randperm(70)[:12] for _ in range(3)])
    model.zero_grad()
    out = model(ids, labels=ids.gather(1, targets), order=order, target_positions=targets)
    out.loss.backward()
    numbers = [out.loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return torch.cat([(n / n.norm().clamp_min(1e-12)).double().flatten() for n in numbers])


@pytest.mark.parametrize("backend", BACKENDS)
def test_error_is_that_of_float32(backend: str) -> None:
    """At most twice the error of torch's default product, for the loss and every gradient together."""
    model = wide_model(backend)
    through_onednn = loss_and_gradients(model)
    with float32_products("default"):
        default = loss_and_gradients(model)
    exact = loss_and_gradients(model.double())
    assert not torch.equal(through_onednn, default), "the switch has no effect here"
    assert (through_onednn - exact).norm() <= 2 * (default - exact).norm()
    assert torch.equal(through_onednn, loss_and_gradients(model.float())), "the same twice, bit for bit"


def test_batch_composition_changes_nothing() -> None:
    """Unlike rows of unlike lengths equal themselves run alone, beyond rounding."""
    model = wide_model().eval()
    ids = torch.randint(0, 300, (4, 60))
    lengths = [60, 7, 33, 1]
    mask = torch.arange(60)[None] >= 60 - torch.tensor(lengths)[:, None]
    with torch.inference_mode():
        together = model(ids, attention_mask=mask).logits
        for row, length in enumerate(lengths):
            alone = model(ids[row : row + 1, -length:]).logits[0]
            torch.testing.assert_close(together[row, -length:], alone, rtol=2e-5, atol=2e-5)
