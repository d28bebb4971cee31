"""Values that cannot be: each is refused before any work, in words for who typed it, never in those of the parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from xlnet.cli import main

REPOSITORY = Path(__file__).parents[2]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The message of a command that must fail."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("xlnet: ") and "Traceback" not in captured.err
    return captured.err


@pytest.fixture
def start(tmp_path: Path) -> list[str]:
    """A command that would work but for what is put behind it."""
    path = tmp_path / "text.txt"
    path.write_text("One line of text.\n" * 20)
    return ["pretrain", str(path), "--output", str(tmp_path / "out"), "--config", "tiny"]


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--stream.seq-len", "many", "a whole number"),
        ("--fit.steps", "1e3", "a whole number"),
        ("--fit.optimizer.learning_rate", "fast", "a number"),
        ("--model.untie_r", "maybe", "true or false"),
        ("--model.ff_activation", "gleu", "one of gelu_tanh, gelu, relu. Did you mean 'gelu'?"),
        ("--stream.predict_fraction", "0.2", "a list in brackets, such as [0.1, 0.2]"),
        ("--vocab-size", "None", "a whole number or null for none"),
    ],
)
def test_the_option_the_value_as_typed_and_the_rule(
    capsys: pytest.CaptureFixture[str], start: list[str], option: str, value: str, rule: str
) -> None:
    found = complaint(capsys, *start, option, value)
    assert f"{option.replace('-len', '_len').replace('b-s', 'b_s')} {value}: it must be {rule}" in found
    assert "<class" not in found and "typing" not in found
    assert rule.split(".")[0] in complaint(capsys, *start, f"{option}={value}")


def test_values_of_a_file_are_spoken_of_in_the_same_words(
    capsys: pytest.CaptureFixture[str], start: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("fit:\n  steps: lots\n")
    assert "--fit.steps lots: it must be a whole number" in complaint(capsys, *start, "--config", str(path))
    assert "no value behind it; it must be true or false" in complaint(capsys, *start, "--prepare.use_eop")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("fit: 3\n", "fit is 3, but fit is a group; put settings under it, such as"),
        ("fit: [steps, 3]\n", "fit is ['steps', 3], but fit is a group"),
        ("fit:\n  schedule: linear\n", "fit.schedule is 'linear', but fit.schedule is a group"),
        ("fit:\n  stepz: 3\n", "there is no setting 'fit.stepz'. Did you mean 'fit.steps'?"),
        ("fot:\n  steps: 3\n", "there is no setting 'fot'. Did you mean 'fit'?"),
        ("- 3\n", "must hold 'key: value' lines, not [3]"),
        ("", "must hold 'key: value' lines, not nothing"),
        ("fit: [3\n", "is no valid YAML"),
        ("fit: \x00\n", "is no valid YAML"),
        ("\udcff", "is not UTF-8 at byte 0"),
    ],
)
def test_a_settings_file_is_never_passed_over(
    capsys: pytest.CaptureFixture[str], start: list[str], tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    for option in (["--config", str(path)], [f"--config={path}"]):
        found = complaint(capsys, *start[:4], *option)
        assert said in found and str(path) in found


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--device", "gpu", 2),
        ("--fit.device", "gpu", 2),
        ("--device", "cuda:99", 1),
        ("--workers", "-1", 2),
        ("--evaluation-count", "-1", 2),
        ("--fit.optimizer.learning_rate", ".nan", 2),
        ("--fit.clip_norm", ".nan", 2),
        ("--output", "{text}", 2),
    ],
)
def test_nothing_is_made_where_a_later_step_must_fail(
    capsys: pytest.CaptureFixture[str], start: list[str], option: str, value: str, code: int
) -> None:
    value = value.format(text=start[1])
    found = complaint(capsys, *start, option, value, code=code)
    assert value.strip(".") in found
    assert not Path(start[3]).exists()


def test_output_that_can_be_no_folder(capsys: pytest.CaptureFixture[str], start: list[str], tmp_path: Path) -> None:
    text = start[1]
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    commands = (
        ["pretrain", text],
        ["tokenizer", text],
        ["demo"],
        ["finetune", "classify", "--data", text, "--model", str(tmp_path)],
    )
    for command in commands:
        for output, what in ((text, "a file"), (f"{text}/runs/mine", "a file"), (str(tmp_path / "nowhere"), "a link"),
                             (str(tmp_path / "loop"), "a link")):  # fmt: skip
            assert f"is {what}" in complaint(capsys, *command, "--output", output)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc, where nobody can write")
def test_output_on_a_medium_that_takes_nothing_is_the_machine_refusing(
    capsys: pytest.CaptureFixture[str], start: list[str]
) -> None:
    assert main(["tokenizer", start[1], "--output", "/proc/self/mine"]) == 1
    captured = capsys.readouterr().err
    assert "xlnet: " in captured and "/proc/self" in captured and "Traceback" not in captured


def test_links_that_lead_nowhere_are_called_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    link = tmp_path / "loop"
    link.symlink_to(link)
    output = ["--output", str(tmp_path / "out")]
    assert "a link that leads nowhere" in complaint(capsys, "pretrain", str(link), *output)
    assert "a link that leads nowhere" in complaint(capsys, "info", str(link))


def test_no_steps_are_no_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for steps in ("0", "-1"):
        found = complaint(capsys, "demo", "--output", str(tmp_path / "demo"), "--steps", steps)
        assert f"--steps {steps} must be at least 1" in found


def test_a_graph_needs_the_name_of_a_file(capsys: pytest.CaptureFixture[str], start: list[str], tmp_path: Path) -> None:
    model = str(REPOSITORY / "models" / "small-books")
    assert "give the name of the file" in complaint(capsys, "export", model, str(tmp_path))
    assert "is a file, and a folder is needed" in complaint(capsys, "export", model, f"{start[1]}/x.onnx")


@pytest.mark.parametrize("option", ["--length", "--runs"])
def test_nothing_is_measured_without_a_length(capsys: pytest.CaptureFixture[str], option: str) -> None:
    for value in ("0", "-4"):
        assert f"{option} {value} must be at least 1" in complaint(capsys, "bench", option, value)


def test_evaluation_checks_what_it_needs_before_it_begins(
    capsys: pytest.CaptureFixture[str], start: list[str], tmp_path: Path
) -> None:
    model = ["--model", str(REPOSITORY / "models" / "small-books")]
    assert "--count 0 must be at least 1" in complaint(capsys, "evaluate", start[1], "--count", "0", *model)
    assert "no manifest.json" in complaint(capsys, "evaluate", start[1], "--baseline", str(tmp_path), *model)


def test_lines_that_hold_nothing_to_work_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = ["--model", str(REPOSITORY / "models" / "small-books")]
    path = tmp_path / "lines.txt"
    for content in ("", "\n\n", "\ufeff", " \t\r\n"):
        path.write_text(content, encoding="utf-8")
        for command in ("fill", "score", "generate"):
            assert "lines.txt holds no text" in complaint(capsys, command, "--input", str(path), *model)
    path = tmp_path / "lines.jsonl"
    path.write_text('{"text": "A <mask>."}\n{"text": 3}\n')
    assert "line 2: 'text' is 3; it must be a text" in complaint(capsys, "fill", "--input", str(path), *model)
    path.write_text("[1]\n")
    assert "line 1 has no text under 'text'" in complaint(capsys, "fill", "--input", str(path), *model)


def test_a_mistyped_model_folder_offers_its_neighbour(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "small-books").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("models/smal-books", "./models/smal-books"):
        assert "did you mean models/small-books?" in complaint(capsys, "score", "a", "--model", name)
    assert "there is no folder" not in complaint(capsys, "score", "a", "--model", "owner/model")


@pytest.mark.parametrize("blank", ["<mask:0>", "<mask:-1>", "<mask:1001>", "<mask:" + "9" * 5000 + ">", "<mask:x>"])
def test_a_blank_of_an_impossible_length(capsys: pytest.CaptureFixture[str], blank: str) -> None:
    found = complaint(capsys, "fill", f"A {blank}.", "--model", str(REPOSITORY / "models" / "small-books"))
    assert "a whole number from 1 to 1,000" in found
