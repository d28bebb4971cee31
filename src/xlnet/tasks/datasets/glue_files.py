"""How the files of GLUE are read, and what its server takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.contract import Prediction
from xlnet.tasks.datasets.tables import Record, find_file, read_tsv
from xlnet.tasks.families.text import TextExample, TextTask, column

_SPLIT_FILES = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


@dataclass(frozen=True)
class Layout:
    """Where a task's files keep what.

    Attributes:
        folder: its folder in the GLUE download.
        texts: names of the first text's column; the first one that is there counts.
        pairs: of the second text's, empty where there is none.
        label: name of the label's column, or several.
        identity: names of the column that names a row; else rows are counted.
        unnamed: names of all columns of files without header, by split.
        files: names of the files by split.
        tolerate: share of ragged rows in the official files to learn from and choose by. None of the test may be left
            out: the server counts its rows.
        together: whether rows with the same first text ask about that text (held-out data takes all or none of them).
    """

    folder: str
    texts: tuple[str, ...]
    pairs: tuple[str, ...] = ()
    label: str | tuple[str, ...] = "label"
    identity: tuple[str, ...] = ("index",)
    unnamed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _SPLIT_FILES)
    tolerate: float = 0.0
    together: bool = False


def _present(record: Record, names: Sequence[str]) -> str:
    name = next((name for name in names if name in record.values), names[0])
    return column(record.values, name, record.where)


@dataclass(frozen=True)
class GlueReader:
    """Reads the splits of one task."""

    layout: Layout
    task: TextTask

    def __call__(self, folder: Path, split: str) -> list[TextExample]:
        """Examples of ``train``, ``dev`` or ``test``; a row of the test has no label.

        Raises:
            InputError: files or columns that are not there, ragged rows.
        """
        layout = self.layout
        if split not in layout.files:
            raise InputError(f"{layout.folder} has no split {split!r}; it has {', '.join(layout.files)}.")
        path = find_file(folder, layout.files[split], (layout.folder,))
        tolerate = 0.0 if split.startswith("test") else layout.tolerate
        records = read_tsv(path, layout.unnamed.get(split), tolerate=tolerate)
        return [self.example(record, number, split) for number, record in enumerate(records)]

    def example(self, record: Record, number: int, split: str) -> TextExample:
        """One row."""
        layout = self.layout
        names = (layout.label,) if isinstance(layout.label, str) else layout.label
        # The server's test files have no labels, or made-up ones.
        label = None if split.startswith("test") else _present(record, names)
        text = _present(record, layout.texts)
        return TextExample(
            id=next((record.values[name] for name in layout.identity if name in record.values), str(number)),
            text=text,
            pair=_present(record, layout.pairs) if layout.pairs else None,
            label=self.task.read_label(label, record.where),
            group=text if layout.together else "",
            where=record.where,
        )


@dataclass(frozen=True)
class MrpcReader:
    """MRPC as GLUE's script writes it, and as Microsoft distributes it (``msr_paraphrase_*.txt``, ``dev_ids.tsv``)."""

    inner: GlueReader

    def __call__(self, folder: Path, split: str) -> list[TextExample]:
        """Examples of a split; of the original files ``dev`` is what ``dev_ids.tsv`` names, or the end of ``train``."""
        place = next((p for p in (folder, folder / "MRPC") if (p / "msr_paraphrase_train.txt").is_file()), None)
        if place is None or (folder / "train.tsv").is_file():
            return self.inner(folder, split)
        if split == "test":
            # The original test file has labels, the server's has none.
            return [example for _, example in self._all(place / "msr_paraphrase_test.txt")]
        everything = self._all(place / "msr_paraphrase_train.txt")
        ids = place / "dev_ids.tsv"
        if ids.is_file():
            held_out = {tuple(r.values.values()) for r in read_tsv(ids, ("first", "second"))}
        else:
            held_out = {key for key, _ in everything[-len(everything) // 10 :]}
        return [example for key, example in everything if (key in held_out) == (split == "dev")]

    def _all(self, path: Path) -> list[tuple[tuple[str, ...], TextExample]]:
        """Every row with its two ids, even where two rows have the same."""
        found: list[tuple[tuple[str, ...], TextExample]] = []
        for number, record in enumerate(read_tsv(path)):
            key = (column(record.values, "#1 ID", record.where), column(record.values, "#2 ID", record.where))
            found.append((key, self.inner.example(record, number, "train")))
        return found


def write_glue(predictions: Sequence[Prediction], path: Path) -> None:
    """What the GLUE server takes: ``index`` and ``prediction``, rows counted from 0, numbers with three decimals."""
    lines = ["index\tprediction"]
    for number, prediction in enumerate(predictions):
        label = prediction["label"]
        lines.append(f"{number}\t{label:.3f}" if isinstance(label, float) else f"{number}\t{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
