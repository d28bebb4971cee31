"""The recorded SentencePiece model of 2,000 pieces, and tokenizers made from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from text_samples import TEXT_GOLDEN

from xlnet.text import Normalization, XLNetTokenizer


@pytest.fixture(scope="session")
def model_bytes() -> bytes:
    return (TEXT_GOLDEN / "spiece.model").read_bytes()


@pytest.fixture(scope="session")
def tokenizer(model_bytes: bytes) -> XLNetTokenizer:
    return XLNetTokenizer(model_bytes)


@pytest.fixture(scope="session")
def tokenizers(model_bytes: bytes) -> dict[tuple[bool, bool, bool], XLNetTokenizer]:
    """One for each setting of (lower, keep_accents, remove_space)."""
    switches = [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]
    return {s: XLNetTokenizer(model_bytes, Normalization(*s)) for s in switches}


@pytest.fixture(autouse=True)
def _written_symbols_are_expected(recwarn: pytest.WarningsRecorder) -> None:
    """Examples write ``<cls>`` and the like on purpose; the warning about it has a test of its own."""
