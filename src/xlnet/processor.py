"""What the processor is, as far as a choice of arithmetic depends on it: its maker, its vectors, its instructions."""

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
        flags: what it can do, in the words of the system (``avx512_bf16``, ``amx_bf16``; on Arm ``bf16``); empty where
            not known.
        models: names of its cores' models; empty where not known.
    """

    vendor: str
    capability: str
    flags: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()

    @property
    def wide_and_not_intel(self) -> bool:
        """512-bit vectors on a processor that is not Intel's: there MKL leaves half of the arithmetic unused."""
        return self.capability == "AVX512" and self.vendor not in ("", INTEL)

    @property
    def multiplies_bfloat16(self) -> bool:
        """It has instructions for bfloat16 products. Where it has none, such products are emulated and very slow."""
        return bool(self.flags & {"amx_bf16", "avx512_bf16", "bf16"})

    @property
    def bfloat16_is_faster(self) -> bool:
        """It multiplies bfloat16 faster than float32, which having the instructions alone does not say.

        Measured: four times as fast with matrix units (AMX), twice with AMD's vectors (Zen 5); but on an Intel Xeon
        with ``avx512_bf16`` and no AMX one core does 80 GFLOP/s in bfloat16 and 171 in float32, and a training step
        takes 1.6 times as long. Arm's ``bf16`` has products of small matrices; it is taken for faster without a
        measurement.
        """
        if self.flags & {"amx_bf16", "bf16"}:
            return True
        return "avx512_bf16" in self.flags and self.vendor not in ("", INTEL)


@lru_cache(maxsize=1)
def processor() -> Processor:
    """The one this process runs on."""
    found = _cpuinfo()
    vendor = next(iter(found.get("vendor_id", ())), "")
    # x86 says "flags", Arm "Features".
    flags = {word for key in ("flags", "Features") for line in found.get(key, ()) for word in line.split()}
    models = frozenset(found.get("model name", ()))
    return Processor(vendor, torch.backends.cpu.get_cpu_capability(), frozenset(flags), models)


def _cpuinfo() -> dict[str, list[str]]:
    """The unlike values of each key of Linux's ``/proc/cpuinfo``, in their order; elsewhere nothing is claimed."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), {})[value.strip()] = None
    return {key: list(values) for key, values in found.items()}
