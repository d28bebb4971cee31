"""Matrix products for a handful of rows on a CPU: each weight is read once, whatever the number of rows.

A decode step has two rows (the token just decided, the place to predict). Some libraries behind ``linear`` then read
the matrix once a row, which doubles the time of a step. Where a C compiler is at hand, a small kernel is built once and
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
from xlnet.processor import Processor, processor

Products = Literal["auto", "torch", "compiled"]
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
MOST_ROWS = 6
_SMALLEST = 1 << 16


def choose_linear(products: Products) -> Linear:
    """The product to decode with: ``linear(rows [..., K], weight [N, K], bias [N] or None) -> [..., N]``.

    Args:
        products: ``torch``; ``compiled``: the kernel for up to six float32 rows; ``auto``: the kernel where it can be
            built, for as many rows as it is the faster on this kind of processor (:func:`most_rows`), else torch.

    Raises:
        ConfigurationError: an unknown name.
        MachineError: ``compiled`` where no kernel can be built.
    """
    if products not in ("auto", "torch", "compiled"):
        raise ConfigurationError(f"products={products!r} must be one of auto, torch, compiled.")
    most = most_rows(processor()) if products == "auto" else MOST_ROWS
    if products == "torch" or not most:
        return nn.functional.linear
    kernels = _kernels()
    if kernels is None:
        if products == "compiled":
            raise MachineError("products='compiled' needs Linux and a C compiler (cc, gcc or clang); use 'auto'.")
        return nn.functional.linear

    def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        wide, deep = weight.shape
        count = rows.numel() // deep
        if not (
            1 <= count <= most
            and rows.dtype == weight.dtype == torch.float32
            and rows.is_cpu
            and weight.is_cpu
            and wide * deep >= _SMALLEST
            and weight.is_contiguous()
            and (bias is None or (bias.is_contiguous() and bias.dtype == torch.float32))
        ):
            return nn.functional.linear(rows, weight, bias)
        rows = rows.contiguous()
        out = torch.empty(*rows.shape[:-1], wide)
        kernels[count - 1](
            rows.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr(),
            wide, deep, torch.get_num_threads(),
        )  # fmt: skip
        return out

    return linear


def most_rows(machine: Processor) -> int:
    """How many rows the kernel serves better than torch in ``auto``; none on Intel's processors with AVX-512.

    Measured: Intel with AMX 36 tokens/s by torch, 33 by the kernel; AMD with AVX2 the other way round; AMD with
    AVX-512 1.3 to 2 times the speed of oneDNN and up to four times that of MKL (docs/speed.md).
    """
    if machine.capability != "AVX512":
        return 4
    return MOST_ROWS if machine.wide_and_not_intel else 0


def kernel_source(registers: int) -> str:
    """C source of the kernels for one row up to ``MOST_ROWS``; they sum over k in an order of their own.

    The weights are read as one stream, as memory likes it. Where the rows are long, several weights share what is
    loaded of the rows, which do not stay in the first cache then, and the weights after them are fetched meanwhile.

    Args:
        registers: how many vectors the processor holds.
    """
    return _HEAD + "".join(_rows_source(rows, min(4, (registers - 6) // rows)) for rows in range(1, MOST_ROWS + 1))


_HEAD = """#include <stddef.h>
#ifdef __AVX512F__
#define W 16
#else
#define W 8
#endif
#define LONG 2048
typedef float vec __attribute__((vector_size(4 * W)));
typedef float loose __attribute__((vector_size(4 * W), aligned(4), may_alias));

static inline float total(vec value) {
  float part[W] __attribute__((aligned(4 * W)));
  *(vec *)part = value;
  for (int width = W / 2; width; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  return part[0];
}
"""
_ARGUMENTS = "const float *restrict x, const float *restrict w, const float *restrict b, float *restrict y"


def _rows_source(rows: int, block: int) -> str:
    """``rowsR``: one weight at a time, or ``block`` of them."""
    return f"""{_weights_source(rows, 1)}{_weights_source(rows, block) if block > 1 else ""}
void rows{rows}({_ARGUMENTS}, ptrdiff_t n, ptrdiff_t k, int threads) {{
  const ptrdiff_t blocks = {block} > 1 && k >= LONG ? n / {block} : 0;
  #pragma omp parallel num_threads(threads)
  {{
    #pragma omp for schedule(static) nowait
    for (ptrdiff_t q = 0; q < blocks; ++q) weights{block}_{rows}(x, w, b, y, n, k, {block} * q);
    #pragma omp for schedule(static)
    for (ptrdiff_t j = {block} * blocks; j < n; ++j) weights1_{rows}(x, w, b, y, n, k, j);
  }}
}}
"""


def _weights_source(rows: int, block: int) -> str:
    """The products of ``block`` weights with all rows; the tail of k that fills no vector is summed one by one."""
    pairs = [(r, j) for r in range(rows) for j in range(block)]
    weights = [f"a{j} = *(const loose *)(first + {j} * k + i)" for j in range(block)]
    fetch = [f"__builtin_prefetch(first + {block} * k + {block} * i + {j} * W, 0, 2);" for j in range(block)]
    sums = [" ".join(f"s{r}_{j} += a{j} * v;" for j in range(block)) for r in range(rows)]
    products = [f"{{ const vec v = *(const loose *)(x + {r} * k + i); {sums[r]} }}" for r in range(rows)]
    tail = " ".join(f"t{r}_{j} += first[{j} * k + i] * x[{r} * k + i];" for r, j in pairs)
    return f"""
static inline void weights{block}_{rows}({_ARGUMENTS}, ptrdiff_t n, ptrdiff_t k, ptrdiff_t j) {{
  const float *first = w + j * k;
  vec {", ".join(f"s{r}_{j} = {{0}}" for r, j in pairs)};
  ptrdiff_t i = 0;
  for (; i + W <= k; i += W) {{
    const vec {", ".join(weights)};
    {" ".join(fetch) if block > 1 else ""}
    {" ".join(products)}
  }}
  float {", ".join(f"t{r}_{j} = total(s{r}_{j})" for r, j in pairs)};
  for (; i < k; ++i) {{ {tail} }}
  {" ".join(f"y[{r} * n + j + {j}] = t{r}_{j} + (b ? b[j + {j}] : 0.0f);" for r, j in pairs)}
}}"""


@lru_cache(maxsize=1)
def _kernels() -> tuple[Callable[..., None], ...] | None:
    """The compiled functions for one row up to ``MOST_ROWS``, or None where they cannot be had."""
    loaded = load_compiled("few_rows", kernel_source(32 if processor().capability == "AVX512" else 16))
    return None if loaded is None else tuple(_function(loaded, rows) for rows in range(1, MOST_ROWS + 1))


def _function(loaded: ctypes.CDLL, rows: int) -> Callable[..., None]:
    function = getattr(loaded, f"rows{rows}")
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_ssize_t] * 2 + [ctypes.c_int]
    function.restype = None
    return function
