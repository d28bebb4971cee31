"""Normalization against its definition, and the spans that lead back."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_samples import FRAGMENTS, records, texts

from xlnet.errors import InputError
from xlnet.text import Normalization
from xlnet.text.normalize import check_text

SWITCHES = [Normalization(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]
switches = st.sampled_from(SWITCHES)


def by_definition(text: str, rule: Normalization) -> str:
    if rule.remove_space:
        text = " ".join(text.strip().split())
    text = text.replace("``", '"').replace("''", '"')
    if not rule.keep_accents:
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text.lower() if rule.lower else text


def test_recorded_texts() -> None:
    for record in records("tokenization.json"):
        rule = Normalization(record["lower"], record["keep_accents"], record["remove_space"])
        assert rule(record["text"]) == record["preprocessed"]
        assert rule.with_spans(record["text"]).text == record["preprocessed"]


@given(texts, switches)
def test_both_ways_equal_the_definition(text: str, rule: Normalization) -> None:
    expected = by_definition(text, rule)
    assert rule(text) == expected
    assert rule.with_spans(text).text == expected


def test_every_single_character() -> None:
    rule = Normalization(lower=True)
    for start in range(0, 0x30000, 0x1000):
        text = "".join(chr(c) + "x" for c in range(start, start + 0x1000) if not 0xD800 <= c < 0xE000)
        assert rule(text) == rule.with_spans(text).text == by_definition(text, rule)


@given(texts, switches)
def test_spans_are_ordered_and_lead_back(text: str, rule: Normalization) -> None:
    mapped = rule.with_spans(text)
    assert len(mapped.starts) == len(mapped.ends) == len(mapped.text)
    spans = list(zip(mapped.starts.tolist(), mapped.ends.tolist(), strict=True))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    assert mapped.ends.tolist() == sorted(mapped.ends.tolist())
    for character, (start, end) in zip(mapped.text, spans, strict=True):
        # A final sigma and a space depend on what stands around them.
        if character not in "ςσ ":
            assert character in by_definition(text[start:end], rule)


def test_spans_of_a_known_text() -> None:
    text = "  a \t``e\u0301ﬁ'' ½"
    mapped = Normalization().with_spans(text)
    parts = [(c, text[s:e]) for c, s, e in zip(mapped.text, mapped.starts, mapped.ends, strict=True)]
    assert parts == [
        ("a", "a"), (" ", " \t"), ('"', "``"), ("e", "e\u0301"), ("f", "ﬁ"), ("i", "ﬁ"), ('"', "''"), (" ", " "),
        ("1", "½"), ("⁄", "½"), ("2", "½"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, b"bytes", bytearray(b"x"), 3, ["a"]])
def test_what_is_no_string_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=type(value).__name__):
        check_text(value)


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"U\+D83D at character 3"):
        check_text("abc\ud83d", "pair")


def test_fragments_hold_what_they_should() -> None:
    assert {"``", "\x00", "\u200b", "İ"} <= set(FRAGMENTS)
