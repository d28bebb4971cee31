"""Arrays from one format's names and layouts to another's, through the table of names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from xlnet.checkpoints.arrays import Entry, LazyTensors
from xlnet.checkpoints.layouts import our_shape, their_shape, to_ours, to_theirs
from xlnet.checkpoints.names import Pair
from xlnet.errors import CheckpointError


def into_ours(theirs: LazyTensors, pairs: Iterable[Pair]) -> tuple[LazyTensors, set[str]]:
    """Rename and reshape foreign arrays, still without reading them.

    Arrays that are not there are passed over: whether one was needed is decided where a model asks for it.

    Returns:
        Our arrays, and the foreign names that were used.

    Raises:
        CheckpointError: an array has the wrong number of dimensions or of layers.
    """
    entries: dict[str, Entry] = {}
    used: set[str] = set()
    pairs = list(pairs)
    depth = Counter(pair.theirs for pair in pairs if pair.layer is not None)
    for pair in pairs:
        if pair.theirs not in theirs:
            continue
        used.add(pair.theirs)
        source = theirs.entry(pair.theirs)
        try:
            entries[pair.ours] = _changed(source, pair, depth[pair.theirs])
        except CheckpointError as error:
            raise CheckpointError(f"{pair.theirs}: {error} It should become {pair.ours!r}.") from error
    return LazyTensors(entries), used


def _changed(source: Entry, pair: Pair, n_layer: int) -> Entry:
    shape = source.shape
    if pair.layer is not None:
        if not shape or shape[0] != n_layer:
            raise CheckpointError(f"shape {list(shape)} should begin with the number of layers, {n_layer}.")
        shape = shape[1:]

    ours = our_shape(shape, pair.layout)

    def read() -> Tensor:
        if pair.layer is None and pair.layout == "same":
            return source.read()
        # Allocated first: what is read lies above it and can be returned to the system, so no holes are left.
        result = torch.empty(ours, dtype=source.dtype)
        tensor = source.read()
        return result.copy_(to_ours(tensor if pair.layer is None else tensor[pair.layer], pair.layout))

    return Entry(ours, source.dtype, read, source.origin)


def into_theirs(ours: LazyTensors, pairs: Iterable[Pair], n_head: int) -> LazyTensors:
    """The inverse of :func:`into_ours`: contiguous tensors under the foreign names, made when they are read.

    Pairs whose array is not in ``ours`` are passed over. A stacked array needs all of its layers.

    Raises:
        CheckpointError: some layers of a stacked array are missing.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.theirs, []).append(pair)
    entries: dict[str, Entry] = {}
    for name, group in groups.items():
        missing = [pair.ours for pair in group if pair.ours not in ours]
        if len(missing) == len(group):
            continue
        if missing:
            raise CheckpointError(f"{name} is one array of all layers, but these are missing: {', '.join(missing)}.")
        first = ours.entry(group[0].ours)
        shape = their_shape(first.shape, group[0].layout, n_head)
        if group[0].layer is not None:
            shape = (len(group), *shape)
        entries[name] = Entry(shape, first.dtype, _Assembly(ours, group, n_head), group[0].ours)
    return LazyTensors(entries)


class _Assembly:
    """Reads one foreign array from ours."""

    def __init__(self, ours: LazyTensors, group: list[Pair], n_head: int) -> None:
        self.ours = ours
        self.group = group
        self.n_head = n_head

    def __call__(self) -> Tensor:
        parts = [to_theirs(self.ours[pair.ours], pair.layout, self.n_head) for pair in self.group]
        return parts[0].contiguous() if self.group[0].layer is None else torch.stack(parts)
