"""Run checkpoints under fire: kill -9, corruption, a full disk; and what may be written into them."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from training_toys import ToyStream, parameters, start, toy_config, toy_evaluate, toy_model, toy_objective

from xlnet.errors import CheckpointError, MachineError
from xlnet.training import run_files
from xlnet.training.loop import fit
from xlnet.training.report import SilentReporter
from xlnet.training.run_files import clean_partial, read_manifest, save_tensors, write_folder, write_text
from xlnet.training.run_state import (
    CheckpointFolder,
    capture_random,
    check_plain,
    load_parameters,
    preserved_random,
    restore_random,
    seed_everything,
)


def train(output: Path, **changes) -> tuple[torch.nn.Module, list[str]]:
    messages: list[str] = []

    class Collector(SilentReporter):
        def message(self, text: str) -> None:
            messages.append(text)

    model = toy_model()
    config = toy_config(**changes)
    fit(model, toy_objective, ToyStream(lane_groups=2), config, output, evaluate=toy_evaluate, reporter=Collector())
    return model, messages


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parameters(a).values(), parameters(b).values(), strict=True))


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_ends_with_equal_parameters(tmp_path: Path) -> None:
    settings = {"steps": 300, "save_every": 10, "resume": True, "evaluate_every": 50}
    straight = start(tmp_path / "straight", **settings)
    straight.join(300)
    assert straight.exitcode == 0
    moments = random.Random(5)
    checkpoints = CheckpointFolder(tmp_path / "killed/checkpoints")
    reached = []
    for _ in range(3):
        process = start(tmp_path / "killed", **settings)
        before = checkpoints.steps()
        while process.is_alive() and checkpoints.steps() == before:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.15))
        assert process.is_alive(), "it ended before it could be killed: the test needs more steps"
        process.kill()
        process.join()
        reached.append(checkpoints.steps()[-1])
    assert reached == sorted(reached) and 0 < reached[-1] < 300
    last = start(tmp_path / "killed", **settings)
    last.join(300)
    assert last.exitcode == 0
    a, b = (torch.load(tmp_path / name / "end.pt", weights_only=True) for name in ("straight", "killed"))
    assert all(torch.equal(a["parameters"][name], b["parameters"][name]) for name in a["parameters"])
    assert a["loss"] == b["loss"]
    assert not list((tmp_path / "killed").rglob(".partial*"))
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("straight", "killed")]
    assert [json.loads(line)["step"] for line in logs[0]] == [json.loads(line)["step"] for line in logs[1]]


def test_terminated_process_saves_and_exits_with_130(tmp_path: Path) -> None:
    process = start(tmp_path / "run", steps=1_000_000, save_every=0)
    log = tmp_path / "run/metrics.jsonl"
    while not (log.exists() and "train" in log.read_text()):
        time.sleep(0.02)
        assert process.is_alive()
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 130
    assert len(CheckpointFolder(tmp_path / "run/checkpoints").steps()) == 2
    assert (tmp_path / "run/model/weights.pt").exists()
    assert "Stopped by SIGTERM" in (tmp_path / "run-0.txt").read_text()


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def damage_remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [damage_truncate, damage_flip, damage_remove])
@pytest.mark.parametrize("name", ["state.pt", "rank-0.pt", "manifest.json"])
def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path, damage, name: str) -> None:
    straight, _ = train(tmp_path)
    newest = tmp_path / "checkpoints/step-0000000012"
    damage(newest / name)
    resumed, messages = train(tmp_path, resume=True)
    assert same(straight, resumed)
    assert (
        len(messages) == 1 and messages[0].startswith("warning:") and "The checkpoint before it is used" in messages[0]
    )
    assert str(newest) in messages[0]
    read_manifest(newest)


def test_when_all_are_damaged_nothing_is_overwritten(tmp_path: Path) -> None:
    train(tmp_path)
    folder = CheckpointFolder(tmp_path / "checkpoints")
    for step in folder.steps():
        damage_flip(folder.path(step) / "state.pt")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=r"holds no usable checkpoint.*checksum.*restore the folder"):
        train(tmp_path, resume=True)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="checksum"):
        load_parameters(folder.path(folder.steps()[-1]), toy_model())


@pytest.mark.parametrize("kind", ["torn line", "nothing after it"])
def test_a_torn_log_is_cut_back_to_the_checkpoint(tmp_path: Path, kind: str) -> None:
    train(tmp_path / "a")
    train(tmp_path / "b")
    log = tmp_path / "b/metrics.jsonl"
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    with log.open("a") as file:
        file.write('{"kind": "train", "step": 99, "loss": 1.0}\n' + ('{"kind": "tr' if kind == "torn line" else ""))
    train(tmp_path / "b", resume=True)
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == steps


class FullDisk:
    """A file that takes so many bytes and then says what a full disk says."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


@pytest.mark.parametrize("room", [0, 100, 5000])
def test_full_disk_while_saving_leaves_older_checkpoints_intact(tmp_path: Path, monkeypatch, room: int) -> None:
    straight, _ = train(tmp_path / "straight")
    real = torch.save
    saves = 0

    def save(value, file):
        nonlocal saves
        saves += 1
        # Two files a checkpoint: the third checkpoint meets the full disk in its parameters.
        if saves >= 5:
            file.file = FullDisk(file.file, room)
        return real(value, file)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(MachineError, match=r"step-0000000008 could not be written: No space left.*is intact") as caught:
        train(tmp_path / "full")
    assert caught.value.exit_code == 1
    monkeypatch.setattr(torch, "save", real)
    folder = CheckpointFolder(tmp_path / "full/checkpoints")
    assert folder.steps() == [0, 4] and not list((tmp_path / "full").rglob(".partial*"))
    for step in folder.steps():
        read_manifest(folder.path(step))
    resumed, _ = train(tmp_path / "full", resume=True)
    assert same(straight, resumed)


def test_a_real_limit_of_the_system_is_met_the_same_way(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel itself refuse, beneath torch's own writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(MachineError, match="could not be written: File too large"):
            write_folder(tmp_path / "x", lambda folder: save_tensors({"a": torch.zeros(5000)}, folder / "a.pt"), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert list(tmp_path.iterdir()) == []


def test_replacing_a_folder_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "model"
    write_folder(target, lambda folder: (folder / "a").write_text("old"))

    def fail(folder: Path) -> None:
        (folder / "a").write_text("new")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MachineError):
        write_folder(target, fail)
    assert (target / "a").read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["model"]
    write_folder(target, lambda folder: (folder / "b").write_text("new"))
    assert [p.name for p in target.iterdir()] == ["b"] and [p.name for p in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_put_right(tmp_path: Path) -> None:
    (tmp_path / ".partial-old-model").mkdir()
    (tmp_path / ".partial-old-model/a").write_text("old")
    (tmp_path / ".partial-step-0000000004").mkdir()
    (tmp_path / ".partial-run.json").write_text("half")
    clean_partial(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["model"] and (tmp_path / "model/a").read_text() == "old"


def test_text_files_are_replaced_whole(tmp_path: Path, monkeypatch) -> None:
    write_text(tmp_path / "a", "old")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_files.os, "fsync", full)
    with pytest.raises(MachineError, match="No space left"):
        write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_checkpoints_run_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "made"),))

    with pytest.raises(TypeError):
        check_plain({"x": Evil()}, "state")
    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        run_files.load_tensors(tmp_path / "evil.pt")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("value", [np.float64(1.0), np.int64(3), np.zeros(2), {1, 2}, object()])
def test_state_must_be_plain(value) -> None:
    with pytest.raises(TypeError, match="plain values"):
        check_plain({"a": [1, (2.0, value)]}, "state")
    check_plain({"a": [1, 2.0, None, True, "x", b"y", torch.zeros(1)], 3: ()}, "state")


def draw() -> tuple:
    return random.random(), float(np.random.random()), float(np.random.normal()), torch.rand(2).tolist()


def test_random_state_goes_to_disk_and_back(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    seed_everything(3)
    # An odd number of normal draws leaves one in numpy's pocket, which must travel as well.
    np.random.normal()
    save_tensors(capture_random(cpu), tmp_path / "random.pt")
    expected = [draw() for _ in range(3)]
    with preserved_random(cpu):
        seed_everything(99)
        draw()
    restore_random(run_files.load_tensors(tmp_path / "random.pt"), cpu)
    assert [draw() for _ in range(3)] == expected
    seed_everything(3)
    before = draw()
    seed_everything(3)
    with preserved_random(cpu):
        draw()
    assert draw() == before
