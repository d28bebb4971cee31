"""Draws by name: the same numbers for the same key on any machine and version, others for another key."""

from __future__ import annotations

import pytest

from xlnet.pretraining.draws import Draws

UNIFORM = [0.8734653506910067, 0.26833114249060674, 0.05375528567778731]
PERMUTATION = [2, 3, 7, 1, 4, 0, 5, 6]


def test_numbers_of_a_key_are_fixed_for_good() -> None:
    """A change here changes every batch of every run, and makes saved data positions mean other batches."""
    draws = Draws(1, 2, 3)
    assert [draws.uniform() for _ in range(3)] == pytest.approx(UNIFORM, abs=0)
    assert Draws(1, 2, 3).permutation(8).tolist() == PERMUTATION


def test_keys_do_not_share_their_numbers() -> None:
    keys = [(), (0,), (0, 0), (1,), (0, 1), (1, 0), (2**40, 0), (0, 2**40)]
    assert len({Draws(*key).uniform() for key in keys}) == len(keys)


def test_integers_stay_below_the_limit_and_all_come_up() -> None:
    draws = Draws(4)
    assert {draws.below(5) for _ in range(500)} == {0, 1, 2, 3, 4}
    assert {draws.below(1) for _ in range(50)} == {0}
