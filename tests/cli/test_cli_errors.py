"""What the command line says about wrong input: one message, the nearest name, the right exit code, no traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from xlnet.cli import COMMANDS, main
from xlnet.cli.recipes import recipes

README = Path(__file__).parents[2] / "README.md"


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a command that must fail with exit code 2."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    news, mark, message = ("\n" + captured.err).rpartition("\nxlnet: ")
    assert mark, f"no message of ours in {news!r}"
    return message


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("One line of text.\n")
    return str(path)


def test_unknown_names_offer_the_nearest(capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path) -> None:
    assert "Did you mean 'pretrain'?" in complaint(capsys, "pretrian")
    assert "--stream.seq_len" in complaint(capsys, "pretrain", text, "--output", "x", "--stream.seq_lem", "9")
    assert "Did you mean 'small'?" in complaint(capsys, "pretrain", text, "--output", "x", "--config", "smal")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("model:\n  n_layerz: 3\n")
    assert "n_layerz" in complaint(capsys, "pretrain", text, "--output", "x", "--config", str(recipe))
    assert "tiles" in complaint(capsys, "pretrain", text, "--output", "x", "--model.attention_backend", "tile")


def test_wrong_values_are_refused(capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert "seq_len" in complaint(capsys, "pretrain", text, "--output", out, "--stream.seq_len", "many")
    assert "dropout" in complaint(capsys, "pretrain", text, "--output", out, "--model.dropout", "1.5")
    assert "reuse_len" in complaint(capsys, "pretrain", text, "--output", out, "--model.reuse_len", "9")
    assert "required: output" in complaint(capsys, "pretrain", text)
    assert "no such file" in complaint(capsys, "pretrain", "nowhere.txt", "--output", out).lower()
    assert not Path(out, "run.json").exists()


def test_a_text_too_short_for_one_sequence_says_how_short(
    capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path
) -> None:
    found = complaint(capsys, "pretrain", text, "--output", str(tmp_path / "out"))
    assert re.search(r"\d+ tokens", found)


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02\xff" * 50, b"caf\xe9 is not UTF-8\n"])
def test_input_that_is_no_text(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    assert "bad.txt" in complaint(capsys, "pretrain", str(path), "--output", str(tmp_path / "out"))


def test_missing_models_and_texts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "nowhere" in complaint(capsys, "fill", "a <mask>", "--model", str(tmp_path / "nowhere"))
    assert str(tmp_path) in complaint(capsys, "info", str(tmp_path))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_for_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: xlnet {name}") and "--config" in page
    bare = re.findall(r"^  (--[\w.]+) [A-Z_]+\n?\s+\((?:required, )?type", page, re.M)
    assert not bare, f"options without a word of explanation: {bare}"


def test_overview_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    page = capsys.readouterr().out
    assert all(name in page for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("xlnet ")


def test_the_overview_does_not_import_torch() -> None:
    code = "import sys; from xlnet.cli import main; main([]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"^(?:\| `)?xlnet (\w+)", README.read_text(), re.M)) - {"COMMAND"}
    assert named and named <= set(COMMANDS), named - set(COMMANDS)


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_loads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pretrain", "x.txt"]
    if name.startswith("finetune/"):
        command = ["finetune", "sst2", "--data", "x", "--model", "m"]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--output", "y", "--config", name, "--print_config"])
    assert stop.value.code == 0
    assert "learning_rate" in capsys.readouterr().out
