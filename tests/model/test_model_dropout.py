"""Dropout from bytes: rate, scale, independence, seeds, gradients, and rates too small for bytes."""

from __future__ import annotations

import pytest
import torch

from xlnet.model.dropout import LEVELS, dropout, keep_rule, scale_of


@pytest.mark.parametrize("rate", [0.004, 0.1, 0.25, 0.5, 0.9, 0.999])
def test_rate_and_scale(rate: float) -> None:
    torch.manual_seed(0)
    states = torch.ones(1000, 1001)  # an odd count: the last word is only partly used
    out = dropout(states, rate, training=True)
    kept = out > 0
    rule = keep_rule(rate)
    assert rule is not None
    used = rule.threshold / LEVELS
    assert abs(used - rate) <= 0.5 / LEVELS or rate > 255 / LEVELS
    assert torch.all(out[kept] == torch.tensor(rule.scale))
    sigma = (used * (1 - used) / kept.numel()) ** 0.5
    assert abs(float(kept.double().mean()) - (1 - used)) < 4 * sigma
    # Every byte of a word decides alike: none is short of a bit.
    by_byte = kept.flatten()[: kept.numel() // 8 * 8].view(-1, 8).double().mean(dim=0)
    assert float((by_byte - (1 - used)).abs().max()) < 5 * sigma * 8**0.5


def test_independent_of_neighbours() -> None:
    torch.manual_seed(1)
    noise = (dropout(torch.ones(1 << 20), 0.1, training=True) > 0).double()
    noise -= noise.mean()
    variance = noise.square().mean()
    for lag in (1, 2, 3, 4, 7, 8, 16, 64, 256, 1024):
        assert abs(float((noise[:-lag] * noise[lag:]).mean() / variance)) < 5 / noise.numel() ** 0.5


def test_gradient_uses_the_same_decisions() -> None:
    states = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
    out = dropout(states, 0.4, training=True)
    out.sum().backward()
    assert states.grad is not None
    assert torch.equal(states.grad != 0, out != 0)
    assert set(states.grad.unique().tolist()) == {0.0, scale_of(0.4)}


def test_seed_and_modes() -> None:
    states = torch.randn(64, 64)
    torch.manual_seed(5)
    first = dropout(states, 0.3, training=True)
    second = dropout(states, 0.3, training=True)
    torch.manual_seed(5)
    assert torch.equal(first, dropout(states, 0.3, training=True))
    assert not torch.equal(first, second)
    assert dropout(states, 0.3, training=False) is states
    assert dropout(states, 0.0, training=True) is states


def test_rates_below_a_byte_are_drawn_plainly() -> None:
    assert keep_rule(1e-3) is None
    torch.manual_seed(2)
    out = dropout(torch.ones(1 << 20), 1e-3, training=True)
    dropped = float((out == 0).double().mean())
    assert abs(dropped - 1e-3) < 4 * (1e-3 / out.numel()) ** 0.5
    assert scale_of(1e-3) == 1 / (1 - 1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(9, dtype=dtype), 0.5, training=True).dtype == dtype
