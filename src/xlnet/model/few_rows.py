"""Matrix products for a handful of rows on a CPU: each weight is read once, whatever the number of rows.

A decode step has two rows (the token just decided, the place to predict). Some libraries behind ``linear`` then read
the matrix once a row, which doubles the time of a step. Where a C compiler is at hand, a small kernel (``few_rows.c``)
is built once and kept in the user's cache folder; everywhere else ``linear`` serves, with the same numbers up to
rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, MachineError
from xlnet.model.compiled import load_kernels

Products = Literal["auto", "torch", "compiled"]
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
MOST_ROWS = 8
_SMALLEST = 1 << 16


def choose_linear(products: Products) -> Linear:
    """The product to decode with: ``linear(rows [..., K], weight [N, K], bias [N] or None) -> [..., N]``.

    Args:
        products: ``torch``; ``compiled``: the kernel for up to eight float32 rows; ``auto``: the kernel where it can be
            built, else torch.

    Raises:
        ConfigurationError: an unknown name.
        MachineError: ``compiled`` where no kernel can be built.
    """
    if products not in ("auto", "torch", "compiled"):
        raise ConfigurationError(f"products={products!r} must be one of auto, torch, compiled.")
    if products == "torch":
        return nn.functional.linear
    kernel = _kernel()
    if kernel is None:
        if products == "compiled":
            raise MachineError("products='compiled' needs Linux and a C compiler (cc, gcc or clang); use 'auto'.")
        return nn.functional.linear

    def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        wide, deep = weight.shape
        count = rows.numel() // deep
        if not (
            1 <= count <= MOST_ROWS
            and rows.dtype == weight.dtype == torch.float32
            and rows.is_cpu
            and weight.is_cpu
            and wide * deep >= _SMALLEST
            and weight.is_contiguous()
            and (bias is None or (bias.is_contiguous() and bias.dtype == torch.float32))
        ):
            return nn.functional.linear(rows, weight, bias)
        rows = rows.contiguous()
        out = rows.new_empty(*rows.shape[:-1], wide)
        kernel(
            count, rows.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr(),
            wide, deep, torch.get_num_threads(),
        )  # fmt: skip
        return out

    return linear


@lru_cache(maxsize=1)
def _kernel() -> Callable[..., None] | None:
    """The compiled function, or None where it cannot be had."""
    library = load_kernels("few_rows", torch.float32)
    if library is None:
        return None
    library.few_rows.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 3]
    library.few_rows.restype = None
    function: Callable[..., None] = library.few_rows
    return function
