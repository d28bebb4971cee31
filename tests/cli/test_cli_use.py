"""``fill``, ``generate`` and ``score``: a text comes back as it was typed, whatever the vocabulary has of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xlnet.cli import main

MODEL = ["--model", str(Path(__file__).parents[2] / "models" / "small-books")]
ODD = "Ünder the 🙂 語 sky"


@pytest.mark.parametrize("as_json", [False, True])
def test_unknown_characters_come_back(as_json: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(f"{ODD}  he <mask>\tsaw 語.\n", encoding="utf-8")
    more = [*MODEL, *(["--json"] if as_json else [])]
    assert main(["fill", "--input", str(path), *more]) == 0
    out = capsys.readouterr().out
    text = json.loads(out)["text"] if as_json else out.split("\n")[0]
    assert text.startswith(f"{ODD}  he ") and text.endswith("\tsaw 語.") and "<unk>" not in text

    assert main(["generate", ODD, "--max_new_tokens", "3", *more]) == 0
    out = capsys.readouterr().out
    assert (json.loads(out)["prompt"] == ODD) if as_json else out.startswith(ODD)
    assert "<unk>" not in out

    assert main(["score", ODD, *more]) == 0
    out = capsys.readouterr().out
    if as_json:
        assert json.loads(out)["text"] == ODD and {"🙂", "語"} <= set("".join(json.loads(out)["pieces"]))
    else:
        assert out.rstrip("\n").endswith(ODD)
