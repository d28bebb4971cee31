"""Sentiment and topics: IMDB (folder and TSV), Yelp, Amazon, AG, DBpedia (their CSV), ChnSentiCorp."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.tables import find_file, read_csv, read_text, read_tsv
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.text import TextExample, column, plain_label

_POLARITY = {"0": "neg", "1": "pos"}


def read_imdb(folder: Path, split: str) -> list[TextExample]:
    """IMDB as distributed (``train/neg/*.txt``, ``train/pos/*.txt``), or ``train.tsv`` with columns label and text.

    Line breaks of HTML become a space, as released.

    Raises:
        InputError: neither form is there; files or columns are missing.
    """
    place = next((p for p in (folder / split, folder / "aclImdb" / split) if p.is_dir()), None)
    if place is None:
        records = read_tsv(find_file(folder, (f"{split}.tsv",)))
        return [
            TextExample(
                str(number),
                without_breaks(column(record.values, "text", record.where)),
                label=_POLARITY.get(label := column(record.values, "label", record.where), label),
                where=record.where,
            )
            for number, record in enumerate(records)
        ]
    examples = []
    for label in ("neg", "pos"):
        for path in sorted((place / label).glob("*.txt")):
            text = without_breaks(read_text(path).strip())
            examples.append(TextExample(f"{label}/{path.stem}", text, label=label, where=str(path)))
    if not examples:
        raise InputError(f"{place} holds no neg/*.txt and pos/*.txt, as IMDB has.")
    return examples


def without_breaks(text: str) -> str:
    """Line breaks of HTML become a space, as released."""
    return text.replace("<br />", " ")


@dataclass(frozen=True)
class CsvReader:
    """The CSV files of Zhang et al. 2015: no header, the class first, then one text or a title and a text."""

    texts: tuple[str, ...]

    def __call__(self, folder: Path, split: str) -> list[TextExample]:
        """Examples of ``train`` or ``test``; title and text are joined by a space.

        Raises:
            InputError: files that are not there, ragged rows.
        """
        records = read_csv(find_file(folder, (f"{split}.csv",)), ("label", *self.texts))
        return [
            TextExample(
                str(number),
                " ".join(_plain_quotes(record.values[name]) for name in self.texts),
                label=plain_label(record.values["label"]),
                where=record.where,
            )
            for number, record in enumerate(records)
        ]


def _plain_quotes(text: str) -> str:
    # These files also escape quotes by a backslash, on top of doubling them; the release undoes both.
    return text.replace('""', '"').replace('\\"', '"')


def read_chnsenticorp(folder: Path, split: str) -> list[TextExample]:
    """TSV with columns ``label`` and ``text_a``.

    Raises:
        InputError: files or columns that are not there, ragged rows.
    """
    records = read_tsv(find_file(folder, (f"{split}.tsv",)))
    return [
        TextExample(
            str(number),
            column(record.values, "text_a", record.where),
            label=plain_label(record.values.get("label")),
            where=record.where,
        )
        for number, record in enumerate(records)
    ]


def _csv(name: str, summary: str, classes: int, texts: tuple[str, ...], length: int = 512) -> Benchmark:
    task = TextClassification(
        name=name, max_length=length, label_names=tuple(str(i + 1) for i in range(classes)), text_column="text"
    )
    return Benchmark(summary, task, CsvReader(texts), held_out=(), final=("test",), test=())


_IMDB = TextClassification(name="imdb", max_length=512, label_names=("neg", "pos"))
_CHINESE = TextClassification(name="chnsenticorp", max_length=256, text_column="text_a")

TOPICS: dict[str, Benchmark] = {
    "imdb": Benchmark("sentiment of film reviews (accuracy)", _IMDB, read_imdb, held_out=(), final=("test",), test=()),
    "yelp2": _csv("yelp2", "sentiment of reviews, two classes (accuracy)", 2, ("text",)),
    "yelp5": _csv("yelp5", "stars of reviews (accuracy)", 5, ("text",)),
    "amazon2": _csv("amazon2", "sentiment of product reviews (accuracy)", 2, ("title", "text")),
    "amazon5": _csv("amazon5", "stars of product reviews (accuracy)", 5, ("title", "text")),
    "ag": _csv("ag", "topic of news (accuracy)", 4, ("title", "text"), 256),
    "dbpedia": _csv("dbpedia", "kind of a Wikipedia article (accuracy)", 14, ("title", "text"), 256),
    "chnsenticorp": Benchmark(
        "sentiment of Chinese hotel reviews (accuracy)", _CHINESE, read_chnsenticorp, final=("test",), test=()
    ),
}
