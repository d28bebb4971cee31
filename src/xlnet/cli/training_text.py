"""From what ``xlnet pretrain`` is given to a tokenizer and a corpus: found, taken up, or made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlnet.cli.corpus import report, run_prepare
from xlnet.cli.progress import say
from xlnet.errors import ConfigurationError
from xlnet.pretraining.corpus.manifest import MANIFEST_NAME
from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.readers import read_texts
from xlnet.pretraining.corpus.sources import rereadable
from xlnet.text import XLNetTokenizer, train_tokenizer
from xlnet.training.run_files import write_text

TRAINING_RECORD = "training.json"


@dataclass(frozen=True)
class Places:
    """What lies where in the folder of a run."""

    output: Path

    @property
    def tokenizer(self) -> Path:
        """Folder of the tokenizer."""
        return self.output / "tokenizer"

    @property
    def corpus(self) -> Path:
        """Folder of the token shards."""
        return self.output / "corpus"


def text_to_corpus(
    inputs: Sequence[str],
    places: Places,
    sources: tuple[str | None, str | None],
    sizes: tuple[int | None, int],
    config: PrepareConfig,
    *,
    resume: bool = False,
    alone: bool = True,
) -> tuple[XLNetTokenizer, Path]:
    """The tokenizer and the corpus folder to train on; made here unless they are given.

    Args:
        inputs: text, or one corpus folder.
        places: where to put what is made.
        sources: a given tokenizer, and given weights that bring one.
        sizes: number of pieces asked for, and the most where none is asked for.
        config: how text becomes tokens.
        resume: take the finished tokenizer and corpus of the run, whatever has become of the text since.
        alone: no other process trains along.
    """
    tokenizer, init = sources
    vocab_size = sizes[0]
    ready = len(inputs) == 1 and (Path(inputs[0]) / MANIFEST_NAME).is_file()
    if ready and tokenizer is None and init is None:
        raise ConfigurationError(
            f"{inputs[0]} is a prepared corpus: say which tokenizer made it with --tokenizer FOLDER, "
            "or give the text itself."
        )
    source = tokenizer or init
    brought = source is not None or (places.tokenizer / "spiece.model").is_file()
    taken_up = resume and brought and not ready and (places.corpus / MANIFEST_NAME).is_file()
    if not ready and not taken_up:
        check_text(inputs, alone=alone, twice=source is None)
    if source is not None:
        if vocab_size is not None:
            raise ConfigurationError(
                f"--vocab_size {vocab_size} is for a tokenizer trained here, but {source!r} brings its own."
            )
        chosen = XLNetTokenizer.from_pretrained(source)
    elif taken_up:
        chosen = XLNetTokenizer.from_pretrained(places.tokenizer)
    else:
        chosen = trained_tokenizer(inputs, places.tokenizer, sizes, config)
    if ready:
        return chosen, Path(inputs[0])
    if taken_up:
        say(f"corpus: as it was made when the run began, in {places.corpus}")
        return chosen, places.corpus
    report(run_prepare(inputs, chosen, places.corpus, config), places.corpus)
    return chosen, places.corpus


def check_text(inputs: Sequence[str], *, alone: bool, twice: bool) -> None:
    """Refuse text that cannot be taken as it is given.

    Args:
        inputs: as given.
        alone: no other process trains along.
        twice: it is to be read for a tokenizer, and then for the corpus.

    Raises:
        ConfigurationError: several processes would each prepare it, or it can be read once only.
    """
    if not alone:
        raise ConfigurationError(
            "Several processes train from a corpus that is prepared. Run `xlnet tokenizer` and `xlnet prepare` once "
            "by themselves, then give the corpus folder instead of the text, with --tokenizer."
        )
    once = [name for name in inputs if not rereadable(name)]
    if twice and once:
        raise ConfigurationError(
            f"{once[0]} can be read once only, but without --tokenizer the text is read twice: for the tokenizer, "
            "then for the corpus. Write it to a file first, or give --tokenizer."
        )


def trained_tokenizer(
    inputs: Sequence[str], folder: Path, sizes: tuple[int | None, int], config: PrepareConfig
) -> XLNetTokenizer:
    """Train a tokenizer, or take the one an interrupted start of the same command left."""
    record = {"inputs": list(inputs), "sizes": list(sizes), "format": config.format, "field": config.field}
    path = folder / TRAINING_RECORD
    if _record(path) == record:
        return XLNetTokenizer.from_pretrained(folder)
    texts = read_texts(list(inputs), config.format, config.field)
    trained = train_tokenizer(texts, sizes[0], max_vocab_size=sizes[1], progress=say)
    trained.save_pretrained(folder)
    write_text(path, json.dumps(record) + "\n")
    return trained


def _record(path: Path) -> Any:
    """What an earlier start trained its tokenizer on; None where nothing readable says so."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
