"""All layers in one call against the layers one by one: any batch, rows, window, segments, sizes, activation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.model import XLNetModel
from xlnet.model.cache import KeyValueCache, Tokens
from xlnet.model.decode_step import DecodeStep
from xlnet.model.decode_view import View
from xlnet.model.decoding import Decoded, decode
from xlnet.model.few_rows import MOST_ROWS

SHAPE: dict[str, Any] = {"vocab_size": 40, "d_model": 24, "n_head": 3, "d_head": 5, "d_inner": 37, "n_layer": 3}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"ff_activation": "gelu", "untie_r": False},
    {"ff_activation": "relu", "clamp_len": 2},
    {"attn_type": "uni", "same_length": True},
    {"n_layer": 1, "d_head": 8, "n_head": 1},
]


def model_of(dtype: torch.dtype, **changes: Any) -> XLNetModel:
    torch.manual_seed(0)
    encoder = XLNetModel(XLNetConfig(**{**SHAPE, **changes})).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0, 0.3)
    if DecodeStep.of(encoder) is None:
        pytest.skip("no C compiler, or not Linux")
    return encoder


def places(batch: int, first: int, count: int, segments: bool, ragged: bool = False) -> Tokens:
    """Positions in a row, orders shuffled, every third token of segment 1, some padding where ``ragged``."""
    position = torch.arange(first, first + count).expand(batch, -1)
    order = first + torch.stack([torch.randperm(count) for _ in range(batch)])
    valid = (torch.rand(batch, count) < 0.7) if ragged else None
    return Tokens(position, order, position % 3 // 2 if segments else None, valid)


Pairs = list[tuple[Decoded, Decoded]]


def both(encoder: XLNetModel, batch: int, calls: list[tuple[int, int]], **options: Any) -> Pairs:
    """The same calls (content rows, query rows) through kernel and torch, each with a cache of its own."""
    segments, ragged = options.pop("segments", False), options.pop("ragged", False)
    need_content = options.pop("need_content", False)
    caches = [KeyValueCache(encoder, batch, capacity=4, products=p, **options) for p in ("auto", "torch")]
    assert caches[0].step is not None and caches[1].step is None
    results, seen = [], 0
    for content, query in calls:
        ids = torch.randint(0, 40, (batch, content)) if content else None
        given = places(batch, seen, content, segments, ragged) if content else None
        seen += content
        asked = places(batch, seen, query, segments) if query else None
        if asked is not None:
            asked = Tokens(asked.position, asked.order - 2, asked.segment)
        first, second = (decode(encoder, c, ids, given, asked, need_content=need_content) for c in caches)
        results.append((first, second))
    for number in range(encoder.config.n_layer):
        for mine, theirs in zip(*(cache.layer(number, 0, cache.length) for cache in caches), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    return results


def assert_equal(pairs: Pairs, tolerance: float) -> None:
    def check(mine: Tensor | None, theirs: Tensor | None) -> None:
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)

    for first, second in pairs:
        check(first.content, second.content)
        check(first.query, second.query)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 5e-4)])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("need_content", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_equals_the_layers_by_torch(
    batch: int, need_content: bool, variant: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    encoder = model_of(dtype, **variant)
    calls = [(1, 1), (0, 2), (2, 0), (1, 1), (9, 3), (1, 1), (1, 0), (0, 1), (2, 3)]
    assert_equal(both(encoder, batch, calls, need_content=need_content), tolerance)


@pytest.mark.parametrize(
    "options",
    [{"segments": True}, {"ragged": True}, {"window": 3}, {"reach": 2}, {"clamp_len": 1, "segments": True}],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 2])
def test_equals_them_with_segments_padding_and_windows(batch: int, options: dict[str, Any]) -> None:
    encoder = model_of(torch.float64)
    assert_equal(both(encoder, batch, [(1, 1), (7, 1), *[(1, 1)] * 6, (2, 2)], **options), 1e-11)


def test_a_row_that_sees_nothing() -> None:
    encoder = model_of(torch.float64)
    pairs = both(encoder, 2, [(3, 1)] * 2)
    cache = KeyValueCache(encoder, 1)
    key = Tokens(torch.tensor([[0]]), torch.tensor([[5]]))
    lonely = Tokens(torch.tensor([[1]]), torch.tensor([[0]]))
    alone = decode(encoder, cache, torch.tensor([[7]]), key, lonely).query
    slow = KeyValueCache(encoder, 1, products="torch")
    expected = decode(encoder, slow, torch.tensor([[7]]), key, lonely).query
    assert_equal(pairs, 1e-11)
    torch.testing.assert_close(alone, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    encoder, before = model_of(torch.float32), torch.get_num_threads()
    torch.manual_seed(1)
    try:
        torch.set_num_threads(threads)
        mine = [pair[0].query for pair in both(encoder, 1, [(1, 1)] * 5)]
        torch.manual_seed(1)
        torch.set_num_threads(1)
        alone = [pair[0].query for pair in both(encoder, 1, [(1, 1)] * 5)]
    finally:
        torch.set_num_threads(before)
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(mine, alone, strict=True))


def test_rows_given_stay_as_they_were() -> None:
    encoder = model_of(torch.float32)
    step = DecodeStep.of(encoder)
    assert step is not None
    rows = torch.randn(1, 1, 24)
    kept = rows.clone()
    keys = [torch.randn(1, 3, 2, 5) for _ in range(3)]
    tables = [torch.randn(3, 4, 5) for _ in range(3)]
    step.run(rows, 0, False, keys, [key.clone() for key in keys], tables, View(0, 2, 0, 3, torch.zeros(1, 1, 2).long()))
    assert torch.equal(rows, kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_that_was_cast_is_refused_and_never_read_as_what_it_was(dtype: torch.dtype) -> None:
    encoder = model_of(torch.float32)
    cache = KeyValueCache(encoder, 1)
    first = places(1, 0, 1, False)
    decode(encoder, cache, torch.tensor([[3]]), first, first)
    encoder.to(dtype)
    with pytest.raises(RuntimeError, match="expected"):
        decode(encoder, cache, torch.tensor([[3]]), places(1, 1, 1, False), first)


def test_a_copied_cache_goes_its_own_way() -> None:
    """Two ends of one beginning; the other one is as if there were no copy."""
    encoder = model_of(torch.float64)
    cache, plain = KeyValueCache(encoder, 1), KeyValueCache(encoder, 1, products="torch")
    steps = [places(1, number, 1, False) for number in range(3)]
    for other in (cache, plain):
        decode(encoder, other, torch.tensor([[3]]), steps[0], steps[1])
    branch = copy.deepcopy(cache)
    decode(encoder, branch, torch.tensor([[9]]), steps[1], steps[2])
    mine, theirs = (decode(encoder, other, torch.tensor([[5]]), steps[1], steps[2]) for other in (cache, plain))
    assert_equal([(mine, theirs)], 1e-11)
    assert branch.step is not None and branch.length == 2


def test_what_is_left_to_torch() -> None:
    """Many rows, no key at all, other precisions."""
    encoder = model_of(torch.float32)
    step, keys = DecodeStep.of(encoder), torch.empty(1, 3, 1, 5)
    assert step is not None and step.serves(torch.empty(1, MOST_ROWS, 24), keys)
    assert not step.serves(torch.empty(1, MOST_ROWS + 1, 24), keys)
    assert not step.serves(torch.empty(MOST_ROWS, 2, 24), keys)
    assert not step.serves(torch.empty(1, 1, 24), keys[:, :, :0])
    assert not step.serves(torch.empty(1, 0, 24), keys)
    assert not step.serves(torch.empty(1, 1, 24, dtype=torch.float64), keys)
    assert not step.serves(torch.empty(1, 1, 24, device="meta"), keys)
    assert DecodeStep.of(model_of(torch.float32).bfloat16()) is None
    mixed = model_of(torch.float32)
    mixed.layers[1].double()
    assert DecodeStep.of(mixed) is None
