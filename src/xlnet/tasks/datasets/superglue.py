"""SuperGLUE in its own JSONL: BoolQ, CB, COPA, MultiRC, ReCoRD, RTE, WiC, WSC; diagnostic sets AX-b and AX-g."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xlnet.errors import InputError
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.benchmark import Benchmark, Write
from xlnet.tasks.datasets.superglue_submission import (
    write_answers,
    write_choices,
    write_labels,
    write_multirc,
    write_wsc,
)
from xlnet.tasks.datasets.tables import Record, find_file, read_jsonl
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multiple_choice import ChoiceExample, MultipleChoice, choice_label
from xlnet.tasks.families.text import TextExample, UnreadLabel, column, plain_label

_ENTAILMENT = ("entailment", "not_entailment")
_TRUTH = ("false", "true")
_KINDS: dict[str, type] = {"object": Mapping, "list": list, "number": int}
_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


@dataclass(frozen=True)
class SuperGlueReader:
    """Reads ``train.jsonl``, ``val.jsonl`` and ``test.jsonl`` with a function for one line."""

    folder: str
    parse: Callable[[Record], Iterator[Any]]
    files: Mapping[str, tuple[str, ...]]

    def __call__(self, folder: Path, split: str) -> list[Any]:
        """Examples of ``train``, ``dev`` or ``test``.

        Raises:
            InputError: files or keys that are not there.
        """
        if split not in self.files:
            raise InputError(f"{self.folder} has no split {split!r}; it has {', '.join(self.files)}.")
        path = find_file(folder, self.files[split], (self.folder,))
        return [example for record in read_jsonl(path) for example in self.parse(record)]


def _need(values: Any, key: str, where: str, kind: str = "") -> Any:
    """A value of an object, of a kind: ``object``, ``list`` or ``number`` (whole); any where that is empty."""
    if not isinstance(values, Mapping) or key not in values:
        present = ", ".join(map(repr, values)) if isinstance(values, Mapping) else repr(values)
        raise InputError(f"{where}: there is no key {key!r}; present are {present}.")
    value = values[key]
    if kind and (not isinstance(value, _KINDS[kind]) or isinstance(value, bool)):
        raise InputError(f"{where}: {key} must be of the kind {kind}, but is {value!r}.")
    return value


def _identity(record: Record) -> str:
    return str(record.values.get("idx", record.where))


def _pairs(text: str, pair: str, group: str = "") -> Callable[[Record], Iterator[TextExample]]:
    """Two keys with texts, ``label``, and the key that examples which belong together have in common."""

    def parse(record: Record) -> Iterator[TextExample]:
        common = record.values.get(group)
        yield TextExample(
            _identity(record),
            column(record.values, text, record.where),
            column(record.values, pair, record.where),
            plain_label(record.values.get("label")),
            "" if common is None else str(common),
            record.where,
        )

    return parse


def parse_copa(record: Record) -> Iterator[ChoiceExample]:
    """The premise, and each choice after the question that ``cause`` or ``effect`` stands for."""
    where, values = record
    kind = column(values, "question", where)
    if kind not in _QUESTIONS:
        raise InputError(f"{where}: question {kind!r} must be cause or effect.")
    names = (column(values, "choice1", where), column(values, "choice2", where))
    yield ChoiceExample(
        _identity(record),
        column(values, "premise", where),
        tuple(f"{_QUESTIONS[kind]} {name}" for name in names),
        choice_label(values.get("label"), names, where),
        names,
        where=where,
    )


def parse_multirc(record: Record) -> Iterator[TextExample]:
    """One example an answer: the passage, and question and answer. The id is ``passage-question-answer``."""
    where, values = record
    passage = _need(values, "passage", where, "object")
    text = column(passage, "text", where)
    for question in _need(passage, "questions", where, "list"):
        group = f"{_identity(record)}-{_need(question, 'idx', where)}"
        for answer in _need(question, "answers", where, "list"):
            yield TextExample(
                f"{group}-{_need(answer, 'idx', where)}",
                text,
                f"{column(question, 'question', where)} {column(answer, 'text', where)}",
                plain_label(answer.get("label")),
                group,
                where,
            )


def parse_record(record: Record) -> Iterator[ChoiceExample]:
    """One example a query: the passage, and the query with each distinct entity in place of ``@placeholder``."""
    where, values = record
    passage = _need(values, "passage", where, "object")
    text = column(passage, "text", where)
    spans = [
        (_need(span, "start", where, "number"), _need(span, "end", where, "number"))
        for span in _need(passage, "entities", where, "list")
    ]
    # The ends of ReCoRD's spans are inclusive.
    names = tuple(dict.fromkeys(text[start : end + 1] for start, end in spans))
    for query in _need(values, "qas", where, "list"):
        identity = str(_need(query, "idx", where))
        answers = query.get("answers")
        right = None if answers is None else _answer_texts(answers)
        example = cloze(text, column(query, "query", where), names, right, identity, where)
        if answers is not None and right is None:
            rule = "must be a list of objects, each with its text"
            example = replace(example, label=UnreadLabel(f"{where}: answers {answers!r} {rule}."))
        yield example


def _answer_texts(answers: Any) -> set[str] | None:
    """The texts of the answers to a query, None where they are no such thing."""
    texts = (
        [a.get("text") if isinstance(a, Mapping) else None for a in answers] if isinstance(answers, list) else [None]
    )
    return {text for text in texts if isinstance(text, str)} if all(isinstance(t, str) for t in texts) else None


def cloze(
    passage: str, query: str, names: tuple[str, ...], right: Collection[str] | None, identity: str, where: str
) -> ChoiceExample:
    """A query of ReCoRD with each of ``names`` in its gap; ``right`` are those that fill it, None where not known."""
    return ChoiceExample(
        identity,
        passage.replace("\n@highlight\n", " ").replace("@highlight", " "),
        tuple(query.replace("@placeholder", name) for name in names),
        None if right is None else tuple(i for i, name in enumerate(names) if name in right),
        names,
        where=where,
    )


def parse_wic(record: Record) -> Iterator[TextExample]:
    """The word stands before the first sentence: ``word: sentence1``, and the second sentence."""
    where, values = record
    first = f"{column(values, 'word', where)}: {column(values, 'sentence1', where)}"
    yield TextExample(
        _identity(record), first, column(values, "sentence2", where), plain_label(values.get("label")), where=where
    )


def parse_wsc(record: Record) -> Iterator[TextExample]:
    """The text, and the text with the pronoun replaced by the candidate, as WNLI asks it; the text is the group."""
    where, values = record
    text = column(values, "text", where)
    target = _need(values, "target", where, "object")
    pronoun, candidate = column(target, "span2_text", where), column(target, "span1_text", where)
    place = _need(target, "span2_index", where, "number")
    # In a few official rows the index is some words off: the pronoun nearest to it is meant.
    found = list(re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", text, re.IGNORECASE))
    if not found:
        raise InputError(f"{where}: the pronoun {pronoun!r} does not stand in the text {text!r}.")
    match = min(found, key=lambda m: abs(len(text[: m.start()].split()) - place))
    second = text[: match.start()] + candidate + text[match.end() :]
    yield TextExample(_identity(record), text, second, plain_label(values.get("label")), text, where)


def _classes(
    name: str,
    columns: tuple[str, str],
    labels: tuple[str, ...],
    scores: tuple[str, ...] = ("accuracy",),
    length: int = 256,
) -> TextClassification:
    return TextClassification(
        name=name,
        max_length=length,
        text_column=columns[0],
        pair_column=columns[1],
        label_names=labels,
        scores=scores,
    )


def _benchmark(
    summary: str, task: Task, folder: str, parse: Callable[[Record], Iterator[Any]], write: Write = write_labels
) -> Benchmark:
    files = {"train": ("train.jsonl",), "dev": ("val.jsonl",), "test": ("test.jsonl",)}
    return Benchmark(summary, task, SuperGlueReader(folder, parse, files), submission=(f"{folder}.jsonl",), write=write)


def _diagnostic(summary: str, task: Task, name: str, columns: tuple[str, str], group: str = "") -> Benchmark:
    reader = SuperGlueReader(name, _pairs(*columns, group), {"dev": (f"{name}.jsonl",), "test": (f"{name}.jsonl",)})
    return Benchmark(
        summary, task, reader, train="", held_out=(), final=("dev",), submission=(f"{name}.jsonl",), write=write_labels
    )


_PREMISE, _SENTENCES = ("premise", "hypothesis"), ("sentence1", "sentence2")
_BOOLQ = _classes("boolq", ("passage", "question"), _TRUTH)
_CB = _classes("cb", _PREMISE, ("contradiction", "entailment", "neutral"), ("accuracy", "macro_f1"))
_MULTIRC = _classes("multirc", ("passage", "question"), ("0", "1"), ("f1a", "em"), 512)
_RECORD = MultipleChoice(name="record", max_length=384, answer_metrics=True)
_AXG = _classes("ax-g", _PREMISE, _ENTAILMENT, ("accuracy", "gender_parity"))
_AXB = _classes("ax-b", _SENTENCES, _ENTAILMENT, ("matthews", "accuracy"))

SUPERGLUE: dict[str, Benchmark] = {
    "boolq": _benchmark("yes or no from a passage", _BOOLQ, "BoolQ", _pairs("passage", "question", "passage")),
    "cb": _benchmark("is the speaker committed to what is embedded (accuracy, F1)", _CB, "CB", _pairs(*_PREMISE)),
    "copa": _benchmark(
        "cause or effect (accuracy)", MultipleChoice(name="copa", max_length=128, max_choice_length=64), "COPA",
        parse_copa, write_choices,
    ),
    "multirc": _benchmark("which answers are right (F1a, EM)", _MULTIRC, "MultiRC", parse_multirc, write_multirc),
    "record": _benchmark("which entity fills the gap (F1, EM)", _RECORD, "ReCoRD", parse_record, write_answers),
    "superglue-rte": _benchmark(
        "entailment (accuracy)", _classes("superglue-rte", _PREMISE, _ENTAILMENT), "RTE", _pairs(*_PREMISE)
    ),
    "wic": _benchmark("same sense of a word (accuracy)", _classes("wic", _SENTENCES, _TRUTH), "WiC", parse_wic),
    "wsc": _benchmark(
        "whom the pronoun means (accuracy)", _classes("wsc", ("text", "pair"), _TRUTH), "WSC", parse_wsc, write_wsc
    ),
    "ax-b": _diagnostic("broad diagnostics, for a model of superglue-rte (Matthews)", _AXB, "AX-b", _SENTENCES),
    "ax-g": _diagnostic(
        "gender diagnostics, for a model of superglue-rte (gender parity, accuracy)", _AXG, "AX-g", _PREMISE, "pair_id"
    ),
}  # fmt: skip
