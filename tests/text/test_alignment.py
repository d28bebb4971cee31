"""Offsets into the original text, through both normalizations."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from text_samples import texts

from xlnet.text import XLNetTokenizer, alignment
from xlnet.text.alignment import chunks

switches = st.tuples(st.booleans(), st.booleans(), st.booleans())


def inner(tokenizer: XLNetTokenizer, text: str) -> str:
    """Text after both normalizations, without its spaces."""
    return tokenizer._processor.normalize(tokenizer.normalize(text)).replace("▁", "")


@settings(max_examples=150, deadline=None)
@given(text=texts, switch=switches)
@example(text="ﷺ a", switch=(False, False, True))
@example(text="x\x85 ", switch=(False, False, False))
def test_offsets_are_ordered_and_their_slices_give_the_pieces(tokenizers: dict, text: str, switch: tuple) -> None:
    tokenizer = tokenizers[switch]
    encoding = tokenizer.encode(text, special_tokens=False)
    assert encoding.pieces == tokenizer.tokenize(text)
    assert len(encoding.offsets) == len(encoding.pieces)
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    assert [s for s, _ in encoding.offsets] == sorted(s for s, _ in encoding.offsets)
    assert [e for _, e in encoding.offsets] == sorted(e for _, e in encoding.offsets)
    shared = [span for span in encoding.offsets if encoding.offsets.count(span) > 1]
    for piece, span in zip(encoding.pieces, encoding.offsets, strict=True):
        part = text[slice(*span)]
        assert part == part.strip() or piece[-1].isspace() or piece.removeprefix("▁")[:1].isspace()
        wanted = piece.removeprefix("▁").replace("▁", "")
        if "ς" in wanted or "σ" in wanted or "▁" in text:
            continue  # a final sigma looks at its neighbours; a literal ▁ cannot be told from a space
        if not wanted:
            continue
        found = inner(tokenizer, part)
        assert wanted in found
        if span not in shared and not any(s < span[1] and span[0] < e for s, e in encoding.offsets if (s, e) != span):
            assert found == wanted


@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_every_visible_character_belongs_to_a_piece(tokenizer: XLNetTokenizer, text: str) -> None:
    covered = {i for start, end in tokenizer.encode(text, special_tokens=False).offsets for i in range(start, end)}
    for place, character in enumerate(text):
        if place not in covered:
            assert inner(tokenizer, character) == "" or character == "▁"


def test_known_offsets(tokenizer: XLNetTokenizer) -> None:
    text = "  Cafe\u0301 ``ﬁx''\u00a0sold 9,000 ½\u200b中文😀"
    encoding = tokenizer.encode(text, special_tokens=False)
    words: dict[str, str] = {}
    for piece, (start, end) in zip(encoding.pieces, encoding.offsets, strict=True):
        words.setdefault(text[start:end], "")
        words[text[start:end]] += piece
    covered = sorted({i for s, e in encoding.offsets for i in range(s, e)})
    assert "".join(text[i] for i in covered) == "Cafe\u0301``ﬁx''sold9,000½中文😀"
    assert words["ﬁ"] == "f" and words["ﬁx"] == "ix" and words["``"] == '"' and words["e\u0301"] == "e"


def test_pair_offsets_belong_to_their_own_text(tokenizer: XLNetTokenizer) -> None:
    encoding = tokenizer.encode("the value", "  of  it")
    second = [span for span, i in zip(encoding.offsets, encoding.sequence_ids, strict=True) if i == 1]
    assert [("  of  it")[s:e] for s, e in second] == ["of", "it"]


@given(st.text(alphabet="ab ", max_size=60), st.integers(1, 12))
def test_chunks_lose_nothing_but_the_spaces_between(text: str, limit: int) -> None:
    parts = chunks(text, limit)
    assert " ".join(text[start:end] for start, end in parts) == text
    assert all(end - start <= limit or " " not in text[start + 1 : end] for start, end in parts[:-1])


@pytest.mark.parametrize("text", ["the value of 1,234, things. " * 40, "é中 " * 60 + "x" * 300])
def test_cutting_long_texts_changes_nothing(
    tokenizer: XLNetTokenizer, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenizer.encode(text)
    monkeypatch.setattr(alignment.chunks, "__defaults__", (50,))
    cut = tokenizer.encode(text)
    assert (cut.pieces, cut.offsets) == (whole.pieces, whole.offsets)
