"""The table of names: complete, without clashes, and reversible in every direction."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.checkpoints.arrays import LazyTensors, as_lazy
from xlnet.checkpoints.layouts import Layout, our_shape, their_shape, to_ours, to_theirs
from xlnet.checkpoints.names import CLASS_NAMES, Family, Head, pairs
from xlnet.checkpoints.translate import into_ours, into_theirs
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError

HEADS = list(CLASS_NAMES)
CONFIG = XLNetConfig(vocab_size=11, n_layer=3, d_model=12, n_head=2, d_head=5, d_inner=7, num_labels=3)


def model_of(head: Head, **changes: object) -> torch.nn.Module:
    import xlnet.model

    return getattr(xlnet.model, CLASS_NAMES[head])(CONFIG.replace(**changes))


def state_of(head: Head, **changes: object) -> dict[str, torch.Tensor]:
    """The state of a model with distinct values, the encoder's names with their prefix."""
    torch.manual_seed(1)
    state = {name: torch.randn(value.shape) for name, value in model_of(head, **changes).state_dict().items()}
    return state if head != "encoder" else {f"encoder.{name}": value for name, value in state.items()}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("untie_r", [True, False])
@pytest.mark.parametrize("family", get_args(Family))
def test_table_covers_every_parameter_once(family: Family, head: Head, untie_r: bool) -> None:
    table = pairs(family, head, CONFIG.n_layer, tied_biases=not untie_r, task="classification_x")
    state = state_of(head, untie_r=untie_r, tie_word_embeddings=False)
    if family == "tensorflow" and head == "token_classification":  # the release has no such model
        state = {name: value for name, value in state.items() if name.startswith("encoder.")}
    optional = {pair.ours for pair in table if pair.ours.startswith(("summary.attention", "summary.query"))}
    assert {pair.ours for pair in table} - optional == set(state)
    places = Counter((pair.theirs, pair.layer) for pair in table)
    assert max(places.values()) == 1, "two of our arrays would come from one place"


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("changes", [{}, {"untie_r": False}, {"tie_word_embeddings": False}, {"summary_type": "attn"}])
@pytest.mark.parametrize("family", get_args(Family))
def test_there_and_back_is_the_identity(family: Family, head: Head, changes: dict[str, object]) -> None:
    state = state_of(head, **changes)
    table = pairs(family, head, CONFIG.n_layer, not CONFIG.replace(**changes).untie_r, task="classification_x")
    kept = {pair.ours for pair in table}
    theirs = into_theirs(as_lazy(state), table, CONFIG.n_head)
    # An announced shape that is not the real one would raise on reading.
    read = {name: theirs[name] for name in theirs}
    back, used = into_ours(as_lazy(read), table)
    assert used == set(theirs)
    assert set(back) == kept & set(state)
    for name in back:
        assert torch.equal(back[name], state[name]), name
    again = into_theirs(back, table, CONFIG.n_head)
    assert set(again) == set(read)
    for name in read:
        assert again[name].is_contiguous() and torch.equal(again[name], read[name]), name


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(get_args(Layout)), st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_layouts_are_reversible(layout: Layout, n_head: int, d_head: int, width: int, half: bool) -> None:
    shape = {
        "same": (width, d_head),
        "kernel": (width, d_head),
        "heads_in": (width, n_head, d_head),
        "heads_out": (width, n_head, d_head),
        "row": (1, 1, width),
    }[layout]
    theirs = torch.randn(shape).to(torch.bfloat16 if half else torch.float32)
    ours = to_ours(theirs, layout)
    assert tuple(ours.shape) == our_shape(shape, layout)
    assert their_shape(tuple(ours.shape), layout, n_head) == shape
    assert torch.equal(to_theirs(ours, layout, n_head), theirs)


def test_layouts_mean_what_the_release_computes() -> None:
    """``einsum("ibh,hnd->ibnd")`` into heads and ``einsum("ibnd,hnd->ibh")`` out of them, against dense layers."""
    states, heads = torch.randn(2, 6), torch.randn(2, 3, 4)
    kernel = torch.randn(6, 3, 4)
    into = torch.nn.functional.linear(states, to_ours(kernel, "heads_in"))
    assert torch.allclose(into, torch.einsum("bh,hnd->bnd", states, kernel).flatten(1), atol=1e-6)
    out = torch.nn.functional.linear(heads.flatten(1), to_ours(kernel, "heads_out"))
    assert torch.allclose(out, torch.einsum("bnd,hnd->bh", heads, kernel), atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_names_are_those_of_transformers(head: Head) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the development extra `transformers`")
    theirs = getattr(transformers, CLASS_NAMES[head])(
        transformers.XLNetConfig(vocab_size=11, n_layer=3, d_model=12, n_head=2, d_inner=7)
    )
    expected = {name: tuple(value.shape) for name, value in theirs.state_dict().items()}
    if head == "encoder":
        expected = {f"transformer.{name}": shape for name, shape in expected.items()}
    table = pairs("hf", head, 3)
    assert {pair.theirs for pair in table} == set(expected)
    entries, _ = into_ours(LazyTensors({}), table)
    assert len(entries) == 0
    state = {name: torch.zeros(shape) for name, shape in expected.items()}
    ours, _ = into_ours(as_lazy(state), table)
    config = CONFIG.replace(d_head=6, num_labels=2, tie_word_embeddings=False)
    import xlnet.model

    wanted = getattr(xlnet.model, CLASS_NAMES[head])(config).state_dict()
    shapes = {name.removeprefix("encoder."): shape for name, shape in ours.shapes().items()}
    assert shapes == {name.removeprefix("encoder."): tuple(value.shape) for name, value in wanted.items()}


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("model/transformer/r_w_bias", (2, 2, 5), "begin with the number of layers, 3"),
        ("model/transformer/layer_1/rel_attn/q/kernel", (12, 10), "3 are expected"),
        ("model/transformer/layer_0/ff/layer_1/kernel", (12,), "2 are expected"),
    ],
)
def test_wrong_dimensions_are_told_with_both_names(name: str, shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(CheckpointError, match=told) as caught:
        into_ours(as_lazy({name: torch.zeros(shape)}), pairs("tensorflow", "encoder", 3))
    assert name in str(caught.value) and "encoder." in str(caught.value)


def test_a_stack_with_a_missing_layer_is_refused() -> None:
    state = state_of("encoder")
    del state["encoder.attention_biases.1.content"]
    with pytest.raises(CheckpointError, match=r"attention_biases\.1\.content"):
        into_theirs(as_lazy(state), pairs("tensorflow", "encoder", 3), CONFIG.n_head)
