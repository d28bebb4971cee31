"""Interrupted and resumed runs end as if nothing had been; a run is never mixed up with another."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from training_toys import Collector, ToyStream, equal, interrupt, run, stop_after, timeless, toy_evaluate, toy_model

from xlnet.errors import CheckpointError, ConfigurationError, Interrupted
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.run_state import CheckpointFolder
from xlnet.training.schedule import ScheduleConfig


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


@pytest.mark.parametrize("moment", ["evaluation", "saving"])
def test_ctrl_c_between_steps_costs_no_further_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    straight, whole = run(tmp_path / "a", evaluate_every=4)

    def evaluate(model: nn.Module) -> dict[str, float]:
        evaluations.append(1)
        if moment == "evaluation" and len(evaluations) == 2:  # the first is before the first step
            interrupt()
        return toy_evaluate(model)

    def save(folder: CheckpointFolder, step: int, *parts: Any) -> None:
        if moment == "saving" and step == 4:
            interrupt()
        plain_save(folder, step, *parts)

    evaluations: list[int] = []
    plain_save = CheckpointFolder.save
    monkeypatch.setattr(CheckpointFolder, "save", save)
    with pytest.raises(Interrupted, match="SIGINT at step 4 of 12"):
        run(tmp_path / "b", evaluate=evaluate, evaluate_every=4)
    monkeypatch.undo()
    assert len(evaluations) == 2
    assert CheckpointFolder(tmp_path / "b/checkpoints").steps()[-1] == 4
    resumed, result = run(tmp_path / "b", model=toy_model(seed=5), resume=True, evaluate_every=4)
    assert equal(straight, resumed)
    assert (result.loss, result.metrics, result.tokens) == (whole.loss, whole.metrics, whole.tokens)
    assert timeless(tmp_path / "a") == timeless(tmp_path / "b")


def test_ctrl_c_during_the_last_evaluation_lets_the_run_finish(tmp_path: Path) -> None:
    def evaluate(model: nn.Module) -> dict[str, float]:
        evaluations.append(1)
        if len(evaluations) == 2:
            interrupt()
        return toy_evaluate(model)

    evaluations: list[int] = []
    exported: list[Path] = []
    _, result = run(tmp_path, evaluate=evaluate, save_model=exported.append)
    assert (result.step, result.stopped_by, len(exported)) == (12, "steps", 1)


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


def test_state_that_cannot_be_read_back_is_refused_at_the_start(tmp_path: Path) -> None:
    class Odd(ToyStream):
        def state(self) -> dict:
            return {"deep": [{"place": Path("x")}]}

    with pytest.raises(TypeError, match=r"Odd\.state\(\)\['deep'\]\[0\]\['place'\] is a .*Path"):
        run(tmp_path, stream=Odd(lane_groups=2), accumulation=1)
