"""The loop: equal results however a step is cut up, interrupted, resumed or distributed; stops that lose nothing."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_toys import (
    ToyBatch,
    ToyStream,
    parameters,
    toy_config,
    toy_evaluate,
    toy_model,
    toy_objective,
)

from xlnet.errors import CheckpointError, ConfigurationError, Interrupted, MachineError, TrainingError
from xlnet.training.contracts import Step
from xlnet.training.loop import FitResult, fit
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.report import SilentReporter, StepReport
from xlnet.training.run_state import CheckpointFolder, load_parameters
from xlnet.training.schedule import ScheduleConfig


class Collector(SilentReporter):
    """Remembers the news."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self.evaluations: list[tuple[int, dict]] = []
        self.messages: list[str] = []

    def step(self, report: StepReport) -> None:
        self.reports.append(report)

    def evaluation(self, step: int, metrics: Any) -> None:
        self.evaluations.append((step, dict(metrics)))

    def message(self, text: str) -> None:
        self.messages.append(text)


def run(output: Path, *, model: nn.Module | None = None, stream: Any = None, objective: Any = toy_objective,
        evaluate: Any = toy_evaluate, reporter: Any = None, save_model: Any = None, **changes: Any,
        ) -> tuple[nn.Module, FitResult]:  # fmt: skip
    model = model or toy_model()
    config = toy_config(**changes)
    stream = stream or ToyStream(lane_groups=config.accumulation)
    reporter = reporter or SilentReporter()
    return model, fit(
        model, objective, stream, config, output, evaluate=evaluate, reporter=reporter, save_model=save_model
    )


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parameters(a).values(), parameters(b).values(), strict=True))


def stop_after(calls: int, act: Callable[[], None]) -> Any:
    """The toy objective that acts once, after so many calls."""
    count = 0

    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        nonlocal count
        count += 1
        step = toy_objective(model, batch, carried)
        if count == calls:
            act()
        return step

    return objective


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


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


@pytest.mark.parametrize("after_call", [1, 2, 7, 8, 9, 10, 23])
def test_ctrl_c_saves_and_resumes_to_equal_parameters(tmp_path: Path, after_call: int) -> None:
    """Also in the middle of an accumulated step, whose micro-batches are then undone."""
    straight, whole = run(tmp_path / "a", evaluate_every=5)
    exported: list[Path] = []
    with pytest.raises(Interrupted, match=r"SIGINT at step \d+ of 12.*resume") as caught:
        run(tmp_path / "b", objective=stop_after(after_call, interrupt), save_model=exported.append, evaluate_every=5)
    assert str(tmp_path / "b" / "checkpoints") in str(caught.value) and caught.value.exit_code == 130
    assert CheckpointFolder(tmp_path / "b/checkpoints").steps()[-1] == after_call // 2
    assert len(exported) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed, result = run(tmp_path / "b", model=toy_model(seed=5), resume=True, evaluate_every=5)
    assert equal(straight, resumed)
    assert (result.loss, result.metrics, result.tokens) == (whole.loss, whole.metrics, whole.tokens)
    assert timeless(tmp_path / "a") == timeless(tmp_path / "b")


def timeless(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second", "waiting")} for r in records]


def test_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    def twice() -> None:
        interrupt()
        interrupt()

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, objective=stop_after(3, twice))


def test_time_limit_ends_well_and_may_be_resumed(tmp_path: Path) -> None:
    straight, _ = run(tmp_path / "a")
    news = Collector()
    _, result = run(tmp_path / "b", max_seconds=1e-9, reporter=news)
    assert (result.step, result.stopped_by) == (1, "time")
    assert [step for step, _ in news.evaluations] == [0, 1]
    resumed, result = run(tmp_path / "b", model=toy_model(seed=3), resume=True)
    assert (result.step, result.stopped_by) == (12, "steps") and equal(straight, resumed)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first, a = run(tmp_path)
    again, b = run(tmp_path, model=toy_model(seed=4), resume=True)
    assert equal(first, again) and a.loss == b.loss and a.checkpoint == b.checkpoint


def test_resume_without_a_run_begins_one(tmp_path: Path) -> None:
    a, _ = run(tmp_path / "a")
    b, _ = run(tmp_path / "b", resume=True)
    assert equal(a, b)


def test_a_folder_with_a_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    run(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigurationError, match=r"already holds a run.*--resume"):
        run(tmp_path, model=toy_model(seed=2))
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "other").mkdir()
    (tmp_path / "other/tokenizer.model").write_text("a folder with other things in it is welcome")
    run(tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 3}, "seed=3, but the run in"),
        ({"optimizer": OptimizerConfig(learning_rate=0.5)}, "optimizer.learning_rate=0.5"),
        ({"accumulation": 1}, "accumulation=1"),
        ({"precision": "bfloat16"}, "precision='bfloat16'"),
    ],
)
def test_resuming_with_settings_of_another_run_is_refused(tmp_path: Path, change: dict, word: str) -> None:
    run(tmp_path, steps=2)
    with pytest.raises(ConfigurationError, match=word):
        run(tmp_path, resume=True, **{"steps": 2, **change})


def test_resuming_with_more_steps_is_allowed_and_said(tmp_path: Path) -> None:
    flat = {"schedule": ScheduleConfig(kind="constant"), "evaluate": None}
    straight, _ = run(tmp_path / "a", steps=8, **flat)
    run(tmp_path / "b", steps=5, **flat)
    news = Collector()
    resumed, _ = run(tmp_path / "b", steps=8, resume=True, reporter=news, **flat)
    assert equal(straight, resumed)
    assert any("steps was 5 and is now 8" in text for text in news.messages)


def test_resuming_another_model_is_refused(tmp_path: Path) -> None:
    run(tmp_path, steps=2)

    class Bigger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = toy_model()

    with pytest.raises(CheckpointError, match="belongs to another model"):
        run(tmp_path, model=Bigger(), steps=2, resume=True)
    frozen = toy_model()
    frozen.word_embedding.requires_grad_(False)
    with pytest.raises(CheckpointError, match="same ones must be trainable"):
        run(tmp_path, model=frozen, steps=2, resume=True)
    with pytest.raises(ConfigurationError, match="2 groups of lanes, but the data has 4"):
        run(tmp_path, stream=ToyStream(lane_groups=4), steps=2, resume=True)


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


def test_checkpoints_kept_are_the_last_and_the_best(tmp_path: Path) -> None:
    values = iter([5.0, 3.0, 2.0, 4.0, math.nan, 6.0, 7.0])

    _, result = run(tmp_path, evaluate=lambda model: {"error": next(values)}, evaluate_every=2, save_every=1,
                    keep_last=2, best_metric="error")  # fmt: skip
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [4, 11, 12]
    assert (result.best_step, result.best_value) == (4, 2.0)
    assert result.best_checkpoint == tmp_path / "checkpoints/step-0000000004"


def test_early_stopping_and_best_parameters(tmp_path: Path) -> None:
    values = iter([1.0, 3.0, 2.0, 3.0, 9.0])
    snapshots: list[dict] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        snapshots.append(parameters(model))
        return {"accuracy": next(values)}

    model, result = run(tmp_path, evaluate=evaluate, evaluate_every=2, best_metric="accuracy", best_direction="max",
                        patience=2, restore_best=True)  # fmt: skip
    assert (result.step, result.stopped_by, result.best_step) == (6, "patience", 2)
    assert all(torch.equal(a, b) for a, b in zip(parameters(model).values(), snapshots[1].values(), strict=True))


def test_unknown_best_metric(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'loss'"):
        run(tmp_path / "a", best_metric="lossy")
    with pytest.raises(ConfigurationError, match="no held-out data"):
        run(tmp_path / "b", best_metric="loss", evaluate=None)


def test_data_that_ends_is_an_error(tmp_path: Path) -> None:
    class Short(ToyStream):
        def __next__(self) -> ToyBatch:
            if self.position == 9:
                raise StopIteration
            return super().__next__()

    with pytest.raises(TrainingError, match=r"Step 5: the data came to an end.*step-0000000004"):
        run(tmp_path, stream=Short(lane_groups=2))


def test_steps_without_targets_change_nothing_but_the_step(tmp_path: Path) -> None:
    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        step = toy_objective(model, batch, None)
        return step._replace(loss_sum=step.loss_sum * 0, count=0)

    model, result = run(tmp_path, objective=objective)
    assert equal(model, toy_model()) and math.isnan(result.loss)


def test_state_that_cannot_be_read_back_is_refused_at_the_start(tmp_path: Path) -> None:
    class Odd(ToyStream):
        def state(self) -> dict:
            return {"deep": [{"place": Path("x")}]}

    with pytest.raises(TypeError, match=r"Odd\.state\(\)\['deep'\]\[0\]\['place'\] is a .*Path"):
        run(tmp_path, stream=Odd(lane_groups=2), accumulation=1)


def test_bfloat16_learns_and_float16_needs_cuda(tmp_path: Path) -> None:
    model, result = run(tmp_path / "a", precision="bfloat16", steps=30)
    assert math.isfinite(result.loss) and next(model.parameters()).dtype == torch.float32
    with pytest.raises(ConfigurationError, match="needs CUDA"):
        run(tmp_path / "b", precision="float16")


def test_out_of_memory_has_a_remedy(tmp_path: Path) -> None:
    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        torch.empty(2**60)
        raise AssertionError

    with pytest.raises(MachineError, match=r"Step 1: out of memory.*smaller batch"):
        run(tmp_path, objective=objective)


def test_seed_decides(tmp_path: Path) -> None:
    a, _ = run(tmp_path / "a", seed=7)
    b, _ = run(tmp_path / "b", seed=7)
    c, _ = run(tmp_path / "c", seed=8)
    assert equal(a, b) and not equal(a, c)
