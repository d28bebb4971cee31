"""The arithmetic of a forward pass: which there are, on which devices, and where one of them is no gain."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_args

import torch

from xlnet.errors import ConfigurationError, check_choice
from xlnet.processor import Processor, processor
from xlnet.training.config import Precision


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse an arithmetic before any work is done.

    Raises:
        ConfigurationError: no such arithmetic, or one that the device does not have.
    """
    check_choice("precision", precision, get_args(Precision))
    if precision == "float16" and device.type != "cuda":
        raise ConfigurationError(
            f"precision='float16' needs CUDA, but the device is {device}. Use bfloat16 or float32."
        )


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Compute a forward pass in this arithmetic; parameters stay as they are.

    Raises:
        ConfigurationError: see :func:`check_precision`.
    """
    check_precision(precision, device)
    return nullcontext() if precision == "float32" else torch.autocast(device.type, getattr(torch, precision))


def precision_note(precision: Precision, device: torch.device, machine: Processor | None = None) -> str:
    """What somebody who chose this arithmetic should know: that float32 is faster here. Empty where all is well.

    Args:
        precision: as chosen.
        device: of the model; only a CPU is judged.
        machine: the processor, by default this one; nothing is said of one whose instructions are not known.
    """
    machine = machine or processor()
    if precision != "bfloat16" or device.type != "cpu" or not machine.flags or machine.bfloat16_is_faster:
        return ""
    if machine.multiplies_bfloat16:
        why = "this processor multiplies bfloat16, but more slowly than float32 (it has no matrix units for it)"
    else:
        why = "this processor cannot multiply bfloat16, so every product is emulated, up to seventy times slower"
    return f"precision='bfloat16': {why}. Choose precision float32, which is faster here and more exact."
