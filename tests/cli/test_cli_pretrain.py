"""What pretrain and evaluate are given, against what they find: settings, weights, corpora, folders, earlier runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from test_cli_story import TINY, WORDS

from xlnet.cli import main
from xlnet.model import XLNetLMHeadModel


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "my.txt"
    lines = (" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 40)) for i in range(1, 90))
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "mine"
    assert main(["pretrain", str(text), "--output", str(output), "--prepare.valid_fraction", "0.2", *TINY]) == 0
    return output


def settings_of(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    return values


@pytest.mark.parametrize("place", ["first", "last", "equals"])
def test_options_change_a_settings_file_wherever_it_stands(place: str, text: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("fit:\n  steps: 9\n  log_every: 3\n")
    config = [f"--config={file}"] if place == "equals" else ["--config", str(file)]
    start = ["pretrain", str(text), "--output", str(tmp_path / "run"), *TINY, "--fit.steps", "1"]
    assert main([start[0], *config, *start[1:]] if place == "first" else [*start, *config]) == 0
    assert settings_of(tmp_path / "run")["fit"]["steps"] == 1
    assert settings_of(tmp_path / "run")["fit"]["log_every"] == 3


def test_of_two_settings_files_the_later_holds(text: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for i, file in enumerate(files):
        file.write_text(f"fit:\n  log_every: {i + 3}\n")
    both = [word for file in files for word in ("--config", str(file))]
    assert main(["pretrain", str(text), "--output", str(tmp_path / "run"), *TINY, "--fit.steps", "1", *both]) == 0
    assert settings_of(tmp_path / "run")["fit"]["log_every"] == 4
    files[0].write_text("fit:\n  stepps: 3\n")
    assert main(["pretrain", str(text), "--output", str(tmp_path / "other"), *TINY, *both]) == 2


def test_weights_keep_their_settings_and_what_is_asked_for_changes_them(
    run: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [
        "--stream.seq_len",
        "24",
        "--stream.reuse_len",
        "8",
        "--stream.batch_size",
        "2",
        "--fit.steps",
        "1",
        "--fit.schedule.warmup_steps",
        "0",
    ]
    start = ["pretrain", str(run / "corpus"), "--init", str(run / "model"), *more, "--evaluation_count", "0"]
    options = ["--model.dropout", "0.5", "--model.mem_len", "4", "--model.n_layer", "7"]
    assert main([*start, "--output", str(tmp_path / "a"), *options]) == 0
    said = capsys.readouterr().err
    assert "note: n_layer stays 1, as the weights have it; the settings ask for 7" in said
    assert "1 layers of width 16" in said
    made = json.loads((tmp_path / "a" / "model" / "config.json").read_text())
    assert (made["dropout"], made["mem_len"], made["n_layer"]) == (0.5, 4, 1)
    assert settings_of(tmp_path / "a")["model"]["dropout"] == 0.5
    assert settings_of(tmp_path / "a")["model"]["n_layer"] == 1
    # The default recipe is nobody's wish: it changes nothing in the weights.
    changed = tmp_path / "changed"
    model = XLNetLMHeadModel.from_pretrained(run / "model", dropout=0.3, clamp_len=5)
    model.save_pretrained(changed)
    shutil.copy(run / "model" / "spiece.model", changed)
    start[start.index(str(run / "model"))] = str(changed)
    assert main([*start, "--output", str(tmp_path / "b"), "--model.mem_len", "8"]) == 0
    made = json.loads((tmp_path / "b" / "model" / "config.json").read_text())
    assert (made["dropout"], made["clamp_len"]) == (0.3, 5)


def test_a_run_is_taken_up_with_the_model_it_had(run: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["pretrain", str(text), "--output", str(run), "--prepare.valid_fraction", "0.2", *TINY, "--resume"]
    assert main([*start, "--model.dropout", "0.25"]) == 2
    said = capsys.readouterr().err
    assert "The model has dropout=0.25" in said
    assert "was started with dropout=0" in said
    assert settings_of(run)["model"]["dropout"] != 0.25
    assert main([*start, "--model.attention_backend", "reference"]) == 0


def test_a_run_is_taken_up_though_its_text_has_changed(
    run: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, folder = tmp_path / "my.txt", tmp_path / "run"
    shutil.copy(text, mine)
    start = ["pretrain", str(mine), "--output", str(folder), "--prepare.valid_fraction", "0.2", *TINY]
    assert main(start) == 0
    os.utime(mine, (1, 1))
    capsys.readouterr()
    assert main([*start, "--resume"]) == 0
    assert "corpus: as it was made when the run began" in capsys.readouterr().err
    mine.unlink()
    assert main([*start, "--resume"]) == 0


def test_the_first_weights_follow_from_the_seed(run: Path, tmp_path: Path) -> None:
    def first(name: str, seed: int) -> dict[str, torch.Tensor]:
        torch.seed()
        start = ["pretrain", str(run / "corpus"), "--tokenizer", str(run / "tokenizer"), "--evaluation_count", "0"]
        more = ["--fit.seed", str(seed), "--fit.steps", "1", "--fit.optimizer.learning_rate", "1e-30"]
        assert main([*start, "--output", str(tmp_path / name), *TINY, *more]) == 0
        return XLNetLMHeadModel.from_pretrained(tmp_path / name / "model").state_dict()

    one, again, other = first("a", 3), first("b", 3), first("c", 4)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_that_never_began_leaves_its_folder_free(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["pretrain", str(run / "corpus"), "--tokenizer", str(run / "tokenizer"), "--output", str(tmp_path / "run")]

    def full(*values: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("xlnet.training.loop.update", full)
        assert main([*start, *TINY]) == 1
    assert (tmp_path / "run" / "run.json").is_file()
    assert main([*start, *TINY, "--fit.optimizer.learning_rate", "1e-4"]) == 0
    assert main([*start, *TINY]) == 2
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fit.best_metric", "los"], "is not measured; there are loss, perplexity"),
        (["--fit.best_metric", "loss", "--evaluation_count", "0"], "needs an evaluation"),
        (["--fit.precision", "float16", "--device", "cpu"], "needs CUDA"),
        (["--init", "nowhere/at-all", "--tokenizer", "TOKENIZER"], "nowhere/at-all"),
    ],
)
def test_what_cannot_go_well_is_refused_before_the_work(
    run: Path, text: Path, tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = [str(run / "tokenizer") if word == "TOKENIZER" else word for word in options]
    assert main(["pretrain", str(text), "--output", str(tmp_path / "run"), *TINY, *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "corpus").exists()
    assert not (tmp_path / "run" / "tokenizer").exists()


def test_text_for_several_processes_or_to_be_read_twice_is_refused(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (str(pipe), "-"):
        assert main(["pretrain", name, "--output", str(tmp_path / "run"), *TINY]) == 2
        assert "can be read once only" in capsys.readouterr().err
    for key, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(key, value)
    assert main(["pretrain", str(text), "--output", str(tmp_path / "run"), *TINY]) == 2
    assert "Several processes train from a corpus that is prepared" in capsys.readouterr().err


def test_a_damaged_record_of_the_tokenizer_is_no_record(text: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "tokenizer").mkdir(parents=True)
    (tmp_path / "run" / "tokenizer" / "training.json").write_text("")
    assert main(["pretrain", str(text), "--output", str(tmp_path / "run"), *TINY, "--fit.steps", "1"]) == 0


def test_evaluation_refuses_what_does_not_belong_together(
    run: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, corpus = tmp_path / "tokenizer", tmp_path / "corpus"
    assert main(["tokenizer", str(text), "--output", str(tokenizer), "--vocab_size", "40"]) == 0
    prepare = ["prepare", str(text), "--tokenizer", str(tokenizer), "--output", str(corpus), "--valid_fraction", "0.2"]
    assert main(prepare) == 0
    model = ["--model", str(run / "model"), "--stream.seq_len", "24", "--stream.batch_size", "2"]
    capsys.readouterr()
    assert main(["evaluate", str(corpus), *model, "--stream.reuse_len", "8"]) == 2
    assert "tokenizer" in capsys.readouterr().err
    assert main(["evaluate", str(run / "corpus"), *model, "--stream.reuse_len", "8", "--baseline", str(corpus)]) == 2
    assert "tokenizer" in capsys.readouterr().err
    assert main(["evaluate", str(run / "corpus"), *model, "--stream.reuse_len", "0"]) == 2
    assert "needs reuse_len above 0" in capsys.readouterr().err
    assert main(["evaluate", str(run / "corpus"), *model, "--stream.reuse_len", "8"]) == 0


def test_a_tokenizer_says_what_it_was_not_trained_on(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proj" / "run").mkdir(parents=True)
    shutil.copy(text, tmp_path / "proj" / "a.txt")
    (tmp_path / "proj" / "run" / "run.json").write_text('{"format": "xlnet-run-1"}')
    (tmp_path / "proj" / "run" / "metrics.jsonl").write_text('{"text": "no text of yours"}\n')
    arguments = ["tokenizer", str(tmp_path / "proj"), "--output", str(tmp_path / "out"), "--vocab_size", "40"]
    assert main(arguments) == 0
    assert "run (a run; 1 file with the ending of text)" in capsys.readouterr().err
