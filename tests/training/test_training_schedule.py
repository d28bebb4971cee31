"""Learning-rate curves against those of the official code, and their properties."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlnet.errors import ConfigurationError
from xlnet.training.schedule import ScheduleConfig, factor

KIND = {"poly": "linear", "cos": "cosine"}


def test_curves_of_the_release(golden: Path) -> None:
    recorded = np.load(golden / "training" / "lr_schedule.npz")
    names = [key.removeprefix("lr/") for key in recorded.files if key.startswith("lr/")]
    assert len(names) == 5
    for name in names:
        settings = json.loads(str(recorded[f"cfg/{name}"]))
        config = ScheduleConfig(
            kind=KIND[settings["decay_method"]],
            warmup_steps=settings["warmup_steps"],
            min_lr_ratio=settings["min_lr_ratio"],
        )
        ours = [settings["learning_rate"] * factor(t, settings["train_steps"], config) for t in range(26)]
        # The release computes in float32: its cosine is off by up to 1e-10 near zero.
        np.testing.assert_allclose(ours, recorded[f"lr/{name}"], rtol=2e-6, atol=2e-10, err_msg=name)


@given(
    kind=st.sampled_from(["linear", "cosine", "constant"]),
    steps=st.integers(1, 300),
    warmup=st.integers(0, 300),
    low=st.floats(0.0, 1.0),
)
def test_rises_then_never_rises_again(kind: str, steps: int, warmup: int, low: float) -> None:
    warmup = min(warmup, steps)
    config = ScheduleConfig(kind=kind, warmup_steps=warmup, min_lr_ratio=low)
    curve = [factor(t, steps, config) for t in range(steps + 5)]
    assert all(0.0 <= value <= 1.0 for value in curve)
    assert all(a < b for a, b in pairwise(curve[:warmup]))
    assert all(a >= b - 1e-12 for a, b in pairwise(curve[warmup:]))
    assert curve[warmup] == pytest.approx(1.0)
    if kind != "constant":
        assert curve[-1] == pytest.approx(low) or warmup == steps


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "cosin"}, ["kind='cosin'", "Did you mean 'cosine'?"]),
        ({"warmup_steps": -1}, ["warmup_steps=-1"]),
        ({"min_lr_ratio": 1.5}, ["min_lr_ratio=1.5"]),
    ],
)
def test_refuses(settings: dict, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ScheduleConfig(**settings)
    assert all(word in str(caught.value) for word in words)
