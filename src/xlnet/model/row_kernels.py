"""The C kernels of ``attention_rows.c`` as Python sees them."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch

from xlnet.model.compiled import load_kernels

_INTEGERS = (
    "items", "rows", "keys", "wide", "row_stride", "key_stride", "explicit_stride", "value_stride", "shift", "sign",
    "low", "high", "start", "reach", "first_number", "number_stride",
)  # fmt: skip
_POINTERS = (
    "row_position", "key_position", "sees", "order", "row_segment", "key_segment", "own", "explicit", "by_segment",
    "content", "distance", "top", "inverse", "weight", "weight_gradient", "inner", "score_gradient",
    "distance_gradient", "segment_gradient",
)  # fmt: skip


class TileArguments(ctypes.Structure):
    """``Tile`` of ``attention_rows.c``, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _INTEGERS),
        ("seed", ctypes.c_uint64),
        ("threshold", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


class RowKernels:
    """``forward`` and ``backward`` for one dtype of storage."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._forward, self._backward = library.forward, library.backward
        for function in (self._forward, self._backward):
            function.argtypes, function.restype = [ctypes.POINTER(TileArguments)], ctypes.c_int

    def forward(self, tile: TileArguments) -> None:
        """Weights, tops and inverse denominators of a tile."""
        self._call(self._forward, tile)

    def backward(self, tile: TileArguments) -> None:
        """Weights again, and the gradients of the scores."""
        self._call(self._backward, tile)

    @staticmethod
    def _call(function: ctypes._NamedFuncPointer, tile: TileArguments) -> None:
        if function(ctypes.byref(tile)):
            raise MemoryError("no memory for a row of attention scores")


@lru_cache
def row_kernels(dtype: torch.dtype) -> RowKernels | None:
    """The kernels that store in ``dtype`` (float32, bfloat16 or float64), or None where they cannot be built."""
    library = load_kernels("attention_rows", dtype)
    return None if library is None else RowKernels(library)
