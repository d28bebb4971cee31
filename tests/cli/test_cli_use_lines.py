"""``fill``, ``score`` and ``generate`` over many lines: errors name the line, and what is done stays."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from xlnet import cli
from xlnet.cli import main, use
from xlnet.cli.texts import Texts, chunks
from xlnet.model import XLNetLMHeadModel
from xlnet.text import XLNetTokenizer
from xlnet.training.guards import out_of_memory

FOLDER = Path(__file__).parents[2] / "models" / "small-books"
MODEL = ["--model", str(FOLDER)]
NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    """What a command prints and complains."""
    assert main([*arguments, *MODEL]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    def write(*texts: str, name: str = "in.txt") -> list[str]:
        path = tmp_path / name
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return ["--input", str(path)]

    return write


@pytest.mark.parametrize(
    ("command", "texts", "said"),
    [
        ("fill", ["A <mask>.", "", "B <mask>."], "in.txt, line 2: The text '' holds no blank"),
        ("fill", ["A <mask>.", "B.", "C <mask>."], "in.txt, line 2: The text 'B.' holds no blank"),
        ("fill", ["A <mask>.", "B <mask>.", "C <mask:0>."], "in.txt, line 3: <mask:0>: the number of pieces"),
        ("score", ["A man.", "B.", " \t"], "in.txt, line 3: ' \\t' holds no piece to score"),
        ("score", ["", "B."], "in.txt, line 1: '' holds no piece to score"),
    ],
)
def test_all_lines_are_looked_at_first_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: Any, command: str, texts: list[str],
    said: str,
) -> None:  # fmt: skip
    def never(*_: object) -> None:
        raise AssertionError("the model was read")

    monkeypatch.setattr(XLNetLMHeadModel, "from_pretrained", never)
    out, err = run(capsys, command, *lines(*texts), code=2)
    assert said in err and out == ""
    _, err = run(capsys, command, *texts, code=2)
    assert f"xlnet: text {said.split('line ')[1]}" in err
    records = [json.dumps({"text": text}) for text in texts]
    _, err = run(capsys, command, *lines(*records, name="in.jsonl"), code=2)
    assert said.replace("in.txt", "in.jsonl") in err


def test_an_empty_line_of_json_is_named(capsys: pytest.CaptureFixture[str], lines: Any) -> None:
    _, err = run(capsys, "score", *lines('{"text": "A."}', "", name="in.jsonl"), code=2)
    assert "in.jsonl, line 2 is empty" in err
    _, err = run(capsys, "score", *lines("[" * 100_000, name="in.jsonl"), code=2)
    assert "in.jsonl, line 1 is not JSON" in err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (RuntimeError(NO_MEMORY), 1)])
@pytest.mark.parametrize(
    ("command", "function", "texts", "more"),
    [
        ("fill", "fill_text", ["A <mask>.", "B <mask>.", "C <mask>."], []),
        ("score", "score_texts", ["A man.", "B man.", "C man."], []),
        ("generate", "generate_text", ["A", "B", "C"], ["--batch_size", "1", "--max_new_tokens", "1"]),
    ],
)
def test_what_is_done_is_printed_before_the_next_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: Any, command: str, function: str,
    texts: list[str], more: list[str], error: BaseException, code: int,
) -> None:  # fmt: skip
    real, seen = getattr(use, function), []

    def failing(*given: Any, **options: Any) -> Any:
        seen.append(capsys.readouterr().out)
        if len(seen) == 3:
            raise error
        return real(*given, **options)

    monkeypatch.setattr(use, function, failing)
    monkeypatch.setattr(use, "_MOST_SCORED", 1)
    _, err = run(capsys, command, *lines(*texts), *more, code=code)
    assert seen[0] == "" and seen[1] != "" and seen[2] != ""
    if code == 1:
        assert "in.txt, line 3: out of memory ([enforce fail" in err and "smaller" in err
        assert command != "generate" or "--window" in err


def test_results_do_not_depend_on_how_many_are_handled_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    texts = lines("The old man", "A ship", "The old man", "It was", "The old man")
    made = [
        run(capsys, "generate", *texts, "--batch_size", size, "--max_new_tokens", "4")[0] for size in ("1", "2", "8")
    ]
    assert made[0] == made[1] == made[2]
    assert len(set(made[0].splitlines()[::2])) > 1
    scored = []
    for most in (1, 64):
        monkeypatch.setattr(use, "_MOST_SCORED", most)
        out, _ = run(capsys, "score", *texts, "--json", "--order", "random", "--orders", "2")
        scored.append([json.loads(line)["total"] for line in out.splitlines()])
    assert scored[0] == pytest.approx(scored[1], rel=1e-5)


def test_neighbours_are_handled_together_up_to_a_number_and_a_size() -> None:
    assert [list(part) for part in chunks([1, 1, 1, 1, 1], 2, 99)] == [[0, 1], [2, 3], [4]]
    assert [list(part) for part in chunks([3, 4, 20, 1, 1], 9, 8)] == [[0, 1], [2], [3, 4]]
    assert list(chunks([], 2, 2)) == []
    assert Texts(["a", "b", "c"], "f").where(0, 2) == "f, lines 1 to 3"
    assert (Texts(["a"], None).where(0), Texts(["a", "b"], None).where(1)) == ("the text", "text 2")


def test_equal_texts_are_drawn_differently(capsys: pytest.CaptureFixture[str]) -> None:
    text = "He shook his <mask:3> and went away."
    out, _ = run(capsys, "fill", text, text, text, text, "--sampling.temperature", "1", "--json")
    assert len({json.loads(line)["text"] for line in out.splitlines()}) > 1


def test_a_text_that_is_too_long_to_be_read_at_once_is_walked(capsys: pytest.CaptureFixture[str], lines: Any) -> None:
    long = "The old man sat down by the fire and lit his pipe. " * 4
    out, err = run(capsys, "score", *lines("A man.", long, "A ship."), "--max_length", "20", "--json")
    first, walked, last = (json.loads(line) for line in out.splitlines())
    assert (first["order"], walked["order"], last["order"]) == (
        "left_to_right", "left_to_right_walk", "left_to_right",
    )  # fmt: skip
    assert len(walked["pieces"]) == len(walked["log_probs"]) and walked["text"] == long
    assert "in.txt, line 2: 5" in err and "more than --max_length 20" in err
    out, err = run(capsys, "score", long, "--json")
    exact = json.loads(out)
    assert exact["order"] == "left_to_right" and err == ""
    # Up to the first place from which not all can be seen, the two are the same.
    assert walked["log_probs"][:20] == pytest.approx(exact["log_probs"][:20], abs=1e-3)
    for more in (["--order", "lattice"], ["--given", "Once upon a time."]):
        out, err = run(capsys, "score", *lines("A man.", long), "--max_length", "20", *more, code=2)
        assert "in.txt, line 2 has " in err and "--max_length 20" in err and out == ""
    for option in ("--max_length", "--batch_size"):
        assert f"{option} 0 must be at least 1" in run(capsys, "score", "A.", option, "0", code=2)[1]


def test_beams_take_their_defaults_and_refuse_what_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    beams = ["generate", "The old man", "--num_beams", "2", "--max_new_tokens", "2"]
    assert run(capsys, *beams)[0].startswith("The old man")
    for option, value in (("temperature", "0.5"), ("top_p", "0.5"), ("top_k", "3"), ("seed", "1")):
        _, err = run(capsys, *beams, f"--sampling.{option}", value, code=2)
        assert f"sampling.{option}={value} has no effect with num_beams=2" in err
    assert "length_penalty=nan" in run(capsys, *beams, "--length_penalty", ".nan", code=2)[1]


@pytest.mark.parametrize(("encoding", "terminal", "want"), [
    ("cp1252", False, "語 ☃\n".encode()), ("cp1252", True, b"\\u8a9e \\u2603\n"), ("utf-8", False, "語 ☃\n".encode()),
    ("utf-16-le", False, "語 ☃\n".encode("utf-16-le")),
])  # fmt: skip
def test_a_stream_without_the_letters_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, encoding: str, terminal: bool, want: bytes
) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, newline="\n")
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(cli, "call", lambda _: print("語 ☃"))
    assert main([]) == 0
    assert written.getvalue() == want


def test_scores_reach_a_stream_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    with monkeypatch.context() as changed:
        changed.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
        assert main(["score", "Ünder the 🙂 語 sky", "--json", *MODEL]) == 0
        result = written.getvalue()
    assert json.loads(result.decode())["text"] == "Ünder the 🙂 語 sky"


def test_memory_that_does_not_suffice_is_told_from_other_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cublas = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"
    words = (NO_MEMORY, "MPS backend out of memory", cublas)
    errors = [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), *map(RuntimeError, words)]
    for error in errors:
        assert out_of_memory(error)

        def fail(_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(cli, "call", fail)
        assert main(["export"]) == 1
        assert "xlnet: out of memory" in capsys.readouterr().err
    other = RuntimeError("shapes do not fit")
    assert not out_of_memory(other) and not out_of_memory(OSError("out of memory"))
    monkeypatch.setattr(cli, "call", lambda _: (_ for _ in ()).throw(other))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        main(["export"])


def test_a_tokenizer_with_more_pieces_than_its_model_is_refused_at_opening(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(FOLDER, tmp_path / "mine")
    XLNetTokenizer.from_pretrained(FOLDER).with_tokens(["qqq"]).save_pretrained(tmp_path / "mine")
    for command, text in (("fill", "A <mask>."), ("score", "A."), ("generate", "A")):
        assert main([command, text, "--model", str(tmp_path / "mine")]) == 2
        assert "The tokenizer has 8,001 pieces, but the model knows only 8,000" in capsys.readouterr().err
