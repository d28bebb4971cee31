"""Scratch memory that is reused: fresh large tensors cost page faults, a tile kept in cache does not."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor


class Scratch(threading.local):
    """Named buffers of one thread, grown on demand; what a name held before is lost at the next request of it."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialized contiguous tensor of ``shape``."""
        count = math.prod(shape)
        key = (name, dtype, device)
        held = self.buffers.get(key)
        if held is None or held.numel() < count:
            # Made outside inference mode, since a later training step writes into the same buffer.
            with torch.inference_mode(False):
                held = torch.empty(count, dtype=dtype, device=device)
            self.buffers[key] = held
        return held[:count].view(shape)

    def release(self) -> None:
        """Forget all buffers of this thread."""
        self.buffers.clear()
