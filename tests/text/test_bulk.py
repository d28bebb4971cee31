"""The fast way gives the ids of the plain way."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_samples import texts

from xlnet.errors import InputError
from xlnet.text import XLNetTokenizer, bulk, train_tokenizer


def plain(tokenizer: XLNetTokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, special_tokens=False).input_ids


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(texts, max_size=6), switch=st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_equal_ids(tokenizers: dict, lines: list[str], switch: tuple) -> None:
    tokenizer = tokenizers[switch]
    found = tokenizer.encode_lines(lines)
    assert [ids.tolist() for ids in found] == [plain(tokenizer, line) for line in lines]
    assert all(ids.dtype == np.int32 for ids in found)


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_threads_and_blocks_change_nothing(
    tokenizer: XLNetTokenizer, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_BLOCK_CHARACTERS", 64)
    lines = [f"the value {i},{i:03d}, of {'é' * (i % 7)}" for i in range(60)] + [""] * 3
    found = tokenizer.encode_lines(lines, threads)
    assert [ids.tolist() for ids in found] == [plain(tokenizer, line) for line in lines]


def test_long_lines_are_cut_alike(tokenizer: XLNetTokenizer) -> None:
    line = "the value of 1,234, things " * 6_000
    assert len(line) > 100_000
    assert tokenizer.encode_lines([line, "x"])[0].tolist() == plain(tokenizer, line)


def test_vocabulary_without_a_comma() -> None:
    tokenizer = train_tokenizer(["the cat sat on 12 mats 9 times 0 1 2 3 4 5 6 7 8"] * 3)
    assert "," not in tokenizer.pieces
    lines = ["1,2,3, the", "٣, ٣,٤, cat", "7,"]
    assert [ids.tolist() for ids in tokenizer.encode_lines(lines)] == [plain(tokenizer, line) for line in lines]


def test_the_rule_holds_for_pieces_with_several_commas() -> None:
    tokenizer = train_tokenizer(["1,2,3, 1,2, 2,3, a"] * 50 + [", 1 2 3"] * 9)
    lines = ["1,2,3,", "a 1,2, 1,2,3, 2,3,3,"]
    for line in lines:
        pieces = tokenizer.tokenize(line)
        assert not [p for p in pieces if p[-2:-1].isdigit() and p[-1] == ","]
        assert "".join(pieces).replace("▁", " ").strip() == line
    assert [ids.tolist() for ids in tokenizer.encode_lines(lines)] == [plain(tokenizer, line) for line in lines]


def test_bad_lines_are_named(tokenizer: XLNetTokenizer) -> None:
    for wrong in (None, b"x", "a\ud800", 3):
        with pytest.raises(InputError, match=r"texts\[1\]"):
            tokenizer.encode_lines(["fine", wrong])
    with pytest.raises(InputError, match="not one string"):
        tokenizer.encode_lines("text")
    assert tokenizer.encode_lines([]) == []
    with pytest.raises(InputError, match="num_threads=0"):
        tokenizer.encode_lines(["a"], 0)


@pytest.mark.data
def test_real_text(shared_data: Path) -> None:
    tokenizer = XLNetTokenizer.from_pretrained(shared_data / "tokenizers" / "xlnet-base-cased")
    with gzip.open(shared_data / "corpus" / "books_5mb.txt.gz", "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")[:1500]
    assert [ids.tolist() for ids in tokenizer.encode_lines(lines)] == [plain(tokenizer, line) for line in lines]
