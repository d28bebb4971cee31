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


def may_be_new(head: Head, stored_head: Head, new_head: bool) -> tuple[str, ...]:
    """What :func:`match` may let start afresh, for a model with ``head`` read from a checkpoint of ``stored_head``.

    The mask embedding starts the query stream only; the release's fine-tuned checkpoints lack it. So models that
    read one stream do without it, and a language model does not. A head may be new only where the checkpoint is of
    another kind and the caller asked for a new one.
    """
    permits: list[str] = [] if head == "language_model" else ["mask_embedding", ENCODER_PREFIX + "mask_embedding"]
    if new_head and head != stored_head:
        permits += {row.ours.split(".")[0] + ("." if "." in row.ours else "") for row in HEAD_ROWS[head]}
    return tuple(sorted(permits))


def match(
    expected: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    source: str,
    may_be_new: Collection[str] = (),
    ignore_heads: bool = True,
) -> Match:
    """Pair the tensors a model expects with stored arrays, or say everything that is wrong.

    An encoder on its own (names without ``encoder.``) takes the encoder's arrays of a whole model, and the reverse.

    Args:
        expected: name -> shape of each tensor of the model.
        tensors: stored arrays by our names; a :class:`LazyTensors` is not read.
        source: what to call the origin in messages.
        may_be_new: names, or beginnings of names that end with a dot, that may be missing. A head must be stored
            whole or not at all: if some arrays under such a beginning are there, the others are needed.
        ignore_heads: stored arrays outside the encoder may be left over. The encoder's may not.

    Raises:
        CheckpointError: lists missing, unexpected and mis-shaped arrays together.
    """
    stored = as_lazy(tensors)
    by_bare = {name.removeprefix(ENCODER_PREFIX): name for name in stored}
    names = {name: by_bare[bare] for name in expected if (bare := name.removeprefix(ENCODER_PREFIX)) in by_bare}
    taken = set(names.values())
    left = [name for name in stored if name not in taken]
    absent = [name for name in expected if name not in names]
    present = set(names)
    new = [name for name in absent if _allowed(name, may_be_new, present)]
    missing = [name for name in absent if name not in set(new)]
    wrong = [
        f"{name} {list(stored.entry(origin).shape)}, should be {list(expected[name])}{_called(stored, origin, name)}"
        for name, origin in names.items()
        if stored.entry(origin).shape != tuple(expected[name])
    ]
    heads_end = any(name.startswith(ENCODER_PREFIX) for name in stored)
    unexpected = [name for name in left if not (ignore_heads and heads_end and not name.startswith(ENCODER_PREFIX))]
    if missing or unexpected or wrong:
        raise CheckpointError(_complaint(source, missing, unexpected, wrong, left))
    return Match(names, tuple(new), tuple(left), stored)


def _allowed(name: str, may_be_new: Collection[str], present: set[str]) -> bool:
    for permit in may_be_new:
        if name == permit:
            return True
        if permit.endswith(".") and name.startswith(permit):
            return not any(other.startswith(permit) for other in present)
    return False


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
