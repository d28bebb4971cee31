"""Where there is a compiler the kernels are there, whatever else the process has loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xlnet.model import compiled

needs_compiler = pytest.mark.skipif(compiled._compiler() is None, reason="no C compiler, or not Linux")


@needs_compiler
def test_other_packages_with_an_openmp_of_their_own_do_no_harm() -> None:
    """SentencePiece and scikit-learn carry their own copies; every process with a tokenizer has the first."""
    code = (
        "import sentencepiece, sklearn.linear_model, torch, xlnet\n"
        "from xlnet import XLNetTokenizer\n"
        "from xlnet.model import few_rows, pointwise\n"
        "from xlnet.model.attention_kernel import attention_kernel\n"
        "for dtype in (torch.float32, torch.bfloat16, torch.float64):\n"
        "    assert attention_kernel(dtype) is not None and pointwise._kernels(dtype) is not None, dtype\n"
        "assert few_rows._kernel() is not None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def maps(*paths: str) -> str:
    return "".join(f"7f00-7f01 r-xp 00000000 00:00 0    {path}\n" for path in paths)


@pytest.mark.parametrize(
    ("loaded", "shared"),
    [
        (["/venv/torch/lib/libgomp.so.1"], True),
        (["/venv/torch/lib/libgomp.so.1", "/venv/sentencepiece.libs/libgomp-6a29c32d.so.1.0.0"], True),
        (["/venv/torch/lib/libgomp-a34b3233.so.1", "/usr/lib/libgomp.so.1"], False),
        (["/venv/torch/lib/libgomp.so.1", "/usr/lib/libiomp5.so"], False),
        ([], False),
    ],
)
def test_which_openmp_libraries_go_together(loaded: list[str], shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path, **_: maps("/usr/lib/libc.so.6", *loaded))
    assert compiled._shares_openmp() is shared
