"""The loop: equal results however a step is cut up or distributed; what is measured, kept and chosen."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_toys import Collector, ToyBatch, ToyStream, equal, parameters, run, toy_model, toy_objective

from xlnet.errors import ConfigurationError
from xlnet.training.contracts import Step
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.run_state import CheckpointFolder, load_parameters


def test_it_learns_and_writes_what_it_says(tmp_path: Path) -> None:
    news = Collector()
    saved: list[Path] = []

    def save_model(folder: Path) -> None:
        saved.append(folder)
        (folder / "weights").write_text("x")

    model, result = run(tmp_path / "run", steps=60, reporter=news, save_model=save_model, evaluate_every=20)
    assert result.step == 60 and result.stopped_by == "steps"
    assert result.metrics["loss"] < news.evaluations[0][1]["loss"] - 0.1
    assert result.tokens == 60 * 2 * 2 * 6
    assert [step for step, _ in news.evaluations] == [0, 20, 40, 60]
    assert (tmp_path / "run/model/weights").read_text() == "x" and len(saved) == 1
    assert not list((tmp_path / "run").rglob(".partial*"))
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "train"] == list(range(3, 61, 3))
    assert [r["step"] for r in records if r["kind"] == "evaluation"] == [0, 20, 40, 60]
    assert news.reports[-1].eta_seconds == 0.0 and news.reports[-1].tokens_per_second > 0
    other = toy_model(seed=9)
    load_parameters(result.checkpoint, other)
    assert equal(model, other)
    assert model.training


@pytest.mark.slow
def test_picture_and_tensorboard(tmp_path: Path) -> None:
    """Slow by its imports alone."""
    run(tmp_path, plot=True, tensorboard=True)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_accumulation_equals_one_big_batch(tmp_path: Path) -> None:
    """Three micro-batches of unlike target counts, with carried state, against the same rows as one batch."""

    class Joined:
        lane_groups = 1

        def __init__(self) -> None:
            self.inner = ToyStream(lane_groups=3)

        def __next__(self) -> ToyBatch:
            return ToyBatch(torch.cat([next(self.inner).tokens for _ in range(3)]), 0)

        def state(self) -> dict:
            return self.inner.state()

        def restore(self, state: dict) -> None:
            self.inner.restore(state)

    settings = {"optimizer": OptimizerConfig(kind="release", learning_rate=0.02, epsilon=0.1), "clip_norm": 0.5}
    small, a = run(tmp_path / "a", model=toy_model(dropout=0.0), accumulation=3, **settings)
    big, b = run(tmp_path / "b", model=toy_model(dropout=0.0), accumulation=1, stream=Joined(), **settings)
    for x, y in zip(small.parameters(), big.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    assert a.loss == pytest.approx(b.loss, rel=1e-4)


@pytest.mark.parametrize(("accumulation", "lane_groups"), [(1, 1), (2, 2), (3, 3), (2, 1), (1, 3), (2, 6)])
def test_carried_state_never_changes_lanes(tmp_path: Path, accumulation: int, lane_groups: int) -> None:
    seen: list[tuple[int, float | None]] = []

    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        step = toy_objective(model, batch, None)
        turn = 0.0 if carried is None else float(carried["turn"])
        if carried is not None:
            assert int(carried["group"]) == batch.group
        seen.append((batch.group, turn))
        return step._replace(carried={"group": torch.tensor(batch.group), "turn": torch.tensor(turn + 1)})

    run(tmp_path, stream=ToyStream(lane_groups=lane_groups), accumulation=accumulation, steps=6, objective=objective)
    assert seen == [(n % lane_groups, float(n // lane_groups)) for n in range(6 * accumulation)]


def test_evaluation_and_logging_leave_no_trace(tmp_path: Path) -> None:
    often, _ = run(tmp_path / "a", evaluate_every=1, log_every=1, save_every=1)
    never, _ = run(tmp_path / "b", evaluate=None, log_every=100, save_every=0)
    assert equal(often, never)


def test_evaluation_keeps_the_mode_of_every_module(tmp_path: Path) -> None:
    model = toy_model()
    modes = []

    def objective(model_: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        model.norm.eval()
        modes.append(model.dropout.training)
        return toy_objective(model_, batch, carried)

    def evaluate(model_: nn.Module) -> dict[str, float]:
        assert not any(m.training for m in model_.modules()) and not torch.is_grad_enabled()
        return {"x": 1.0}

    run(tmp_path, model=model, objective=objective, evaluate=evaluate, evaluate_every=1)
    assert all(modes) and not model.norm.training


def test_checkpoints_kept_are_the_last_and_the_best(tmp_path: Path) -> None:
    values = iter([5.0, 3.0, 2.0, 4.0, math.nan, 6.0, 7.0])

    _, result = run(tmp_path, evaluate=lambda model: {"error": next(values)}, evaluate_every=2, save_every=1,
                    keep_last=2, best_metric="error")  # fmt: skip
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [4, 11, 12]
    assert (result.best_step, result.best_value) == (4, 2.0)
    assert result.best_checkpoint == tmp_path / "checkpoints/step-0000000004"


def test_early_stopping_and_best_parameters(tmp_path: Path) -> None:
    values = iter([1.0, 3.0, 2.0, 2.9, 9.0])
    snapshots: list[dict] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        snapshots.append(parameters(model))
        return {"accuracy": next(values)}

    model, result = run(tmp_path, evaluate=evaluate, evaluate_every=2, best_metric="accuracy", best_direction="max",
                        patience=2, restore_best=True)  # fmt: skip
    assert (result.step, result.stopped_by, result.best_step) == (6, "patience", 2)
    assert all(torch.equal(a, b) for a, b in zip(parameters(model).values(), snapshots[1].values(), strict=True))


def test_a_metric_that_stands_still_keeps_what_was_learnt(tmp_path: Path) -> None:
    """One label in the held-out data, or a start that happens to be right: the untrained model is not restored."""
    values = iter([9.0, 5.0, 5.0, 4.0, 5.0, 5.0, 5.0])
    snapshots: list[dict] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        snapshots.append(parameters(model))
        return {"accuracy": next(values)}

    settings = {"evaluate_every": 2, "best_metric": "accuracy", "best_direction": "max", "restore_best": True}
    model, result = run(tmp_path / "a", evaluate=evaluate, **settings)
    assert (result.step, result.best_step, result.best_value) == (12, 12, 5.0)
    values = iter([9.0, 5.0, 5.0, 4.0])
    model, result = run(tmp_path / "b", evaluate=evaluate, patience=2, **settings)
    assert (result.step, result.stopped_by, result.best_step) == (6, "patience", 4)
    assert all(torch.equal(a, b) for a, b in zip(parameters(model).values(), snapshots[-2].values(), strict=True))


def test_unknown_best_metric(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'loss'"):
        run(tmp_path / "a", best_metric="lossy")
    with pytest.raises(ConfigurationError, match="no held-out data"):
        run(tmp_path / "b", best_metric="loss", evaluate=None)


def test_steps_without_targets_change_nothing_but_the_step(tmp_path: Path) -> None:
    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        step = toy_objective(model, batch, None)
        return step._replace(loss_sum=step.loss_sum * 0, count=0)

    model, result = run(tmp_path, objective=objective)
    assert equal(model, toy_model()) and math.isnan(result.loss)


def test_bfloat16_learns_and_float16_needs_cuda(tmp_path: Path) -> None:
    model, result = run(tmp_path / "a", precision="bfloat16", steps=30)
    assert math.isfinite(result.loss) and next(model.parameters()).dtype == torch.float32
    with pytest.raises(ConfigurationError, match="needs CUDA"):
        run(tmp_path / "b", precision="float16")


def test_seed_decides(tmp_path: Path) -> None:
    a, _ = run(tmp_path / "a", seed=7)
    b, _ = run(tmp_path / "b", seed=7)
    c, _ = run(tmp_path / "c", seed=8)
    assert equal(a, b) and not equal(a, c)
