"""The demo from beginning to end, with a handful of training steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from xlnet.cli import main


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning")  # its reader wrote no text, so nothing about a text is news
def test_demo_tells_the_whole_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "demo"
    assert main(["demo", "--output", str(output), "--steps", "3"]) == 0
    captured = capsys.readouterr()
    for part in ("unigram", "bigram", "XLNet before training", "XLNet after training", "blanks as in the text",
                 "more probable than its shuffled self"):  # fmt: skip
        assert part in captured.out, part
    assert str(output / "loss.png") in captured.err
    assert (output / "loss.png").stat().st_size > 5_000
    assert (output / "model" / "spiece.model").is_file()
    assert main(["demo", "--output", str(output), "--steps", "3"]) == 2
    assert "--resume" in capsys.readouterr().err
