"""XLNetTokenizer: text to pieces and ids exactly as in the release, and back, with offsets into the original text.

A tokenizer is a value: the bytes of a SentencePiece model and three switches. It never changes and can be pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray

from xlnet.errors import CheckpointError, InputError
from xlnet.text import added_tokens, bulk, symbols
from xlnet.text.alignment import chunks, piece_spans
from xlnet.text.encoding import BatchEncoding, Encoding, PaddingSide, join, pad
from xlnet.text.model_proto import CONTROL, UNKNOWN, USER_DEFINED, Piece, append_pieces, read_pieces
from xlnet.text.normalize import Normalization, check_text
from xlnet.text.symbols import WORD_START
from xlnet.text.tokenizer_files import read_files, write_files

_LITERAL_SYMBOL = re.compile(r"</?s>|<(?:unk|cls|sep|pad|mask|eod)>|\[(?:UNK|CLS|SEP|PAD|MASK)\]")


class XLNetTokenizer:
    """Text to ids and back.

    Args:
        model: bytes of a SentencePiece model whose ids 0 to 8 are the symbols of the release.
        normalization: what is done to text before SentencePiece sees it.
        source: where the model came from, for messages.

    Raises:
        CheckpointError: the bytes are no such model; the message lists what is missing.
    """

    def __init__(self, model: bytes, normalization: Normalization | None = None, source: str = "spiece.model") -> None:
        self.model = bytes(model)
        self.normalization = normalization or Normalization()
        self.source = source
        if not self.model:
            raise CheckpointError(f"{source} is empty; it should hold a SentencePiece model.")
        entries = read_pieces(self.model, source)
        _check_symbols(entries, source)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        except Exception as error:
            raise CheckpointError(f"{source} is no SentencePiece model, or is damaged ({error}).") from None
        self._pieces = [entry.text for entry in entries]
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        # Text never turns into a control symbol, even where none of its characters is in the vocabulary.
        self._text_ids = {e.text: i for i, e in enumerate(entries) if e.kind not in (CONTROL, UNKNOWN)}
        standard = {*symbols.USER_DEFINED_SYMBOLS}
        self.added_tokens = tuple(e.text for e in entries if e.kind == USER_DEFINED and e.text not in standard)
        self.starts_word = symbols.word_starts(self._pieces, set(self.added_tokens))
        self._splittable = not any(WORD_START in piece[1:] for piece in self._pieces) and self._adds_word_start()
        self._splits: dict[str, tuple[str, ...]] = {}
        self._bulk: bulk.BulkEncoder | None = None
        self._warned = False

    def _adds_word_start(self) -> bool:
        encode = self._processor.encode
        return encode("a b", out_type=str) == encode("a", out_type=str) + encode("b", out_type=str)

    def __reduce__(self) -> tuple[type[XLNetTokenizer], tuple[bytes, Normalization, str]]:
        return XLNetTokenizer, (self.model, self.normalization, self.source)

    def __repr__(self) -> str:
        switches = ", ".join(f"{key}={value}" for key, value in asdict(self.normalization).items())
        return f"XLNetTokenizer(vocab_size={self.vocab_size}, {switches}, source={self.source!r})"

    @classmethod
    def from_pretrained(
        cls,
        path_or_name: str | Path,
        *,
        lower: bool | None = None,
        keep_accents: bool | None = None,
        remove_space: bool | None = None,
    ) -> XLNetTokenizer:
        """Load from a folder, a ``spiece.model`` or a hub name.

        The switches come from ``tokenizer_config.json`` or ``config.json`` beside the model (``do_lower_case``,
        ``keep_accents``, ``remove_space``) unless given here. Tokens that the files add keep the ids they have there.

        Raises:
            CheckpointError: names the file that is missing or damaged, the symbols that the model lacks, or added
                tokens whose ids cannot hold.
        """
        files = read_files(path_or_name)
        given = {"lower": lower, "keep_accents": keep_accents, "remove_space": remove_space}
        changes = {key: value for key, value in given.items() if value is not None}
        tokenizer = cls(files.model, replace(files.normalization, **changes), files.source)
        new = added_tokens.declared_pieces(files.added, tokenizer.pieces, tokenizer.normalization, files.source)
        return tokenizer._extended(new)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``spiece.model`` and ``tokenizer_config.json``; transformers reads them too."""
        write_files(folder, self.model, self.normalization)

    def with_tokens(self, tokens: Iterable[str]) -> XLNetTokenizer:
        """A tokenizer that also cuts ``tokens`` out of text, whole, wherever they stand; ids go on behind the last.

        They are put into the SentencePiece model itself, in normalized form (in lower case for an uncased model).
        Tokens that the vocabulary has already are left out.

        Raises:
            InputError: for a token that is empty, holds white space, or names a control symbol.
        """
        return self._extended(added_tokens.unknown_pieces(tokens, self._ids, self.normalization))

    def _extended(self, pieces: Sequence[Piece]) -> XLNetTokenizer:
        if not pieces:
            return self
        return XLNetTokenizer(append_pieces(self.model, pieces), self.normalization, self.source)

    @property
    def vocab_size(self) -> int:
        """Number of pieces V, with the added ones."""
        return len(self._pieces)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The vocabulary in the order of its ids."""
        return tuple(self._pieces)

    unk_id = symbols.UNK_ID
    bos_id = symbols.BOS_ID
    eos_id = symbols.EOS_ID
    cls_id = symbols.CLS_ID
    sep_id = symbols.SEP_ID
    pad_id = symbols.PAD_ID
    mask_id = symbols.MASK_ID
    eod_id = symbols.EOD_ID
    eop_id = symbols.EOP_ID
    special_ids = symbols.SPECIAL_IDS

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the model and the switches: equal fingerprints give equal ids for every text."""
        switches = json.dumps(asdict(self.normalization), sort_keys=True)
        return hashlib.sha256(self.model + switches.encode()).hexdigest()

    def normalize(self, text: str) -> str:
        """The text as SentencePiece sees it: white space, ticks, accents and case by the switches."""
        return self.normalization(check_text(text))

    def tokenize(self, text: str) -> list[str]:
        """Pieces of a text; ``▁`` stands for a space. Characters that the vocabulary lacks come out as they are."""
        normalized = self.normalize(text)
        self._warn_of_symbols(text)
        return [
            piece
            for start, end in self._parts(normalized)
            for raw in self._processor.encode(normalized[start:end], out_type=str)
            for piece in self._split(raw)
        ]

    def encode(
        self, text: str, pair: str | None = None, max_length: int | None = None, special_tokens: bool = True
    ) -> Encoding:
        """Encode a text as ``A <sep> <cls>``, or two as ``A <sep> B <sep> <cls>``.

        Args:
            text: the first text.
            pair: the second text, if any; one that is empty counts as none.
            max_length: cut to this many tokens, marks included; the longer text loses from its end first.
            special_tokens: add ``<sep>`` and ``<cls>``.
        """
        first = self._encode_text(text)
        second = None if pair is None else self._encode_text(pair, "pair")
        return join(first, second, max_length, special_tokens)

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        padding_side: PaddingSide = "left",
        max_length: int | None = None,
        *,
        pad_to: int | None = None,
        offsets: bool = False,
        special_tokens: bool = True,
    ) -> BatchEncoding:
        """Encode many texts (or pairs) into padded tensors.

        Args:
            texts: the texts; one string is a batch of one.
            pairs: as many second texts.
            padding_side: where padding goes; the release pads on the left.
            max_length: cut each row to this many tokens.
            pad_to: length of the batch; that of its longest row where None.
            offsets: also give the offsets as a tensor.
            special_tokens: add ``<sep>`` and ``<cls>``.
        """
        texts = [texts] if isinstance(texts, str) else _as_list(texts, "texts")
        pairs = [pairs] if isinstance(pairs, str) else None if pairs is None else _as_list(pairs, "pairs")
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts and {len(pairs)} pairs are given; each text needs its own pair.")
        rows = []
        for i, text in enumerate(texts):
            first = self._encode_text(text, f"texts[{i}]")
            second = None if pairs is None else self._encode_text(pairs[i], f"pairs[{i}]")
            rows.append(join(first, second, max_length, special_tokens))
        return pad(rows, padding_side, pad_to, offsets)

    def encode_lines(self, texts: Sequence[str], num_threads: int | None = None) -> list[NDArray[np.int32]]:
        """Ids of many texts, equal to those of ``tokenize``, without marks and offsets; the fast way for corpora.

        Args:
            texts: the texts, each encoded by itself.
            num_threads: threads to use; all cores where None.

        Returns:
            One int32 array a text.
        """
        if isinstance(texts, str):
            raise InputError("encode_lines takes a list of texts, not one string. Write encode_lines([text]).")
        if self._bulk is None:
            comma_pieces = {i: self._split(p) for i, p in enumerate(self._pieces) if _ends_in_digit_comma(p)}
            self._bulk = bulk.BulkEncoder(
                self._processor,
                self.normalization,
                {i: [self._text_ids.get(p, self.unk_id) for p in split] for i, split in comma_pieces.items()},
                chunked=self._splittable,
                by_pieces=None if "," in self._text_ids else self._plain_ids,
            )
        if not self._warned:
            for text in texts:
                if isinstance(text, str):
                    self._warn_of_symbols(text)
        return self._bulk(texts, num_threads)

    def decode(self, ids: Sequence[int] | NDArray[np.integer] | torch.Tensor, skip_special_tokens: bool = True) -> str:
        """The normalized text of ids; ``<unk>`` stands where text was not in the vocabulary.

        Raises:
            InputError: for an id outside the vocabulary, or for ids of more than one row.
        """
        if isinstance(ids, np.ndarray | torch.Tensor):
            ids = ids.tolist()
        out = []
        for place, number in enumerate(ids):
            if not isinstance(number, int | np.integer):
                raise InputError(f"ids[{place}] is {number!r}: decode takes a flat list of integers, one text.")
            if not 0 <= number < self.vocab_size:
                raise InputError(f"ids[{place}] is {number}, but ids run from 0 to {self.vocab_size - 1}.")
            if not (skip_special_tokens and number in symbols.SPECIAL_IDS and number != symbols.UNK_ID):
                out.append(self._pieces[number])
        return "".join(out).replace(WORD_START, " ").removeprefix(" ")

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of pieces (symbols too); ``unk_id`` for what is no piece."""
        return [self._ids.get(token, self.unk_id) for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Pieces of ids."""
        return [self._pieces[number] for number in ids]

    def _plain_ids(self, text: str) -> list[int]:
        return [self._text_ids.get(piece, self.unk_id) for piece in self.tokenize(text)]

    def _encode_text(self, text: str, where: str = "text") -> Encoding:
        normalized = self.normalization.with_spans(check_text(text, where))
        self._warn_of_symbols(text)
        out = Encoding()
        for part in self._parts(normalized.text):
            raw = self._processor.encode(normalized.text[part[0] : part[1]], out_type=str)
            groups = [self._split(piece) for piece in raw]
            out.offsets.extend(piece_spans(self._processor, normalized, part, groups))
            out.pieces.extend(piece for group in groups for piece in group)
        out.input_ids.extend(self._text_ids.get(piece, self.unk_id) for piece in out.pieces)
        return out

    def _parts(self, text: str) -> list[tuple[int, int]]:
        return chunks(text) if self._splittable else [(0, len(text))]

    def _split(self, piece: str) -> tuple[str, ...]:
        """The digit-comma rule of the release: no piece ends in a digit and a comma."""
        if not _ends_in_digit_comma(piece):
            return (piece,)
        known = self._splits.get(piece)
        if known is None:
            inner = self._processor.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
            if not piece.startswith(WORD_START) and inner[0].startswith(WORD_START):
                inner[:1] = [inner[0][1:]] if len(inner[0]) > 1 else []
            # A part may end in a digit and a comma again ("1," in "1,2,"). The release leaves that one as it is; here
            # the rule holds for every piece. No released vocabulary has such a piece.
            known = (*(part for inner_piece in inner for part in self._split(inner_piece)), ",")
            if len(self._splits) < 10_000:
                self._splits[piece] = known
        return known

    def _warn_of_symbols(self, text: str) -> None:
        if self._warned or ("<" not in text and "[" not in text):
            return
        found = next((m.group() for m in _LITERAL_SYMBOL.finditer(text) if m.group() not in self._text_ids), None)
        if found:
            self._warned = True
            warnings.warn(
                f"{found} is written in a text; it stays ordinary text and is no special token. "
                "XLNet's special tokens are only added by id. (Said once.)",
                UserWarning,
                stacklevel=3,
            )


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _as_list(texts: Sequence[str], where: str) -> list[str]:
    if not isinstance(texts, list | tuple):
        raise InputError(f"{where} must be a string or a list of strings, not {type(texts).__name__}.")
    return list(texts)


def _check_symbols(entries: Sequence[Piece], source: str) -> None:
    faults = []
    texts = [entry.text for entry in entries]
    for number, symbol in enumerate(symbols.SYMBOLS):
        found = texts[number] if number < len(texts) else None
        if found != symbol:
            where = f"it has id {texts.index(symbol)}" if symbol in texts else "it is missing"
            faults.append(f"id {number} must be {symbol} but is {found!r} ({where})")
        elif symbol in symbols.CONTROL_SYMBOLS and entries[number].kind != CONTROL:
            faults.append(f"{symbol} must be a control symbol, or text could produce it")
    if faults:
        raise CheckpointError(
            f"{source} has no XLNet vocabulary: {'; '.join(faults)}. "
            "Train one with train_tokenizer, which sets the symbols of the release."
        )
