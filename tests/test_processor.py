"""What is read of the processor, and the rule of which arithmetic is the faster on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from xlnet import processor as module
from xlnet.processor import Processor, processor


@pytest.fixture
def cpuinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The file that is read; not there at first."""
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    processor.cache_clear()
    yield tmp_path / "cpuinfo"
    processor.cache_clear()


def test_nothing_is_claimed_where_there_is_no_file(cpuinfo: Path) -> None:
    found = processor()
    assert (found.vendor, found.flags, found.models) == ("", frozenset(), frozenset())
    assert not found.multiplies_bfloat16 and not found.bfloat16_is_faster and not found.wide_and_not_intel
    assert found.capability


def test_what_x86_says(cpuinfo: Path) -> None:
    core = "processor\t: {}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9\nflags\t\t: avx2 avx512_bf16\n"
    cpuinfo.write_text("\n".join(core.format(number) for number in range(3)), encoding="utf-8")
    found = processor()
    assert found.vendor == "AuthenticAMD"
    assert found.flags == {"avx2", "avx512_bf16"}
    assert found.models == {"AMD EPYC 9"}
    assert processor() is found, "read once"


def test_what_arm_says(cpuinfo: Path) -> None:
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp bf16\nCPU implementer\t: 0x41\n\noddity\n", encoding="utf-8")
    found = processor()
    assert (found.vendor, found.flags, found.models) == ("", {"fp", "bf16"}, frozenset())
    assert found.multiplies_bfloat16 and found.bfloat16_is_faster


@pytest.mark.parametrize(
    ("vendor", "flags", "multiplies", "faster"),
    [
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16 amx_tile", True, True),
        ("GenuineIntel", "avx512f avx512_bf16", True, False),
        ("AuthenticAMD", "avx512f avx512_bf16", True, True),
        ("", "avx512f avx512_bf16", True, False),
        ("AuthenticAMD", "avx2 fma", False, False),
        ("GenuineIntel", "avx512f", False, False),
        ("", "", False, False),
    ],
)
def test_instructions_for_bfloat16_do_not_make_it_faster(
    vendor: str, flags: str, multiplies: bool, faster: bool
) -> None:
    machine = Processor(vendor, "AVX512", frozenset(flags.split()))
    assert machine.multiplies_bfloat16 is multiplies
    assert machine.bfloat16_is_faster is faster
