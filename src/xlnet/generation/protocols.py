"""What this room needs of a tokenizer; `XLNetTokenizer` is one, a stand-in in a test another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Encoded(Protocol):
    """Ids, pieces and character offsets of one text."""

    @property
    def input_ids(self) -> Sequence[int]:
        """Ids of the pieces."""
        ...

    @property
    def pieces(self) -> Sequence[str]:
        """The pieces as text."""
        ...

    @property
    def offsets(self) -> Sequence[tuple[int, int]]:
        """(start, end) characters in the text."""
        ...


class Tokenizer(Protocol):
    """Text to ids and back."""

    @property
    def vocab_size(self) -> int:
        """V."""
        ...

    @property
    def pieces(self) -> Sequence[str]:
        """V pieces in the order of their ids; ``▁`` begins those that have a space in front."""
        ...

    @property
    def eod_id(self) -> int:
        """Id of the end of a document."""
        ...

    @property
    def special_ids(self) -> Iterable[int]:
        """Ids of the symbols that are no text."""
        ...

    @property
    def starts_word(self) -> Any:
        """``[V]`` bool: pieces that begin a word, as whole-word masking counts words; not all have a space in front."""
        ...

    @property
    def added_tokens(self) -> Sequence[str]:
        """Words added to the vocabulary, which have no form with a space in front."""
        ...

    def encode(self, text: str, *, special_tokens: bool = True) -> Encoded:
        """Encode one text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text."""
        ...
