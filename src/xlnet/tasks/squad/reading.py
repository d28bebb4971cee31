"""SQuAD files: JSON of articles, their passages, and the questions on them. 1.1 and 2.0 are told apart by content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlnet.errors import InputError, did_you_mean
from xlnet.tasks.datasets.tables import read_text
from xlnet.tasks.squad.examples import Answer, SquadExample

_KINDS = {"list": list, "object": dict, "text": str}
_ARTICLES = {"list": "a list", "object": "an object", "text": "a text"}


def read_squad(path: Path) -> list[SquadExample]:
    """All questions of a file, in its order.

    A question without ``is_impossible`` (1.1) has an answer if its ``answers`` are not empty; one without ``answers``
    is read as one whose answers are not known.

    Args:
        path: a ``.json`` file, or ``.json.gz``.

    Raises:
        InputError: not there, no JSON, or not in SQuAD's form: names the path into the JSON, the value and the rule;
            two questions with one id, since ``predictions.json`` could not hold both.
    """
    try:
        values = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}. SQuAD's files are one JSON object with a list 'data'.") from None
    examples: list[SquadExample] = []
    for a, article in enumerate(_get(_is(values, "object", str(path)), "data", "list", str(path))):
        place = f"{path}: data[{a}]"
        paragraphs = _get(_is(article, "object", place), "paragraphs", "list", place)
        title = article.get("title", "")
        for p, paragraph in enumerate(paragraphs):
            inner = f"{place}.paragraphs[{p}]"
            passage = _text(_is(paragraph, "object", inner), "context", inner)
            for q, question in enumerate(_get(paragraph, "qas", "list", inner)):
                examples.append(_question(question, passage, str(title), f"{inner}.qas[{q}]"))
    if not examples:
        raise InputError(f"{path} holds no question.")
    _refuse_equal_ids(examples)
    return examples


def read_question(record: Mapping[str, Any], passage: str, question: str, name: str, where: str) -> SquadExample:
    """A question with the answers that a record may hold under ``answers`` and ``is_impossible``.

    Answers are objects with ``text`` and (optional) ``answer_start``, as in SQuAD's files, or plain texts, or two lists
    ``text`` and ``answer_start`` in one object, as Hugging Face's ``datasets`` has them.

    Raises:
        InputError: answers in another form, or ones that contradict ``is_impossible``.
    """
    impossible = record.get("is_impossible")
    if impossible is not None and not isinstance(impossible, bool):
        raise InputError(f"{where}.is_impossible is {impossible!r}; it must be true or false.")
    answers: tuple[Answer, ...] | None = None
    if record.get("answers") is not None:
        answers = tuple(_answer(value, f"{where}.answers[{i}]") for i, value in enumerate(_list(record, where)))
    if impossible and answers:
        raise InputError(
            f"{where} is marked is_impossible but has the answer {answers[0].text!r}; one of the two is wrong. "
            "(What only looks like an answer belongs under plausible_answers.)"
        )
    if impossible:
        answers = ()
    elif impossible is False and not answers:
        answers = None
    return SquadExample(name, question, passage, answers, where=where)


def _question(values: Any, passage: str, title: str, where: str) -> SquadExample:
    record = _is(values, "object", where)
    if "id" not in record:
        raise InputError(f"{where} has no 'id'; present are {_names(record)}.{did_you_mean('id', record)}")
    name = record["id"]
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise InputError(f"{where}.id is {name!r}; it must be a text that is not empty.")
    name = _whole(str(name), f"{where}.id")
    example = read_question(record, passage, _text(record, "question", where), name, where)
    return SquadExample(example.id, example.question, passage, example.answers, title, where)


def _list(record: Mapping[str, Any], where: str) -> list[Any]:
    values = record["answers"]
    if not isinstance(values, dict):
        return _is(values, "list", f"{where}.answers")
    texts, starts = (_get(values, key, "list", f"{where}.answers") for key in ("text", "answer_start"))
    if len(texts) != len(starts):
        raise InputError(f"{where}.answers has {len(texts)} texts but {len(starts)} places in answer_start.")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _answer(values: Any, where: str) -> Answer:
    record = {"text": values} if isinstance(values, str) else _is(values, "object", where)
    text = _text(record, "text", where)
    if not text.strip():
        raise InputError(f"{where}.text is empty. A question without an answer has no answers and is_impossible: true.")
    start = record.get("answer_start")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int) or start < 0):
        raise InputError(f"{where}.answer_start is {start!r}; it must be a number of characters, from 0 on.")
    return Answer(text, start)


def _refuse_equal_ids(examples: list[SquadExample]) -> None:
    seen: dict[str, str] = {}
    for example in examples:
        if example.id in seen:
            raise InputError(f"{example.where}.id is {example.id!r}, as is that of {seen[example.id]}; ids are unique.")
        seen[example.id] = example.where


def _text(record: Mapping[str, Any], key: str, where: str) -> str:
    return _whole(_get(record, key, "text", where), f"{where}.{key}")


def _whole(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} holds half a surrogate pair (U+{ord(text[error.start]):04X}) at character {error.start}; "
            "it is no text."
        ) from None
    return text


def _get(record: Mapping[str, Any], key: str, kind: str, where: str) -> Any:
    if key not in record:
        raise InputError(f"{where} has no {key!r}; present are {_names(record)}.{did_you_mean(key, list(record))}")
    return _is(record[key], kind, f"{where}.{key}")


def _is(value: Any, kind: str, where: str) -> Any:
    if not isinstance(value, _KINDS[kind]):
        raise InputError(f"{where} must be {_ARTICLES[kind]}, but is {_shown(value)}, as no file of SQuAD has it.")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _names(record: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, list(record)[:12])) or "none"
