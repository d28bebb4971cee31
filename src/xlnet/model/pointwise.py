"""Activation and dropout in one pass over memory: the kernel of ``pointwise.c``, where a C compiler is at hand."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlnet.model.compiled import load_kernels
from xlnet.model.tracing import being_traced

SMALLEST = 1 << 14  # fewer entries than this are not worth the call


class PointwiseArguments(ctypes.Structure):
    """``Pointwise`` of ``pointwise.c``, field by field."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("activation", ctypes.c_int64),
        ("threshold", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("scale", ctypes.c_double),
        ("threads", ctypes.c_int64),
        ("input", ctypes.c_void_p),
        ("upstream", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
    )


@lru_cache
def _kernels(dtype: torch.dtype) -> ctypes.CDLL | None:
    library = load_kernels("pointwise", dtype, ("gelu",))
    if library is not None:
        library.run.argtypes, library.run.restype = [ctypes.POINTER(PointwiseArguments)], None
    return library


def serves(states: Tensor) -> bool:
    """Whether the kernel can take these states and is worth it: large, on CPU, of a known dtype, not being traced."""
    return (
        states.device.type == "cpu"
        and states.dtype in (torch.float32, torch.bfloat16, torch.float64)
        and states.numel() >= SMALLEST
        and not being_traced()
        and _kernels(states.dtype) is not None
    )


def activate_and_drop(states: Tensor, gelu_tanh: bool, threshold: int = 0, scale: float = 1.0) -> Tensor:
    """``gelu_tanh`` or nothing, then dropout; for states that :func:`serves` accepts.

    Args:
        states: any shape.
        gelu_tanh: whether the release's gelu comes first.
        threshold: a random byte below it drops its entry; 0 drops nothing.
        scale: of what is kept.
    """
    # The seed comes from the ordinary generator: the same run for the same torch.manual_seed, also when recomputing.
    seed = int(torch.randint(0, 2**62, ())) if threshold else 0
    return Pointwise.apply(states, gelu_tanh, threshold, scale, seed)


class Pointwise(torch.autograd.Function):
    """Keeps its input where there is an activation, and nothing else: dropout is drawn again from the seed."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, gelu_tanh: bool, threshold: int, scale: float, seed: int) -> Tensor:
        states = states.contiguous()
        ctx.settings = {"activation": gelu_tanh, "threshold": threshold, "scale": scale, "seed": seed}
        if gelu_tanh:
            ctx.save_for_backward(states)
        return _run(ctx.settings, states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradient.contiguous()
        saved = ctx.saved_tensors
        # Without an activation the gradient is dropped out and scaled as the states were.
        found = _run(ctx.settings, saved[0], gradient) if saved else _run(ctx.settings, gradient)
        return found, None, None, None, None


def _run(settings: dict[str, Any], states: Tensor, upstream: Tensor | None = None) -> Tensor:
    out = torch.empty_like(states)
    arguments = PointwiseArguments(
        count=out.numel(),
        threads=torch.get_num_threads(),
        input=states.data_ptr(),
        upstream=None if upstream is None else upstream.data_ptr(),
        output=out.data_ptr(),
        **settings,
    )
    library = _kernels(out.dtype)
    assert library is not None
    library.run(ctypes.byref(arguments))
    return out
