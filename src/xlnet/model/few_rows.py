"""Matrix products for a handful of rows on a CPU: each weight is read once, whatever the number of rows.

A decode step has two rows (the token just decided, the place to predict). The library behind ``linear`` then reads the
matrix once a row, which doubles the time of a step. Where a C compiler is at hand, a small kernel is built once and
kept in the user's cache folder; everywhere else ``linear`` serves, with the same numbers up to rounding.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, MachineError

Products = Literal["auto", "torch", "compiled"]
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
MOST_ROWS = 4
_SMALLEST = 1 << 16
_SECONDS = 60
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")


def choose_linear(products: Products) -> Linear:
    """The product to decode with: ``linear(rows [..., K], weight [N, K], bias [N] or None) -> [..., N]``.

    Args:
        products: ``torch``; ``compiled``: the kernel for up to four float32 rows; ``auto``: the kernel where it can be
            built, else torch.

    Raises:
        ConfigurationError: an unknown name.
        MachineError: ``compiled`` where no kernel can be built.
    """
    if products not in ("auto", "torch", "compiled"):
        raise ConfigurationError(f"products={products!r} must be one of auto, torch, compiled.")
    if products == "torch":
        return nn.functional.linear
    kernels = _kernels()
    if kernels is None:
        if products == "compiled":
            raise MachineError("products='compiled' needs Linux and a C compiler (cc, gcc or clang); use 'auto'.")
        return nn.functional.linear

    def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        count = rows.numel() // rows.shape[-1]
        if not (
            1 <= count <= MOST_ROWS
            and rows.dtype == weight.dtype == torch.float32
            and rows.device.type == weight.device.type == "cpu"
            and weight.numel() >= _SMALLEST
            and weight.is_contiguous()
            and (bias is None or (bias.is_contiguous() and bias.dtype == torch.float32))
        ):
            return nn.functional.linear(rows, weight, bias)
        rows = rows.contiguous()
        out = torch.empty(*rows.shape[:-1], weight.shape[0])
        kernels[count - 1](
            rows.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr(),
            weight.shape[0], weight.shape[1], torch.get_num_threads(),
        )  # fmt: skip
        return out

    return linear


def kernel_source() -> str:
    """C source of the kernels for one to four rows; they sum over k in any order, as every fast product does."""
    functions = []
    for rows in range(1, MOST_ROWS + 1):
        sums = [f"s{r}" for r in range(rows)]
        steps = " ".join(f"{name} += row[i] * x[{r} * k + i];" for r, name in enumerate(sums))
        stores = " ".join(f"y[{r} * n + j] = {name} + add;" for r, name in enumerate(sums))
        functions.append(f"""
void rows{rows}(const float *restrict x, const float *restrict w, const float *restrict b, float *restrict y,
                ptrdiff_t n, ptrdiff_t k, int threads) {{
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (ptrdiff_t j = 0; j < n; ++j) {{
    const float *row = w + j * k;
    const float add = b ? b[j] : 0.0f;
    float {", ".join(f"{name} = 0.0f" for name in sums)};
    #pragma omp simd reduction(+:{",".join(sums)})
    for (ptrdiff_t i = 0; i < k; ++i) {{ {steps} }}
    {stores}
  }}
}}""")
    return "#include <stddef.h>" + "".join(functions) + "\n"


@lru_cache(maxsize=1)
def _kernels() -> tuple[Callable[..., None], ...] | None:
    """The compiled functions for one to four rows, or None where they cannot be built or loaded."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if platform.system() != "Linux" or compiler is None:
        return None
    mark = hashlib.sha256("\0".join((kernel_source(), compiler, *_FLAGS, _processor())).encode()).hexdigest()[:16]
    library = Path.home() / ".cache" / "xlnet" / f"few_rows-{mark}.so"
    try:
        if not library.is_file():
            _build(compiler, library)
        loaded = ctypes.CDLL(str(library))
        if _openmp_runtimes() != 1:  # two runtimes would fight for the cores
            return None
        return tuple(_function(loaded, rows) for rows in range(1, MOST_ROWS + 1))
    except (OSError, RuntimeError, subprocess.SubprocessError, AttributeError):
        return None


def _build(compiler: str, library: Path) -> None:
    """Compile beside the final place, then move there, so that no half-written file is ever loaded."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source, built = Path(folder) / "few_rows.c", Path(folder) / "few_rows.so"
        source.write_text(kernel_source(), encoding="utf-8")
        command = [compiler, *_FLAGS, "-o", str(built), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        built.replace(library)


def _function(loaded: ctypes.CDLL, rows: int) -> Callable[..., None]:
    function = getattr(loaded, f"rows{rows}")
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_ssize_t] * 2 + [ctypes.c_int]
    function.restype = None
    return function


def _processor() -> str:
    """What the compiler tunes for: the cache folder may be shared by unlike machines."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return platform.machine() + "".join(sorted({x for x in lines if x.startswith(("model name", "flags", "Features"))}))


def _openmp_runtimes() -> int:
    """How many OpenMP libraries this process has loaded."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    return len({line.split()[-1] for line in maps if "libgomp" in line or "libomp" in line or "libiomp" in line})
