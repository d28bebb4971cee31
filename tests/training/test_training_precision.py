"""Who asks for an arithmetic that the device lacks is refused; who asks for one that is no gain is told, once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training_toys import Collector, run

from xlnet.errors import ConfigurationError
from xlnet.processor import Processor
from xlnet.training import precision as module
from xlnet.training.config import Precision
from xlnet.training.precision import autocast, check_precision, precision_note

CPU = torch.device("cpu")
ZEN5 = Processor("AuthenticAMD", "AVX512", frozenset({"avx512_bf16"}))
XEON = Processor("GenuineIntel", "AVX512", frozenset({"avx512_bf16"}))
AMX = Processor("GenuineIntel", "AVX512", frozenset({"avx512_bf16", "amx_bf16"}))
OLD = Processor("AuthenticAMD", "AVX2", frozenset({"avx2"}))
UNKNOWN = Processor("", "DEFAULT")


@pytest.mark.parametrize(
    ("machine", "words"),
    [(ZEN5, ""), (AMX, ""), (UNKNOWN, ""), (XEON, "more slowly than float32"), (OLD, "cannot multiply bfloat16")],
)
def test_bfloat16_is_spoken_of_where_float32_is_faster(machine: Processor, words: str) -> None:
    note = precision_note("bfloat16", CPU, machine)
    assert words in note and bool(note) is bool(words)
    assert not note or ("precision='bfloat16'" in note and "Choose precision float32" in note)
    assert precision_note("float32", CPU, machine) == ""
    assert precision_note("bfloat16", torch.device("cuda"), machine) == "", "a GPU is not a matter of the processor"


@pytest.mark.parametrize("machine", [ZEN5, XEON])
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_a_run_says_it_once(
    machine: Processor, precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "processor", lambda: machine)
    news = Collector()
    run(tmp_path, precision=precision, steps=2, reporter=news)
    said = [text for text in news.messages if "bfloat16" in text]
    assert len(said) == (machine is XEON and precision == "bfloat16")
    assert all(text.startswith("warning: precision='bfloat16'") for text in said)


def test_arithmetics_are_checked() -> None:
    for wrong, words in (("float16", "needs CUDA"), ("half", "must be one of float32, bfloat16, float16")):
        for work in (lambda p: check_precision(p, CPU), lambda p: autocast(CPU, p)):
            with pytest.raises(ConfigurationError, match=words):
                work(wrong)
    check_precision("float16", torch.device("cuda", 1))
    with autocast(CPU, "bfloat16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with autocast(CPU, "float32"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
