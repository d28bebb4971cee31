"""Benchmarks as they stand on the hub: rows become what the official files hold, and are read by the same functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xlnet.errors import InputError
from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.comparisons import PLAIN
from xlnet.tasks.datasets.glue import GLUE
from xlnet.tasks.datasets.glue_files import GlueReader, MrpcReader
from xlnet.tasks.datasets.hub import HubData, HubName, is_hub, open_hub
from xlnet.tasks.datasets.race import race_question
from xlnet.tasks.datasets.superglue import SUPERGLUE, SuperGlueReader, cloze, parse_wsc
from xlnet.tasks.datasets.tables import Record
from xlnet.tasks.datasets.topics import without_breaks
from xlnet.tasks.families.multiple_choice import ChoiceExample
from xlnet.tasks.families.text import TextExample, column, plain_label
from xlnet.tasks.squad.benchmark import SQUAD
from xlnet.tasks.squad.examples import SquadExample

Parse = Callable[[Record, int, str], Iterator[Any]]
"""Examples of a row, from its number (from 0) and split."""


@dataclass(frozen=True)
class HubForm:
    """How a benchmark stands on the hub.

    Attributes:
        name: of its data set.
        parse: its rows.
        rename: the hub's names of columns to the official ones, before ``parse``.
        label_names: names of the classes, where they are neither the task's nor in the order of the task's.
    """

    name: HubName
    parse: Parse
    rename: Mapping[str, str] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()


def read_benchmark(found: Benchmark, place: str | Path, split: str) -> list[Any]:
    """Examples of a split of a benchmark, from its official files or from the hub.

    Args:
        found: the benchmark.
        place: folder or file, or what :func:`~xlnet.tasks.datasets.hub.open_hub` takes.
        split: one of the benchmark's.

    Raises:
        InputError, MachineError: it is not there or cannot be read.
    """
    if not is_hub(place):
        return found.read(Path(place), split)
    form = HUB_FORMS.get(PLAIN.get(found.task.name, found.task.name))
    if form is None:
        raise InputError(f"{place}: {found.task.name} is read from its files only, not from data sets of the hub.")
    return read_rows(
        form, open_hub(place, form.name), split, form.label_names or getattr(found.task, "label_names", ())
    )


def read_rows(form: HubForm, data: HubData, split: str, label_names: tuple[str, ...]) -> list[Any]:
    """Examples of a split of an opened data set."""
    found: list[Any] = []
    for number, (where, values) in enumerate(data.records(split, label_names)):
        renamed = {form.rename.get(name, name): value for name, value in values.items()}
        found += form.parse(Record(where, renamed), number, split)
    return found


def _glue(name: str, rename: Mapping[str, str] | None = None) -> HubForm:
    read: Any = GLUE[name].read
    reader: GlueReader = read.inner if isinstance(read, MrpcReader) else read

    def parse(record: Record, number: int, split: str) -> Iterator[TextExample]:
        # Numbers are text in TSV files.
        values = {name: str(v) if isinstance(v, int | float) else v for name, v in record.values.items()}
        yield reader.example(Record(record.where, values), number, split)

    return HubForm(HubName("nyu-mll/glue", name), parse, {"idx": "index", **(rename or {})})


def _superglue(name: str, config: str, parse: Parse | None = None, label_names: tuple[str, ...] = ()) -> HubForm:
    return HubForm(HubName("aps/super_glue", config), parse or _official(name), label_names=label_names)


def _official(name: str) -> Parse:
    """The lines of SuperGLUE's own files hold the same keys."""
    read: Any = SUPERGLUE[name].read
    reader: SuperGlueReader = read
    return lambda record, number, split: reader.parse(record)


def _wsc(record: Record, number: int, split: str) -> Iterator[TextExample]:
    return parse_wsc(Record(record.where, {**record.values, "target": record.values}))


def _multirc(record: Record, number: int, split: str) -> Iterator[TextExample]:
    where, values = record
    place = values.get("idx") or {"paragraph": number, "question": 0, "answer": 0}
    group = f"{place['paragraph']}-{place['question']}"
    yield TextExample(
        f"{group}-{place['answer']}",
        column(values, "paragraph", where),
        f"{column(values, 'question', where)} {column(values, 'answer', where)}",
        plain_label(values.get("label")),
        group,
        where,
    )


def _record(record: Record, number: int, split: str) -> Iterator[ChoiceExample]:
    where, values = record
    names = tuple(dict.fromkeys(values.get("entities") or ()))
    right = None if split == "test" else values.get("answers")
    identity = str((values.get("idx") or {}).get("query", number))
    yield cloze(column(values, "passage", where), column(values, "query", where), names, right, identity, where)


def _race(record: Record, number: int, split: str) -> Iterator[ChoiceExample]:
    where, values = record
    identity = str(values.get("example_id", number)).removesuffix(".txt")
    level = next((level for level in ("middle", "high") if identity.startswith(level)), "")
    yield race_question(
        column(values, "article", where), column(values, "question", where), values["options"],
        values.get("answer") or None, f"{identity}-{number}", level, where,
    )  # fmt: skip


def _squad(name: str, dataset: str) -> HubForm:
    task = SQUAD[name].task

    def parse(record: Record, number: int, split: str) -> Iterator[SquadExample]:
        example = task.example(record.values, record.where, number)
        yield replace(example, title=str(record.values.get("title", "")))

    return HubForm(HubName(dataset), parse)


def _texts(dataset: str, *texts: str, clean: Callable[[str], str] = str) -> HubForm:
    def parse(record: Record, number: int, split: str) -> Iterator[TextExample]:
        where, values = record
        text = clean(" ".join(column(values, name, where) for name in texts))
        yield TextExample(str(number), text, label=plain_label(values.get("label")), where=where)

    return HubForm(HubName(dataset), parse)


_NLI = {"premise": "sentence1", "hypothesis": "sentence2"}

HUB_FORMS: dict[str, HubForm] = {
    **{name: _glue(name) for name in ("cola", "sst2", "mrpc", "qnli", "rte", "wnli")},
    "qqp": _glue("qqp", {"label": "is_duplicate", "idx": "id"}),
    "stsb": _glue("stsb", {"label": "score"}),
    "mnli": _glue("mnli", {**_NLI, "label": "gold_label"}),
    "ax": _glue("ax", {**_NLI, "label": "Label"}),
    **{name: _superglue(name, name) for name in ("boolq", "cb", "wic")},
    "superglue-rte": _superglue("superglue-rte", "rte"),
    "ax-b": _superglue("ax-b", "axb"),
    "ax-g": _superglue("ax-g", "axg"),
    "copa": _superglue("copa", "copa", label_names=("0", "1")),
    "multirc": _superglue("multirc", "multirc", _multirc),
    "record": _superglue("record", "record", _record),
    "wsc": _superglue("wsc", "wsc.fixed", _wsc),
    "race": HubForm(HubName("ehovy/race", "all"), _race),
    "race-middle": HubForm(HubName("ehovy/race", "middle"), _race),
    "race-high": HubForm(HubName("ehovy/race", "high"), _race),
    "squad": _squad("squad", "rajpurkar/squad"),
    "squad2": _squad("squad2", "rajpurkar/squad_v2"),
    "imdb": _texts("stanfordnlp/imdb", "text", clean=without_breaks),
    "yelp2": _texts("fancyzhx/yelp_polarity", "text"),
    "yelp5": _texts("Yelp/yelp_review_full", "text"),
    "amazon2": _texts("fancyzhx/amazon_polarity", "title", "content"),
    "ag": _texts("fancyzhx/ag_news", "text"),
    "dbpedia": _texts("fancyzhx/dbpedia_14", "title", "content"),
}
