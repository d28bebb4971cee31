"""The user's own files: TSV, CSV or JSONL with named columns, for every family of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.conll import read_words
from xlnet.tasks.datasets.hub import is_hub, open_hub
from xlnet.tasks.datasets.ranking import read_ranking
from xlnet.tasks.datasets.tables import find_file, read_records
from xlnet.tasks.families.classification import TextClassification, label_names
from xlnet.tasks.families.multi_label import MultiLabelClassification
from xlnet.tasks.families.multiple_choice import MultipleChoice
from xlnet.tasks.families.ranking import Ranking, RankingExample
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import column
from xlnet.tasks.families.token_classification import TokenClassification, tag_names

_ENDINGS = ("tsv", "csv", "jsonl", "parquet")
_SPLITS = {"train": ("train",), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}


@dataclass(frozen=True)
class Kind:
    """A kind of task on the user's files.

    Attributes:
        summary: one line for help.
        task: its defaults.
        fit: the task with what it learns from training examples: names of labels, scale of numbers.
    """

    summary: str
    task: Task
    fit: Callable[[Any, Sequence[Any]], Task]


def _with_labels(task: Any, examples: Sequence[Any]) -> Task:
    return replace(task, label_names=label_names(examples))


def _with_tags(task: TokenClassification, examples: Sequence[Any]) -> Task:
    return replace(task, label_names=tag_names(examples))


def _with_grades(task: Ranking, examples: Sequence[RankingExample]) -> Task:
    highest = max((grade for e in examples for grade in (e.label or {}).values()), default=1.0)
    return replace(task, max_grade=max(task.max_grade, highest))


def _standardized(task: TextRegression, examples: Sequence[Any]) -> Task:
    task.check(examples, labelled=True)
    return task.standardized(examples)


def _as_it_is(task: Task, examples: Sequence[Any]) -> Task:
    return task


KINDS: dict[str, Kind] = {
    "classify": Kind("your texts with one of several labels", TextClassification(name="classify"), _with_labels),
    "multilabel": Kind(
        "your texts with any number of labels", MultiLabelClassification(name="multilabel"), _with_labels
    ),
    "regress": Kind("your texts with a number", TextRegression(name="regress"), _standardized),
    "choose": Kind("your questions with choices (JSONL)", MultipleChoice(name="choose"), _as_it_is),
    "tag": Kind("your words with tags (CoNLL or JSONL)", TokenClassification(name="tag"), _with_tags),
    "rank": Kind("your queries and documents (TREC, SMART or JSONL)", Ranking(name="rank"), _with_grades),
}


def read_own(task: Task, path: str | Path, split: str) -> list[Any]:
    """Examples from a file, from the file of a split in a folder, or from a data set of the hub.

    Raises:
        InputError: nothing is there, or it cannot be read; names file, line, columns.
    """
    if is_hub(path):
        records = open_hub(path).records(split)
    else:
        path = Path(path)
        if isinstance(task, TokenClassification):
            return read_words(path, split)
        names = [f"{stem}.{ending}" for stem in _SPLITS[split] for ending in _ENDINGS]
        present = path.is_file() or any((path / name).is_file() or (path / f"{name}.gz").is_file() for name in names)
        if isinstance(task, Ranking) and path.is_dir() and not present:
            return read_ranking(path, "all" if split == "test" else split)
        records = read_records(find_file(path, names))
    examples = [task.example(record.values, record.where, i) for i, record in enumerate(records)]
    label = getattr(task, "label_column", None)
    if label and records and split == "train" and not any(label in record.values for record in records):
        column(records[0].values, label, records[0].where)
    return examples


def has_split(path: str | Path, split: str) -> bool:
    """Whether a folder of the user's has a file for a split, or a data set of the hub has that split."""
    if is_hub(path):
        return open_hub(path).name_of(split) is not None
    path = Path(path)
    stems = tuple(f"{stem}." for stem in _SPLITS[split])
    return path.is_dir() and any(item.name.startswith(stems) or item.name == f"eng.test{'ab'[split == 'test']}"
                                 for item in path.iterdir())  # fmt: skip


def kind(name: str) -> Kind:
    """A kind by its name.

    Raises:
        ConfigurationError: an unknown one.
    """
    if name not in KINDS:
        raise ConfigurationError(f"{name!r} is not known; known are {', '.join(KINDS)}.{did_you_mean(name, KINDS)}")
    return KINDS[name]


def adjusted(task: Task, changes: Mapping[str, Any]) -> Task:
    """A task with some settings changed; None is no change.

    Raises:
        ConfigurationError: the task has no such setting; names those it has.
    """
    known = task.settings()
    given = {key: value for key, value in changes.items() if value is not None}
    for key in given:
        if key not in known:
            raise ConfigurationError(
                f"{key}={given[key]!r}: {task.name} has no such setting; it has {', '.join(known)}."
                + did_you_mean(key, known)
            )
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    return replace(task, **values)
