"""benchmarks/tasks.py: each cell is kept as soon as it is known, never run twice, and the table is always printed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from task_toys import toy_config, toy_texts, toy_tokenizer

from xlnet.errors import TrainingError
from xlnet.model import XLNetLMHeadModel

SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "tasks.py"
pytest.importorskip("sklearn", reason="scikit-learn is not installed")


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    if not SOURCE.is_file():
        pytest.skip("the benchmarks are not in this copy")
    spec = importlib.util.spec_from_file_location("benchmark_of_tasks", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, list[dict[str, object]]]]:
    """Runs the benchmark on made-up SST-2: exit code, what was printed, lines of the results."""
    XLNetLMHeadModel(toy_config()).save_pretrained(tmp_path / "model")
    toy_tokenizer().save_pretrained(tmp_path / "model")
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for split, count in (("train", 40), ("dev", 20)):
        lines = "".join(f"{e.text}\t{e.label}\n" for e in toy_texts(count, seed=count))
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + lines)

    def call(*more: str) -> tuple[int, str, list[dict[str, object]]]:
        arguments = [str(tmp_path / "model"), "--data", str(tmp_path), "--output", str(tmp_path / "out")]
        usual = ["--tasks", "sst2", "--seeds", "2", "--steps", "2", "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", ["tasks.py", *arguments, *usual, *more])
        code = benchmark.main()
        text = (tmp_path / "out" / "results.jsonl").read_text()
        return code, capsys.readouterr().out, [json.loads(line) for line in text.splitlines()]

    return call


def test_cells_are_kept_and_not_run_again(run: Callable[..., tuple[int, str, list]], tmp_path: Path) -> None:
    code, printed, cells = run()
    assert code == 0
    assert [(c["start"], c["seed"]) for c in cells] == [
        ("majority", 0), ("tf-idf", 0), ("random", 0), ("pretrained", 0), ("random", 1), ("pretrained", 1),
    ]  # fmt: skip
    row = printed.splitlines()[-1].split(" | ")
    assert row[:2] == ["| sst2", "accuracy"]
    assert row[3] == "-"
    assert row[5].endswith(", 2 seeds)")
    assert cells[1]["value"] > 0.8
    assert not any((tmp_path / "out" / "unfinished").iterdir())
    # A line cut short is no cell: the cell is run again, and its line does not stick to the rest.
    path = tmp_path / "out" / "results.jsonl"
    path.write_text(path.read_text()[:-30])
    again = run()[2]
    assert [(c["start"], c["seed"], c["value"]) for c in again] == [(c["start"], c["seed"], c["value"]) for c in cells]
    assert run()[2] == again
    assert len(run("--learning_rate", "1e-3")[2]) == len(cells) + 4


def test_what_was_reached_is_shown_when_a_run_fails(
    run: Callable[..., tuple[int, str, list]], benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = benchmark.run_cell

    def fail(name: str, start: str, seed: int, *more: object) -> dict[str, object]:
        if seed == 1:
            raise TrainingError("the loss is not a number")
        return original(name, start, seed, *more)

    monkeypatch.setattr(benchmark, "run_cell", fail)
    code, printed, cells = run()
    assert code == 1
    assert len(cells) == 4
    assert "seeds" not in printed.splitlines()[-1]
    monkeypatch.setattr(benchmark, "run_cell", original)
    assert len(run()[2]) == 6


def test_every_row_has_a_task_and_settings_that_hold(benchmark: ModuleType) -> None:
    options = type("Options", (), {"steps": 0, "learning_rate": 3e-4, "precision": "float32", "device": "cpu"})
    for entry in benchmark.TASKS.values():
        assert benchmark.settings(entry, 0, options).epochs == entry.epochs
    assert benchmark.bfloat16_or_float32() in ("bfloat16", "float32")
    assert benchmark.shown([{"value": 0.5}]) == "50.0"
    assert benchmark.shown([{"value": v} for v in (0.5, 0.7, 0.6)]) == "60.0 (50.0 to 70.0, 3 seeds)"
