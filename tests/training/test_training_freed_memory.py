"""Freed memory stays while training, and goes back afterwards."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training_toys import ToyStream, toy_config, toy_model, toy_objective

from xlnet.training import freed_memory
from xlnet.training.freed_memory import freed_memory_kept
from xlnet.training.loop import fit
from xlnet.training.report import SilentReporter

CPU = torch.device("cpu")
PAGES = 10240  # 40 MB in pages of 4 KB: more than glibc would ever keep by itself


def needs_glibc() -> None:
    if freed_memory._glibc() is None:
        pytest.skip("not Linux with glibc")


def faults_of_a_block() -> int:
    """Page faults of allocating, filling and freeing 40 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(PAGES * 1024)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def in_a_fresh_process() -> None:
    """What the test below claims; other tests leave holes in memory, which are handed out without faults."""
    usual = min(faults_of_a_block() for _ in range(3))
    with freed_memory_kept(CPU):
        kept = min(faults_of_a_block() for _ in range(6))
        held = resident_pages()
    assert kept < usual / 4
    assert resident_pages() < held - PAGES / 2, "given back"


def test_a_block_is_handed_out_again_without_the_system() -> None:
    needs_glibc()
    code = "import test_training_freed_memory as test; test.in_a_fresh_process()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_given_back_after_an_error_too() -> None:
    needs_glibc()
    with pytest.raises(ZeroDivisionError), freed_memory_kept(CPU):
        faults_of_a_block()
        held = resident_pages()
        _ = 1 / 0
    assert resident_pages() < held - PAGES / 2


def test_only_for_a_cpu_and_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(freed_memory, "_set", refuse)
    with freed_memory_kept(torch.device("cuda")):
        pass
    monkeypatch.setattr(freed_memory, "_glibc", lambda: None)
    with freed_memory_kept(CPU):
        pass


def test_the_outermost_context_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation within training does not give back what training keeps."""
    needs_glibc()
    seen: list[bool] = []
    monkeypatch.setattr(freed_memory, "_set", lambda _, values: seen.append(values is freed_memory._KEEP))
    with freed_memory_kept(CPU):
        with freed_memory_kept(CPU):
            pass
        assert seen == [True]
    assert seen == [True, False]


def test_training_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_glibc()
    seen: list[bool] = []
    monkeypatch.setattr(freed_memory, "_set", lambda _, values: seen.append(values is freed_memory._KEEP))
    fit(toy_model(), toy_objective, ToyStream(lane_groups=2), toy_config(steps=2), tmp_path, reporter=SilentReporter())
    assert seen == [True, False]
