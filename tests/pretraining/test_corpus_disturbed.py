"""``prepare`` killed, interrupted, without space or helpers: nothing is left half done, and it goes on where it was."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus_helpers import SMALL, WORDS, contents
from word_tokenizer import Killer, Slow

from xlnet.errors import InputError, Interrupted, MachineError
from xlnet.pretraining.corpus import prepare as prepare_module
from xlnet.pretraining.corpus import storage, workers
from xlnet.pretraining.corpus.prepare import PrepareProgress, prepare
from xlnet.pretraining.corpus.token_corpus import TokenCorpus

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
