"""Settings, devices and signals: what is refused, and how it is said."""

from __future__ import annotations

import json
import re
import signal
import threading

import pytest
import torch

from xlnet.errors import ConfigurationError, MachineError, TrainingError
from xlnet.training.config import FitConfig
from xlnet.training.device import choose_device, use_threads
from xlnet.training.guards import WARM_UP, LossGuard
from xlnet.training.interrupts import Interrupts
from xlnet.training.run_state import capture_random, restore_random, seed_everything
from xlnet.training.schedule import ScheduleConfig


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"accumulation": 0}, "accumulation=0"),
        ({"keep_last": 0}, "keep_last=0"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0"),
        ({"clip_norm": float("nan")}, "clip_norm=nan"),
        ({"precision": "bf16"}, "precision='bf16' is not known"),
        ({"precision": "float61"}, "Did you mean 'float16'?"),
        ({"best_direction": "maximum"}, "best_direction='maximum'"),
        ({"steps": 5, "schedule": ScheduleConfig(warmup_steps=6)}, "warmup_steps=6 is more than steps=5"),
        ({"patience": 3}, "patience=3 needs best_metric"),
        ({"restore_best": True}, "restore_best=True needs best_metric"),
        ({"divergence_factor": 1.0}, "divergence_factor=1.0"),
        ({"divergence_factor": float("nan")}, "divergence_factor=nan"),
        ({"max_seconds": -1.0}, "max_seconds=-1.0"),
        ({"max_seconds": float("inf")}, "max_seconds=inf must be a finite number of at least 0"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be below 2^63"),
        ({"seed": 2**64}, "must be below 2^63"),
    ],
)
def test_refused_settings(settings: dict, word: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(word)):
        FitConfig(**settings)


def test_the_largest_seed_is_one_that_every_generator_takes() -> None:
    before = capture_random(torch.device("cpu"))
    try:
        seed_everything(FitConfig(seed=2**63 - 1).seed + 100_000)
    finally:
        restore_random(before, torch.device("cpu"))


def test_settings_survive_json() -> None:
    config = FitConfig(steps=7, schedule=ScheduleConfig(kind="cosine"))
    values = json.loads(json.dumps(config.to_dict()))
    assert config.check_resumable(values, "x") == []
    assert FitConfig(**{**vars(config), "save_every": 3, "device": "cpu"}).check_resumable(values, "x") == []
    del values["clip_norm"]
    with pytest.raises(ConfigurationError, match=r"clip_norm=1.0, but the run in x was started with clip_norm=None"):
        config.check_resumable(values, "x")


def test_device_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device() == torch.device("cpu")
    with pytest.raises(MachineError, match=r"device='cuda'.*--device cpu"):
        choose_device("cuda")
    for name, word in {
        "gpu": "must be auto",
        "cdua": "Did you mean 'cuda'?",
        "cuda:x": "cuda:N",
        "cpu:1": "cpu:1",
    }.items():
        with pytest.raises(ConfigurationError, match=re.escape(word)):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device(local_rank=1) == torch.device("cuda", 1)
    assert choose_device("cuda:0", local_rank=1) == torch.device("cuda", 0)
    with pytest.raises(MachineError, match="there are 2 GPUs, numbered 0 to 1"):
        choose_device("cuda:2")
    with pytest.raises(MachineError, match="local rank 5"):
        choose_device("cuda", local_rank=5)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        assert use_threads(1) == 1
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert use_threads(0) == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert use_threads(0) >= 1
        with pytest.raises(ConfigurationError, match="threads=-1"):
            use_threads(-1)
    finally:
        torch.set_num_threads(before)


def test_a_signal_is_a_flag_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        assert interrupts.pending == ""
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.pending == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_train_without_handlers() -> None:
    seen = []

    def work() -> None:
        with Interrupts() as interrupts:
            seen.append(interrupts.pending)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [""]


def test_guard_bears_noise_and_short_spells() -> None:
    guard = LossGuard(2.0, 4)
    for step in range(WARM_UP - 1):
        guard.see(100.0 if step % 2 else 1.0, step, "")
        assert not guard.suspicious
    guard = LossGuard(2.0, 4)
    for step in range(200):
        guard.see(1.0 + 0.9 * (step % 2), step, "")
    for step in range(3):
        guard.see(9.0, step, "")
        assert guard.suspicious
    guard.see(1.0, 204, "")
    assert not guard.suspicious
    restored = LossGuard(2.0, 4, guard.state())
    for step in range(3):
        restored.see(9.0, step, "")
    with pytest.raises(TrainingError, match=r"Step 300.*Good one here"):
        restored.see(9.0, 300, "Good one here.")
    LossGuard(2.0, 0, guard.state()).see(1e9, 1, "")


def test_guard_follows_a_falling_and_a_slowly_rising_loss() -> None:
    guard = LossGuard(2.0, 5)
    for step in range(400):
        guard.see(10.0 * 0.99**step, step, "")
    for step in range(800):
        guard.see(0.2 * 1.003**step, step, "")
    assert not guard.suspicious
