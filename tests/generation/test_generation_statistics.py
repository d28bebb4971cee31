"""Samples of a trained model, by every method, against its exact law: chi squared."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from generation_stand_ins import small_model

from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import RandomStream, SamplingConfig
from xlnet.generation.score import log_prob
from xlnet.model import XLNetLMHeadModel

SYMBOLS = 4
SAMPLES = 20_000
TOKENS, BLANKS = (0, 1, 0, 0, 2), (1, 2, 3)
# An exact sampler is above it once in ten thousand times (63 degrees of freedom).
FARTHEST = 113.5


@pytest.fixture(scope="module")
def model() -> XLNetLMHeadModel:
    """Trained in any order on a chain in which a symbol is mostly followed by the next one."""
    model = small_model(SYMBOLS, seed=3).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        steps = torch.multinomial(torch.tensor([0.15, 0.7, 0.15]), 64 * 5, True, generator=generator).view(64, 5)
        ids = steps.cumsum(1) % SYMBOLS
        order = torch.stack([torch.randperm(5, generator=generator) for _ in ids])
        out = model(ids, order=order, target_positions=torch.arange(5).expand(64, 5), labels=ids)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "k"), [("sequential", 1), ("speculative", 2), ("one_pass", 2)])
def test_samples_follow_the_exact_law(model: XLNetLMHeadModel, method: str, k: int) -> None:
    outcomes = list(product(range(SYMBOLS), repeat=len(BLANKS)))
    exact = []
    for outcome in outcomes:
        tokens = list(TOKENS)
        for place, token in zip(BLANKS, outcome, strict=True):
            tokens[place] = token
        exact.append(log_prob(model, tokens, targets=BLANKS, order=BLANKS).total)
    probabilities = torch.tensor(exact, dtype=torch.float64).exp()
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(probabilities.max()) > 5 / len(outcomes), "an untrained model would test little"
    counts = torch.zeros(len(outcomes), dtype=torch.float64)
    plan = FillPlan(TOKENS, BLANKS)
    with evaluating(model):
        for start in range(0, SAMPLES, 2000):
            runs = [Run(plan, SamplingConfig(), RandomStream(1, start + number)) for number in range(2000)]
            drive(runs, conditionals(model, len(runs)), method=method, k=k)
            for run in runs:
                counts[outcomes.index(tuple(run.decided))] += 1
    expected = probabilities / probabilities.sum() * SAMPLES
    assert float(expected.min()) > 1, "cells too rare for the statistic"
    assert float(((counts - expected) ** 2 / expected).sum()) < FARTHEST
