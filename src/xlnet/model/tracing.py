"""Whether somebody is watching: what a compiler or exporter records must not depend on values."""

from __future__ import annotations

import torch


def being_traced() -> bool:
    """True under ``torch.compile``, ``torch.export`` and ``torch.jit.trace``."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
