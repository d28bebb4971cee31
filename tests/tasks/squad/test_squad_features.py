"""Features equal those recorded from the release, for all 78 windows of the recorded file, in training and prediction.

Differences, each on purpose:

* padding is on the left with ``<pad>`` (the release pads SQuAD alone on the right, with 0 and segment 3); positions are
  relative and padding is invisible, so nothing else changes;
* characters of pieces come from the tokenizer's own offsets. The release aligns pieces with the text by a longest
  common subsequence and fills gaps by guessing (``_convert_index``), and skips a passage where too little could be
  aligned: none here. In the recorded passages both agree on every piece but the lone ``▁`` that SentencePiece puts in
  front of a text, to which the release gives the first letter and we an empty span.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from squad_recorded import recorded, write_json
from task_toys import toy_tokenizer

from xlnet.tasks.squad.examples import SquadExample
from xlnet.tasks.squad.reading import read_squad
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.tasks.squad.windows import encode_passage, max_context, window_spans
from xlnet.text import XLNetTokenizer

toy_tokenizer_once = cache(toy_tokenizer)
TASK = QuestionAnswering(max_length=64, stride=16, max_query_length=12)


@pytest.fixture
def examples(tmp_path: Path) -> list[SquadExample]:
    """Of the recorded file."""
    return read_squad(write_json(tmp_path / "input.json", recorded()["input"]))


@pytest.mark.parametrize("training", [True, False])
def test_features_are_the_recorded_ones(
    examples: list[SquadExample], tokenizer: XLNetTokenizer, training: bool
) -> None:
    features = recorded()["features"]
    rows = TASK.features(examples, tokenizer, training=training)
    assert len(rows) == len(features) == 78
    batch = TASK.collate(rows)
    width = batch.inputs["input_ids"].shape[1]
    for number, (row, wanted) in enumerate(zip(rows, features, strict=True)):
        (sequence,) = row.sequences
        assert row.example == wanted["example"]
        assert row.extra["passage_length"] == wanted["passage_length"]
        assert sequence.input_ids.tolist() == wanted["input_ids"]
        assert sequence.token_type_ids.tolist() == wanted["segments"]
        barred = batch.inputs["p_mask"][number].tolist()
        assert barred == [True] * (width - len(sequence)) + [mark == "1" for mark in wanted["p_mask"]]
        assert int(batch.inputs["cls_index"][number]) - (width - len(sequence)) == len(wanted["input_ids"]) - 1
        if training:
            assert list(row.label) == wanted["answer"]
            assert int(batch.labels["start"][number]) + len(sequence) == wanted["answer"][0]
            assert int(batch.labels["end"][number]) + len(sequence) == wanted["answer"][1]
            assert bool(batch.labels["impossible"][number]) == wanted["answer"][2]
        else:
            assert row.label is None
            assert [str(int(mark)) for mark in row.extra["window"].max_context] == list(wanted["max_context"])


def test_characters_of_pieces_are_the_recorded_ones(examples: list[SquadExample], tokenizer: XLNetTokenizer) -> None:
    different = []
    rows = TASK.features(examples, tokenizer, training=False)
    for row, wanted in zip(rows, recorded()["features"], strict=True):
        passage, window = examples[row.example].passage, row.extra["window"]
        for place in range(len(window)):
            theirs = passage[wanted["starts"][place] : wanted["ends"][place] + 1].strip()
            ours = passage[window.starts[place] : window.ends[place]].strip()
            if ours != theirs:
                different.append((row.example, place, theirs, ours))
    assert different == [(9, 0, "F", ""), (10, 0, "F", "")]


def test_context_of_overlapping_windows_is_the_recorded_one() -> None:
    for case in recorded()["max_context"]:
        found = max_context([(start, start + size) for start, size in case["spans"]])
        for (start, size), ours, theirs in zip(case["spans"], found, case["out"], strict=True):
            assert ours.tolist() == theirs[start : start + size]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 80))
def test_windows_show_every_piece_and_one_of_them_best(count: int, size: int, stride: int) -> None:
    spans = window_spans(count, size, stride)
    assert all(0 <= end - start <= size for start, end in spans)
    assert spans[-1][1] == count
    best = np.zeros(count, dtype=int)
    for (start, end), mine in zip(spans, max_context(spans), strict=True):
        best[start:end] += mine
    assert (best == 1).all()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=60), st.data())
def test_an_answer_becomes_pieces_that_hold_it(passage: str, data: st.DataObject) -> None:
    encoded = encode_passage(toy_tokenizer_once(), passage)
    start = data.draw(st.integers(0, len(passage)))
    end = data.draw(st.integers(start, len(passage)))
    span = encoded.span(start, end)
    if span is None:
        return
    first, last = span
    assert first <= last
    assert encoded.starts[first] < end
    assert encoded.ends[last] > start
    # One piece less on either side would lose a character of the answer.
    assert first == 0 or not ((encoded.ends[:first] > start) & (encoded.starts[:first] < encoded.ends[:first])).any()


def test_answers_with_ligatures_fractions_and_accents_are_found_whole(tokenizer: XLNetTokenizer) -> None:
    passage = "A \ufb01nal \u00bd o\ufb03ce\u2026 in Z\u00fcrich cost \u00a312,500, they said."
    encoded = encode_passage(tokenizer, passage)
    for text in ("\ufb01nal", "\u00bd", "Z\u00fcrich", "\u00a312,500", "o\ufb03ce"):
        start = passage.index(text)
        span = encoded.span(start, start + len(text))
        assert span is not None
        assert passage[encoded.starts[span[0]] : encoded.ends[span[1]]].strip() == text


def test_empty_passage_and_empty_question_are_read(tokenizer: XLNetTokenizer) -> None:
    examples = [SquadExample("a", "", "Some value."), SquadExample("b", "What?", ""), SquadExample("c", "", "")]
    rows = TASK.features(examples, tokenizer, training=False)
    assert [row.example for row in rows] == [0, 1, 2]
    assert [row.extra["passage_length"] > 0 for row in rows] == [True, False, False]
    TASK.collate(rows)
