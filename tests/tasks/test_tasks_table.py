"""benchmarks/tasks.py: each cell is kept as soon as it is known, never run twice, and the table is always printed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from task_toys import toy_config, toy_texts, toy_tokenizer

from xlnet.errors import TrainingError
from xlnet.model import XLNetLMHeadModel
from xlnet.processor import Processor

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
    sys.path.insert(0, str(SOURCE.parent))
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

    def call(*more: str, models: Sequence[str] = ()) -> tuple[int, str, list[dict[str, object]]]:
        arguments = [str(tmp_path / "model"), *models, "--data", str(tmp_path), "--output", str(tmp_path / "out")]
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
    head, _, row = (line.split(" | ") for line in printed.splitlines())
    assert head[2:7] == ["majority", "bm25", "tf-idf", "random", "pretrained"]
    assert row[:2] == ["| sst2", "accuracy"]
    assert row[3] == "-"
    assert row[5].endswith(", 2 seeds)")
    assert row[7] == "40, 1, 64"
    assert cells[1]["value"] > 0.8
    assert not any((tmp_path / "out" / "unfinished").iterdir())
    # A line cut short is no cell: the cell is run again, and its line does not stick to the rest.
    path = tmp_path / "out" / "results.jsonl"
    path.write_text(path.read_text()[:-30])
    again = run()[2]
    assert [(c["start"], c["seed"], c["value"]) for c in again] == [(c["start"], c["seed"], c["value"]) for c in cells]
    assert run()[2] == again
    assert len(run("--learning_rate", "1e-3")[2]) == len(cells) + 4


def test_seeds_that_ran_elsewhere_are_left_out(
    run: Callable[..., tuple[int, str, list]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A table may be shared out among machines; lines of their results can be put into one file."""
    shares = [run("--starts", "random", "--seeds", "3", "--first_seed", "2")[2], run("--starts", "random")[2]]
    assert [[c["seed"] for c in cells if c["start"] == "random"] for cells in shares] == [[2], [2, 0, 1]]
    with pytest.raises(SystemExit):
        run("--first_seed", "2")
    assert "leaves none of the seeds 0 to 1" in capsys.readouterr().err


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


def test_whatever_a_cell_depends_on_makes_it_another(run: Callable[..., tuple[int, str, list]], tmp_path: Path) -> None:
    more = ("--seeds", "1", "--starts", "pretrained")
    known = len(run(*more)[2])
    for option in (
        ("--summary", "mean"), ("--dropout", "0"), ("--layer_decay", "0.8"), ("--weight_decay", "0"), ("--epochs", "2"),
        ("--batch_size", "8"), ("--max_length", "32"),
    ):  # fmt: skip
        cells = run(*more, *option)[2]
        assert len(cells) == known + 1, option
        known += 1
    assert cells[-1]["max_length"] == 32
    # Other data makes other baselines too.
    assert len(run(*more, "--limit", "16")[2]) == known + 3


def test_a_column_for_each_model(run: Callable[..., tuple[int, str, list]], tmp_path: Path) -> None:
    toy_tokenizer().save_pretrained(tmp_path / "second")
    XLNetLMHeadModel(toy_config()).save_pretrained(tmp_path / "second")
    code, printed, cells = run(
        "--seeds", "1", "--starts", "second", "pretrained", models=[f"second={tmp_path / 'second'}"]
    )
    assert code == 0
    assert printed.splitlines()[0].split(" | ")[5:8] == ["random", "pretrained", "second"]
    assert [c["start"] for c in cells] == ["majority", "tf-idf", "pretrained", "second"]
    assert cells[-1]["model"] == str(tmp_path / "second")
    with pytest.raises(SystemExit):
        run("--starts", "third")
    with pytest.raises(SystemExit):
        run(models=[f"random={tmp_path / 'second'}"])


def test_every_row_has_a_task_and_settings_that_hold(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tasks.py", str(tmp_path), "--epochs", "1.5"])
    options = benchmark.read_options()
    for name in benchmark.TASKS:
        entry = benchmark.entry_of(name, options)
        assert benchmark.settings(entry, 0, options).epochs == 1.5
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for vendor, faster in (("AuthenticAMD", "bfloat16"), ("GenuineIntel", "float32")):
        machine = Processor(vendor, "AVX512", frozenset({"avx512_bf16"}))
        monkeypatch.setattr(benchmark, "processor", lambda machine=machine: machine)
        assert benchmark.bfloat16_or_float32() == faster
    assert benchmark.shown([{"value": 0.5}]) == "50.0"
    assert benchmark.shown([{"value": v} for v in (0.5, 0.7, 0.6)]) == "60.0 (50.0 to 70.0, 3 seeds)"


@pytest.mark.data
@pytest.mark.parametrize(("name", "count"), [("squad2", None), ("imdb", 5000), ("boolq", None)])
def test_what_is_held_out_was_never_learnt_from(
    benchmark: ModuleType, shared_data: Path, name: str, count: int | None
) -> None:
    _, found = benchmark.load(name, benchmark.TASKS[name], shared_data, 0)
    (dev,) = found.held_out.values()
    text = "passage" if name == "squad2" else "text"
    known = {getattr(example, text) for example in found.train}
    assert len(dev) == count if count else len(dev) > 700
    assert not [example for example in dev if getattr(example, text) in known]
    if name == "squad2":
        assert not {example.title for example in found.train} & {example.title for example in dev}
