"""The products of the compiled attention: the library's and our own give the same, in every situation."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from test_model_backends import SITUATIONS, Situation, errors_are_as_small

from xlnet.model import attention_compiled, attention_kernel
from xlnet.model.attention_compiled import compiled_attention
from xlnet.processor import processor

SIZES = {False: 32, True: 64}
HERE = {
    own: pytest.param(
        own,
        marks=pytest.mark.skipif(
            # Where the processor's maker is Intel they are not chosen, but they are right there too.
            own and not (processor().capability == "AVX512" and "avx512_bf16" in processor().flags),
            reason="our own products need AVX-512, with bfloat16",
        ),
    )
    for own in (False, True)
}


@pytest.mark.parametrize("tile_rows", [1, 3, 9, 128])
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS.keys())
@pytest.mark.parametrize("own", HERE.values())
def test_equals_the_reference(own: bool, situation: Situation, tile_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd numbers of rows, keys and columns, windows that begin anywhere; float64 always takes the library."""
    kernel = attention_kernel.attention_kernel
    monkeypatch.setattr(
        attention_compiled, "attention_kernel", lambda dtype: kernel(dtype, own and dtype != torch.float64)
    )
    monkeypatch.setattr(attention_compiled, "tile_rows", lambda keys: tile_rows)
    errors_are_as_small(compiled_attention, dataclasses.replace(situation, size=SIZES[own]), draws=4)


def test_a_head_of_another_size_takes_the_library() -> None:
    """A multiple of 32 is a condition of ours, not of the user's."""
    errors_are_as_small(compiled_attention, Situation(targets=4, segments=True, size=20), draws=4)
