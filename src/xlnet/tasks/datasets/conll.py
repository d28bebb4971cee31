"""Words with tags: CoNLL's columns, or JSONL with a list of words and one of tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.datasets.tables import find_file, read_jsonl, read_text
from xlnet.tasks.families.text import whole_text
from xlnet.tasks.families.token_classification import TokenClassification, WordsExample

_FILES = {
    "train": ("train.txt", "eng.train", "train.conll", "train.jsonl"),
    "dev": ("valid.txt", "dev.txt", "eng.testa", "dev.conll", "valid.jsonl", "dev.jsonl"),
    "test": ("test.txt", "eng.testb", "test.conll", "test.jsonl"),
}


# ``# sent_id = 2``, ``# newdoc id = a``, ``# newpar``, ``#global.columns = FORM TAG``; a word has no such columns.
_COMMENT = re.compile(r"# [\w.:-]+(?: [\w.:-]+)? =(?: .*)?|# new(?:doc|par)|# ?global\.columns =.*")


def read_conll(path: Path) -> list[WordsExample]:
    """Sentences of a file with one word a line: the word first, its tag last, an empty line after each sentence.

    Spaces or tabs stand between columns; other white space (a no-break space) is part of a word. A file of words alone
    has no tags. ``-DOCSTART-`` lines are left out, and so are comments: ``# key = value``, and before a sentence
    ``# ...`` with another number of columns than words have.

    Raises:
        InputError: names file and line of a row with another number of columns.
    """
    rows = [(number, _columns(line)) for number, line in enumerate(read_text(path).split("\n"), start=1)]
    width = _width([columns for _, columns in rows if columns])
    sentences: list[WordsExample] = []
    words: list[str] = []
    tags: list[str] = []
    start = 0

    def close() -> None:
        if words:
            label = tuple(tags) if width > 1 else None
            sentences.append(WordsExample(str(len(sentences)), tuple(words), label, f"{path}:{start}"))
            words.clear()
            tags.clear()

    for number, columns in rows:
        if columns is None or (columns and columns[0] == "#" and len(columns) != width and not words):
            continue
        if not columns:
            close()
            continue
        if len(columns) != width:
            raise InputError(
                f"{path}:{number} has {len(columns)} columns instead of {width}; each line must hold a word and, last, "
                "its tag, with spaces or tabs between, or each a word alone."
            )
        if not words:
            start = number
        words.append(columns[0])
        tags.append(columns[-1])
    close()
    return sentences


def _columns(line: str) -> list[str] | None:
    """Columns of a row, none at the end of a sentence; None for a comment."""
    line = line.strip(" \t\r")
    if _COMMENT.fullmatch(line):
        return None
    columns = re.split(r"[ \t]+", line) if line else []
    return [] if columns[:1] == ["-DOCSTART-"] else columns


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Columns of the first row that is a word beyond doubt."""
    return len(next((row for row in rows if row[0] != "#"), rows[0] if rows else ()))


def read_words(folder: Path, split: str) -> list[WordsExample]:
    """A split of a folder in either form, or a file.

    Raises:
        InputError: nothing is there, words to learn from have no tags, or what the readers refuse.
    """
    if split not in _FILES:
        raise InputError(f"There is no split {split!r}; there are {', '.join(_FILES)}.")
    path = find_file(folder, _FILES[split])
    if ".json" in path.name:
        task = TokenClassification()
        found = [task.example(record.values, record.where, i) for i, record in enumerate(read_jsonl(path))]
    else:
        found = read_conll(path)
    for example in found:
        for word in example.words:
            whole_text(word, "words", example.where)
    if split == "train" and found and all(example.label is None for example in found):
        raise InputError(f"{path} holds words without tags; to learn, each word needs its tag in the last column.")
    return found
