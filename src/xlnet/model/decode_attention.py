"""Attention of a decode step in one call: the kernel of ``decode.c``, where a C compiler is at hand.

A step has one or two rows, and torch needs some ten operations a layer for them, each far too small for its overhead.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from xlnet.model.compiled import load_kernels
from xlnet.model.decode_view import View
from xlnet.model.scratch import Scratch

MOST_ROWS = 8
SCRATCH = Scratch()
_INTEGERS = (
    "batch", "rows", "heads", "size", "keys", "told", "skipped", "head_step", "batch_step", "table_step", "threads",
)  # fmt: skip
_POINTERS = (
    "query", "content_bias", "position_bias", "segment_bias", "difference", "key", "value", "table", "index", "hidden",
    "other", "blind", "scratch", "out",
)  # fmt: skip


class DecodeArguments(ctypes.Structure):
    """``Decode`` of ``decode.c``, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _INTEGERS),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


@lru_cache
def _kernels(dtype: torch.dtype) -> ctypes.CDLL | None:
    library = load_kernels("decode", dtype, ("lines",))
    if library is not None:
        library.attend.argtypes, library.attend.restype = [ctypes.POINTER(DecodeArguments)], None
    return library


def serves(query: Tensor, keys: Tensor) -> bool:
    """Whether the kernel takes these rows ``[B, R, N, H]`` over these keys ``[B, N, S, H]``: few, on CPU, in float32 or
    float64, with at least one key."""
    return (
        query.device.type == "cpu"
        and query.dtype == keys.dtype
        and query.dtype in (torch.float32, torch.float64)
        and query.shape[1] <= MOST_ROWS
        and keys.shape[2] > 0
        and keys.stride()[2:] == (keys.shape[3], 1)
        and _kernels(query.dtype) is not None
    )


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    biases: tuple[Tensor, Tensor, Tensor],
    difference: Tensor | None,
    view: View,
) -> Tensor:
    """What the rows see, ``[B, R, N, H]``; without gradients.

    Args:
        query: ``[B, R, N, H]``.
        keys, values: ``[B, N, S, H]``, of equal strides, the last two dimensions dense.
        table: ``[N, T, H]`` position keys, likewise.
        biases: content, position and segment bias, ``[N, H]`` each.
        difference: ``[N, H]``, embedding of another segment less that of the same one; None where the view tells no
            segments apart.
        view: what each row sees of the keys.
    """
    batch, rows, heads, size = query.shape
    count, threads, dtype = keys.shape[2], torch.get_num_threads(), query.dtype
    kernels = _kernels(dtype)
    assert kernels is not None and values.stride() == keys.stride()
    query = query.contiguous()
    out = torch.empty_like(query)
    arrays = {
        "query": query, "key": keys, "value": values, "table": table, "out": out,
        "difference": None if difference is None else difference.contiguous(),
        **view.arrays(dtype),
        "scratch": SCRATCH.take("scores", (threads, rows, count + 2 * size), dtype, query.device),
        "content_bias": biases[0].contiguous(), "position_bias": biases[1].contiguous(),
        "segment_bias": biases[2].contiguous(),
    }  # fmt: skip
    arguments = DecodeArguments(
        batch=batch, rows=rows, heads=heads, size=size, keys=count, told=rows, head_step=keys.stride(1),
        batch_step=keys.stride(0), table_step=table.stride(0), threads=threads, scale=size**-0.5,
        **{name: array.data_ptr() for name, array in arrays.items() if array is not None},
    )  # fmt: skip
    kernels.attend(ctypes.byref(arguments))
    return out
