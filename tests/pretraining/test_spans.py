"""Targets: exact counts, whole words, lengths with weight 1/n, and the release's masks under its own draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.errors import InputError
from xlnet.pretraining.draws import Draws
from xlnet.pretraining.spans import choose_targets, piece_targets, word_targets, words_of

ALL_LENGTHS = np.array([1 / n for n in range(1, 6)]) / sum(1 / n for n in range(1, 6))


class ReleaseDraws:
    """The legacy generator behind the recorded masks."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed)

    def uniform(self) -> float:
        return float(self.state.random_sample())

    def below(self, limit: int) -> int:
        return int(self.state.randint(limit))


@pytest.fixture(scope="module")
def recorded(golden: Path) -> dict[str, np.ndarray]:
    return dict(np.load(golden / "pretraining/sample_mask.npz"))


def test_pieces_reproduce_every_recorded_mask_and_draw(recorded: dict[str, np.ndarray]) -> None:
    masks = np.unpackbits(recorded["masks"], axis=1).astype(bool)
    for case, (segment, flip, goal, alpha, beta, max_span, seed) in enumerate(recorded["params"].tolist()):
        draws = ReleaseDraws(seed)
        step = -1 if flip else 1
        starts = recorded["starts_word"][recorded[f"seg{segment}"]][::step]
        found = piece_targets(
            starts, np.ones(len(starts), bool), None if goal < 0 else goal, draws, max_span, alpha / beta
        )
        assert np.array_equal(found.mask[::step], masks[case, : len(starts)]), case
        assert draws.uniform() == recorded["next_random"][case], case


def windows(golden: Path, recorded: dict[str, np.ndarray], count: int, length: int = 256) -> list[np.ndarray]:
    """Word starts of random windows of the recorded text."""
    text = np.load(golden / "pretraining/tfrecords.npz")["uni/stream_data"].astype(np.int64)
    draws = Draws(5)
    begins = [draws.below(len(text) - length) for _ in range(count)]
    return [recorded["starts_word"][text[begin : begin + length]] for begin in begins]


def test_pieces_have_the_released_statistics(golden: Path, recorded: dict[str, np.ndarray]) -> None:
    stats = json.loads((golden / "pretraining/sample_mask_stats.json").read_text())["official goal=42"]
    draws, spans, filled, mid_word, lengths = Draws(1), 0, 0, 0, []
    cases = windows(golden, recorded, 300)
    for starts in cases:
        found = choose_targets(starts, np.ones(256, bool), 42, draws, rule="pieces")
        assert found.mask.sum() == 42
        assert all(starts[begin] for begin, _ in found.spans)
        spans += len(found.spans)
        filled += found.filled
        mid_word += sum(not starts[end] for _, end in found.spans)
        lengths += [end - begin for begin, end in found.spans]
    # Tolerances: five standard errors of 300 sequences, and the text of the recorded figures is not quite this one.
    assert spans / 300 == pytest.approx(stats["spans"] / 300, rel=0.05)
    assert filled / (300 * 42) == pytest.approx(stats["fills"] / stats["masked"], abs=0.03)
    assert mid_word / spans == pytest.approx(stats["end_mid_word"] / stats["spans"], abs=0.06)
    assert np.mean(lengths) == pytest.approx(stats["span_tokens"] / stats["spans"], rel=0.03)


def test_whole_words_have_lengths_one_over_n_and_need_hardly_a_fill(
    golden: Path, recorded: dict[str, np.ndarray]
) -> None:
    draws, filled, counts = Draws(2), 0, np.zeros(6)
    for starts in windows(golden, recorded, 1000):
        found = choose_targets(starts, np.ones(256, bool), 42, draws)
        filled += found.filled
        for begin, end in found.spans[:4]:  # later ones may be cut to what is missing
            counts[starts[begin:end].sum()] += 1
    # Standard error of a share among 4,000 spans is at most 0.008; a few are cut in two at the part's end.
    assert np.abs(counts[1:] / counts.sum() - ALL_LENGTHS).max() < 0.025
    assert filled / (1000 * 42) < 0.02


def test_no_position_is_favoured() -> None:
    starts = np.ones(64, bool)
    hits = sum(choose_targets(starts, starts, 11, Draws(3, i)).mask.astype(int) for i in range(4000))
    # Expected 687 hits a position with standard deviation 24.
    assert np.abs(hits - 4000 * 11 / 64).max() < 4.5 * 24


@st.composite
def parts(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    length = draw(st.integers(1, 60))
    starts = np.array(draw(st.lists(st.booleans(), min_size=length, max_size=length)))
    maskable = np.array(draw(st.lists(st.sampled_from([True] * 6 + [False]), min_size=length, max_size=length)))
    goal = draw(st.integers(0, int(maskable.sum())))
    return starts, maskable, goal, draw(st.integers(1, 7)), draw(st.integers(0, 2**32))


@settings(max_examples=50, deadline=None)
@given(parts())
def test_any_part_gets_exactly_its_goal_of_maskable_targets(part: tuple) -> None:
    starts, maskable, goal, max_span, seed = part
    for rule in ("whole_word", "pieces"):
        for factor in (1.0, 1.7, 6.0, 50.0):
            found = choose_targets(
                starts, maskable, goal, Draws(seed), max_span=max_span, rule=rule, context_factor=factor
            )
            assert found.mask.sum() == goal
            assert not (found.mask & ~maskable).any()
            again = choose_targets(
                starts, maskable, goal, Draws(seed), max_span=max_span, rule=rule, context_factor=factor
            )
            assert np.array_equal(found.mask, again.mask)


@settings(max_examples=50, deadline=None)
@given(parts())
def test_spans_are_whole_words_that_do_not_cross_functional_tokens(part: tuple) -> None:
    starts, maskable, goal, max_span, seed = part
    found = word_targets(starts, maskable, goal, Draws(seed), max_span)
    boundary = np.append(starts | ~maskable, True)
    for begin, end in found.spans:
        assert starts[begin] and maskable[begin:end].all() and boundary[end]
        assert 1 <= starts[begin:end].sum() <= max_span
    taken = [place for begin, end in found.spans for place in range(begin, end)]
    assert len(taken) == len(set(taken))
    begins, ends = words_of(starts, maskable)
    broken = [(b, e) for b, e in zip(begins, ends, strict=True) if 0 < found.mask[b:e].sum() < e - b]
    assert len(broken) <= 1  # only where no whole word fits what is missing
    for begin, end in broken:
        assert not any(
            not found.mask[b] and e - b <= found.mask[begin:end].sum() for b, e in zip(begins, ends, strict=True)
        )


def test_a_word_is_never_split_where_whole_words_can_make_the_count() -> None:
    starts = np.array([True, False, False, True, True])  # _un believ able _cat _sat
    seen = {tuple(choose_targets(starts, np.ones(5, bool), 3, Draws(i), max_span=1).mask) for i in range(60)}
    assert (True, True, True, False, False) in seen
    for mask in seen - {(True, True, True, False, False)}:
        assert mask == (True, False, False, True, True)  # both short words, and the count needs one piece more
    for goal, expected in ((1, {(0, 0, 0, 1, 0), (0, 0, 0, 0, 1)}), (2, {(0, 0, 0, 1, 1)})):
        found = {tuple(map(int, choose_targets(starts, np.ones(5, bool), goal, Draws(i)).mask)) for i in range(60)}
        assert found == expected


def test_everything_and_nothing() -> None:
    maskable = np.array([True, False, True, True])
    for rule in ("whole_word", "pieces"):
        assert np.array_equal(choose_targets(~maskable, maskable, 3, Draws(0), rule=rule).mask, maskable)
        assert not choose_targets(maskable, maskable, 0, Draws(0), rule=rule).mask.any()


def test_a_goal_above_what_can_be_predicted_is_an_error_not_a_loop() -> None:
    with pytest.raises(InputError, match=r"5 targets .* only 3"):
        choose_targets(np.ones(4, bool), np.array([True, True, False, True]), 5, Draws(0))
