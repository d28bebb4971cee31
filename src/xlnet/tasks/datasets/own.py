"""The user's own files: TSV, CSV or JSONL with named columns, for every family of tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xlnet.errors import ConfigurationError, InputError, did_you_mean
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
from xlnet.tasks.ranking_metrics import GDEVAL_GRADE

_ENDINGS = ("tsv", "csv", "jsonl", "parquet")
_SPLITS = {"train": ("train",), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
_log = logging.getLogger(__name__)


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
    if max(task.max_grade, highest) > GDEVAL_GRADE:
        _log.warning(
            "%s: grades go up to %g. gdeval knows none above %g, so err@20 can be compared with no published number.",
            task.name, max(task.max_grade, highest), GDEVAL_GRADE,
        )  # fmt: skip
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
    """Examples from a file, from the file of a split in a folder, from a data set of the hub, or from a collection.

    Args:
        task: says what a record is.
        path: of the data.
        split: ``train``, ``dev`` or ``test``; those of a collection are :func:`read_ranking`'s.

    Raises:
        InputError: nothing is there, there is no such split, or it cannot be read; names file, line, columns.
    """
    if is_hub(path):
        records = open_hub(path).records(split)
    else:
        path = Path(path)
        if isinstance(task, TokenClassification):
            return read_words(path, split)
        if isinstance(task, Ranking) and _is_collection(path):
            return read_ranking(path, split)
        if split not in _SPLITS:
            raise InputError(
                f"{path}: there is no split {split!r}; there are {', '.join(_SPLITS)}.{did_you_mean(split, _SPLITS)}"
            )
        records = read_records(find_file(path, _file_names(split)))
    examples = [task.example(record.values, record.where, i) for i, record in enumerate(records)]
    label = getattr(task, "label_column", None)
    if label and records and split == "train" and not any(label in record.values for record in records):
        column(records[0].values, label, records[0].where)
    return examples


def _file_names(split: str) -> list[str]:
    return [f"{stem}.{ending}" for stem in _SPLITS[split] for ending in _ENDINGS]


def _is_collection(path: Path) -> bool:
    """A folder without files by split; then ranking looks for documents, queries and judgments."""
    names = [name for split in _SPLITS for name in _file_names(split)]
    return path.is_dir() and not any((path / f"{name}{end}").is_file() for name in names for end in ("", ".gz"))


def is_labelled(name: str, split: str, examples: Sequence[Any]) -> bool:
    """Whether a split can be measured: every example has a label. Where not, a warning says how many have none.

    Args:
        name: of the task.
        split: what the examples are called.
        examples: of the split.

    Raises:
        InputError: there is no example.
    """
    if not examples:
        raise InputError(f"{name}: {split} holds no example. Fill its file, or take it away.")
    missing = [getattr(example, "where", "") or example.id for example in examples if example.label is None]
    if missing:
        _log.warning(
            "%s: %s is not measured: %d of its %d examples have no label (the first is %s).",
            name, split, len(missing), len(examples), missing[0],
        )  # fmt: skip
    return not missing


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
