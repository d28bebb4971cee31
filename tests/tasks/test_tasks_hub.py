"""Data sets of the hub: rows that the library ``datasets`` keeps give the examples that the official files give."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from xlnet.cli.task_inputs import read_inputs
from xlnet.errors import InputError, MachineError
from xlnet.tasks.datasets import hub
from xlnet.tasks.datasets.hub import HubName, is_hub, open_hub
from xlnet.tasks.datasets.hub_forms import HUB_FORMS, read_benchmark
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.datasets.registry import BENCHMARKS

datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")


def saved(folder: Path, splits: Mapping[str, list[dict[str, Any]]], classes: Mapping[str, list[str]]) -> Path:
    """A DatasetDict on disk, with the names of the classes of some columns."""
    made = {}
    for split, rows in splits.items():
        found = datasets.Dataset.from_list(rows)
        for column, names in classes.items():
            found = found.cast_column(column, datasets.ClassLabel(names=names))
        made[split] = found
    datasets.DatasetDict(made).save_to_disk(str(folder))
    return folder


# One row as it stands on the hub, the classes there, and text, pair and label of the example it must become.
GLUE_ROWS: dict[str, tuple[dict[str, Any], list[str], tuple[Any, Any, Any]]] = {
    "cola": ({"sentence": "It works.", "label": 1, "idx": 3}, ["unacceptable", "acceptable"], ("It works.", None, "1")),
    "sst2": ({"sentence": "a film ", "label": 0, "idx": 3}, ["negative", "positive"], ("a film ", None, "0")),
    "mrpc": (
        {"sentence1": "A.", "sentence2": "B.", "label": 1, "idx": 3}, ["not_equivalent", "equivalent"],
        ("A.", "B.", "1"),
    ),
    "qqp": (
        {"question1": "A?", "question2": "B?", "label": 1, "idx": 3}, ["not_duplicate", "duplicate"],
        ("A?", "B?", "1"),
    ),
    "mnli": (
        {"premise": "A.", "hypothesis": "B.", "label": 1, "idx": 3}, ["entailment", "neutral", "contradiction"],
        ("A.", "B.", "neutral"),
    ),
    "qnli": (
        {"question": "A?", "sentence": "B.", "label": 1, "idx": 3}, ["entailment", "not_entailment"],
        ("A?", "B.", "not_entailment"),
    ),
    "wnli": (
        {"sentence1": "A.", "sentence2": "B.", "label": 1, "idx": 3}, ["not_entailment", "entailment"],
        ("A.", "B.", "1"),
    ),
    "boolq": ({"passage": "A.", "question": "b", "label": 0, "idx": 3}, ["False", "True"], ("A.", "b", "false")),
    "cb": (
        {"premise": "A.", "hypothesis": "B.", "label": 0, "idx": 3}, ["entailment", "contradiction", "neutral"],
        ("A.", "B.", "entailment"),
    ),
    "imdb": ({"text": "A<br />b.", "label": 1}, ["neg", "pos"], ("A b.", None, "pos")),
    "ag": ({"text": "A.", "label": 2}, ["World", "Sports", "Business", "Sci/Tech"], ("A.", None, "3")),
    "dbpedia": (
        {"label": 1, "title": "T", "content": "c"}, [f"kind {i}" for i in range(14)], ("T c", None, "2")
    ),
    "wsc": (
        {"text": "Ann met Sue; she smiled.", "span1_text": "Ann", "span2_text": "she", "span1_index": 0,
         "span2_index": 3, "idx": 3, "label": 1},
        ["False", "True"], ("Ann met Sue; she smiled.", "Ann met Sue; Ann smiled.", "true"),
    ),
    "multirc": (
        {"paragraph": "P.", "question": "Q?", "answer": "a", "idx": {"paragraph": 0, "question": 1, "answer": 2},
         "label": 1},
        ["False", "True"], ("P.", "Q? a", "1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GLUE_ROWS)
def test_a_row_of_the_hub_is_the_example_of_the_file(name: str, tmp_path: Path) -> None:
    row, classes, wanted = GLUE_ROWS[name]
    place = saved(tmp_path / "d", {"train": [row, row], "test": [{**row, "label": -1}]}, {"label": classes})
    found = BENCHMARKS[name]
    examples = read_benchmark(found, place, "train")
    assert [(e.text, e.pair, e.label) for e in examples] == [wanted, wanted]
    found.task.check(examples, labelled=True)
    assert examples[1].where == f"{place}, train, row 2"
    (hidden,) = read_benchmark(found, place, "test")
    assert hidden.label is None


def test_numbers_and_held_out_splits_of_glue(tmp_path: Path) -> None:
    row = {"sentence1": "A.", "sentence2": "B.", "label": 2.5, "idx": 0}
    loaded = load_task("stsb", saved(tmp_path / "s", {"train": [row], "validation": [row, row]}, {}))
    assert [e.label for e in loaded.data.train] == [2.5]
    assert {name: len(found) for name, found in loaded.data.held_out.items()} == {"dev": 2}
    pair = {"premise": "A.", "hypothesis": "B.", "label": 0, "idx": 0}
    splits = {"train": [pair], "validation_matched": [pair], "validation_mismatched": [pair, pair]}
    place = saved(tmp_path / "m", splits, {"label": ["entailment", "neutral", "contradiction"]})
    loaded = load_task("mnli", place)
    assert {name: len(found) for name, found in loaded.data.held_out.items()} == {"dev_matched": 1, "dev_mismatched": 2}
    assert [e.label for e in loaded.data.train] == ["entailment"]


def test_choices_and_passages(tmp_path: Path) -> None:
    copa = {"premise": "It rained.", "choice1": "x", "choice2": "y", "question": "effect", "idx": 0, "label": 1}
    place = saved(tmp_path / "c", {"train": [copa]}, {"label": ["choice1", "choice2"]})
    (example,) = read_benchmark(BENCHMARKS["copa"], place, "train")
    assert example.label == (1,)
    record = {
        "passage": "Ann met Bo.\n@highlight\nfun", "query": "@placeholder smiled", "entities": ["Ann", "Bo", "Ann"],
        "answers": ["Bo"], "idx": {"passage": 0, "query": 7},
    }  # fmt: skip
    (example,) = read_benchmark(BENCHMARKS["record"], saved(tmp_path / "r", {"train": [record]}, {}), "train")
    assert (example.id, example.context, example.label) == ("7", "Ann met Bo. fun", (1,))
    assert example.choices == ("Ann smiled", "Bo smiled")
    race = {"example_id": "high12.txt", "article": "A\nb.", "question": "He _ .", "options": ["x", "y"], "answer": "B"}
    (example,) = read_benchmark(BENCHMARKS["race"], saved(tmp_path / "a", {"train": [race]}, {}), "train")
    assert (example.context, example.choices, example.label, example.group) == (
        "A b.",
        ("He x .", "He y ."),
        (1,),
        "high",
    )
    answers = [{"text": ["met"], "answer_start": [4]}, {"text": [], "answer_start": []}]
    rows = [
        {"id": str(i), "title": "T", "context": "Ann met Bo.", "question": "What?", "answers": a}
        for i, a in enumerate(answers)
    ]
    first, second = read_benchmark(BENCHMARKS["squad2"], saved(tmp_path / "q", {"train": rows}, {}), "train")
    assert (first.title, first.answers[0].text, first.answers[0].start, second.answers) == ("T", "met", 4, ())


def test_own_kinds_take_data_sets_and_predict_reads_them(tmp_path: Path) -> None:
    rows = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}]
    place = saved(tmp_path / "c", {"train": rows * 3, "validation": rows, "test": rows}, {"label": ["dull", "fine"]})
    loaded = load_task("classify", place)
    assert loaded.task.settings()["label_names"] == ["dull", "fine"]
    assert [e.label for e in loaded.data.held_out["dev"]] == ["fine", "dull"]
    assert len(loaded.final["test"]) == 2

    class Tuned:
        task = loaded.task

    assert [e.text for e in read_inputs(Tuned(), str(place), "", labelled=False)] == ["good", "bad"]  # type: ignore[arg-type]
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"]))
    words = datasets.Dataset.from_list([{"tokens": ["a", "b"], "ner_tags": [0, 1]}]).cast_column("ner_tags", tags)
    words.save_to_disk(str(tmp_path / "w"))
    loaded = load_task("tag", tmp_path / "w", dev=tmp_path / "w")
    assert loaded.data.train[0].label == ("O", "B-X")
    # A Dataset saved by itself is like a file: held-out data comes from it, and it is read whatever the split.
    words.select([0, 0, 0, 0]).save_to_disk(str(tmp_path / "four"))
    loaded = load_task("tag", tmp_path / "four", dev_share=0.25)
    assert (len(loaded.data.train), len(loaded.data.held_out["dev"])) == (3, 1)
    with pytest.raises(InputError, match=r"has no split 'dev_matched'; it has train, validation, test\."):
        open_hub(place).records("dev_matched")


def test_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    monkeypatch.setattr(hub, "_open_named", lambda name: asked.append(name))
    for text in ("hub:a/b", "hub:a/b:c", "hub:a/b:c@main", "hub:imdb@v1"):
        open_hub(text)
        assert str(asked[-1]) == text
    open_hub("hub", HUB_FORMS["sst2"].name)
    assert asked[-1] == HubName("nyu-mll/glue", "sst2")
    with pytest.raises(InputError, match="names no data set"):
        open_hub("hub:a b")
    with pytest.raises(InputError, match="no data set of its own"):
        open_hub("hub")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub").mkdir()
    assert not is_hub("hub")
    with pytest.raises(InputError, match="from its files only"):
        read_benchmark(BENCHMARKS["chnsenticorp"], "hub:a/b", "train")


def test_every_form_belongs_to_a_benchmark() -> None:
    assert HUB_FORMS.keys() <= BENCHMARKS.keys()


@pytest.mark.parametrize(
    ("error", "wanted", "text"),
    [
        (ConnectionError("no route"), MachineError, "out of reach.*no route"),
        (FileNotFoundError("gone"), InputError, "no such data set"),
        (ValueError("Config name is missing"), InputError, "Name one of its configurations"),
        (RuntimeError("Dataset scripts are no longer supported"), InputError, "no longer supported"),
    ],
)
def test_what_goes_wrong_is_said(
    error: Exception, wanted: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(wanted, match=text):
        open_hub(f"hub:nobody/{type(error).__name__}")


def test_without_the_library_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return original(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MachineError, match=r"pip install 'xlnet\[hub\]'"):
        open_hub("hub:nobody/nothing")


def test_a_damaged_saved_folder(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(InputError, match="cannot be read as a saved data set"):
        open_hub(tmp_path)
