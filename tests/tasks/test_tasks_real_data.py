"""The real files: as many rows of each label as their README and their authors count."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from xlnet.tasks.datasets.registry import BENCHMARKS

pytestmark = pytest.mark.data
LABELS: list[tuple[str, str, str, dict[str, int]]] = [
    ("sst2", "glue", "train", {"0": 29780, "1": 37569}),
    ("sst2", "glue", "dev", {"0": 428, "1": 444}),
    ("cola", "glue", "dev", {"0": 322, "1": 721}),
    ("mrpc", "glue", "dev", {"0": 154, "1": 346}),
    ("mnli", "glue", "train", {"contradiction": 5877, "entailment": 6277, "neutral": 5512}),
    ("mnli", "glue", "dev_matched", {"contradiction": 655, "entailment": 721, "neutral": 605}),
    ("qnli", "glue", "dev", {"entailment": 494, "not_entailment": 499}),
    ("rte", "glue", "dev", {"entailment": 146, "not_entailment": 131}),
    ("boolq", "superglue", "dev", {"false": 1237, "true": 2033}),
    ("cb", "superglue/CB_full", "train", {"contradiction": 119, "entailment": 115, "neutral": 16}),
    ("wic", "superglue", "dev", {"false": 319, "true": 319}),
    ("wsc", "superglue", "train", {"true": 32}),
    ("multirc", "superglue", "dev", {"0": 2773, "1": 2075}),
    ("imdb", "imdb", "train", {"neg": 12500, "pos": 12500}),
    ("imdb", "imdb", "test", {"neg": 12500, "pos": 12500}),
    ("chnsenticorp", "chnsenticorp", "train", {"0": 3430, "1": 4159}),
    ("chnsenticorp", "chnsenticorp", "test", {"0": 586, "1": 592}),
]


@pytest.mark.parametrize(("name", "folder", "split", "wanted"), LABELS)
def test_rows_of_each_label(name: str, folder: str, split: str, wanted: dict[str, int], shared_data: Path) -> None:
    examples = BENCHMARKS[name].read(shared_data / folder, split)
    assert Counter(example.label for example in examples) == wanted
    assert all(example.text.strip() for example in examples)


def test_test_rows_have_no_label(shared_data: Path) -> None:
    examples = BENCHMARKS["mrpc"].read(shared_data / "glue", "test")
    assert (len(examples), {example.label for example in examples}) == (1725, {None})


def test_reviews_that_stand_in_both_halves_of_imdb(shared_data: Path) -> None:
    train, test = (
        {example.text for example in BENCHMARKS["imdb"].read(shared_data / "imdb", split)}
        for split in ("train", "test")
    )
    assert len(train & test) == 123


def test_levels_and_answers_of_race(shared_data: Path) -> None:
    examples = BENCHMARKS["race"].read(shared_data / "race", "dev")
    assert Counter(example.group for example in examples) == {"middle": 108, "high": 92}
    assert Counter(example.label for example in examples) == {(0,): 41, (1,): 60, (2,): 58, (3,): 41}
