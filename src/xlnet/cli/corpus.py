"""``xlnet tokenizer`` and ``xlnet prepare``: the two steps from text to token shards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from xlnet.cli.outputs import check_folder
from xlnet.cli.progress import PrepareDisplay, say
from xlnet.pretraining.corpus.manifest import CorpusManifest
from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.prepare import prepare as prepare_corpus
from xlnet.pretraining.corpus.readers import TextFormat, read_texts
from xlnet.text import XLNetTokenizer, train_tokenizer


def tokenizer(
    inputs: list[str],
    *,
    output: str,
    vocab_size: int | None = None,
    max_vocab_size: int = 32000,
    format: TextFormat = "auto",
    field: str = "text",
    lower: bool = False,
    keep_accents: bool = False,
) -> None:
    """Train a SentencePiece tokenizer (unigram) with the symbols and ids of the release.

    Args:
        inputs: text files, globs or folders, plain or gzip; - for standard input
        output: folder to write spiece.model and tokenizer_config.json to
        vocab_size: number of pieces; an error where the text does not support so many
        max_vocab_size: most pieces where no size is asked for; fewer where the text supports no more
        format: what a line is; auto decides by name and content
        field: JSON key or Parquet column that holds the text
        lower: lower-case the text (an uncased model)
        keep_accents: keep accents instead of removing them
    """
    check_folder(Path(output))
    began = time.monotonic()
    texts = read_texts(inputs, format, field, say)
    trained = train_tokenizer(
        texts, vocab_size, max_vocab_size=max_vocab_size, lower=lower, keep_accents=keep_accents, progress=say
    )
    trained.save_pretrained(output)
    say(f"{trained.vocab_size:,} pieces in {time.monotonic() - began:.1f} s, saved in {output}")


def prepare(inputs: list[str], *, tokenizer: str, output: str, settings: PrepareConfig) -> None:
    """Turn text into memory-mapped token shards with sentence and document ends.

    Stopped work goes on where it stood when the same command is run again.

    Args:
        inputs: text files, globs or folders, plain or gzip; - for standard input (which cannot be resumed)
        tokenizer: folder or spiece.model
        output: folder for the corpus
        settings: how text becomes tokens
    """
    report(run_prepare(inputs, XLNetTokenizer.from_pretrained(tokenizer), Path(output), settings), Path(output))


def run_prepare(
    inputs: Sequence[str], tokenizer: XLNetTokenizer, output: Path, config: PrepareConfig
) -> CorpusManifest:
    """Prepare with a progress display."""
    with PrepareDisplay() as display:
        return prepare_corpus(inputs, tokenizer, output, config, display)


def report(manifest: CorpusManifest, output: Path) -> None:
    """Say what a corpus holds."""
    for name, split in manifest.splits.items():
        say(f"{name}: {split.token_count:,} tokens, {split.document_count:,} documents")
    say(f"corpus in {output}")
