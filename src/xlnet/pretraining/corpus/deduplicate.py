"""Exact duplicates among paragraphs (or lines), told apart by 64-bit hashes, first occurrence kept.

Cost: 13 to 27 bytes per distinct paragraph. The table lies in memory up to 128 MiB (some 10 million paragraphs, 3 GB of
books) and in a scratch file beyond, so memory stays bounded. Two different paragraphs share a hash with probability
n²/2⁶⁵: among a hundred million, 1 in 3,700 that a single one is lost.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlnet.pretraining.corpus.storage import guard_disk

_BATCH = 2048
_FIRST_SLOTS = 1 << 16
_SLOTS_IN_MEMORY = 1 << 24
_LARGEST_LOAD = 0.6


class HashSet:
    """A set of 64-bit keys with open addressing; keys are assumed to be evenly spread already.

    Args:
        scratch: folder for the table once it outgrows memory; None keeps it in memory.
    """

    def __init__(
        self, scratch: Path | None = None, slots: int = _FIRST_SLOTS, in_memory: int = _SLOTS_IN_MEMORY
    ) -> None:
        self._scratch = scratch
        self._in_memory = in_memory
        self._file: Path | None = None
        self._table = self._allocate(slots)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add ``keys [n]``; True where a key was in neither the set nor an earlier place of ``keys``."""
        keys = np.where(keys == 0, np.uint64(1), keys)  # 0 marks a free slot
        _, firsts = np.unique(keys, return_index=True)
        while self._count + len(firsts) > _LARGEST_LOAD * len(self._table):
            self._grow()
        new = np.zeros(len(keys), dtype=np.bool_)
        new[firsts] = self._insert(keys[firsts])
        self._count += int(new.sum())
        return new

    def _insert(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        new = np.zeros(len(keys), dtype=np.bool_)
        last = np.uint64(len(self._table) - 1)
        waiting = np.arange(len(keys))
        slots = keys & last
        while len(waiting):
            held = self._table[slots]
            free = held == 0
            # Several keys may reach for one free slot; the table keeps one of them, and the others move on.
            self._table[slots[free]] = keys[waiting[free]]
            settled = self._table[slots] == keys[waiting]
            new[waiting[settled & free]] = True
            waiting, slots = waiting[~settled], (slots[~settled] + np.uint64(1)) & last
        return new

    def _grow(self) -> None:
        old, old_file = self._table, self._file
        self._table = self._allocate(2 * len(old))
        for start in range(0, len(old), 1 << 20):
            part = np.asarray(old[start : start + (1 << 20)])
            self._insert(part[part != 0])
        if old_file is not None:
            old_file.unlink()

    def _allocate(self, slots: int) -> NDArray[np.uint64]:
        if self._scratch is None or slots <= self._in_memory:
            return np.zeros(slots, dtype=np.uint64)
        self._file = self._scratch / f"hashes-{slots}.tmp"
        with guard_disk(self._file), self._file.open("wb") as file:
            # Claimed at once: a full disk met later, through the map, would end the process without a word.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 8 * slots)
            else:
                file.truncate(8 * slots)
        return np.memmap(self._file, dtype=np.uint64, mode="r+", shape=(slots,))


@dataclass
class DuplicateCounts:
    """How many units were seen and removed, and the bytes of the removed ones."""

    units: int = 0
    duplicates: int = 0
    duplicate_bytes: int = 0


def drop_duplicates(units: Iterable[bytes], seen: HashSet | None, counts: DuplicateCounts) -> Iterator[bytes]:
    """Pass on units that were not seen before, and every end of a document (an empty unit).

    Args:
        units: as ``readers.read_units`` yields them.
        seen: what was seen so far; None passes everything on.
        counts: is added to.
    """
    iterator = iter(units)
    while batch := list(islice(iterator, _BATCH)):
        full = [unit for unit in batch if unit]
        counts.units += len(full)
        if seen is None:
            yield from batch
            continue
        digests = b"".join(hashlib.blake2b(unit, digest_size=8).digest() for unit in full)
        new = iter(seen.add(np.frombuffer(digests, dtype="<u8").astype(np.uint64)).tolist())
        for unit in batch:
            if not unit or next(new):
                yield unit
            else:
                counts.duplicates += 1
                counts.duplicate_bytes += len(unit)
