"""The whole story through the command line, on a small text: every command, its result, and what it says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from xlnet.cli import main

WORDS = tuple(
    "the a old young man woman dog ship house river saw took found left near under over with small red green".split()  # noqa: SIM905
)
TINY = [
    "--model.n_layer", "1", "--model.d_model", "16", "--model.n_head", "2", "--model.d_head", "8",
    "--model.d_inner", "32", "--model.mem_len", "8", "--stream.seq_len", "24", "--stream.reuse_len", "8",
    "--stream.batch_size", "2", "--fit.steps", "4", "--fit.schedule.warmup_steps", "1", "--fit.evaluate_every", "2",
    "--fit.save_every", "2", "--fit.tensorboard", "false", "--evaluation-count", "2",
]  # fmt: skip


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty paragraphs of made-up English."""
    draw = random.Random(0)
    sentences = (" ".join(draw.choices(WORDS, k=draw.randint(6, 12))).capitalize() + "." for _ in range(600))
    lines = [" ".join(next(sentences) for _ in range(5)) for _ in range(120)]
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One line from text to a model."""
    output = tmp_path_factory.mktemp("runs") / "mine"
    arguments = ["pretrain", str(text), "--output", str(output), "--prepare.valid-fraction", "0.2", *TINY]
    assert main(arguments) == 0
    return output


def test_pretrain_leaves_a_whole_folder(run: Path) -> None:
    for name in ("tokenizer/spiece.model", "corpus/manifest.json", "model/model.safetensors", "model/spiece.model",
                 "metrics.jsonl", "loss.png", "settings.json", "run.json"):  # fmt: skip
        assert (run / name).is_file(), name
    settings = json.loads((run / "settings.json").read_text())
    assert settings["stream"]["seq_len"] == 24 and settings["model"]["reuse_len"] == 8
    kinds = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("loss" in record for record in kinds)


def test_a_second_run_into_the_same_folder_is_refused_and_resume_goes_on(
    run: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pretrain", str(text), "--output", str(run), "--prepare.valid-fraction", "0.2", *TINY]
    assert main(arguments) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0


def test_each_step_is_a_command_of_its_own(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer, corpus, output = tmp_path / "tokenizer", tmp_path / "corpus", tmp_path / "run"
    assert main(["tokenizer", str(text), "--output", str(tokenizer), "--vocab-size", "60"]) == 0
    assert "60 pieces" in capsys.readouterr().err
    prepare = ["prepare", str(text), "--tokenizer", str(tokenizer), "--output", str(corpus), "--valid-fraction", "0.2"]
    assert main(prepare) == 0
    assert "valid:" in capsys.readouterr().err
    assert main(["pretrain", str(corpus), "--output", str(output), *TINY]) == 2
    assert "--tokenizer" in capsys.readouterr().err
    assert main(["pretrain", str(corpus), "--tokenizer", str(tokenizer), "--output", str(output), *TINY]) == 0
    evaluate = ["evaluate", str(corpus), "--model", str(output / "model"), "--baseline", str(corpus),
                "--stream.seq_len", "24", "--stream.reuse_len", "8"]  # fmt: skip
    capsys.readouterr()
    assert main(evaluate) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["unigram_loss"] > 0 and metrics["targets"] > 0


def test_fill_score_and_generate(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["--model", str(run / "model")]
    capsys.readouterr()
    assert main(["fill", "The old <mask> saw a ___.", "The <mask:2> dog.", *model]) == 0
    assert capsys.readouterr().out.count("blank 1") == 2
    assert main(["score", "The old man saw a dog.", "Dog a saw man old the.", *model]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["generate", "The old", *model, "--max-new-tokens", "5", "--sampling.temperature", "null"]) == 0
    assert capsys.readouterr().out.startswith("The old")
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"text": "The <mask>."}\n{"text": "A <mask> ship."}\n')
    assert main(["fill", "--input", str(lines), "--json", *model]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(record["blanks"]) for record in records] == [1, 1]
    for command in ("score", "generate"):
        assert main([command, "--input", str(lines), "--json", *model]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2


def test_any_subset_training_goes_on_from_weights_and_reports_both_losses(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "any"
    arguments = ["pretrain", str(run / "corpus"), "--init", str(run / "model"), "--config", "any_subset", *TINY,
                 "--output", str(output), "--fit.precision", "float32"]  # fmt: skip
    assert main(arguments) == 0
    assert "50% of the micro-batches hide random words, 5% to 100% of the tokens" in capsys.readouterr().err
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    assert len(evaluations) == 3 and all(record["any_subset_loss"] != record["loss"] for record in evaluations)
    assert main([*arguments, "--resume", "--stream.any_subset.low", "0.1", "--fit.steps", "6"]) == 2
    assert "'low': 0.05" in capsys.readouterr().err


def test_info_convert_and_back(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, there, back = run / "model", tmp_path / "hf", tmp_path / "native"
    assert main(["info", str(source)]) == 0
    assert "XLNetLMHeadModel" in capsys.readouterr().out
    assert main(["convert", str(source), str(there), "--to", "hf"]) == 0
    assert main(["convert", str(there), str(back)]) == 0
    assert (back / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    assert (back / "spiece.model").is_file()


def test_init_continues_from_weights(run: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pretrain", str(text), "--output", str(tmp_path / "on"), "--init", str(run / "model"), *TINY]
    assert main(arguments) == 0
    assert "weights from" in capsys.readouterr().err
