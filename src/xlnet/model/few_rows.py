"""Matrix products for a handful of rows on a CPU: each weight is read once, whatever the number of rows.

A decode step has two rows (the token just decided, the place to predict). The library behind ``linear`` then reads the
matrix once a row, which doubles the time of a step. Where a C compiler is at hand, a small kernel is built once and
kept in the user's cache folder; everywhere else ``linear`` serves, with the same numbers up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, MachineError
from xlnet.model.compiled import load_compiled

Products = Literal["auto", "torch", "compiled"]
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
MOST_ROWS = 4
_SMALLEST = 1 << 16


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
    """The compiled functions for one to four rows, or None where they cannot be had."""
    loaded = load_compiled("few_rows", kernel_source())
    return None if loaded is None else tuple(_function(loaded, rows) for rows in range(1, MOST_ROWS + 1))


def _function(loaded: ctypes.CDLL, rows: int) -> Callable[..., None]:
    function = getattr(loaded, f"rows{rows}")
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_ssize_t] * 2 + [ctypes.c_int]
    function.restype = None
    return function
