"""Two processes on one machine: the same mathematics as one, and one set of files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from training_toys import ToyStream, start

from xlnet.errors import ConfigurationError
from xlnet.training.distributed import Shard, World
from xlnet.training.run_state import CheckpointFolder


def launch(output: Path, size: int, **settings) -> list[tuple[int, str]]:
    """Run the toy in ``size`` processes as torchrun would; exit code and messages of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(size):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)} if size > 1 else {}
        processes.append(start(output, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **place}, **settings))
    answers = []
    for rank, process in enumerate(processes):
        process.join(120)
        messages = output.with_name(f"{output.name}-{rank}.txt")
        answers.append((process.exitcode, messages.read_text() if messages.exists() else ""))
    return answers


def end(folder: Path) -> dict:
    return torch.load(folder / "end.pt", weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 2])
def test_two_processes_equal_one_with_twice_the_rows(tmp_path: Path, accumulation: int) -> None:
    """Target counts differ between the halves, so this fails if each process divided by its own."""
    settings = {"rows": 4, "dropout": 0.0, "steps": 9, "sgd": True, "accumulation": accumulation, "best_metric": "loss"}
    assert launch(tmp_path / "one", 1, **settings)[0][0] == 0
    assert [code for code, _ in launch(tmp_path / "two", 2, share="rows", **settings)] == [0, 0]
    one, two = end(tmp_path / "one"), end(tmp_path / "two")
    for name, value in one["parameters"].items():
        torch.testing.assert_close(value, two["parameters"][name], rtol=1e-4, atol=1e-6, msg=name)
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two")]
    assert len(logs[0]) == len(logs[1])


@pytest.mark.slow
def test_two_processes_resume_bit_for_bit_and_refuse_another_number(tmp_path: Path) -> None:
    """With dropout drawn, memory carried and data read differently in each process."""
    settings = {"share": "items", "steps": 8}
    assert [code for code, _ in launch(tmp_path / "straight", 2, **settings)] == [0, 0]
    assert [code for code, _ in launch(tmp_path / "cut", 2, max_seconds=1e-9, **settings)] == [0, 0]
    assert CheckpointFolder(tmp_path / "cut/checkpoints").steps() == [0, 1]
    code, message = launch(tmp_path / "cut", 1, resume=True, **settings)[0]
    assert code == 2 and "written by 2 processes, but 1 are running" in message
    answers = launch(tmp_path / "cut", 2, **settings)
    assert [code for code, _ in answers] == [2, 2] and all("already holds a run" in text for _, text in answers)
    assert [code for code, _ in launch(tmp_path / "cut", 2, resume=True, **settings)] == [0, 0]
    a, b = end(tmp_path / "straight"), end(tmp_path / "cut")
    assert all(torch.equal(a["parameters"][name], b["parameters"][name]) for name in a["parameters"])
    ranks = sorted((tmp_path / "cut/checkpoints/step-0000000008").glob("rank-*.pt"))
    states = [torch.load(path, weights_only=True) for path in ranks]
    assert len(states) == 2 and not torch.equal(states[0]["random"]["torch"], states[1]["random"]["torch"])


def test_shards_deal_out_items_and_keep_lanes_apart() -> None:
    whole = ToyStream(lane_groups=6)
    expected = [next(whole) for _ in range(12)]
    for rank in range(3):
        shard = Shard(ToyStream(lane_groups=6), World(rank=rank, size=3))
        assert shard.lane_groups == 2
        first = next(shard)
        state = shard.state()
        rest = [next(shard) for _ in range(3)]
        for item, place in zip([first, *rest], range(rank, 12, 3), strict=True):
            assert torch.equal(item.tokens, expected[place].tokens)
        shard.restore(state)
        assert torch.equal(next(shard).tokens, rest[0].tokens)
    with pytest.raises(ConfigurationError, match="6 groups of lanes cannot be dealt out to 4"):
        Shard(ToyStream(lane_groups=6), World(rank=0, size=4))


def test_world_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert World.from_environment() == World()
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert World.from_environment() == World(3, 4, 1) and not World.from_environment().is_main
    for name, value in {"RANK": "4", "WORLD_SIZE": "x", "LOCAL_RANK": "-1"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(ConfigurationError, match="Start with torchrun"):
                World.from_environment()
