"""Features equal those recorded from the release at real positions; long texts are read in four ways.

Differences from the release, each on purpose: padding is ``<pad>`` (5), the release has 0; a padding *example* (the
release fills its last TPU batch with them) does not exist here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.errors import ConfigurationError
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multiple_choice import ChoiceExample, MultipleChoice
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.sequences import fit_sequences, join, windows
from xlnet.tasks.families.text import TextExample
from xlnet.text import XLNetTokenizer

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = json.loads((GOLDEN / "text" / "classifier_features.json").read_text())
RACE = json.loads((GOLDEN / "tasks" / "race_features.json").read_text())


@pytest.mark.parametrize("case", [c for c in CASES if not c["padding_example"]], ids=lambda c: c["name"])
def test_classifier_features_are_the_recorded_ones(case: dict[str, Any], golden: Path) -> None:
    tokenizer = XLNetTokenizer.from_pretrained(golden / "text" / "spiece.model", lower=case["uncased"])
    example = TextExample("0", case["text_a"], case["text_b"], case["label"])
    if case["name"] == "regression":
        task: Any = TextRegression(max_length=case["max_seq_length"])
    else:
        # The shortest recorded length is below what a task accepts: it is cut by the function itself there.
        length = max(8, case["max_seq_length"])
        task = TextClassification(max_length=length, label_names=tuple(case["label_list"]))
    rows = task.features([example], tokenizer, training=True)
    (sequence,) = rows[0].sequences
    if case["max_seq_length"] < 8:
        ids = tokenizer.encode_lines([case["text_a"]])[0]
        (sequence,) = fit_sequences(ids, None, case["max_seq_length"])
    real = np.array(case["input_mask"]) == 0
    assert sequence.input_ids.tolist() == np.array(case["input_ids"])[real].tolist()
    assert sequence.token_type_ids.tolist() == np.array(case["segment_ids"])[real].tolist()
    # And through the batch: real positions where the recorded mask has them, padding is <pad> with segment 4.
    batch = task.collate([replace(rows[0], sequences=(sequence,))])
    mask = batch.inputs["attention_mask"][0]
    assert batch.inputs["input_ids"][0][mask].tolist() == sequence.input_ids.tolist()
    assert set(batch.inputs["input_ids"][0][~mask].tolist()) <= {5}
    assert set(batch.inputs["token_type_ids"][0][~mask].tolist()) <= {4}
    assert mask[-int(real.sum()) :].all()
    assert not mask[: -int(real.sum())].any()
    if case["name"] == "regression":
        assert batch.labels["targets"].tolist() == pytest.approx([case["label_id"]])
    else:
        assert batch.labels["targets"].tolist() == [case["label_id"]]


@pytest.mark.parametrize("number", range(len(RACE["cases"])))
def test_race_features_are_the_recorded_ones_without_the_aliasing_fault(number: int, tokenizer: XLNetTokenizer) -> None:
    case = RACE["cases"][number]
    task = MultipleChoice(max_length=case["max_seq_length"], max_choice_length=case["max_qa_length"])
    example = ChoiceExample("0", case["context"], tuple(case["qa_list"]), (case["label"],))
    (row,) = task.features([example], tokenizer, training=False)
    length, wanted = case["max_seq_length"], case["without_aliasing"]
    for choice, sequence in enumerate(row.sequences):
        part = slice(choice * length, (choice + 1) * length)
        real = np.array(wanted["input_mask"][part]) == 0
        assert sequence.input_ids.tolist() == np.array(wanted["input_ids"][part])[real].tolist()
        assert sequence.token_type_ids.tolist() == np.array(wanted["segment_ids"][part])[real].tolist()
    assert row.label == (wanted["label_id"],)


def _ids(count: int, first: int = 100) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.int32)


def test_four_ways_to_read_a_long_text() -> None:
    ids = _ids(20)
    body = {how: [s.input_ids.tolist()[:-2] for s in fit_sequences(ids, None, 10, how, 5)] for how in
            ("head", "tail", "head_tail", "windows")}  # fmt: skip
    assert body["head"] == [list(range(100, 108))]
    assert body["tail"] == [list(range(112, 120))]
    assert body["head_tail"] == [[100, 101, *range(114, 120)]]
    assert body["windows"] == [list(range(s, s + 8)) for s in (100, 105, 110, 112)]


def test_windows_of_a_pair_slide_over_the_longer_text() -> None:
    for first, second in ((_ids(4), _ids(30, 500)), (_ids(30, 500), _ids(4))):
        found = fit_sequences(first, second, 16, "windows", 5)
        seen = set()
        for sequence in found:
            assert len(sequence) == 16
            assert {100, 101, 102, 103} <= set(sequence.input_ids.tolist())
            seen |= set(sequence.input_ids.tolist())
        assert set(range(500, 530)) <= seen


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 12), st.integers(1, 20))
def test_windows_cover_everything_once_in_order(count: int, size: int, stride: int) -> None:
    ids = _ids(count)
    found = windows(ids, size, stride)
    assert set(ids.tolist()) == {i for part in found for i in part.tolist()}
    assert all(len(part) == min(size, count) for part in found)
    starts = [part[0] for part in found if len(part)]
    assert starts == sorted(set(starts))


@settings(deadline=None)
@given(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40)), st.sampled_from(["head", "tail", "head_tail"]))
def test_no_sequence_is_longer_than_allowed_and_short_ones_are_whole(a: int, b: int | None, how: str) -> None:
    first, second = _ids(a), None if b is None else _ids(b, 500)
    (sequence,) = fit_sequences(first, second, 24, how)  # type: ignore[arg-type]
    whole = join(first, second)
    assert len(sequence) == min(24, len(whole))
    assert sequence.input_ids[-1] == 3
    if len(whole) <= 24:
        assert sequence.input_ids.tolist() == whole.input_ids.tolist()


def test_windows_are_pooled_into_one_prediction(tokenizer: XLNetTokenizer) -> None:
    task = TextClassification(max_length=16, long_text="windows", stride=8)
    examples = [TextExample("a", "the value of the class " * 20), TextExample("b", "short")]
    rows = task.features(examples, tokenizer, training=False)
    assert len(rows) > 4
    assert [row.example for row in rows] == [0] * (len(rows) - 1) + [1]
    outputs = [np.array([i, -1.0], dtype=np.float32) for i in range(len(rows))]
    first, second = task.predictions(examples, rows, outputs)
    mean = np.mean(range(len(rows) - 1))
    assert first["probabilities"]["0"] == pytest.approx(1 / (1 + np.exp(-1.0 - mean)))
    assert second["id"] == "b"


def test_settings_of_long_texts_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'head_tail'"):
        TextClassification(long_text="head_tale")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="skips text"):
        TextClassification(max_length=32, long_text="windows", stride=29)
    with pytest.raises(ConfigurationError, match="max_length=7"):
        TextClassification(max_length=7)
