"""Pairs, truncation and padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from text_samples import records

from xlnet.errors import InputError
from xlnet.text import Normalization, XLNetTokenizer, truncate_pair


def by_popping(a: int, b: int, limit: int) -> tuple[int, int]:
    while a + b > limit:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def test_recorded_truncation() -> None:
    for case in records("truncate_seq_pair.json"):
        assert truncate_pair(case["len_a"], case["len_b"], case["max"]) == (case["out_a"], case["out_b"])


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_truncation_is_popping_one_by_one(a: int, b: int, limit: int) -> None:
    assert truncate_pair(a, b, limit) == by_popping(a, b, limit)


@pytest.mark.parametrize("case", records("classifier_features.json"), ids=lambda case: case["name"])
def test_recorded_classifier_inputs(case: dict, model_bytes: bytes) -> None:
    if case["padding_example"]:
        pytest.skip("a row that pads a batch has no text")
    tokenizer = XLNetTokenizer(model_bytes, Normalization(lower=case["uncased"]))
    length = case["max_seq_length"]
    pairs = None if case["text_b"] is None else [case["text_b"]]
    batch = tokenizer([case["text_a"]], pairs, max_length=length, pad_to=length)
    real = torch.tensor(case["input_mask"]) == 0
    assert torch.equal(batch.attention_mask[0], real)
    assert batch.input_ids[0][real].tolist() == torch.tensor(case["input_ids"])[real].tolist()
    assert batch.token_type_ids[0].tolist() == case["segment_ids"]
    assert (batch.input_ids[0][~real] == tokenizer.pad_id).all()


def test_single_and_pair(tokenizer: XLNetTokenizer) -> None:
    one = tokenizer.encode("the value")
    assert one.pieces[-2:] == ["<sep>", "<cls>"] and one.input_ids[-2:] == [4, 3]
    assert one.token_type_ids == [0] * (len(one) - 1) + [2]
    two = tokenizer.encode("the value", "of it")
    a, b = len(tokenizer.tokenize("the value")), len(tokenizer.tokenize("of it"))
    assert two.token_type_ids == [0] * (a + 1) + [1] * (b + 1) + [2]
    assert two.sequence_ids == [0] * a + [-1] + [1] * b + [-1, -1]
    bare = tokenizer.encode("the value", "of it", special_tokens=False)
    assert bare.pieces == tokenizer.tokenize("the value") + tokenizer.tokenize("of it")


def test_truncation_is_counted(tokenizer: XLNetTokenizer) -> None:
    whole = tokenizer.encode("the value of the function")
    cut = tokenizer.encode("the value of the function", max_length=4)
    assert len(cut) == 4 and cut.dropped == len(whole) - 4 and cut.pieces[:2] == whole.pieces[:2]
    with pytest.raises(InputError, match="at least 3"):
        tokenizer.encode("the", max_length=1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_both_sides(tokenizer: XLNetTokenizer, side: str) -> None:
    texts = ["the", "the value of the function", ""]
    batch = tokenizer(texts, padding_side=side, offsets=True)
    for i, text in enumerate(texts):
        row, size = tokenizer.encode(text), len(tokenizer.encode(text))
        real = batch.attention_mask[i]
        assert int(real.sum()) == size and bool(real[-1 if side == "left" else 0])
        assert batch.input_ids[i][real].tolist() == row.input_ids
        assert batch.token_type_ids[i][real].tolist() == row.token_type_ids
        assert batch.offsets[i][real].tolist() == [list(span) for span in row.offsets]
        assert (batch.input_ids[i][~real] == 5).all() and (batch.token_type_ids[i][~real] == 4).all()
    assert batch.attention_mask.dtype == torch.bool and batch.input_ids.dtype == torch.int64
    assert set({**batch}) == {"input_ids", "attention_mask", "token_type_ids"}
    assert len(batch.to("cpu")) == 3


def test_batches_of_wrong_shape_are_refused(tokenizer: XLNetTokenizer) -> None:
    with pytest.raises(InputError, match="2 texts and 1 pairs"):
        tokenizer(["a", "b"], ["c"])
    with pytest.raises(InputError, match="does not fit into 4"):
        tokenizer(["the value of the function"], pad_to=4)
    with pytest.raises(InputError, match="'left' or 'right'"):
        tokenizer(["a"], padding_side="both")
    with pytest.raises(InputError, match=r"texts\[1\] must be a string"):
        tokenizer(["a", None])
    with pytest.raises(InputError, match="list of strings"):
        tokenizer(3)
    assert tokenizer([]).input_ids.shape == (0, 0)
