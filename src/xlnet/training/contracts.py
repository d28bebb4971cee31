"""What the training loop asks of those who use it: three small protocols, and nothing about the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

Carried = dict[str, Tensor]
Evaluate = Callable[[nn.Module], Mapping[str, float]]
SaveModel = Callable[[Path], None]


class Step(NamedTuple):
    """What an objective returns for one micro-batch.

    Attributes:
        loss_sum: scalar with gradient, the sum (not the mean) of the losses of all targets.
        count: number of targets; gradients are divided by the sum of counts over micro-batches and processes.
        carried: what the same lanes need next time (the memory), opaque to the loop, or None.
    """

    loss_sum: Tensor
    count: Tensor | int  # type: ignore[assignment]  # hides the method of tuple, which no one needs here
    carried: Carried | None = None


class Objective(Protocol):
    """Batch in, summed loss out. Must call ``model`` as a function only, so that it may be wrapped."""

    def __call__(self, model: nn.Module, batch: Any, carried: Carried | None) -> Step: ...


class Batches(Protocol):
    """An endless stream of micro-batches that can be taken up again where it stood.

    ``state`` is plain: None, bool, int, float, str, tensors, and lists, tuples and dicts of these; after ``restore``
    the next item is exactly the one that would have come after ``state``. ``restore`` refuses a state of other data.

    A stream may have an attribute ``lane_groups: int`` (default: the accumulation of the run): item n continues the
    text of item n - lane_groups, so that is where its ``carried`` comes from. A batch may have ``to(device)`` and
    ``token_count``.
    """

    def __next__(self) -> Any: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...
