"""Runs that cannot go on: numbers that are none, divergence, no data, no memory; nothing good is lost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_toys import ToyBatch, ToyStream, equal, run, stop_after, toy_model, toy_objective

from xlnet.errors import MachineError, TrainingError
from xlnet.training.contracts import Step
from xlnet.training.run_state import CheckpointFolder, load_parameters


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_number_that_is_none_stops_before_it_reaches_the_weights(tmp_path: Path, value: float, where: str) -> None:
    model = toy_model()

    def poison() -> None:
        if where == "gradient":
            model.lm_head.bias.register_hook(lambda gradient: gradient * value)

    count = 0

    def objective(model_: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        nonlocal count
        count += 1
        if count == 12:
            poison()
        step = toy_objective(model_, batch, carried)
        return step._replace(loss_sum=step.loss_sum * value) if count == 12 and where == "loss" else step

    with pytest.raises(TrainingError) as caught:
        run(tmp_path, model=model, objective=objective)
    text = str(caught.value)
    good = tmp_path / "checkpoints/step-0000000004"
    assert "Step 6:" in text and str(good) in text and caught.value.exit_code == 1
    assert ("the loss is" in text) if where == "loss" else ("lm_head.bias" in text and "not finite" in text)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    load_parameters(good, toy_model())
    resumed, _ = run(tmp_path, resume=True)
    straight, _ = run(tmp_path / "straight")
    assert equal(resumed, straight)


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    model = toy_model()

    def fill(gradient: torch.Tensor) -> None:
        model.word_embedding.weight.data.fill_(math.nan)

    def spoil() -> None:
        # As an update that overflows would; loss and gradient of this step were fine.
        model.lm_head.bias.register_hook(fill)

    with pytest.raises(TrainingError, match=r"Step 4: a parameter is NaN.*step-0000000000"):
        run(tmp_path, model=model, objective=stop_after(8, spoil), evaluate=None)
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [0]


def test_divergence_stops_and_keeps_the_good_checkpoint(tmp_path: Path) -> None:
    calls = 0

    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        nonlocal calls
        calls += 1
        step = toy_objective(model, batch, carried)
        return step._replace(loss_sum=step.loss_sum * 10) if calls > 41 else step

    with pytest.raises(
        TrainingError, match=r"Step 50: the loss is .* above 2 times.*for 9 steps.*step-0000000041"
    ) as e:
        run(tmp_path, steps=100, accumulation=1, save_every=1, keep_last=1, divergence_steps=9, objective=objective,
            evaluate=None)  # fmt: skip
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [41], str(e.value)
    # A shorter spell is borne, and a resumed run remembers what it has seen.
    calls = 0
    run(tmp_path / "short", steps=49, accumulation=1, divergence_steps=9, objective=objective, evaluate=None)
    calls = 49
    with pytest.raises(TrainingError, match="Step 50:"):
        run(tmp_path / "short", steps=60, accumulation=1, divergence_steps=9, objective=objective, evaluate=None,
            resume=True)  # fmt: skip


def test_data_that_ends_is_an_error(tmp_path: Path) -> None:
    class Short(ToyStream):
        def __next__(self) -> ToyBatch:
            if self.position == 9:
                raise StopIteration
            return super().__next__()

    with pytest.raises(TrainingError, match=r"Step 5: the data came to an end.*step-0000000004"):
        run(tmp_path, stream=Short(lane_groups=2))


def test_out_of_memory_has_a_remedy(tmp_path: Path) -> None:
    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        torch.empty(2**60)
        raise AssertionError

    with pytest.raises(MachineError, match=r"Step 1: out of memory.*smaller batch"):
        run(tmp_path, objective=objective)
