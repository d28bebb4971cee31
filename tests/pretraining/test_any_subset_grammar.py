"""Any-subset training comes nearer to the true conditionals of a grammar at every share of hidden tokens."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
bench = importlib.import_module("any_subset_grammar")


def test_conditionals_of_the_grammar_are_those_of_enumeration() -> None:
    random = np.random.default_rng(0)
    source = bench.HiddenMarkov(random.dirichlet(np.ones(3), size=3), random.dirichlet(np.ones(4), size=3))
    step, emit = source.step, source.emit
    paths = "a,ab,bc,cd,aw,bx,cy,dz->wxyz"  # the probability of every text, summed over every path of states
    table = np.einsum(paths, source.start, step, step, step, emit, emit, emit, emit)
    assert table.sum() == pytest.approx(1.0)
    for shown in itertools.product([False, True], repeat=4):
        text = random.integers(0, 4, size=4)
        found = source.lattice_conditionals(text[None], np.array([shown]))[0]
        for place in range(4):
            known = [slice(n, n + 1) if at < place or (at > place and shown[at]) else slice(None)
                     for at, n in enumerate(text.tolist())]  # fmt: skip
            weights = table[tuple(known)].sum(axis=tuple(at for at in range(4) if at != place))
            assert np.allclose(found[place], weights / weights.sum(), rtol=1e-12, atol=0)


def test_texts_of_the_grammar_have_its_statistics() -> None:
    source = bench.grammar()
    assert np.allclose(source.step.sum(axis=1), 1) and np.allclose(source.emit.sum(axis=1), 1)
    tokens = source.sample(20_000, seed=1)
    pairs = np.bincount(tokens[:-1] * 10 + tokens[1:], minlength=100).reshape(10, 10) / 19_999
    expected = source.emit.T @ np.diag(source.start) @ source.step @ source.emit
    assert np.abs(pairs - expected).max() < 0.006  # standard error below 0.0015


def test_the_divergence_of_the_truth_from_itself_is_zero_and_of_a_uniform_guess_is_known() -> None:
    source = bench.grammar()
    batches = bench.questions(source, [0.5], 1)[0]
    batch = next(iter(batches))
    truth = torch.from_numpy(bench.target_conditionals(source, batch))

    class Answer(torch.nn.Module):
        def __init__(self, logits: torch.Tensor) -> None:
            super().__init__()
            self.logits = torch.nn.functional.pad(logits, (0, 2), value=-100.0)

        def forward(self, *_: object, **__: object) -> Answer:
            return self

    assert abs(bench.divergence(Answer(truth.log()), source, batches)) < 1e-12
    entropy = -(truth * truth.log()).sum(-1).mean().item()
    uniform = bench.divergence(Answer(torch.zeros_like(truth)), source, batches)
    assert uniform == pytest.approx(np.log(10) - entropy)


@pytest.mark.slow
def test_divergence_from_the_truth_falls_at_every_rate(tmp_path: Path) -> None:
    before, midway, after = bench.train(bench.grammar(), 1.0, 120, seed=0, folder=tmp_path, questions_each=2)
    assert all(a > b > c >= 0 for a, b, c in zip(before, midway, after, strict=True)), (before, midway, after)
    assert all(c < 0.5 * a for a, c in zip(before, after, strict=True)), (before, after)
