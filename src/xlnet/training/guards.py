"""Watchmen of the loop: a number that is not one, a loss that runs away, a machine out of memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from xlnet.errors import MachineError, TrainingError

WINDOW = 101
WARM_UP = 20
# Of the allocators for Linux and Windows, of Apple's devices, of libraries on a GPU.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "_ALLOC_FAILED")


class LossGuard:
    """Compares each loss with the running median of the last ones that were not suspicious.

    Args:
        factor: a loss above ``factor`` times the median is suspicious.
        patience: so many in a row raise; 0 never does.
        history: state of an earlier guard, see :meth:`state`.
    """

    def __init__(self, factor: float, patience: int, history: tuple[list[float], int] = ([], 0)) -> None:
        self.factor = factor
        self.patience = patience
        self.losses = list(history[0])
        self.suspicious_steps = history[1]

    @property
    def suspicious(self) -> bool:
        """True while the latest loss was out of bounds, so its parameters should displace no good checkpoint."""
        return self.suspicious_steps > 0

    def state(self) -> tuple[list[float], int]:
        """What a resumed run hands to a new guard."""
        return list(self.losses), self.suspicious_steps

    def see(self, loss: float, step: int, last_good: str) -> None:
        """Judge the mean loss of one step.

        Raises:
            TrainingError: after ``patience`` suspicious steps in a row.
        """
        if self.patience == 0:
            return
        median = statistics.median(self.losses) if len(self.losses) >= WARM_UP else math.inf
        if median <= 0.0 or loss <= self.factor * median:
            self.suspicious_steps = 0
            self.losses = [*self.losses[-(WINDOW - 1) :], loss]
            return
        self.suspicious_steps += 1
        if self.suspicious_steps >= self.patience:
            raise TrainingError(
                f"Step {step}: the loss is {loss:.4g} and has stayed above {self.factor:g} times its running median "
                f"({median:.4g}) for {self.suspicious_steps} steps: training diverged. {last_good} "
                "Lower optimizer.learning_rate, lengthen schedule.warmup_steps or lower clip_norm."
            )


def check_finite(loss: float, gradient_norm: float, step: int, model: nn.Module, last_good: str) -> None:
    """Refuse a step whose loss or gradient is NaN or infinite, before it reaches the parameters.

    Raises:
        TrainingError: what it was, at which step, in which parameters, and where the last good checkpoint lies.
    """
    if not math.isfinite(loss):
        what = f"the loss is {loss}"
    elif not math.isfinite(gradient_norm):
        bad = [
            name
            for name, parameter in model.named_parameters()
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
        ]
        where = f" (in {', '.join(bad[:3])}{' and others' if len(bad) > 3 else ''})" if bad else ""
        what = f"the loss is {loss:.4g} but the gradient is not finite{where}"
    else:
        return
    raise TrainingError(
        f"Step {step}: {what}; the parameters were not touched by it. {last_good} "
        "Look at the data of this step, lower optimizer.learning_rate, or use precision=float32."
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the machine has no memory left; torch has a class for CUDA's alone."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


@contextmanager
def memory_errors(step: int, last_good: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors into a message with a remedy.

    Raises:
        MachineError: when the device or the machine has no memory left.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if out_of_memory(error):
            first = text.splitlines()[0] if text else "out of memory"
            raise MachineError(
                f"Step {step}: out of memory ({first}). {last_good} "
                "Use a smaller batch with more accumulation, shorter sequences, or precision=bfloat16."
            ) from error
        raise
