"""The C kernel of ``attention.c`` as Python sees it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xlnet.model.compiled import has_own_products, load_kernels
from xlnet.model.scratch import Scratch

# The matrix products that torch is linked with, by dtype of what they multiply; bfloat16 sums in float32.
_PRODUCTS = {torch.float32: "sgemm_", torch.bfloat16: "gemm_bf16bf16f32_", torch.float64: "dgemm_"}
_OWN_SIZES = 32  # WIDE of products.c: the size of a head is a multiple of it, or the library serves
_INTEGERS = (
    "batch", "heads", "rows", "keys", "size", "groups", "distances", "columns", "shift_rows", "tile_rows", "low",
    "high", "lowest_column", "reach", "threshold",
)  # fmt: skip
_POINTERS = (
    "sign", "row_position", "key_position", "sees", "order", "row_segment", "key_segment", "own", "explicit",
    "query", "key", "value", "content_bias", "position_bias", "segment_bias", "difference", "position_key",
    "forward_layout", "reversed_layout", "scratch", "out", "top", "inverse", "upstream", "query_gradient",
    "key_gradient", "value_gradient", "content_gradient", "position_gradient", "segment_gradient",
    "embedding_gradient", "table_gradient",
)  # fmt: skip


class CallArguments(ctypes.Structure):
    """``Call`` of ``attention_call.c``, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _INTEGERS),
        ("seed", ctypes.c_uint64),
        ("threads", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("scale", ctypes.c_double),
        ("units", ctypes.c_double),
        ("product", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


class AttentionKernel:
    """``forward`` and ``backward`` for one dtype of storage.

    Args:
        library: what ``attention.c`` was built to.
        product: address of the matrix library's product.
        own: use the products of ``products.c`` where the size of a head allows.
    """

    def __init__(self, library: ctypes.CDLL, product: int, own: bool) -> None:
        self.library, self.product, self.own = library, product, own
        for function in (library.forward, library.backward):
            function.argtypes, function.restype = [ctypes.POINTER(CallArguments)], None
        library.room.argtypes, library.room.restype = [ctypes.POINTER(CallArguments)], ctypes.c_int64

    def __call__(
        self, direction: str, settings: dict[str, Any], arrays: dict[str, Tensor | None], scratch: Scratch
    ) -> None:
        """Run ``forward`` or ``backward``; every array is contiguous and named as in ``attention_call.c``."""
        pointers = {name: array.data_ptr() for name, array in arrays.items() if array is not None}
        own = self.own and settings["size"] % _OWN_SIZES == 0
        arguments = CallArguments(product=None if own else self.product, **settings, **pointers)
        arguments.room = self.library.room(ctypes.byref(arguments))
        real = arrays["inverse"]
        assert real is not None
        room = scratch.take("room", (settings["threads"], arguments.room), real.dtype, torch.device("cpu"))
        arguments.scratch = room.data_ptr()
        getattr(self.library, direction)(ctypes.byref(arguments))


@lru_cache
def attention_kernel(dtype: torch.dtype, own: bool | None = None) -> AttentionKernel | None:
    """The kernel that stores in ``dtype`` (float32, bfloat16 or float64), or None where it cannot be had.

    It needs a C compiler, and a torch that shows the matrix products of its library, as the usual builds for Linux do.
    ``own`` decides between those and the products of ``products.c``; None takes what suits the processor.
    """
    try:
        torch_library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        product = ctypes.cast(getattr(torch_library, _PRODUCTS[dtype]), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
    library = load_kernels("attention", dtype, ("products", "lines", "attention_call"))
    if library is None or product is None:
        return None
    return AttentionKernel(library, product, has_own_products(dtype) if own is None else own)
