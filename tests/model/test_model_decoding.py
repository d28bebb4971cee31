"""Cached decoding against the encoder's own forward pass: the same numbers, whatever the order and the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, InputError
from xlnet.model import Memory, XLNetModel
from xlnet.model.cache import KeyValueCache, PositionKeys, Tokens
from xlnet.model.decoding import decode

SHAPE = {
    "vocab_size": 40, "n_layer": 3, "d_model": 24, "n_head": 3, "d_head": 8, "d_inner": 40, "initializer_range": 0.5,
}  # fmt: skip
CONFIGS = {
    "plain": {},
    "tied_biases_other_width": {"untie_r": False, "d_head": 10, "ff_activation": "relu"},
    "clamped": {"clamp_len": 3},
    "clamped_to_one": {"clamp_len": 1},
    "one_layer": {"n_layer": 1},
}


def make(**changes: object) -> XLNetModel:
    torch.manual_seed(0)
    return XLNetModel(XLNetConfig(**{**SHAPE, **changes})).double().eval()


def decode_by_order(
    model: XLNetModel, ids: Tensor, order: Tensor, segment: Tensor | None, cache: KeyValueCache
) -> Tensor:
    """Query states ``[B, L, D]`` token by token along each row's own order."""
    batch, length = ids.shape
    place = order.argsort(1)
    states = torch.zeros(batch, length, model.config.d_model, dtype=torch.float64)

    def tokens(rank: int) -> Tokens:
        at = place[:, rank : rank + 1]
        return Tokens(at, order.gather(1, at), None if segment is None else segment.gather(1, at))

    for rank in range(length):
        known = None if rank == 0 else ids.gather(1, place[:, rank - 1 : rank])
        out = decode(model, cache, known, None if rank == 0 else tokens(rank - 1), tokens(rank))
        states.scatter_(1, place[:, rank, None, None].expand(-1, 1, states.shape[2]), out.query)
    return states


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("segments", [False, True])
def test_token_by_token_equals_one_pass(name: str, segments: bool) -> None:
    model = make(**CONFIGS[name])
    ids = torch.randint(0, 40, (3, 9))
    order = torch.stack([torch.randperm(9) for _ in range(3)])
    segment = torch.randint(0, 3, (3, 9)) if segments else None
    with torch.no_grad():
        targets = torch.arange(9).expand(3, -1)
        want = model(ids, token_type_ids=segment, order=order, target_positions=targets).query
    got = decode_by_order(model, ids, order, segment, KeyValueCache(model, 3, capacity=2))
    assert (got - want).abs().max() < 1e-12


@pytest.mark.parametrize("same_length", [False, True])
def test_unidirectional_models(same_length: bool) -> None:
    model = make(attn_type="uni", same_length=same_length, mem_len=4)
    ids = torch.randint(0, 40, (2, 8))
    order = torch.arange(4).expand(2, -1)
    with torch.no_grad():
        memory = model(ids[:, :4]).memory
        want = model(ids[:, 4:], memory=memory, order=order, target_positions=order).query
    cache = KeyValueCache(model, 2)
    cache.remember(memory)
    got = decode_by_order(model, ids[:, 4:], order, None, cache)
    assert (got - want).abs().max() < 1e-12


def test_content_rows_in_one_call_equal_forward() -> None:
    model = make()
    ids = torch.randint(0, 40, (2, 6))
    order = torch.tensor([[0, 0, 0, 1, 2, 3], [3, 0, 0, 1, 0, 2]])
    position = torch.arange(6).expand(2, -1)
    with torch.no_grad():
        want = model(ids, order=order).content
    got = decode(model, KeyValueCache(model, 2), ids, Tokens(position, order), need_content=True)
    assert got.query is None
    assert (got.content - want).abs().max() < 1e-12


def test_a_row_that_sees_nothing_depends_on_nothing() -> None:
    model = make()
    first = Tokens(torch.tensor([[4]]), torch.tensor([[0]]))
    alone = decode(model, KeyValueCache(model, 1), None, None, first).query
    later = Tokens(torch.tensor([[0, 1]]), torch.tensor([[1, 2]]))
    beside = decode(model, KeyValueCache(model, 1), torch.tensor([[7, 9]]), later, first).query
    other = decode(model, KeyValueCache(model, 1), torch.tensor([[3, 0]]), later, first).query
    assert torch.equal(beside, other)
    assert (alone - beside).abs().max() < 1e-13
    with torch.no_grad():
        want = model(torch.tensor([[7]]), order=torch.tensor([[0]]), target_positions=torch.tensor([[0]])).query
    assert (alone - want).abs().max() < 1e-12


def test_padding_is_invisible_on_either_side() -> None:
    model = make()
    ids = torch.randint(0, 40, (1, 5))
    position, order = torch.arange(5)[None], torch.zeros(1, 5, dtype=torch.int64)
    query = Tokens(torch.tensor([[5]]), torch.tensor([[1]]))
    want = decode(model, KeyValueCache(model, 1), ids, Tokens(position, order), query).query
    pad = torch.zeros(1, 2, dtype=torch.int64)
    junk = pad + 999  # a padded column may claim any position
    for sides in ((pad, ids), (ids, pad)):
        padded = torch.cat(sides, 1)
        real = torch.cat([torch.ones_like(s) if s is ids else pad for s in sides], 1) > 0
        place = torch.cat([position if s is ids else junk for s in sides], 1)
        tokens = Tokens(place, torch.zeros_like(place), None, real)
        cache = KeyValueCache(model, 1)
        got = decode(model, cache, padded, tokens, query).query
        assert (got - want).abs().max() < 1e-12
        assert cache.positions.high < 100


def test_memory_starts_a_cache_padded_rows_included() -> None:
    model = make(mem_len=5)
    before = torch.randint(0, 40, (2, 6))
    mask = torch.tensor([[1] * 6, [0, 0, 0, 1, 1, 1]])
    ids, order = torch.randint(0, 40, (2, 4)), torch.tensor([[2, 0, 3, 1], [0, 1, 2, 3]])
    with torch.no_grad():
        memory = model(before, mask).memory
        want = model(ids, memory=memory, order=order, target_positions=torch.arange(4).expand(2, -1)).query
    cache = KeyValueCache(model, 2)
    cache.remember(memory)
    assert (decode_by_order(model, ids, order, None, cache) - want).abs().max() < 1e-12


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_a_window_is_hidden_state_memory_of_that_length(steps: int) -> None:
    """Walking in segments with a cache of W columns equals Transformer-XL memory with mem_len W, over many drops."""
    model = make(mem_len=5)
    ids = torch.randint(0, 40, (2, 10 * steps))
    cache = KeyValueCache(model, 2, capacity=1, window=5)
    memory, largest = None, 0
    for start in range(0, ids.shape[1], steps):
        part = ids[:, start : start + steps]
        order = torch.arange(steps).expand(2, -1)
        with torch.no_grad():
            out = model(part, memory=memory, order=order, target_positions=order)
        memory = out.memory
        place = order + start
        got = decode(model, cache, part, Tokens(place, place), Tokens(place, place)).query
        assert (got - out.query).abs().max() < 1e-11
        largest = max(largest, cache.capacity)
    assert largest <= 2 * (2 * 5 + 2 * steps)


def test_forget_and_select() -> None:
    model = make()
    ids = torch.randint(0, 40, (2, 4))
    position = torch.arange(4).expand(2, -1)
    query = Tokens(torch.tensor([[4], [4]]), torch.tensor([[9], [9]]))
    cache = KeyValueCache(model, 2)
    decode(model, cache, ids, Tokens(position, position))
    cache.forget(torch.tensor([2, 3]))
    assert cache.length == 3
    got = decode(model, cache, None, None, query).query
    for row, kept in ((0, 2), (1, 3)):
        alone = KeyValueCache(model, 1)
        decode(model, alone, ids[row : row + 1, :kept], Tokens(position[:1, :kept], position[:1, :kept]))
        want = decode(model, alone, None, None, Tokens(query.position[:1], query.order[:1])).query
        assert (got[row] - want[0]).abs().max() < 1e-12
    cache.select(torch.tensor([1, 1, 0]))
    three = Tokens(torch.tensor([[4]] * 3), torch.tensor([[9]] * 3))
    again = decode(model, cache, None, None, three).query
    assert (again - got[[1, 1, 0]]).abs().max() < 1e-12
    cache.forget(torch.tensor([0, 0, 0]))
    assert cache.length == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(-70, 70), st.integers(0, 40)), min_size=1, max_size=6))
def test_position_keys_grow_to_any_range(ranges: list[tuple[int, int]]) -> None:
    model = make(n_layer=1)
    grown = PositionKeys(model)
    with torch.no_grad():
        for low, size in ranges:
            grown.cover(low, low + size)
            fresh = PositionKeys(model)
            fresh.cover(low, low + size)
            assert (grown.keys(0, low, low + size) - fresh.keys(0, low, low + size)).abs().max() < 1e-12
    assert grown.high - grown.low < 4 * 260


def test_position_keys_are_projected_rarely() -> None:
    model = make(n_layer=1)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    model.layers[0].attention.position.register_forward_hook(count)
    cache = KeyValueCache(model, 1)
    for step in range(200):
        at = Tokens(torch.tensor([[step]]), torch.tensor([[step]]))
        decode(model, cache, torch.tensor([[1]]), at, Tokens(at.position + 1, at.order + 1))
    assert calls <= 8
    assert cache.capacity <= 256


def test_bfloat16_stays_near_float64() -> None:
    model = make(initializer_range=0.1)
    ids = torch.randint(0, 40, (2, 9))
    order = torch.stack([torch.randperm(9) for _ in range(2)])
    place = torch.arange(9).expand(2, -1)
    arguments = (ids, Tokens(place, order), Tokens(place, order))
    want = decode(model, KeyValueCache(model, 2), *arguments).query
    half = model.bfloat16()
    got = decode(half, KeyValueCache(half, 2), *arguments).query
    assert got.dtype == torch.bfloat16
    assert torch.isfinite(got).all()
    assert (got.double() - want).abs().max() < 0.1


def test_bad_input_is_refused() -> None:
    model = make(mem_len=2)
    cache = KeyValueCache(model, 2)
    one = Tokens(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(InputError, match="belong together"):
        decode(model, cache, torch.zeros(2, 1, dtype=torch.int64), None)
    with pytest.raises(InputError, match="the cache has 2"):
        decode(model, cache, torch.zeros(1, 1, dtype=torch.int64), one)
    with pytest.raises(InputError, match="ids has shape"):
        decode(model, KeyValueCache(model, 1), torch.zeros(1, 2, dtype=torch.int64), one)
    with pytest.raises(InputError, match="order has shape"):
        Tokens(torch.zeros(1, 2), torch.zeros(1, 3))
    with pytest.raises(ConfigurationError, match="window=-1"):
        KeyValueCache(model, 1, window=-1)
    with pytest.raises(ConfigurationError, match="batch_size=0"):
        KeyValueCache(model, 0)
    reversed_text = Memory.empty(model.config, 2, dtype=torch.float64, direction=torch.tensor([1, -1]))
    with pytest.raises(InputError, match="reversed text"):
        cache.remember(reversed_text)
    with pytest.raises(InputError, match="memory holds 2 rows"):
        KeyValueCache(model, 1).remember(Memory.empty(model.config, 2, dtype=torch.float64))
    cache.remember(Memory.empty(model.config, 2, dtype=torch.float64))
    with pytest.raises(InputError, match="already holds tokens"):
        cache.remember(Memory.empty(model.config, 2, dtype=torch.float64))
