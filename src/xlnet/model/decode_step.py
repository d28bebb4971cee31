"""All layers of a decode step in one call: the kernel of ``decode_step.c``, where a C compiler is at hand.

With one or two rows the arithmetic of a layer takes as long as Python needs to ask for it. Here the whole stack is
asked for once, and the weights pass by at the speed of memory.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from xlnet.model.compiled import load_kernels
from xlnet.model.decode_view import View
from xlnet.model.encoder import XLNetModel
from xlnet.model.few_rows import MOST_ROWS
from xlnet.model.layer import AttentionBiases, Layer
from xlnet.model.scratch import Scratch

ACTIVATIONS = ("relu", "gelu_tanh", "gelu")
SCRATCH = Scratch()
_WEIGHTS = (
    "query", "key", "value", "output", "norm", "norm_bias", "inner", "inner_bias", "outer", "outer_bias", "last_norm",
    "last_norm_bias", "content_bias", "position_bias", "segment_bias", "difference",
)  # fmt: skip
_INTEGERS = (
    "batch", "rows", "content", "heads", "size", "width", "inner", "layers", "keys", "head_step", "batch_step",
    "table_step", "need_content", "activation", "threads",
)  # fmt: skip


class LayerPointers(ctypes.Structure):
    """``LayerOf`` of ``decode_step.c``, field by field."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (*_WEIGHTS, "keys", "values", "table"))


class StepArguments(ctypes.Structure):
    """``Step`` of ``decode_step.c``, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _INTEGERS),
        ("scale", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("layer", ctypes.POINTER(LayerPointers)),
        *((name, ctypes.c_void_p) for name in ("index", "hidden", "other", "blind", "scratch", "states")),
    )


@lru_cache
def _kernels(dtype: torch.dtype) -> ctypes.CDLL | None:
    library = load_kernels("decode_step", dtype, ("lines", "gelu", "few_rows", "decode"))
    if library is not None:
        library.step.argtypes, library.step.restype = [ctypes.POINTER(StepArguments)], None
        library.room.argtypes, library.room.restype = [ctypes.POINTER(StepArguments)], ctypes.c_int64
    return library


class DecodeStep:
    """The layers of one encoder, as the kernel reads them; its weights must neither change nor move meanwhile.

    Made by :meth:`of`.
    """

    def __init__(self, encoder: XLNetModel, kernels: ctypes.CDLL, weights: list[tuple[Tensor, ...]]) -> None:
        config = encoder.config
        self._kernels, self._held = kernels, weights  # held, because the kernel knows addresses only
        self._layers = (LayerPointers * config.n_layer)(
            *(LayerPointers(**dict(zip(_WEIGHTS, (w.data_ptr() for w in layer), strict=True))) for layer in weights)
        )
        self._fixed = {
            "heads": config.n_head, "size": config.d_head, "width": config.d_model, "inner": config.d_inner,
            "layers": config.n_layer, "activation": ACTIVATIONS.index(config.ff_activation),
            "scale": config.d_head**-0.5, "eps": config.layer_norm_eps,
        }  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any]) -> DecodeStep:
        """Itself: no call changes it, and addresses cannot be copied. So a cache with it can."""
        return self

    @classmethod
    def of(cls, encoder: XLNetModel) -> DecodeStep | None:
        """For an encoder on CPU, all float32 or all float64, where the kernel can be built; else None."""
        dtype = encoder.word_embedding.weight.dtype
        if encoder.device.type != "cpu" or dtype not in (torch.float32, torch.float64):
            return None
        if encoder.config.ff_activation not in ACTIVATIONS:
            return None
        weights = [_weights_of(encoder, number) for number in range(encoder.config.n_layer)]
        if any(w.dtype != dtype or w.device.type != "cpu" for layer in weights for w in layer):
            return None
        kernels = _kernels(dtype)
        return None if kernels is None else cls(encoder, kernels, weights)

    def serves(self, rows: Tensor, keys: Tensor) -> bool:
        """Whether these rows ``[B, R, D]`` are few, and have keys ``[B, N, S, H]`` to look at, of their own kind.

        Rows of another kind come from a model that was moved or cast since; to the kernel they would be wild memory.
        """
        if rows.dtype != keys.dtype or rows.device != keys.device:
            return False
        return 0 < rows.shape[0] * rows.shape[1] <= MOST_ROWS and keys.shape[2] > 0

    def run(
        self,
        rows: Tensor,
        content: int,
        need_content: bool,
        keys: list[Tensor],
        values: list[Tensor],
        tables: list[Tensor],
        view: View,
    ) -> Tensor:
        """Last states of the rows, ``[B, R, D]``, or ``[B, R - content, D]`` without ``need_content``.

        Args:
            rows: ``[B, R, D]``, first states.
            content: how many rows of each sequence come first and become the last keys and values.
            need_content: whether the last states of those are wanted too.
            keys, values: ``[B, N, S, H]`` a layer, of equal strides, the last two dimensions dense; their last
                ``content`` columns are written.
            tables: ``[N, T, H]`` position keys a layer, likewise.
            view: what each row sees of the keys.
        """
        batch, count, width = rows.shape
        dtype = rows.dtype
        states = rows.clone(memory_format=torch.contiguous_format)
        layers = type(self._layers).from_buffer_copy(self._layers)
        for number, pointers in enumerate(layers):
            pointers.keys, pointers.values = keys[number].data_ptr(), values[number].data_ptr()
            pointers.table = tables[number].data_ptr()
        arrays = {"states": states, **view.arrays(dtype)}
        arguments = StepArguments(
            **self._fixed, batch=batch, rows=count, content=content, keys=keys[0].shape[2], need_content=need_content,
            head_step=keys[0].stride(1), batch_step=keys[0].stride(0), table_step=tables[0].stride(0),
            threads=torch.get_num_threads(), layer=layers,
            **{name: array.data_ptr() for name, array in arrays.items()},
        )  # fmt: skip
        room = self._kernels.room(ctypes.byref(arguments))
        arguments.scratch = SCRATCH.take("step", (room,), dtype, rows.device).data_ptr()
        self._kernels.step(ctypes.byref(arguments))
        kept = count if need_content else count - content
        return states.view(-1, width)[: batch * kept].view(batch, kept, width)


def _weights_of(encoder: XLNetModel, number: int) -> tuple[Tensor, ...]:
    """Of one layer, in the order of ``_WEIGHTS``, each dense."""
    layer = cast(Layer, encoder.layers[number])
    biases = cast(AttentionBiases, encoder.attention_biases[number if encoder.config.untie_r else 0])
    attention, feed_forward = layer.attention, layer.feed_forward
    segment = attention.segment_embedding.detach()
    weights = (
        attention.query.weight, attention.key.weight, attention.value.weight, attention.output.weight,
        attention.norm.weight, attention.norm.bias, feed_forward.inner.weight, feed_forward.inner.bias,
        feed_forward.outer.weight, feed_forward.outer.bias, feed_forward.norm.weight, feed_forward.norm.bias,
        biases.content, biases.position, biases.segment, segment[1] - segment[0],
    )  # fmt: skip
    return tuple(weight.detach().contiguous() for weight in weights)
