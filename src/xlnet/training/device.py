"""Which device a run uses, checked before any work, and how many threads."""

from __future__ import annotations

import os

import torch

from xlnet.errors import ConfigurationError, MachineError, did_you_mean

_KINDS = ("auto", "cpu", "cuda", "mps")


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """The device that ``--device`` names; ``auto`` is CUDA where there is one, else the CPU.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        local_rank: number of this process on its machine; ``auto`` and ``cuda`` take the GPU of that number.

    Raises:
        ConfigurationError: the name is not one of these.
        MachineError: the device is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, colon, index = name.partition(":")
    if kind not in _KINDS or (colon and (kind != "cuda" or not index.isdecimal())):
        raise ConfigurationError(
            f"device={name!r} is not known; it must be auto, cpu, cuda, cuda:N or mps.{did_you_mean(kind, _KINDS)}"
        )
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            built = "this torch is built without CUDA" if torch.version.cuda is None else "torch sees no GPU"
            raise MachineError(
                f"device={name!r}, but {built}. Use --device cpu, or install a torch built for your GPU."
            )
        number = int(index) if colon else local_rank
        if number >= count:
            raise MachineError(
                f"device={name!r}{'' if colon else f' for local rank {local_rank}'}: there are {count} GPUs, "
                f"numbered 0 to {count - 1}."
            )
        return torch.device("cuda", number)
    if kind == "mps" and not torch.backends.mps.is_available():
        raise MachineError("device='mps' is not there: it needs a Mac with Apple silicon. Use --device cpu.")
    return torch.device(kind)


def use_threads(count: int = 0) -> int:
    """Let torch use ``count`` CPU threads; 0 is every core this process may run on.

    An ``OMP_NUM_THREADS`` set by the user wins over 0.

    Returns:
        The number of threads now in use.

    Raises:
        ConfigurationError: for a negative count.
    """
    if count < 0:
        raise ConfigurationError(f"threads={count} must not be negative; 0 takes every core.")
    if count == 0 and not os.environ.get("OMP_NUM_THREADS"):
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if count > 0:
        torch.set_num_threads(count)
    return torch.get_num_threads()
