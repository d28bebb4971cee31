"""What a search of a folder finds and leaves out, and which inputs can be read twice."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from corpus_helpers import SMALL, WORDS, prose

from xlnet.errors import InputError
from xlnet.pretraining.corpus.detect import choose_format
from xlnet.pretraining.corpus.prepare import prepare
from xlnet.pretraining.corpus.readers import read_texts
from xlnet.pretraining.corpus.sources import find_sources, rereadable


def write(path: Path, text: str = "Some text. And more of it.\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run_in(folder: Path) -> None:
    """What a pretraining run leaves in its folder, as far as a search could take it for text or for a sign."""
    write(folder / "run.json", json.dumps({"format": "xlnet-run-1", "fit": {}}, indent=2))
    write(folder / "metrics.jsonl", '{"kind": "train", "step": 1}\n')
    write(folder / "tokenizer" / "spiece.model", "x")
    model_in(folder / "model")


def model_in(folder: Path) -> None:
    for name in ("config.json", "model.safetensors", "README.md"):
        write(folder / name, "{}")


def test_a_run_inside_the_folder_of_its_text_is_no_text(tmp_path):
    text = write(tmp_path / "proj" / "a.txt")
    run_in(tmp_path / "proj" / "run")
    sources, notes = find_sources(tmp_path / "proj")
    assert [source.path for source in sources] == [text]
    assert len(notes) == 1 and "left out" in notes[0] and "run (a run; 2 files" in notes[0]
    assert choose_format(sources, "auto")[0] == "paragraphs"


def test_the_log_of_a_run_in_the_very_folder_of_the_text_is_no_text(tmp_path):
    text = write(tmp_path / "a.txt")
    run_in(tmp_path)
    sources, notes = find_sources(tmp_path)
    assert [source.path for source in sources] == [text]
    assert len(notes) == 1 and "metrics.jsonl (the log of a run)" in notes[0] and "model (a model; 1 file " in notes[0]


@pytest.mark.parametrize(
    ("kind", "signs"),
    [
        ("tokenizer", {"spiece.model": "x"}),
        ("tokenizer", {"tokenizer_config.json": "{}", "tokenizer.json": "{}"}),
        ("model", {"config.json": "{}", "model.safetensors": "x"}),
        ("model", {"config.json": "{}", "model.safetensors.index.json": "{}"}),
        ("model", {"config.json": "{}", "pytorch_model.bin": "x"}),
        ("model", {"xlnet_config.json": "{}", "xlnet_model.ckpt.index": "x", "spiece.model": "x"}),
        ("", {"config.json": "{}"}),
        ("", {"run.json": '{"of": "another program"}'}),
        ("", {"manifest.json": '{"of": "another program"}'}),
        ("", {"config.json": "{}", "pictures.bin": "x"}),
    ],
)
def test_what_this_library_writes_is_told_by_its_files(tmp_path, kind, signs):
    text, inner = write(tmp_path / "a.txt"), write(tmp_path / "deep" / "inner" / "notes.md")
    for name, data in signs.items():
        write(tmp_path / "deep" / "inner" / name, data)
    sources, notes = find_sources(tmp_path)
    assert [source.path for source in sources] == ([text] if kind else [text, inner])
    assert [f"inner (a {kind}; 1 file with" in note for note in notes] == [True] * bool(kind)
    # Named by itself, it is what the user wants.
    assert [source.path for source in find_sources(inner.parent)[0]] == [inner]
    assert [source.path for source in find_sources(str(tmp_path / "deep" / "*" / "*.md"))[0]] == [inner]


def test_a_folder_whose_only_text_is_left_out_says_so(tmp_path):
    run_in(tmp_path / "run")
    with pytest.raises(InputError, match=r"folder without text.*left out, since .*: run \(a run; 2 files"):
        find_sources(tmp_path)


def test_what_holds_no_text_is_left_out_without_a_word(tmp_path):
    write(tmp_path / "a.txt")
    write(tmp_path / "tokenizer" / "spiece.model")
    write(tmp_path / "run" / ".partial" / "a.txt")
    assert find_sources(tmp_path)[1] == []


def test_a_corpus_inside_its_text_changes_nothing_and_the_note_stands_in_its_manifest(tmp_path):
    write(tmp_path / "a.txt", prose())
    run_in(tmp_path / "run")
    first = prepare(tmp_path, WORDS, tmp_path / "corpus", SMALL)
    assert any("run (a run" in note for note in first.notes)
    write(tmp_path / "corpus" / "README.md")
    assert prepare(tmp_path, WORDS, tmp_path / "corpus", SMALL) == first
    assert "corpus (a corpus; 1 file" in find_sources(tmp_path)[1][0]


def test_what_a_tokenizer_is_trained_on_is_told_too(tmp_path):
    write(tmp_path / "a.txt", "One line.\n")
    run_in(tmp_path / "run")
    told: list[str] = []
    assert list(read_texts(tmp_path, tell=told.append)) == ["One line."]
    assert told == find_sources(tmp_path)[1] and len(told) == 1


def test_many_folders_left_out_are_one_line(tmp_path):
    write(tmp_path / "a.txt")
    for index in range(5):
        run_in(tmp_path / f"run{index}")
    (note,) = find_sources(tmp_path)[1]
    assert "run2 (a run" in note and "run3" not in note and "and 2 more" in note and "\n" not in note


def test_what_can_be_read_twice(tmp_path):
    text = write(tmp_path / "a.txt")
    link = tmp_path / "link.txt"
    link.symlink_to(text)
    for path in (text, str(text), tmp_path, link, str(tmp_path / "*.txt"), tmp_path / "missing.txt"):
        assert rereadable(path), path
    assert not rereadable("-")
    assert not rereadable("/dev/null")


def test_fifos_pipes_and_sockets_cannot_be_read_twice(tmp_path, monkeypatch):
    fifo = tmp_path / "fifo.txt"
    os.mkfifo(fifo)
    assert not rereadable(fifo) and not rereadable(str(tmp_path / "f*.txt"))
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        assert not rereadable("s")
    reader, writer = os.pipe()
    try:
        assert not rereadable(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
        os.close(writer)


def test_what_a_shell_makes_of_a_command_cannot_be_read_twice(tmp_path):
    bash = "/bin/bash"
    if not os.access(bash, os.X_OK):
        pytest.skip("there is no bash here")
    code = "import sys; from xlnet.pretraining.corpus.sources import rereadable; print(rereadable(sys.argv[1]))"
    command = f"'{sys.executable}' -c '{code}' <(echo text)"
    assert subprocess.run([bash, "-c", command], capture_output=True, text=True, check=True).stdout == "False\n"
