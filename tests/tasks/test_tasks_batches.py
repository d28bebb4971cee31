"""Training batches: every row once an epoch, like lengths together, resumed exactly, shared among processes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_toys import toy_texts, toy_tokenizer

from xlnet.errors import CheckpointError, InputError
from xlnet.tasks.batches import BucketedBatches, sorted_batches
from xlnet.tasks.contract import Row
from xlnet.tasks.families.classification import TextClassification

TASK = TextClassification(max_length=32)
ROWS = TASK.features(toy_texts(60), toy_tokenizer(), training=True)


def epoch(batches: BucketedBatches) -> list[Any]:
    return [next(batches) for _ in range(batches.batches_per_epoch)]


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(1, 17), st.integers(0, 5))
def test_every_row_comes_once_an_epoch(count: int, size: int, seed: int) -> None:
    batches = BucketedBatches(TASK, ROWS[:count], size, seed=seed)
    for _ in range(2):
        seen = Counter(row.example for batch in epoch(batches) for row in batch.rows)
        assert seen == Counter(range(count))


def test_batches_hold_rows_of_like_length_and_epochs_differ() -> None:
    batches = BucketedBatches(TASK, ROWS, 8)
    first, second = epoch(batches), epoch(batches)
    spreads = [max(row.length for row in b.rows) - min(row.length for row in b.rows) for b in first]
    assert sum(spreads) / len(spreads) <= 4
    assert [b.rows[0].example for b in first] != [b.rows[0].example for b in second]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 40), st.integers(1, 9))
def test_restored_batches_go_on_exactly(steps: int, size: int) -> None:
    one = BucketedBatches(TASK, ROWS[:31], size, seed=3)
    for _ in range(steps):
        next(one)
    other = BucketedBatches(TASK, ROWS[:31], size, seed=3)
    other.restore(one.state())
    for _ in range(12):
        a, b = next(one), next(other)
        assert [row.example for row in a.rows] == [row.example for row in b.rows]
        assert torch.equal(a.inputs["input_ids"], b.inputs["input_ids"])


@pytest.mark.parametrize("change", ["rows", "size", "seed"])
def test_a_state_of_other_data_is_refused(change: str) -> None:
    state = BucketedBatches(TASK, ROWS, 8, seed=1).state()
    other = BucketedBatches(
        TASK, ROWS[:50] if change == "rows" else ROWS, 4 if change == "size" else 8, seed=2 if change == "seed" else 1
    )
    with pytest.raises(CheckpointError, match="other training data" if change == "rows" else change):
        other.restore(state)


def test_processes_share_the_rows() -> None:
    shares = [BucketedBatches(TASK, ROWS, 8, seed=5, rank=rank, world_size=3) for rank in range(3)]
    seen = [{row.example for batch in epoch(share) for row in batch.rows} for share in shares]
    assert seen[0] | seen[1] | seen[2] == set(range(60))
    assert [len(found) for found in seen] == [20, 20, 20]
    with pytest.raises(InputError, match="2 rows are too few"):
        BucketedBatches(TASK, ROWS[:2], 8, world_size=3)


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    batches = BucketedBatches(TASK, ROWS[:3], 8)
    assert batches.batches_per_epoch == 1
    assert len(next(batches).rows) == 3


def test_prediction_reads_the_longest_rows_first_and_each_once() -> None:
    places: list[int] = []
    lengths: list[int] = []
    for own, batch in sorted_batches(TASK, ROWS, 7):
        places += own
        lengths += [row.length for row in batch.rows]
    assert sorted(places) == list(range(60))
    assert lengths == sorted(lengths, reverse=True)


def test_rows_without_labels_make_batches_without_labels() -> None:
    row = Row(0, ROWS[0].sequences, None)
    assert TASK.collate([row]).labels == {}
