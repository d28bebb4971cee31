"""Training a SentencePiece model with the symbols of the release, from files or any stream of text.

The text is normalized as it will be when the tokenizer is used. Memory is bounded: of a large input an even sample is
learned from.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import sentencepiece

from xlnet.errors import InputError
from xlnet.text import symbols
from xlnet.text.alignment import chunks
from xlnet.text.normalize import Normalization, check_text
from xlnet.text.tokenizer import XLNetTokenizer

DEFAULT_VOCAB_SIZE = 32_000
"""The release's size, taken where the text supports it."""

_UNIT_CHARACTERS = 1_000
_PROGRESS_CHARACTERS = 5_000_000
# SentencePiece skips whole sentences that hold one of the characters it uses itself.
_RESERVED = str.maketrans({"\u2581": " ", "\u2585": " ", "\t": " ", "\0": " "})
_TOO_LARGE = re.compile(r"value <= (\d+)")
_TOO_SMALL = re.compile(r"required_chars\. \d+ vs (\d+)")


def train_tokenizer(
    source: str | Path | Iterable[str | Path],
    vocab_size: int | None = None,
    *,
    max_vocab_size: int = DEFAULT_VOCAB_SIZE,
    lower: bool = False,
    keep_accents: bool = False,
    character_coverage: float = 0.99995,
    max_characters: int = 100_000_000,
    seed: int = 0,
    num_threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> XLNetTokenizer:
    """Learn a unigram vocabulary (paper, section 3.1: 32,000 pieces, cased).

    Args:
        source: a file (plain or gzip, UTF-8), or a stream in which a ``Path`` is a file and a string is text.
        vocab_size: number of pieces, symbols included. None takes ``max_vocab_size``, or as many as the text
            supports.
        max_vocab_size: most pieces to take where no size is asked for.
        lower: for an uncased model.
        keep_accents: keep accents, which carry meaning in most languages but English.
        character_coverage: share of the characters in the text that get a piece of their own; the rest is unknown.
        max_characters: learn from an even sample of about this size where there is more text.
        seed: of that sample.
        num_threads: threads to use; all cores where None.
        progress: called with a line of text now and then; SentencePiece itself is silent.

    Raises:
        InputError: the text is empty or unreadable, or supports no vocabulary of the size asked for; the message says
            which sizes it supports.
    """
    if vocab_size is not None and vocab_size < 1:
        raise InputError(f"vocab_size={vocab_size} must be positive.")
    if not 0.0 < character_coverage <= 1.0:
        raise InputError(f"character_coverage={character_coverage} must be above 0 and at most 1.")
    if max_characters < _UNIT_CHARACTERS:
        raise InputError(f"max_characters={max_characters} must be at least {_UNIT_CHARACTERS}.")
    normalization = Normalization(lower=lower, keep_accents=keep_accents)
    units = _sample(_units(_texts(source), normalization, progress), max_characters, seed)
    if not units:
        raise InputError("there is no text to learn a vocabulary from: the input is empty or only white space.")
    if progress:
        progress(f"learning pieces from {sum(map(len, units)):,} characters")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(units),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size or max_vocab_size,
            hard_vocab_limit=vocab_size is not None,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc",
            # Lists: a comma-joined string is parsed as CSV, where the quotation mark swallows what follows it.
            control_symbols=list(symbols.CONTROL_SYMBOLS),
            user_defined_symbols=list(symbols.USER_DEFINED_SYMBOLS),
            unk_id=symbols.UNK_ID,
            bos_id=symbols.BOS_ID,
            eos_id=symbols.EOS_ID,
            pad_id=-1,
            max_sentence_length=8 * _UNIT_CHARACTERS,
            num_threads=num_threads or os.cpu_count() or 1,
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        raise _explain(str(error), vocab_size, character_coverage) from None
    tokenizer = XLNetTokenizer(model.getvalue(), normalization, "the trained model")
    if progress:
        progress(f"learned {tokenizer.vocab_size:,} pieces")
    return tokenizer


def _explain(message: str, vocab_size: int | None, coverage: float) -> InputError:
    large, small = _TOO_LARGE.search(message), _TOO_SMALL.search(message)
    if large:
        return InputError(
            f"vocab_size={vocab_size} is too large: this text supports at most {large.group(1)} pieces. "
            "Give that or less, more text, or no size at all to take what the text supports."
        )
    if small:
        return InputError(
            f"vocab_size={vocab_size} is too small: the symbols and the single characters of this text already need "
            f"{small.group(1)}. Give more, or a character_coverage below {coverage}."
        )
    return InputError(f"SentencePiece cannot learn a vocabulary from this text: {message.strip()}")


def _texts(source: str | Path | Iterable[str | Path]) -> Iterator[tuple[str, str]]:
    """Lines with the place they come from."""
    if isinstance(source, str | Path):
        source = [Path(source)]
    for number, entry in enumerate(source):
        if isinstance(entry, Path):
            yield from _file_lines(entry)
        else:
            yield entry, f"text {number}"


def _file_lines(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}. Give text files (plain or gzip, UTF-8).")
    place = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield line.decode("utf-8"), f"{path} line {number}"
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path} line {number} is not UTF-8: byte 0x{line[error.start]:02X} at byte "
                        f"{place + error.start} of the file. Convert it (iconv -f ... -t UTF-8) or give a text file."
                    ) from None
                place += len(line)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def _units(
    texts: Iterable[tuple[str, str]], normalization: Normalization, progress: Callable[[str], None] | None
) -> Iterator[str]:
    """Normalized text in pieces of at most 1,000 characters, cut at spaces where there are any."""
    done = 0
    for text, where in texts:
        normalized = normalization(check_text(text, where)).translate(_RESERVED)
        for start, end in chunks(normalized, _UNIT_CHARACTERS):
            for place in range(start, end, _UNIT_CHARACTERS):
                unit = normalized[place : min(place + _UNIT_CHARACTERS, end)].strip()
                if unit:
                    yield unit
        if progress and (done + len(text)) // _PROGRESS_CHARACTERS > done // _PROGRESS_CHARACTERS:
            progress(f"read {(done + len(text)) / 1e6:,.0f} million characters")
        done += len(text)


def _sample(units: Iterable[str], limit: int, seed: int) -> list[str]:
    """All units, or an even sample of them of between half and the whole of ``limit`` characters, in one pass."""
    generator = random.Random(seed)
    kept: list[str] = []
    size, rate = 0, 1.0
    for unit in units:
        if rate < 1.0 and generator.random() >= rate:
            continue
        kept.append(unit)
        size += len(unit)
        while size > limit:
            kept = [other for other in kept if generator.random() < 0.5]
            size, rate = sum(map(len, kept)), rate / 2
    return kept
