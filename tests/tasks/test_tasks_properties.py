"""For any texts: one prediction for each input row, words found again in their pieces, windows that tag every word."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from task_toys import toy_tokenizer

from xlnet.tasks.datasets.outputs import write_predictions
from xlnet.tasks.datasets.tables import read_jsonl
from xlnet.tasks.families.token_classification import TokenClassification, WordsExample, word_windows
from xlnet.tasks.fine_tuned import FineTuned

RELAXED = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)


@RELAXED
@given(texts=st.lists(TEXTS, max_size=9), size=st.integers(1, 5))
def test_one_prediction_for_each_row_whatever_stands_in_it(
    texts: list[str], size: int, tuned: FineTuned, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    records = read_jsonl(source)
    assert [record.values["text"] for record in records] == texts
    predictions = tuned.predict([record.values for record in records], batch_size=size)
    assert [prediction["id"] for prediction in predictions] == [str(i) for i in range(len(texts))]
    for name in ("out.jsonl", "out.tsv"):
        write_predictions(predictions, tmp_path / name)
    assert len(target.read_text(encoding="utf-8").splitlines()) == len(texts)
    assert len((tmp_path / "out.tsv").read_text(encoding="utf-8").split("\n")) == len(texts) + 2


@RELAXED
@given(st.lists(TEXTS, max_size=12))
def test_a_word_is_tagged_where_its_first_piece_stands(words: list[str]) -> None:
    tokenizer, task = toy_tokenizer(), TokenClassification(max_length=64)
    rows = task.features([WordsExample("0", tuple(words), ("O",) * len(words))], tokenizer, training=False)
    seen: dict[int, int] = {}
    for row in rows:
        (sequence,) = row.sequences
        for place, start in enumerate(row.extra["starts"]):
            word = row.extra["first"] + place
            pieces = tokenizer.encode_lines([words[word]])[0][:62]
            wanted = pieces.tolist() or [tokenizer.unk_id]
            assert sequence.input_ids[start : start + len(wanted)].tolist() == wanted
            seen[word] = 1
    assert sorted(seen) == list(range(len(words)))


@RELAXED
@given(st.lists(st.integers(1, 10), max_size=40), st.integers(10, 30), st.integers(0, 8))
def test_windows_of_words_fit_and_cover_everything(lengths: list[int], room: int, overlap: int) -> None:
    ranges = word_windows(lengths, room, overlap)
    covered = [i for first, last in ranges for i in range(first, last)]
    assert set(covered) == set(range(len(lengths)))
    assert all(sum(lengths[first:last]) <= room for first, last in ranges)
    assert all(a < b for (a, _), (b, _) in pairwise(ranges))


@RELAXED
@given(st.integers(0, 2**16), st.integers(3, 30))
def test_a_word_takes_its_tag_from_the_window_that_shows_most_around_it(seed: int, count: int) -> None:
    task = TokenClassification(max_length=12, label_names=("O", "B-X"), overlap=4)
    example = WordsExample("0", ("value",) * count)
    rows = task.features([example], toy_tokenizer(), training=False)
    outputs = []
    for number, row in enumerate(rows):
        scores = np.zeros((len(row.extra["starts"]), 2), dtype=np.float32)
        scores[:, 1] = number + 1
        outputs.append(scores)
    (record,) = task.predictions([example], rows, outputs)
    chosen = [round(np.log(p / (1 - p))) - 1 for p in record["probabilities"]]
    for word, number in enumerate(chosen):

        def context(row: object, word: int = word) -> float:
            first = row.extra["first"]  # type: ignore[attr-defined]
            last = first + len(row.extra["starts"])  # type: ignore[attr-defined]
            if not first <= word < last:
                return -1.0
            left = np.inf if first == 0 else word - first
            right = np.inf if last == count else last - 1 - word
            return min(left, right)

        assert context(rows[number]) == max(context(row) for row in rows)
