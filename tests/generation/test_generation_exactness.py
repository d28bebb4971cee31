"""Parallel decoding has exactly the law of sequential decoding: every random choice is enumerated in float64."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from generation_tables import Branching, Table, enumerate_law, total_variation
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import GREEDY, RandomStream, SamplingConfig

PLAIN = SamplingConfig()
ORDER = (3, 1, 4, 2, 5)
METHODS = [("speculative", 2), ("speculative", 3), ("one_pass", 1), ("one_pass", 2), ("one_pass", 3)]


@cache
def law(
    method: str, k: int, targets: int, vocab_size: int, sampling: SamplingConfig = PLAIN, mask: tuple[bool, ...] = ()
) -> tuple[dict[tuple, float], int, float]:
    """Law of the decided ids, most calls, expected calls."""
    table = Table(vocab_size)
    plan = FillPlan((0, *[0] * targets), ORDER[:targets])
    allowed = torch.tensor(mask) if mask else None

    def experiment(chooser: Branching) -> tuple:
        run = Run(plan, sampling, chooser, allowed)
        drive([run], table.fresh(), method=method, k=k)
        assert run.calls == table.calls
        return tuple(run.decided), run.calls

    both = enumerate_law(experiment)
    ids: dict[tuple, float] = {}
    for (decided, _), weight in both.items():
        ids[decided] = ids.get(decided, 0.0) + weight
    return ids, max(calls for _, calls in both), sum(calls * weight for (_, calls), weight in both.items())


@pytest.mark.parametrize("method,k", METHODS)
@pytest.mark.parametrize("targets,vocab_size", [(1, 3), (2, 3), (3, 3), (4, 2), (5, 2)])
def test_output_law_is_the_sequential_one(method: str, k: int, targets: int, vocab_size: int) -> None:
    want, _, _ = law("sequential", 1, targets, vocab_size)
    assert sum(want.values()) == pytest.approx(1.0, abs=1e-12)
    assert len(want) == vocab_size**targets
    got, most, expected = law(method, k, targets, vocab_size)
    assert total_variation(want, got) < 1e-12
    assert most <= targets
    if targets > 2:
        assert expected < targets


@pytest.mark.slow
@pytest.mark.parametrize("method,k", METHODS)
def test_output_law_with_more_tokens(method: str, k: int) -> None:
    want, _, _ = law("sequential", 1, 4, 3)
    got, most, _ = law(method, k, 4, 3)
    assert total_variation(want, got) < 1e-12
    assert most <= 4


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(temperature=0.5),
        SamplingConfig(temperature=2.0, top_k=2),
        SamplingConfig(top_p=0.7),
        SamplingConfig(repetition_penalty=1.8),
    ],
    ids=["temperature", "top_k", "top_p", "repetition"],
)
@pytest.mark.parametrize("method,k", [("speculative", 3), ("one_pass", 2)])
def test_transformed_laws_equal_the_transformed_sequential_law(sampling: SamplingConfig, method: str, k: int) -> None:
    want, _, _ = law("sequential", 1, 3, 3, sampling)
    plain, _, _ = law("sequential", 1, 3, 3)
    assert total_variation(want, plain) > 0.01, "the transform does nothing here"
    got, most, _ = law(method, k, 3, 3, sampling)
    assert total_variation(want, got) < 1e-12
    assert most <= 3


@pytest.mark.parametrize("method,k", [("speculative", 3), ("one_pass", 2)])
def test_banned_ids_are_masked_before_the_softmax(method: str, k: int) -> None:
    mask = (True, False, True)
    want, _, _ = law("sequential", 1, 3, 3, PLAIN, mask)
    assert all(1 not in decided for decided in want)
    assert sum(want.values()) == pytest.approx(1.0, abs=1e-12)
    assert total_variation(want, law(method, k, 3, 3, PLAIN, mask)[0]) < 1e-12


def test_the_harness_can_fail() -> None:
    """A method that keeps every draft has another law; the enumeration must see it."""
    table, plan = Table(3), FillPlan((0,) * 4, ORDER[:3])

    def careless(chooser: Branching) -> tuple:
        return tuple(chooser.choose(table.logits([(0, 0)], place).softmax(0)) for place in plan.targets)

    want, _, _ = law("sequential", 1, 3, 3)
    assert total_variation(want, enumerate_law(careless)) > 0.05


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.0, 0.3, 2.0, 30.0, 1000.0]),
    targets=st.integers(0, 12),
    k=st.integers(1, 6),
    method=st.sampled_from(["speculative", "one_pass"]),
)
def test_never_more_calls_than_tokens(seed: int, sharpness: float, targets: int, k: int, method: str) -> None:
    table = Table(4, seed=seed, sharpness=sharpness)
    plan = FillPlan((0,) * (targets + 1), tuple(range(1, targets + 1)))
    run = Run(plan, PLAIN, RandomStream(seed, 0))
    drive([run], table, method=method, k=k)
    assert len(run.decided) == targets
    assert run.calls <= targets
    assert sum(run.accepted) <= targets
    sequential = Run(plan, PLAIN, RandomStream(seed, 0))
    drive([sequential], table.fresh())
    assert sequential.calls == targets


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), targets=st.integers(1, 9), k=st.integers(1, 5))
def test_greedy_is_the_same_for_every_method(seed: int, targets: int, k: int) -> None:
    plan = FillPlan((0,) * (targets + 1), tuple(range(targets, 0, -1)))
    results = []
    for method in ("sequential", "speculative", "one_pass"):
        run = Run(plan, GREEDY, RandomStream(0, 0))
        drive([run], Table(4, seed=seed), method=method, k=k)
        results.append((run.decided, run.log_probs))
    assert results[0] == results[1] == results[2]


def test_log_probability_is_that_of_the_drawn_tokens() -> None:
    for method in ("sequential", "speculative", "one_pass"):
        table = Table(3, seed=5)
        run = Run(FillPlan((0,) * 5, (4, 2, 1, 3)), SamplingConfig(temperature=0.7, top_k=2), RandomStream(3, 1))
        drive([run], table, method=method, k=3)
        seen = [(0, 0)]
        for place, token, value in zip(run.plan.targets, run.decided, run.log_probs, strict=True):
            assert value == pytest.approx(float(table.logits(seen, place).log_softmax(0)[token]), abs=1e-12)
            seen.append((place, token))


def test_samples_do_not_depend_on_their_neighbours() -> None:
    plans = [FillPlan((1, 0, 0, 0, 2), (1, 3, 2)[:n]) for n in (3, 1, 0, 2, 3)]
    for method in ("sequential", "speculative", "one_pass"):
        runs = [Run(plan, PLAIN, RandomStream(9, i)) for i, plan in enumerate(plans)]
        drive(runs, Table(4, seed=2, samples=5), method=method, k=2)
        for i, plan in enumerate(plans):
            alone = Run(plan, PLAIN, RandomStream(9, i))
            drive([alone], Table(4, seed=2), method=method, k=2)
            assert (alone.decided, alone.log_probs, alone.calls) == (runs[i].decided, runs[i].log_probs, runs[i].calls)
