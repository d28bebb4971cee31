"""Pieces and ids as released, decoding, added tokens, bad input."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from text_samples import records, texts

from xlnet.errors import CheckpointError, InputError
from xlnet.text import XLNetTokenizer


def test_recorded_pieces_and_ids(tokenizers: dict) -> None:
    for record in records("tokenization.json"):
        tokenizer = tokenizers[record["lower"], record["keep_accents"], record["remove_space"]]
        encoding = tokenizer.encode(record["text"], special_tokens=False)
        assert tokenizer.normalize(record["text"]) == record["preprocessed"]
        assert tokenizer.tokenize(record["text"]) == encoding.pieces == record["pieces"]
        assert encoding.input_ids == tokenizer.encode_lines([record["text"]])[0].tolist() == record["ids"]


@pytest.mark.data
def test_released_model(shared_data: Path) -> None:
    folder = shared_data / "tokenizers" / "xlnet-base-cased"
    tokenizer = XLNetTokenizer.from_pretrained(folder)
    for record in json.loads((folder / "hf_integration_golden.json").read_text(encoding="utf-8")):
        assert tokenizer.encode(record["text"], special_tokens=False).input_ids == record["ids"]
    ticks, quotes = tokenizer.tokenize(" ``Hello''  café "), tokenizer.tokenize('"Hello" cafe')
    assert ticks == quotes
    assert tokenizer.decode(tokenizer.encode("sold 9,000 units in 1980.").input_ids) == "sold 9,000 units in 1980."
    for text in ("U.S.A.", "(the)", ".5"):
        assert tokenizer.tokenize(text) == tokenizer._processor.encode(text, out_type=str)


@pytest.mark.data
def test_chinese_model(shared_data: Path) -> None:
    tokenizer = XLNetTokenizer.from_pretrained(shared_data / "tokenizers" / "chinese-xlnet")
    text = "我们在2019年，发布了模型。"
    encoding = tokenizer.encode(text, special_tokens=False)
    assert 0 not in encoding.input_ids
    assert encoding.pieces == tokenizer._processor.encode(tokenizer.normalize(text), out_type=str)
    assert "".join(text[s:e] for s, e in encoding.offsets) == text
    assert tokenizer.starts_word.mean() > 0.85


@pytest.mark.data
def test_a_model_without_the_symbols_is_refused(shared_data: Path) -> None:
    with pytest.raises(CheckpointError, match="id 3 must be <cls> but is ','"):
        XLNetTokenizer.from_pretrained(shared_data / "tokenizers" / "toy1000")


def test_digit_and_comma(tokenizer: XLNetTokenizer) -> None:
    pieces = tokenizer.tokenize("sold 9,000 units in 1,234.")
    assert [pieces[i + 1] for i, p in enumerate(pieces) if p[-1] == "9"] == [","]
    assert tokenizer.tokenize("in 2001,")[-2:] == ["▁2001", ","]


@settings(max_examples=120, deadline=None)
@given(text=texts)
def test_no_piece_ends_in_digit_and_comma(tokenizer: XLNetTokenizer, text: str) -> None:
    assert not [p for p in tokenizer.tokenize(text) if re.search(r"\d,$", p)]


@settings(max_examples=120, deadline=None)
@given(text=texts)
def test_text_never_gives_a_special_id(tokenizer: XLNetTokenizer, text: str) -> None:
    ids = tokenizer.encode(text, special_tokens=False).input_ids
    assert not set(ids) & set(tokenizer.special_ids[1:])
    assert len(ids) == len(tokenizer.tokenize(text))


def test_written_symbols_stay_text_and_are_mentioned_once(model_bytes: bytes) -> None:
    tokenizer = XLNetTokenizer(model_bytes)
    with pytest.warns(UserWarning, match="<cls> is written in a text"):
        ids = tokenizer.encode("a <cls> b", special_tokens=False).input_ids
    assert tokenizer.cls_id not in ids
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer.encode("a <sep> b")
    assert tokenizer.tokenize("end.<eop> The")[-3:] == [".", "<eop>", *tokenizer.tokenize("The")]


@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_decode_gives_the_normalized_text(tokenizer: XLNetTokenizer, text: str) -> None:
    encoding = tokenizer.encode(text)
    twice = tokenizer._processor.normalize(tokenizer.normalize(text)).replace("▁", " ").removeprefix(" ")
    if tokenizer.unk_id not in encoding.input_ids:
        assert tokenizer.decode(encoding.input_ids) == twice


def test_decode_of_tensors_marks_and_unknown_text(tokenizer: XLNetTokenizer) -> None:
    ids = tokenizer.encode("sold 9,000 units in 1980.").input_ids
    for form in (torch.tensor(ids), np.array(ids), tuple(ids)):
        assert tokenizer.decode(form) == "sold 9,000 units in 1980."
    assert tokenizer.decode(ids, skip_special_tokens=False).endswith("1980.<sep><cls>")
    assert tokenizer.decode(tokenizer.encode("the 中文").input_ids) == "the <unk>"
    assert tokenizer.decode([]) == ""
    for wrong in ([2000], [-1], [[1, 2]], ["a"], [1.5]):
        with pytest.raises(InputError, match=r"ids\[0\]"):
            tokenizer.decode(wrong)


def test_added_tokens(tokenizer: XLNetTokenizer, tokenizers: dict) -> None:
    more = tokenizer.with_tokens(["[ENT]", "[ENT]", "the_thing", "▁the"][:3])
    assert more.vocab_size == 2002 and more.added_tokens == ("[ENT]", "the_thing")
    text = "of [ENT]s, the_thing."
    encoding = more.encode(text, special_tokens=False)
    assert [text[s:e] for s, e in encoding.offsets if e - s > 3] == ["[ENT]", "the_thing"]
    assert encoding.input_ids.count(2000) == 1 and encoding.input_ids == more.encode_lines([text])[0].tolist()
    assert more.decode(encoding.input_ids) == text
    assert more.starts_word[2000:].all() and more.fingerprint != tokenizer.fingerprint
    assert tokenizer.vocab_size == 2000
    assert tokenizers[True, False, True].with_tokens(["[ENT]"]).tokenize("[Ent]") == ["▁", "[ent]"]
    assert more.with_tokens(["[ENT]"]) is more
    for wrong in ("", "a b", "<cls>", "\u0301"):
        with pytest.raises(InputError):
            tokenizer.with_tokens([wrong])


def test_bad_text_is_refused(tokenizer: XLNetTokenizer) -> None:
    for wrong in (None, b"text", 3, "a\ud800"):
        for call in (tokenizer.tokenize, tokenizer.encode, tokenizer.normalize, lambda t: tokenizer("a", [t])):
            with pytest.raises(InputError):
                call(wrong)


def test_empty_and_odd_text(tokenizer: XLNetTokenizer) -> None:
    assert tokenizer.encode("").input_ids == tokenizer.encode(" \n\t").input_ids == [4, 3]
    assert tokenizer.tokenize("a\x00b")[0] == "▁a"
    assert tokenizer.encode("中文").input_ids[:2] == [17, 0]


def test_equal_text_gives_equal_fingerprints(tokenizer: XLNetTokenizer, tokenizers: dict) -> None:
    assert len({t.fingerprint for t in tokenizers.values()}) == 8
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint and copy.tokenize("the 9,000") == tokenizer.tokenize("the 9,000")
    assert tokenizer.convert_tokens_to_ids(["<cls>", "▁the", "no such"]) == [3, 19, 0]
    assert tokenizer.convert_ids_to_tokens([3, 19]) == ["<cls>", "▁the"]


@pytest.mark.slow
def test_ten_megabytes_in_one_line(tokenizer: XLNetTokenizer) -> None:
    line = "the value of 1,234 things, " * 370_000
    ids = tokenizer.encode_lines([line])[0]
    part = tokenizer.encode(line[:2_000_000].rstrip()[:-40], special_tokens=False)
    assert ids[:100_000].tolist() == part.input_ids[:100_000]
