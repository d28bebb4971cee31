"""Rows in batches of like length: shuffled and endless for training, sorted and finite for prediction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlnet.errors import CheckpointError, InputError
from xlnet.tasks.contract import Row, Task, TaskBatch

_POOL_BATCHES = 64


class BucketedBatches:
    """Endless training batches, a new shuffle each epoch, that can be taken up again where they stood.

    An epoch shuffles all rows, sorts them by length within pools of some batches, cuts batches and shuffles these: rows
    of a batch have like lengths, so little is padding, and every row comes exactly once an epoch. The order follows
    from seed and epoch alone, so the state is two numbers.

    Args:
        task: makes tensors of rows.
        rows: at least one.
        batch_size: rows of a batch; the last of an epoch may have fewer.
        seed: of the shuffles.
        rank: which share of the rows this process reads.
        world_size: number of processes.
        shuffle: False keeps the order of the rows, and batches of any length.
    """

    def __init__(
        self,
        task: Task,
        rows: Sequence[Row],
        batch_size: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool = True,
    ) -> None:
        if len(rows) < world_size:
            raise InputError(f"{len(rows)} rows are too few to train on with {world_size} processes.")
        self._task = task
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._shuffle = shuffle
        self._lengths = np.array([row.length for row in rows])
        self._fingerprint = fingerprint(rows)
        self._epoch = 0
        self._position = 0
        self._order = self._epoch_order(0)

    @property
    def batches_per_epoch(self) -> int:
        """Of one process."""
        return len(self._order)

    def _epoch_order(self, epoch: int) -> list[NDArray[np.int64]]:
        size = self._batch_size
        if not self._shuffle:
            own = np.arange(len(self._rows))[self._rank :: self._world_size]
            return [own[start : start + size] for start in range(0, len(own), size)]
        generator = np.random.default_rng([self._seed, epoch])
        shuffled = generator.permutation(len(self._rows))
        # Every process takes equally many; the few left over come in some other epoch.
        share = len(shuffled) // self._world_size
        own = shuffled[self._rank * share : (self._rank + 1) * share]
        pool = size * _POOL_BATCHES
        batches = []
        for start in range(0, len(own), pool):
            part = own[start : start + pool]
            part = part[np.argsort(self._lengths[part], kind="stable")]
            batches += [part[i : i + size] for i in range(0, len(part), size)]
        return [batches[i] for i in generator.permutation(len(batches))]

    def __next__(self) -> TaskBatch:
        if self._position == len(self._order):
            self._epoch += 1
            self._position = 0
            self._order = self._epoch_order(self._epoch)
        batch = self._task.collate([self._rows[i] for i in self._order[self._position]])
        self._position += 1
        return batch

    def state(self) -> dict[str, Any]:
        """Where the next batch lies."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "fingerprint": self._fingerprint,
            "batch_size": self._batch_size,
            "seed": self._seed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken.

        Raises:
            CheckpointError: it was taken with other rows, batch size or seed.
        """
        for key, now in (("batch_size", self._batch_size), ("seed", self._seed), ("fingerprint", self._fingerprint)):
            if state[key] != now:
                what = "other training data (or another tokenizer or max_length)" if key == "fingerprint" else key
                raise CheckpointError(
                    f"The run to resume had {what}: {state[key]} then, {now} now. Resume with what it was started "
                    "with, or choose another output folder."
                )
        self._epoch, self._position = state["epoch"], state["position"]
        self._order = self._epoch_order(self._epoch)


def fingerprint(rows: Sequence[Row]) -> str:
    """Short hash of the ids and labels of all rows."""
    digest = hashlib.sha256()
    for row in rows:
        for sequence in row.sequences:
            digest.update(sequence.input_ids.tobytes())
        digest.update(repr(row.label).encode())
    return digest.hexdigest()[:16]


def sorted_batches(task: Task, rows: Sequence[Row], batch_size: int) -> Iterator[tuple[list[int], TaskBatch]]:
    """All rows once, longest first (memory runs out at once or never), each batch with the places of its rows.

    Labels are left out: those of rows to predict may be of any kind, or made up.
    """
    order = sorted(range(len(rows)), key=lambda i: -rows[i].length)
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield places, task.collate([replace(rows[i], label=None) for i in places])
