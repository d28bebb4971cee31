"""What the pieces of a vocabulary say about spaces, and which ids of a model have a piece at all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from xlnet.errors import CheckpointError
from xlnet.generation.protocols import Tokenizer

SPACE = "▁"
"""With which a piece begins that has a space in front (U+2581, SentencePiece)."""

SENTINEL = "("
"""A character that no piece joins with what stands before it."""

_TAIL = 16


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer whose pieces the model does not know all; a model may have more ids than there are pieces.

    Raises:
        CheckpointError: with both sizes.
    """
    if tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"The tokenizer has {tokenizer.vocab_size:,} pieces, but the model knows only {vocab_size:,}: they are not "
            "of one model, or words were added to the tokenizer alone. Use the tokenizer that was saved with the model."
        )


def no_text(tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    """Ids of a model that stand for no text: special ones, and those beyond the pieces (a padded vocabulary)."""
    return (*tokenizer.special_ids, *range(tokenizer.vocab_size, vocab_size))


def spaced(tokenizer: Tokenizer, vocab_size: int) -> Tensor:
    """``[V]`` bool of the pieces that have a space in front; False for ids without a piece."""
    return _widened([piece.startswith(SPACE) for piece in tokenizer.pieces], vocab_size)


def fitting(opens_word: bool, tokenizer: Tokenizer, vocab_size: int) -> Tensor:
    """``[V]`` bool of the pieces that may come next.

    Args:
        opens_word: behind a space come pieces that begin a word; ones that do so without a space (punctuation, Chinese)
            then take it away. Without a space, any piece that has none in front.
        tokenizer, vocab_size: V ids, of which the tokenizer knows the first.
    """
    if opens_word:
        return _widened(tokenizer.starts_word, vocab_size)
    return _widened([not piece.startswith(SPACE) for piece in tokenizer.pieces], vocab_size)


def ends_in_space(text: str, tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer sees a space behind the text: it decides what white space is, and what is nothing."""
    tail = text[-_TAIL:]
    if not tail:
        return False
    pieces = tokenizer.encode(SENTINEL + tail + SENTINEL, special_tokens=False).pieces
    return "".join(pieces).removesuffix(SENTINEL).endswith(SPACE)


def _widened(known: Any, vocab_size: int) -> Tensor:
    mask = torch.zeros(vocab_size, dtype=torch.bool)
    values = torch.as_tensor(known, dtype=torch.bool)
    mask[: len(values)] = values
    return mask
