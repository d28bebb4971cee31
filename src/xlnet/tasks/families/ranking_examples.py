"""Queries with candidate documents and their grades: how they are read, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xlnet.errors import InputError
from xlnet.tasks.families.text import column, record_id
from xlnet.tasks.ranking_metrics import whole_grade


@dataclass(frozen=True)
class Document:
    """A candidate.

    Attributes:
        id: its name in the judgments.
        text: of the document; may be empty.
        score: of the first stage (BM25), 0 where there is none.
    """

    id: str
    text: str
    score: float = 0.0


@dataclass(frozen=True)
class RankingExample:
    """A query and its candidates.

    Attributes:
        id: of the query.
        query: its text.
        documents: candidates in the order of the first stage.
        label: grades of relevance by document id, whole numbers, 0 and less not relevant; also of documents that are
            no candidates, which count in the metrics. None where not known.
        where: file and line, for messages.
    """

    id: str
    query: str
    documents: tuple[Document, ...]
    label: Mapping[str, float] | None = field(default=None, hash=False)
    where: str = ""


def read_example(record: Mapping[str, Any], where: str, number: int) -> RankingExample:
    """From ``query`` and ``documents``: records with ``text``, and ``id``, ``score``, ``label`` where known.

    Args:
        record: of the user's.
        where: file and line.
        number: the id where the record has none.

    Raises:
        InputError: names file, line and document of what is missing or of another kind.
    """
    found = record.get("documents")
    if not isinstance(found, list):
        raise InputError(f"{where}: documents must be a list of records with a text, but is {type(found).__name__}.")
    places = [f"{where}, document {i + 1}" for i in range(len(found))]
    for item, place in zip(found, places, strict=True):
        if not isinstance(item, Mapping):
            raise InputError(f'{place} must be a record with a text ({{"text": ...}}), but is {item!r}.')
    documents = [
        Document(record_id(item, i), column(item, "text", place), _first_score(item.get("score"), place))
        for i, (item, place) in enumerate(zip(found, places, strict=True))
    ]
    # As everywhere, null and an empty text are no label: such a document is not judged.
    grades = {
        document.id: whole_grade(item["label"], place)
        for document, item, place in zip(documents, found, places, strict=True)
        if item.get("label") not in (None, "")
    }
    query = column(record, "query", where)
    return RankingExample(record_id(record, number), query, tuple(documents), grades or None, where)


def _first_score(value: Any, where: str) -> float:
    try:
        score = 0.0 if value in (None, "") else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{where}: score must be a number (of the first stage), but is {value!r}.")
    return score


def check_candidates(example: RankingExample) -> None:
    """Refuse a query without documents, and two documents of one name.

    Raises:
        InputError: names the query.
    """
    where = example.where or f"query {example.id}"
    if not example.documents:
        raise InputError(f"{where}: there are no documents to rank.")
    if len({document.id for document in example.documents}) != len(example.documents):
        raise InputError(f"{where}: two documents have the same id.")


def check_grades(example: RankingExample, max_grade: float) -> None:
    """Refuse a query without judgments, and grades that are no whole numbers or above ``max_grade``.

    Raises:
        InputError: names query and document, and the remedy.
    """
    where = example.where or f"query {example.id}"
    if example.label is None:
        raise InputError(
            f"{where}: there are no judgments, and training and evaluation need them. Use predict for queries without "
            "(of a collection, --split all holds those with judgments)."
        )
    for name, given in example.label.items():
        grade = whole_grade(given, f"{where}, document {name}")
        if grade > max_grade:
            setting = f"--task_settings '{{\"max_grade\": {grade:g}}}'"
            raise InputError(
                f"{where}, document {name}: grade {grade:g} is above max_grade={max_grade:g}, which is the highest of "
                f"the training data unless given. Train with {setting} (in Python: Ranking(max_grade={grade:g})), or "
                "set max_grade in the task.json of a finished model."
            )


def check_queries(examples: Sequence[RankingExample]) -> None:
    """Refuse two examples of one query: metrics go by query, so one of them would be lost.

    Raises:
        InputError: names the query and both places.
    """
    seen: dict[str, str] = {}
    for place, example in enumerate(examples, start=1):
        where = example.where or f"example {place}"
        if example.id in seen:
            raise InputError(
                f"{where}: the query id {example.id!r} stands there again, first in {seen[example.id]}. Put all "
                "documents of a query into one record, or give each record an id of its own."
            )
        seen[example.id] = where
