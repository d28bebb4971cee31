"""Chunked cross-entropy against the plain one, with labels that do not count."""

from __future__ import annotations

import pytest
import torch

from xlnet.model.loss import CHUNK_ROWS, plain_cross_entropy, vocabulary_cross_entropy


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ignored", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("places", [7, CHUNK_ROWS + 5])
def test_equals_the_plain_form(places: int, ignored: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    exact_inputs = [torch.randn(3, places, 8), torch.randn(17, 8), torch.randn(17)]
    labels = torch.randint(0, 17, (3, places)).masked_fill(torch.rand(3, places) < ignored, -100)
    found = {}
    for name, function, kind in (
        ("exact", plain_cross_entropy, torch.float64),
        ("plain", plain_cross_entropy, dtype),
        ("chunked", vocabulary_cross_entropy, dtype),
    ):
        leaves = [tensor.to(kind, copy=True).requires_grad_() for tensor in exact_inputs]
        loss = function(*leaves, labels)
        (loss / 3).backward()
        found[name] = [loss.detach().double(), *(leaf.grad.double() for leaf in leaves)]
    for exact, plain, chunked in zip(*found.values(), strict=True):
        allowed = 2 * (plain - exact).norm() + 16 * torch.finfo(dtype).eps * exact.norm()
        assert (chunked - exact).norm() <= allowed
    if ignored == 1.0:
        assert all(float(value.abs().sum()) == 0.0 for value in found["chunked"])


def test_far_apart_logits_stay_finite() -> None:
    states = torch.tensor([[[1000.0, 0.0]]], requires_grad=True)
    loss = vocabulary_cross_entropy(states, torch.eye(2), torch.zeros(2), torch.tensor([[1]]))
    assert loss.item() == 1000.0
    loss.backward()
    assert torch.equal(states.grad, torch.tensor([[[1.0, -1.0]]]))


def test_without_gradients() -> None:
    states, labels = torch.randn(2, 3, 4), torch.tensor([[0, 1, -100], [2, -100, 4]])
    with torch.no_grad():
        value = vocabulary_cross_entropy(states, torch.eye(5, 4), torch.zeros(5), labels)
    torch.testing.assert_close(value, plain_cross_entropy(states, torch.eye(5, 4), torch.zeros(5), labels))


@pytest.mark.parametrize("places", [7, CHUNK_ROWS + 5])
def test_under_autocast_it_is_the_form_of_that_dtype(places: int) -> None:
    """Weights and states in float32, as a model has them; the product and its gradients in bfloat16."""
    torch.manual_seed(1)
    labels = torch.randint(0, 17, (2, places)).masked_fill(torch.rand(2, places) < 0.2, -100)
    states, weight, bias = torch.randn(2, places, 8), torch.randn(17, 8), torch.randn(17)
    leaves = [tensor.clone().requires_grad_() for tensor in (states, weight, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = vocabulary_cross_entropy(*leaves, labels)
    loss.backward()
    rounded = [tensor.bfloat16().requires_grad_() for tensor in (states, weight, bias)]
    expected = vocabulary_cross_entropy(*rounded, labels)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for leaf, other in zip(leaves, rounded, strict=True):
        assert leaf.grad is not None and leaf.grad.dtype == torch.float32
        torch.testing.assert_close(leaf.grad, other.grad.float())
