"""Activation and dropout in one kernel: the values, gradients and statistics of the plain functions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import gelu

from xlnet.model import pointwise
from xlnet.model.dropout import keep_rule
from xlnet.model.layer import activate_and_drop

pytestmark = pytest.mark.skipif(pointwise._kernels(torch.float32) is None, reason="no C compiler, or not Linux")
COUNT = pointwise.SMALLEST + 77  # the last chunk is only partly used


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gelu_has_the_error_of_its_dtype(dtype: torch.dtype) -> None:
    """Value and slope, also far out, with at most twice the error of torch's own."""
    far = torch.tensor([0.0, -0.0, 1e-8, -1e-8, 30.0, -30.0, 1e4, -1e4])
    points = torch.cat([torch.linspace(-12, 12, COUNT), far]).double()
    upstream = torch.randn(points.shape, generator=torch.Generator().manual_seed(0)).double()
    found = {}
    for name, kind in (("exact", torch.float64), ("torch", dtype), ("kernel", dtype)):
        leaf = points.to(dtype).to(kind).requires_grad_()
        if name == "exact":  # the form of a gate, in which nothing cancels
            out = leaf * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (leaf + 0.044715 * leaf**3))
        elif name == "torch":
            out = gelu(leaf, approximate="tanh")
        else:
            out = activate_and_drop(leaf, "gelu_tanh", 0.0, True)
        out.backward(upstream.to(dtype).to(kind))
        assert leaf.grad is not None
        found[name] = (out.detach().double(), leaf.grad.double())
    for exact, own, kernel in zip(*found.values(), strict=True):
        allowed = 2 * (own - exact).abs() + 8 * torch.finfo(dtype).eps * (exact.abs() + 0.1)
        assert torch.all((kernel - exact).abs() <= allowed)


def test_drops_after_the_activation_and_in_both_directions_alike() -> None:
    rule = keep_rule(0.3)
    assert rule is not None
    torch.manual_seed(1)
    states = torch.randn(COUNT, dtype=torch.float64, requires_grad=True)
    out = activate_and_drop(states, "gelu_tanh", 0.3, True)
    kept = out != 0
    plain = torch.nn.functional.gelu(states, approximate="tanh") * rule.scale
    torch.testing.assert_close(out, torch.where(kept, plain, 0.0), rtol=1e-12, atol=1e-14)
    (gradient,) = torch.autograd.grad(out.sum(), states)
    (expected,) = torch.autograd.grad(plain[kept].sum(), states)
    torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-13)
    share = float(kept.double().mean())
    assert abs(share - (1 - 77 / 256)) < 4 * (0.3 * 0.7 / COUNT) ** 0.5


def test_any_number_of_threads_draws_the_same() -> None:
    before = torch.get_num_threads()
    states, found = torch.ones(100_000), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(2)
            found.append(activate_and_drop(states, "gelu_tanh", 0.5, True))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_transposed_array_and_one_that_is_nan() -> None:
    states = torch.randn(200, 300).t()
    torch.testing.assert_close(activate_and_drop(states, "gelu_tanh", 0.0, False), gelu(states, approximate="tanh"))
    states = torch.full((COUNT,), torch.nan)
    assert activate_and_drop(states, "gelu_tanh", 0.0, False).isnan().all()
    assert activate_and_drop(states.bfloat16(), "gelu_tanh", 0.0, False).isnan().all()


def test_small_arrays_and_other_dtypes_go_to_torch() -> None:
    assert not pointwise.serves(torch.ones(pointwise.SMALLEST - 1))
    assert not pointwise.serves(torch.ones(COUNT, dtype=torch.float16))
    assert pointwise.serves(torch.ones(COUNT))
