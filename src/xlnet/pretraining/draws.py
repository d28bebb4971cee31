"""Random numbers that depend on a name, not on history.

Each draw of the data path belongs to a key such as (seed, epoch, step, lane). Two programs that ask for the same key
get the same numbers, whatever else they computed before: batches do not depend on the number of workers or a restart.
Only uniform doubles of PCG64 are used, whose sequence NumPy keeps stable across versions and machines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 128


class Draws:
    """The uniform numbers that belong to one key of non-negative integers."""

    def __init__(self, *key: int) -> None:
        # Two words for each number, after their count: NumPy would take (1,) and (1, 0) for the same key.
        words = [len(key), *(word for number in key for word in (number & 0xFFFFFFFF, number >> 32))]
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
        self._ready: list[float] = []

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if not self._ready:
            self._ready = self._generator.random(_BLOCK).tolist()
        return self._ready.pop()

    def below(self, limit: int) -> int:
        """An integer in [0, limit), each equally likely; ``limit`` must be positive."""
        return int(self.uniform() * limit)

    def permutation(self, length: int) -> NDArray[np.int64]:
        """The integers 0 ... length - 1 in random order."""
        return np.argsort(self._generator.random(length), kind="stable").astype(np.int64)
