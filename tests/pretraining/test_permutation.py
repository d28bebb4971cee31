"""The order of a sequence stands for the official attention masks, and no kind of order leaks an answer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.pretraining.draws import Draws
from xlnet.pretraining.permutation import draw_order, order_of_part, sample_places

FUNCTIONAL_IDS = (3, 4)  # <cls>, <sep>


def visible(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Content and query visibility ``[row, key]``."""
    return order[None, :] <= order[:, None], order[None, :] < order[:, None]


def release_places(given: np.ndarray, length: int) -> np.ndarray:
    """The recorded order of one block, repeated over the part."""
    position = np.arange(length)
    return given[position % len(given)].astype(np.int64) + len(given) * (position // len(given))


def test_order_equals_every_recorded_local_permutation(golden: Path) -> None:
    recorded = np.load(golden / "pretraining/local_perm.npz")
    for case in range(36):
        inputs, masked = recorded[f"{case}/inputs"], recorded[f"{case}/is_masked"]
        functional = np.isin(inputs, FUNCTIONAL_IDS)
        target = masked & ~functional
        order = order_of_part(target, functional, release_places(recorded[f"{case}/order"], len(inputs)), "permutation")
        content, query = visible(order)
        hidden = recorded[f"{case}/out_perm_mask"]
        assert np.array_equal(target, recorded[f"{case}/out_target_mask"]), case
        assert np.array_equal(content, ~hidden | np.eye(len(inputs), dtype=bool)), case
        assert np.array_equal(query[target], ~hidden[target]), case


@pytest.mark.parametrize("case", ["uni_np10_perm32", "uni_np10_perm16", "bi_np10_perm32", "uni_npNone_perm32"])
def test_order_equals_the_masks_of_whole_recorded_sequences(golden: Path, case: str) -> None:
    recorded = np.load(golden / "pretraining/parser_fixed_order.npz")
    records = np.load(golden / "pretraining/tfrecords.npz")
    places = release_places(recorded[f"{case}/order"], 32)
    for row in range(4):
        ids = recorded[f"{case}/input_k"][row]
        functional = np.isin(ids, FUNCTIONAL_IDS)
        target = records[f"{case[: case.index('_')]}/is_masked"][row].astype(bool) & ~functional
        halves = [slice(0, 32), slice(32, 64)]
        order = np.concatenate(
            [
                order_of_part(target[half], functional[half], places, "permutation", base)
                for half, base in zip(halves, (0, 33), strict=True)
            ]
        )
        content, query = visible(order)
        hidden = recorded[f"{case}/perm_mask"][row].astype(bool)
        assert np.array_equal(content, ~hidden | np.eye(64, dtype=bool))
        assert np.array_equal(query[target], ~hidden[target])
        if "npNone" not in case:
            mapping = recorded[f"{case}/target_mapping"][row].astype(bool)
            assert np.array_equal(np.flatnonzero(mapping.any(0)), np.flatnonzero(target))
            assert np.array_equal(recorded[f"{case}/target"][row][: target.sum()], ids[target])


@st.composite
def sequences(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    length = draw(st.integers(2, 40))
    kinds = np.array(draw(st.lists(st.sampled_from("ccctf"), min_size=length, max_size=length)))
    reuse = draw(st.integers(0, length - 1))
    return kinds == "t", kinds == "f", reuse, draw(st.integers(0, length)), draw(st.integers(0, 2**32))


@settings(max_examples=50, deadline=None)
@given(sequences(), st.sampled_from(["permutation", "lattice", "left_to_right", "masked"]))
def test_rules_that_hold_for_every_order(sequence: tuple, kind: str) -> None:
    target, functional, reuse, perm_size, seed = sequence
    order = draw_order(target, functional, reuse, perm_size, kind, Draws(seed))
    content, query = visible(order)
    length = len(order)
    assert order.dtype == np.int64 and order.min() >= 0
    assert content.diagonal().all() and not query.diagonal().any()
    new = np.arange(length) >= reuse
    assert not content[~new][:, new].any()  # nothing reused sees what is new
    assert content[new][:, ~new].all() and query[new][:, ~new].all()
    # No answer reaches its own query row through the content rows it reads, over any number of layers.
    reach = content.copy()
    for _ in range(6):
        reach = reach @ reach
    for row in np.flatnonzero(target):
        assert not (query[row][None, :] @ reach)[0, row]
    if kind != "left_to_right":
        context = ~target & (~functional if kind == "permutation" else True)
        for part in (~new, new):
            assert len(set(order[context & part])) <= 1
            assert (order[target & part][:, None] > order[context & part][None, :]).all()


@settings(max_examples=50, deadline=None)
@given(sequences())
def test_each_kind_is_what_its_name_says(sequence: tuple) -> None:
    target, functional, reuse, perm_size, seed = sequence
    new = np.arange(len(target)) >= reuse
    for part in (~new, new):
        chosen = target & part
        lattice = draw_order(target, functional, reuse, perm_size, "lattice", Draws(seed))
        assert all(a < b for a, b in pairwise(lattice[chosen]))
        left_to_right = draw_order(target, functional, reuse, perm_size, "left_to_right", Draws(seed))
        assert all(a < b for a, b in pairwise(left_to_right))
        masked = draw_order(target, functional, reuse, perm_size, "masked", Draws(seed))
        assert len(set(masked[chosen])) <= 1
        permuted = draw_order(target, functional, reuse, perm_size, "permutation", Draws(seed))
        ranked = (target | functional) & part
        assert len(set(permuted[ranked])) == ranked.sum()
        start = reuse if part is new else 0
        block = (np.arange(len(target)) - start) // perm_size if perm_size else np.zeros(len(target))
        for a in np.flatnonzero(ranked):  # a later block comes later in the order
            assert (permuted[ranked & (block > block[a])] > permuted[a]).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 2**32))
def test_places_are_permuted_inside_blocks(length: int, perm_size: int, seed: int) -> None:
    places = sample_places(length, perm_size, Draws(seed))
    block = perm_size or length
    for begin in range(0, length, block):
        part = places[begin : begin + block]
        assert sorted(part) == list(range(begin, begin + len(part)))


def test_every_order_of_a_block_is_equally_likely() -> None:
    draws = Draws(11)
    counts: dict[tuple, int] = {}
    for _ in range(6000):
        key = tuple(sample_places(3, 0, draws))
        counts[key] = counts.get(key, 0) + 1
    # 1000 of each expected, standard deviation 29.
    assert len(counts) == 6 and all(abs(count - 1000) < 150 for count in counts.values())
