"""Does what a folder holds fit what a model needs? One message lists all that does not."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from xlnet.checkpoints.arrays import LazyTensors, as_lazy
from xlnet.checkpoints.names import ENCODER_PREFIX, HEAD_ROWS, Head
from xlnet.errors import CheckpointError

_SHOWN = 12


@dataclass(frozen=True)
class Match:
    """A checked correspondence between the tensors of a model and stored arrays.

    Attributes:
        names: name in the model -> name among the stored arrays.
        new: names in the model that nothing is stored for and that may start afresh.
        unused: stored arrays (of another head) that the model has no place for.
        tensors: the stored arrays.
    """

    names: Mapping[str, str]
    new: tuple[str, ...]
    unused: tuple[str, ...]
    tensors: LazyTensors

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Pairs of model name and tensor, read one at a time so that two never need memory at once."""
        for name, stored in self.names.items():
            yield name, self.tensors[stored]

    def copy_into(self, targets: Mapping[str, Tensor]) -> None:
        """Copy every stored array into the model's tensor of that name, converting the element type."""
        for name, tensor in self.items():
            targets[name].data.copy_(tensor)


def may_be_new(head: Head, new_head: bool) -> tuple[str, ...]:
    """What :func:`match` may let start afresh in a model with ``head``.

    The mask embedding starts the query stream only, and the release's fine-tuned checkpoints lack it. So models that
    read one stream do without it, and a language model does not. A head may be new only if the caller asked for that.
    """
    permits: set[str] = set() if head == "language_model" else {"mask_embedding", ENCODER_PREFIX + "mask_embedding"}
    if new_head:
        permits |= {row.ours.split(".")[0] + ("." if "." in row.ours else "") for row in HEAD_ROWS[head]}
    return tuple(sorted(permits))


def match(
    expected: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    source: str,
    may_be_new: Collection[str] = (),
) -> Match:
    """Pair the tensors a model expects with stored arrays, or say everything that is wrong.

    An encoder on its own (names without ``encoder.``) takes the encoder's arrays of a whole model, and the reverse.
    Stored arrays outside the encoder may be left over; the encoder's may not.

    Args:
        expected: name -> shape of each tensor of the model.
        tensors: stored arrays by our names, the encoder's with their prefix; a :class:`LazyTensors` is not read.
        source: what to call the origin in messages.
        may_be_new: names, or beginnings of names that end with a dot, that may be missing or of another shape. What
            shares such a beginning starts afresh together or not at all: half a layer is an error.

    Raises:
        CheckpointError: lists missing, unexpected and mis-shaped arrays together.
    """
    stored = as_lazy(tensors)
    by_bare = {name.removeprefix(ENCODER_PREFIX): name for name in stored}
    names = {name: by_bare[bare] for name in expected if (bare := name.removeprefix(ENCODER_PREFIX)) in by_bare}
    wrong = {name for name, origin in names.items() if stored.entry(origin).shape != tuple(expected[name])}
    new: set[str] = set()
    for permit in may_be_new:
        group = {name for name in expected if name == permit or (permit.endswith(".") and name.startswith(permit))}
        absent = group - names.keys()
        if absent == group or (group & wrong and not absent):
            new |= group
    names = {name: origin for name, origin in names.items() if name not in new}
    taken = set(names.values())
    left = [name for name in stored if name not in taken]
    missing = [name for name in expected if name not in names and name not in new]
    unexpected = [name for name in left if name.startswith(ENCODER_PREFIX)]
    misshapen = [
        f"{name} {list(stored.entry(names[name]).shape)}, should be {list(expected[name])}"
        f"{_called(stored, names[name], name)}"
        for name in names
        if name in wrong
    ]
    if missing or unexpected or misshapen:
        raise CheckpointError(_complaint(source, missing, unexpected, misshapen, left))
    return Match(names, tuple(name for name in expected if name in new), tuple(left), stored)


def _called(stored: LazyTensors, origin: str, name: str) -> str:
    foreign = stored.entry(origin).origin
    return f" (stored as {foreign})" if foreign not in (origin, name) else ""


def _complaint(source: str, missing: list[str], unexpected: list[str], wrong: list[str], left: list[str]) -> str:
    lines = [f"{source} does not fit this model."]
    if missing:
        lines.append(f"  missing ({len(missing)}): " + _listed([name + _nearest(name, left) for name in missing]))
    if unexpected:
        lines.append(f"  unexpected ({len(unexpected)}): " + _listed(unexpected))
    if wrong:
        lines.append(f"  wrong shape ({len(wrong)}): " + _listed(wrong))
    return "\n".join(lines)


def _nearest(name: str, left: list[str]) -> str:
    near = difflib.get_close_matches(name, left, n=1, cutoff=0.8)
    return f" (is it {near[0]!r}?)" if near else ""


def _listed(items: list[str]) -> str:
    shown = "; ".join(items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown}; and {len(items) - _SHOWN} more"
