"""Reading and building SentencePiece model files."""

from __future__ import annotations

import random

import pytest

from xlnet.errors import CheckpointError
from xlnet.text import XLNetTokenizer
from xlnet.text.model_proto import USER_DEFINED, Piece, append_pieces, read_pieces


def test_pieces_are_read_as_sentencepiece_reads_them(model_bytes: bytes, tokenizer: XLNetTokenizer) -> None:
    processor = tokenizer._processor
    for number, piece in enumerate(read_pieces(model_bytes)):
        assert piece.text == processor.id_to_piece(number)
        assert piece.score == processor.get_score(number)
        assert (piece.kind == 3) == processor.is_control(number)


def test_appended_pieces_get_the_next_ids(model_bytes: bytes) -> None:
    longer = append_pieces(model_bytes, [Piece("Ünïcode" * 30, -1.5, USER_DEFINED)])
    assert read_pieces(longer)[-1] == Piece("Ünïcode" * 30, -1.5, USER_DEFINED)
    assert XLNetTokenizer(longer)._processor.piece_to_id("Ünïcode" * 30) == 2000


@pytest.mark.parametrize("data", [b"", b"version https://git-lfs\n", b"\x0a\xff\xff", b"PK\x03\x04" * 9])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"here\.model"):
        XLNetTokenizer(data, source="here.model")


def test_damaged_models_are_refused_or_work(model_bytes: bytes) -> None:
    generator = random.Random(0)
    refused = 0
    for round_ in range(24):
        data = bytearray(model_bytes)
        if round_ % 2:
            del data[generator.randrange(len(data)) :]
        else:
            for _ in range(500):
                data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            XLNetTokenizer(bytes(data)).encode("hello wörld 中 12,000")
        except CheckpointError:
            refused += 1
    assert refused > 12
