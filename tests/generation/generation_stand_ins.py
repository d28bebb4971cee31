"""A small tokenizer and small models for the tests of generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from xlnet.configuration import XLNetConfig
from xlnet.model import XLNetLMHeadModel
from xlnet.text.symbols import word_starts

SYMBOLS = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
WORDS = [
    "the", "cat", "dog", "sat", "ran", "on", "in", "mat", "house", "red", "big", "a", "un", "believ", "able",
    "ly", "ing", "s", "ed", ".", ",", "!", "(", ")", "I", "you", "we", "see", "saw", "it",
]  # fmt: skip
PIECES = [*SYMBOLS, *(f"▁{word}" for word in WORDS), *WORDS, "▁"]


@dataclass
class Encoded:
    input_ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


class WordPieces:
    """Longest match from the left over a fixed list of pieces; ``▁`` stands for a space."""

    vocab_size = len(PIECES)
    unk_id, eod_id = 0, 7
    special_ids = (0, 1, 2, 3, 4, 5, 6, 7)
    added_tokens: tuple[str, ...] = ()
    pieces = PIECES
    starts_word = word_starts(PIECES)

    def encode(self, text: str, *, special_tokens: bool = True) -> Encoded:
        assert not special_tokens
        out = Encoded([], [], [])
        place = 0
        while place < len(text):
            if text[place].isspace():
                place += 1
                continue
            begins = place == 0 or text[place - 1].isspace()
            front = "▁" if begins and out.offsets[-1:] != [(place, place)] else ""
            for size in range(len(text) - place, -1, -1):
                piece = front + text[place : place + size]
                if piece in PIECES and piece:
                    break
            else:
                piece, size = "<unk>", 1
            out.input_ids.append(PIECES.index(piece))
            out.pieces.append(piece)
            out.offsets.append((place, place + size))
            place += size
        return out

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(PIECES[i] for i in ids if i not in self.special_ids[1:]).replace("▁", " ").removeprefix(" ")


def small_model(vocab_size: int = WordPieces.vocab_size, *, seed: int = 0, **changes: object) -> XLNetLMHeadModel:
    """A random model of strong opinions; in training mode on purpose: helpers must switch to evaluation."""
    torch.manual_seed(seed)
    shape = {"n_layer": 2, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "initializer_range": 0.5}
    model = XLNetLMHeadModel(XLNetConfig(vocab_size=vocab_size, **{**shape, **changes}))
    torch.nn.init.normal_(model.lm_bias, std=0.5)
    return model.train()
