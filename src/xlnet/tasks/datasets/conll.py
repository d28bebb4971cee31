"""Words with tags: CoNLL's columns, or JSONL with a list of words and one of tags."""

from __future__ import annotations

from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.datasets.tables import find_file, read_jsonl, read_text
from xlnet.tasks.families.token_classification import TokenClassification, WordsExample

_FILES = {
    "train": ("train.txt", "eng.train", "train.conll", "train.jsonl"),
    "dev": ("valid.txt", "dev.txt", "eng.testa", "dev.conll", "valid.jsonl", "dev.jsonl"),
    "test": ("test.txt", "eng.testb", "test.conll", "test.jsonl"),
}


def read_conll(path: Path) -> list[WordsExample]:
    """Sentences of a file with one word a line: the word first, its tag last, an empty line after each sentence.

    ``-DOCSTART-`` lines and comments (``# ...`` without further columns of a word) are left out.

    Raises:
        InputError: names file and line of a row with another number of columns.
    """
    sentences: list[WordsExample] = []
    words: list[str] = []
    tags: list[str] = []
    width, start = 0, 0

    def close() -> None:
        if words:
            example = WordsExample(str(len(sentences)), tuple(words), tuple(tags), f"{path}:{start}")
            sentences.append(example)
            words.clear()
            tags.clear()

    for number, line in enumerate(read_text(path).split("\n"), start=1):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            close()
            continue
        if columns[0] == "#" and len(columns) != width and not words:
            continue
        width = width or len(columns)
        if len(columns) != width or width < 2:
            raise InputError(
                f"{path}:{number} has {len(columns)} columns{f' instead of {width}' if width > 1 else ''}; each line "
                "must hold a word and, last, its tag, with white space between."
            )
        if not words:
            start = number
        words.append(columns[0])
        tags.append(columns[-1])
    close()
    return sentences


def read_words(folder: Path, split: str) -> list[WordsExample]:
    """A split of a folder in either form, or a file.

    Raises:
        InputError: nothing is there, or what the readers refuse.
    """
    if split not in _FILES:
        raise InputError(f"There is no split {split!r}; there are {', '.join(_FILES)}.")
    path = find_file(folder, _FILES[split])
    if ".json" not in path.name:
        return read_conll(path)
    task = TokenClassification()
    return [task.example(record.values, record.where, i) for i, record in enumerate(read_jsonl(path))]
