"""What the processor is, as far as a choice of arithmetic depends on it: who made it, and how wide its vectors are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

INTEL = "GenuineIntel"
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """One kind of processor.

    Attributes:
        vendor: its maker in the processor's own words (``AuthenticAMD``, ``GenuineIntel``); empty where not known.
        capability: the widest vectors that torch uses on it: ``AVX512``, ``AVX2``, ``DEFAULT`` and others.
    """

    vendor: str
    capability: str

    @property
    def wide_and_not_intel(self) -> bool:
        """512-bit vectors on a processor that is not Intel's: there MKL leaves half of the arithmetic unused."""
        return self.capability == "AVX512" and self.vendor not in ("", INTEL)


@lru_cache(maxsize=1)
def processor() -> Processor:
    """The one this process runs on."""
    return Processor(_vendor(), torch.backends.cpu.get_cpu_capability())


def _vendor() -> str:
    """From Linux's ``/proc/cpuinfo``; elsewhere nothing is claimed."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
