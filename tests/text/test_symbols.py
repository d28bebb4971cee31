"""Symbols and word starts."""

from __future__ import annotations

import json

import numpy as np
from text_samples import TEXT_GOLDEN

from xlnet.text import XLNetTokenizer, symbols


def test_word_starts_are_the_recorded_ones(tokenizer: XLNetTokenizer) -> None:
    recorded = json.loads((TEXT_GOLDEN / "is_start_piece.json").read_text(encoding="utf-8"))
    assert len(recorded) == tokenizer.vocab_size
    assert tokenizer.starts_word.dtype == np.bool_
    assert dict(zip(tokenizer.pieces, tokenizer.starts_word.tolist(), strict=True)) == recorded


def test_pieces_of_scripts_without_spaces_are_words() -> None:
    for piece in ("中文", "。", "ひらがな", "カタカナ", "ภาษา", "𠀀", "▁中"):
        assert symbols.starts_word(piece), piece
    for piece in ("ing", "한국", "ная", "é", "5", "", "'s"):
        assert not symbols.starts_word(piece), piece


def test_ids_are_those_of_the_release(tokenizer: XLNetTokenizer) -> None:
    ids = (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
    assert (*ids, tokenizer.mask_id, tokenizer.eod_id, tokenizer.eop_id) == tuple(range(9))
    assert tokenizer.pieces[:17] == (*symbols.SYMBOLS, *symbols.USER_DEFINED_SYMBOLS[1:])
    assert tokenizer.special_ids == tuple(range(8))
