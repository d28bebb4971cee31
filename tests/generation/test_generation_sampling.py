"""The transform of logits and the random streams."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.errors import ConfigurationError, InputError
from xlnet.generation.sampling import GREEDY, RandomStream, SamplingConfig, law, permitted, residual

LOGITS = torch.tensor([1.0, 3.0, 2.0, -1.0, 2.5], dtype=torch.float64)


def test_each_setting_does_what_it_says() -> None:
    assert law(LOGITS, SamplingConfig()) == pytest.approx(LOGITS.softmax(0))
    assert law(LOGITS, SamplingConfig(temperature=2.0)) == pytest.approx((LOGITS / 2).softmax(0))
    assert law(LOGITS, GREEDY).tolist() == [0, 1, 0, 0, 0]
    two = law(LOGITS, SamplingConfig(top_k=2))
    assert (two > 0).tolist() == [False, True, False, False, True]
    assert float(two[1] / two[4]) == pytest.approx(math.exp(0.5))
    assert law(LOGITS, SamplingConfig(top_k=99)) == pytest.approx(LOGITS.softmax(0))
    mask = torch.tensor([True, False, True, True, True])
    masked = law(LOGITS, SamplingConfig(), mask=mask)
    assert masked[1] == 0
    assert float(masked.sum()) == pytest.approx(1.0)
    assert law(LOGITS, GREEDY, mask=mask).tolist() == [0, 0, 0, 0, 1]


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.25, 0.15], dtype=torch.float64)
    for top_p, kept in ((0.4, [1]), (0.5, [1]), (0.51, [1, 2]), (0.8, [1, 2, 3]), (1.0, [0, 1, 2, 3]), (1e-9, [1])):
        got = law(probabilities.log(), SamplingConfig(top_p=top_p))
        assert got.nonzero()[:, 0].tolist() == kept
        assert float(got.sum()) == pytest.approx(1.0)


def test_repetition_penalty_lowers_what_was_said() -> None:
    config = SamplingConfig(repetition_penalty=2.0)
    got = law(LOGITS, config, seen=[1, 3, 1])
    want = torch.tensor([1.0, 1.5, 2.0, -2.0, 2.5], dtype=torch.float64).softmax(0)
    assert got == pytest.approx(want)
    assert law(LOGITS, config) == pytest.approx(LOGITS.softmax(0))


def test_half_precision_logits_are_widened() -> None:
    assert law(LOGITS.bfloat16(), SamplingConfig()).dtype == torch.float32


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_draft_and_residual_make_the_target(first: list[float], second: list[float]) -> None:
    size = min(len(first), len(second))
    target = torch.tensor(first[:size], dtype=torch.float64).softmax(0)
    draft = torch.tensor(second[:size], dtype=torch.float64).softmax(0)
    kept = torch.minimum(target, draft)
    assert kept + (1 - kept.sum()) * residual(target, draft) == pytest.approx(target, abs=1e-12)


def test_streams_are_fixed_by_seed_and_sample_alone() -> None:
    law_ = LOGITS.softmax(0)
    first = [RandomStream(3, 5).choose(law_) for _ in range(5)]
    assert len(set(first)) == 1
    drawn = {
        (seed, sample): tuple(stream.choose(law_) for _ in range(30))
        for seed in (0, 1) for sample in (0, 1)
        for stream in [RandomStream(seed, sample)]
    }  # fmt: skip
    assert len(set(drawn.values())) == 4


def test_draws_follow_the_law() -> None:
    stream, law_ = RandomStream(0, 0), torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    draws = 20_000
    counts = torch.bincount(torch.tensor([stream.choose(law_) for _ in range(draws)]), minlength=4)
    assert counts[1] == 0
    expected = law_ * draws
    chi_squared = float((((counts - expected) ** 2)[law_ > 0] / expected[law_ > 0]).sum())
    assert chi_squared < 13.8  # 0.999 quantile, 2 degrees of freedom
    accepted = sum(stream.accept(0.3) for _ in range(draws))
    assert abs(accepted / draws - 0.3) < 0.015
    assert stream.accept(1.0)
    assert not stream.accept(0.0)


@pytest.mark.parametrize("changes,words", [
    ({"temperature": 0.0}, "temperature=0.0 must be positive; .*temperature=None"),
    ({"temperature": -1.0}, "temperature=-1.0"), ({"temperature": math.nan}, "temperature=nan"),
    ({"temperature": math.inf}, "temperature=inf"), ({"top_k": 0}, "top_k=0"), ({"top_p": 0.0}, "top_p=0.0"),
    ({"top_p": 1.5}, "top_p=1.5"), ({"repetition_penalty": 0.0}, "repetition_penalty=0.0"), ({"seed": -1}, "seed=-1"),
    ({"allowed": (1, 2), "banned": (1, 2, 3)}, "every allowed id is banned"), ({"allowed": ()}, "no token to choose"),
])  # fmt: skip
def test_bad_settings_are_refused(changes: dict, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        SamplingConfig(**changes)


def test_permitted_ids() -> None:
    assert permitted(SamplingConfig(), 5) is None
    assert permitted(SamplingConfig(banned=(1,)), 3, (0,)).tolist() == [False, False, True]
    assert permitted(SamplingConfig(allowed=(1, 2), banned=(1,)), 3).tolist() == [False, False, True]
    for name in ("banned", "allowed"):
        with pytest.raises(InputError, match=f"{name} holds id 5, but ids run from 0 to 4"):
            permitted(SamplingConfig(**{name: (5,)}), 5)
    with pytest.raises(ConfigurationError, match="all banned"):
        permitted(SamplingConfig(allowed=(1,)), 3, (1,))
