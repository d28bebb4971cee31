"""``prepare`` as a whole: the same bytes however it is run, killed or disturbed, and nothing that is half done."""

from __future__ import annotations

import dataclasses
import errno
import io
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from word_tokenizer import Killer, OutOfRange, Slow, WithoutEod, WordTokenizer

from xlnet.errors import ConfigurationError, InputError, Interrupted, MachineError
from xlnet.pretraining.corpus import prepare as prepare_module
from xlnet.pretraining.corpus import storage, workers
from xlnet.pretraining.corpus.manifest import CorpusManifest
from xlnet.pretraining.corpus.prepare import PrepareConfig, PrepareProgress, prepare
from xlnet.pretraining.corpus.token_corpus import TokenCorpus

WORDS = WordTokenizer()
SMALL = PrepareConfig(format="paragraphs", piece_bytes=400, shard_tokens=512, valid_fraction=0.1, workers=1)


def prose(documents: int = 30, seed: int = 0) -> str:
    """Paragraphs of random words in sentences, some of them twice."""
    draw = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(200)]
    lines = []
    for _ in range(documents):
        for _ in range(int(draw.integers(1, 6))):
            sentences = [" ".join(draw.choice(words, 6)).capitalize() + "." for _ in range(int(draw.integers(1, 5)))]
            lines.append(" ".join(sentences))
        if draw.random() < 0.3:
            lines.append(lines[int(draw.integers(len(lines)))])
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(prose())
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_back(folder: Path, split: str) -> list[list[int]]:
    """Documents of a split as lists of ids."""
    corpus = TokenCorpus.open(folder, split, verify=True)
    ends = corpus.document_ends(0, len(corpus)) + 1
    return [part.tolist() for part in np.split(corpus.tokens[:], ends[:-1])]


def expected_documents(text: str) -> list[list[int]]:
    """What the text comes to, the slow and plain way."""
    seen, documents = set(), []
    for document in text.split("\n\n"):
        ids = []
        for line in document.split("\n"):
            if line and line not in seen:
                seen.add(line)
                ids += [WORDS.word_id(word) for word in line.split()]
        if ids:
            documents.append([*ids, WORDS.eod_id])
    return documents


def test_corpus_is_the_text_without_duplicates(text, tmp_path):
    manifest = prepare(text, WORDS, tmp_path / "out", SMALL)
    train, valid = read_back(tmp_path / "out", "train"), read_back(tmp_path / "out", "valid")
    expected = expected_documents(text.read_text())
    assert sorted(train + valid) == sorted(expected)
    assert train == [document for document in expected if document in train]
    share = sum(map(len, valid)) / sum(map(len, expected))
    assert 0.07 < share < 0.12
    lines = [line for line in text.read_text().split("\n") if line]
    assert manifest.counts["units"] == len(lines)
    assert manifest.counts["duplicates"] == len(lines) - len(set(lines)) > 0
    assert manifest.counts["documents"] == len(expected)
    assert manifest.counts["tokens"] == sum(map(len, expected))
    assert manifest.counts["sentences"] == sum(line.count(".") for line in set(lines))
    assert manifest.counts["input_bytes"] == text.stat().st_size
    assert any("drawn at random" in note for note in manifest.notes)
    assert len(manifest.splits["train"].shards) > 1
    assert CorpusManifest.load(tmp_path / "out") == manifest
    assert sorted(contents(tmp_path / "out"))[-1] == "valid.documents.bin"


def test_nothing_held_out_was_seen_in_training(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(prose() + prose(seed=1) + prose())
    prepare(text, WORDS, tmp_path / "out", dataclasses.replace(SMALL, split_sentences="never"))
    sides = []
    for split in ("train", "valid"):
        corpus = TokenCorpus.open(tmp_path / "out", split)
        parts = np.split(corpus.tokens[:], np.flatnonzero(corpus.sentence_ends(0, len(corpus)))[:-1] + 1)
        sides.append({tuple(i for i in part.tolist() if i != WORDS.eod_id) for part in parts})
    assert sides[1] and not sides[0] & sides[1]


def test_settings_do_what_they_say(text, tmp_path):
    plain = dataclasses.replace(SMALL, valid_fraction=0.0, use_eod=False, deduplicate=False, split_sentences="never")
    manifest = prepare(text, WORDS, tmp_path / "plain", plain)
    corpus = TokenCorpus.open(tmp_path / "plain")
    words = text.read_text().split()
    assert corpus.tokens[:].tolist() == [WORDS.word_id(word) for word in words]
    lines = [line for line in text.read_text().split("\n") if line]
    assert int(corpus.sentence_ends(0, len(corpus)).sum()) == len(lines) == manifest.counts["sentences"]
    assert manifest.counts["duplicates"] == 0
    prepare(text, WORDS, tmp_path / "eop", dataclasses.replace(plain, use_eop=True))
    with_eop = TokenCorpus.open(tmp_path / "eop")
    assert int((with_eop.tokens[:] == WORDS.eop_id).sum()) == len(lines)
    big = WordTokenizer(vocab_size=100_000)
    prepare(text, big, tmp_path / "big", plain)
    assert TokenCorpus.open(tmp_path / "big").manifest.dtype == "uint32"
    assert TokenCorpus.open(tmp_path / "big").tokens[:].max() > 65535


def test_result_does_not_depend_on_workers(text, tmp_path, monkeypatch):
    alone = prepare(text, WORDS, tmp_path / "one", SMALL)
    monkeypatch.setattr(workers, "_PIECES_BEFORE_HELPERS", 1)
    together = prepare(text, WORDS, tmp_path / "three", dataclasses.replace(SMALL, workers=3))
    assert alone == together
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_sources_may_be_cut_anywhere(text, tmp_path):
    """Two files of whole documents give what one file gives."""
    documents = text.read_text().split("\n\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.txt").write_bytes("\r\n\r\n".join(documents[:9]).replace("\n", "\r\n").encode("utf-8-sig"))
    (tmp_path / "parts" / "2.txt").write_text("\n\n".join(documents[9:]))
    prepare(text, WORDS, tmp_path / "one", SMALL)
    prepare(tmp_path / "parts", WORDS, tmp_path / "two", SMALL)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert one.pop("manifest.json") != two.pop("manifest.json")
    assert one == two


RUN = """
import sys
from word_tokenizer import Slow
from xlnet.pretraining.corpus import workers
from xlnet.pretraining.corpus.prepare import PrepareConfig, prepare
if __name__ == "__main__":
    workers._PIECES_BEFORE_HELPERS = 1
    sizes = dict(piece_bytes=400, shard_tokens=512, valid_fraction=0.1)
    config = PrepareConfig(format="paragraphs", **sizes, workers=int(sys.argv[3]))
    prepare(sys.argv[1], Slow(), sys.argv[2], config)
"""


@pytest.mark.parametrize("count", [1, 2])
def test_killed_run_goes_on_where_it_was(text, tmp_path, count):
    script, output = tmp_path / "run.py", tmp_path / "killed"
    script.write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(script), str(text), str(output), str(count)]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    pieces = output / ".partial" / "pieces"
    deadline = time.monotonic() + 60
    while len(list(pieces.glob("*.piece"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.wait()
    with pytest.raises(InputError, match="holds an unfinished preparation"):
        TokenCorpus.open(output)
    done = {path.name for path in pieces.glob("*.piece")}
    assert len(done) >= 5
    assert _dies_out(process.pid), "helper processes outlived the caller"

    class Counting(Slow):
        calls = 0

        def encode_lines(self, texts, num_threads=None):
            Counting.calls += 1
            return super().encode_lines(texts, num_threads)

    done = {path.name for path in pieces.glob("*.piece")}
    prepare(text, Counting(), output, SMALL)
    calls_after = Counting.calls
    prepare(text, Counting(), tmp_path / "whole", SMALL)
    assert Counting.calls - calls_after == calls_after + len(done), "finished pieces were made again"
    assert contents(output) == contents(tmp_path / "whole")


def _dies_out(group: int) -> bool:
    deadline = time.monotonic() + 30
    while _alive(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _alive(group)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    states = [folder / "stat" for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    for path in states:
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


def test_interrupt_keeps_what_is_done(text, tmp_path):
    def stop(progress: PrepareProgress) -> None:
        if progress.tokens > 500:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="run the same command again"):
        prepare(text, WORDS, tmp_path / "out", SMALL, stop)
    assert len(list((tmp_path / "out" / ".partial" / "pieces").iterdir())) >= 2
    prepare(text, WORDS, tmp_path / "out", SMALL)
    prepare(text, WORDS, tmp_path / "whole", SMALL)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_ctrl_c_with_helpers_is_clean(text, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    output = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, str(script), str(text), str(output), "2"],
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(list((output / ".partial" / "pieces").glob("*.piece"))) < 4 and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "Interrupted: Stopped." in errors
    assert errors.count("Traceback") == 1, "a helper wrote a traceback"
    assert _dies_out(process.pid)


def test_script_without_main_guard_is_told_so(text, tmp_path):
    script = tmp_path / "run.py"
    careless = RUN.replace('if __name__ == "__main__":', "if True:")
    script.write_text(careless.replace("Slow", "Killer").replace("piece_bytes=400", "piece_bytes=20"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(script), str(text), str(tmp_path / "out"), "2"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "Put the calls of the script under `if __name__ == '__main__':`" in result.stderr
    assert "MachineError: A helper process ended by itself" in result.stderr


@pytest.mark.parametrize("after", [0, 1, 3, 10, 25, 60])
def test_full_disk_harms_nothing(text, tmp_path, monkeypatch, after):
    """Every write from the ``after``-th on fails, as on a full disk; then there is room again."""
    writes = 0

    def failing(method):
        def write(self, *arguments, **options):
            nonlocal writes
            writes += 1
            if writes > after:
                raise OSError(errno.ENOSPC, "No space left on device")
            return method(self, *arguments, **options)

        return write

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", failing(Path.write_bytes))
        patch.setattr(storage.HashedFile, "_append", failing(storage.HashedFile._append))
        with pytest.raises(MachineError, match=r"disk is full while writing .* run the same command again"):
            prepare(text, WORDS, tmp_path / "out", SMALL)
    with pytest.raises(InputError, match="unfinished preparation"):
        TokenCorpus.open(tmp_path / "out")
    prepare(text, WORDS, tmp_path / "out", SMALL)
    prepare(text, WORDS, tmp_path / "whole", SMALL)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_broken_off_before_the_manifest_is_unfinished(text, tmp_path, monkeypatch):
    def fail(path: Path, _: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "write_whole", fail)
        with pytest.raises(OSError):
            prepare(text, WORDS, tmp_path / "out", SMALL)
    (tmp_path / "out" / "train-00099.tokens.bin").write_bytes(b"stale")
    with pytest.raises(InputError, match="unfinished preparation"):
        TokenCorpus.open(tmp_path / "out")
    manifest = prepare(text, WORDS, tmp_path / "out", SMALL)
    prepare(text, WORDS, tmp_path / "whole", SMALL)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    (tmp_path / "out" / ".partial").mkdir()
    assert prepare(text, WORDS, tmp_path / "out", SMALL) == manifest
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_helper_that_dies_is_reported(text, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_PIECES_BEFORE_HELPERS", 1)
    config = dataclasses.replace(SMALL, workers=2, piece_bytes=20)
    with pytest.raises(MachineError, match="helper process ended by itself"):
        prepare(text, Killer(), tmp_path / "out", config)


def test_output_folder_is_never_overwritten(text, tmp_path):
    output = tmp_path / "out"
    first = prepare(text, WORDS, output, SMALL)
    before = contents(output)
    assert prepare(text, WORDS, output, dataclasses.replace(SMALL, workers=2)) == first
    with pytest.raises(ConfigurationError, match=r"already holds another corpus: its seed is 0, yours 5"):
        prepare(text, WORDS, output, dataclasses.replace(SMALL, seed=5))
    with pytest.raises(ConfigurationError, match=r"its tokenizer is words-4096, yours words-500"):
        prepare(text, WordTokenizer(500), output, SMALL)
    other = tmp_path / "other.txt"
    other.write_text("Other text.")
    with pytest.raises(ConfigurationError, match=r"its input is .*text\.txt, yours .*other\.txt"):
        prepare(other, WORDS, output, SMALL)
    text.write_text(prose(seed=3))
    with pytest.raises(ConfigurationError, match=r"its input has changed since"):
        prepare(text, WORDS, output, SMALL)
    assert contents(output) == before
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.doc").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"is not empty and holds no corpus \(but thesis\.doc\)"):
        prepare(text, WORDS, foreign, SMALL)
    with pytest.raises(ConfigurationError, match="is a file"):
        prepare(text, WORDS, other, SMALL)


def test_unfinished_run_of_another_kind_is_refused_but_a_repaired_text_goes_on(tmp_path):
    good = prose()
    text, output = tmp_path / "text.txt", tmp_path / "out"
    text.write_bytes(good.encode() + b"bad \xff byte\n")
    with pytest.raises(InputError, match=r"text\.txt, byte offset \d+ \(line \d+\): byte 0xff is not valid UTF-8"):
        prepare(text, WORDS, output, SMALL)
    text.write_bytes(good.encode() * 20 + b"bad \xff byte\n")
    config = dataclasses.replace(SMALL, deduplicate=False, shard_tokens=1 << 20, piece_bytes=9000)
    with pytest.raises(InputError, match="0xff"):
        prepare(text, WORDS, tmp_path / "none", dataclasses.replace(SMALL, format="jsonl"))
    with pytest.raises(InputError):
        _with_small_blocks(lambda: prepare(text, WORDS, output, config))
    assert list((output / ".partial" / "pieces").glob("*.piece"))
    with pytest.raises(
        ConfigurationError, match=r"unfinished preparation of another kind: its use_eop is False, yours True"
    ):
        prepare(text, WORDS, output, dataclasses.replace(config, use_eop=True))
    text.write_text(good * 20)
    prepare(text, WORDS, output, config)
    prepare(text, WORDS, tmp_path / "whole", config)
    assert contents(output) == contents(tmp_path / "whole")


def _with_small_blocks(action):
    from xlnet.pretraining.corpus import sources

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_BYTES", 512)
        return action()


def test_two_runs_in_one_folder_are_refused(text, tmp_path):
    def again(_: PrepareProgress) -> None:
        with pytest.raises(ConfigurationError, match="is being prepared by another process"):
            prepare(text, WORDS, tmp_path / "out", SMALL)

    prepare(text, WORDS, tmp_path / "out", SMALL, again)


def test_standard_input_works_and_says_what_it_cannot(text, tmp_path, monkeypatch):
    def give() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))

    give()
    seen: list[PrepareProgress] = []
    manifest = prepare("-", WORDS, tmp_path / "piped", SMALL, seen.append)
    assert any("can be read only once" in note for note in manifest.notes)
    assert seen[0].total_bytes is None and seen[-1].done_bytes == text.stat().st_size
    prepare(text, WORDS, tmp_path / "file", SMALL)
    piped, plain = contents(tmp_path / "piped"), contents(tmp_path / "file")
    del piped["manifest.json"], plain["manifest.json"]
    assert piped == plain
    give()
    with pytest.raises(ConfigurationError, match="came from a stream"):
        prepare("-", WORDS, tmp_path / "piped", SMALL)


def test_progress_is_told(text, tmp_path):
    seen: list[PrepareProgress] = []
    manifest = prepare(text, WORDS, tmp_path / "out", SMALL, seen.append)
    assert [p.stage for p in seen] == ["encode"] * (len(seen) - 1) + ["write"]
    assert seen[-1].done_bytes == seen[-1].total_bytes == text.stat().st_size
    assert seen[-1].tokens == manifest.counts["tokens"]
    assert seen[-1].duplicates == manifest.counts["duplicates"]
    assert all(a.tokens <= b.tokens for a, b in itertools.pairwise(seen))


def test_automatic_format_is_noted(text, tmp_path):
    manifest = prepare(text, WORDS, tmp_path / "out", dataclasses.replace(SMALL, format="auto"))
    assert manifest.settings["format"] == "paragraphs"
    assert any(note.startswith("format paragraphs: chosen because") for note in manifest.notes)


def test_tiny_corpora(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text("Only one sentence without end")
    manifest = prepare(path, WORDS, tmp_path / "one", SMALL)
    assert list(manifest.splits) == ["train"] and manifest.counts["tokens"] == 6
    path.write_text(" \n\u00a0\n")
    with pytest.raises(InputError, match=r"There is no text in .*tiny\.txt"):
        prepare(path, WORDS, tmp_path / "none", SMALL)
    with pytest.raises(InputError, match="no corpus"):
        TokenCorpus.open(tmp_path / "none")
    path.write_text("word " * 300_000)
    manifest = prepare(
        path, WORDS, tmp_path / "long", dataclasses.replace(SMALL, format="documents", shard_tokens=1 << 20)
    )
    assert manifest.counts["tokens"] == 300_001


def test_tokenizer_must_fit(text, tmp_path):
    with pytest.raises(ConfigurationError, match="the tokenizer has no <eod>"):
        prepare(text, WithoutEod(), tmp_path / "out", SMALL)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="the tokenizer is damaged"):
        prepare(text, OutOfRange(), tmp_path / "out", SMALL)
    prepare(text, WORDS, tmp_path / "out", SMALL)
    corpus = TokenCorpus.open(tmp_path / "out")
    corpus.check_tokenizer(WORDS)
    with pytest.raises(InputError, match=r"words-4096 \(4096 pieces\).*other-50 \(50 pieces\)"):
        corpus.check_tokenizer(WordTokenizer(50, "other"))


def test_damage_is_found_when_opening(text, tmp_path):
    output = tmp_path / "out"
    prepare(text, WORDS, output, SMALL)
    with pytest.raises(InputError, match=r"no split 'vald'; it has train, valid\. Did you mean 'valid'"):
        TokenCorpus.open(output, "vald")
    shard = output / "train-00000.tokens.bin"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    TokenCorpus.open(output)
    with pytest.raises(InputError, match=r"train-00000\.tokens\.bin is damaged: its SHA-256"):
        TokenCorpus.open(output, verify=True)
    shard.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"has 1023 bytes, but the manifest says 1024"):
        TokenCorpus.open(output)
    shard.unlink()
    with pytest.raises(InputError, match="is missing"):
        TokenCorpus.open(output)
    values = json.loads((output / "manifest.json").read_text())
    for damaged in (json.dumps({**values, "version": 9}), "{", "[]", json.dumps({"version": 1})):
        (output / "manifest.json").write_text(damaged)
        with pytest.raises(InputError, match="is damaged or written by another version"):
            TokenCorpus.open(output)
    with pytest.raises(InputError, match="no such folder"):
        TokenCorpus.open(tmp_path / "nowhere")


def test_open_corpus_pickles_by_name(text, tmp_path):
    prepare(text, WORDS, tmp_path / "out", SMALL)
    corpus = TokenCorpus.open(tmp_path / "out", "valid")
    packed = pickle.dumps(corpus)
    assert len(packed) < 500
    again = pickle.loads(packed)
    assert again.split == "valid" and again.tokens[:].tolist() == corpus.tokens[:].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "paragrafs"}, "Did you mean 'paragraphs'"),
        ({"split_sentences": "maybe"}, "must be one of auto, always, never"),
        ({"valid_fraction": 0.9}, "must lie in 0 to 0.5"),
        ({"valid_fraction": -0.1}, "must lie in 0 to 0.5"),
        ({"valid_fraction": float("nan")}, "must lie in 0 to 0.5"),
        ({"language": "english"}, "ISO 639"),
        ({"piece_bytes": 0}, "must be positive"),
        ({"shard_tokens": 12}, "multiple of 8"),
        ({"workers": -1}, "0 takes every core"),
        ({"seed": -1}, "must not be negative"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        PrepareConfig(**change)
