"""One pretraining sequence: tokens, segments, targets and order of one row (paper, 2.2 to 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlnet.errors import InputError
from xlnet.pretraining.draws import Draws
from xlnet.pretraining.permutation import draw_order
from xlnet.pretraining.segments import Lane, choose_pair
from xlnet.pretraining.spans import choose_targets, random_words
from xlnet.pretraining.stream_config import StreamConfig, target_count

Flags = NDArray[np.bool_]
Ids = NDArray[np.int64]

FUNCTIONAL = ("sep", "cls", "pad")  # never targets, also where they occur inside the text


class Vocabulary(NamedTuple):
    """What the data path knows of a vocabulary of V pieces.

    Attributes:
        starts_word: bool ``[V]``, the piece begins a word.
        is_functional: bool ``[V]``, True for ``<sep>``, ``<cls>`` and ``<pad>``.
        sep_id: id of ``<sep>``.
        cls_id: id of ``<cls>``.
    """

    starts_word: Flags
    is_functional: Flags
    sep_id: int
    cls_id: int

    @classmethod
    def make(cls, starts_word: Flags, special_ids: Mapping[str, int]) -> Vocabulary:
        """Check and gather.

        Raises:
            InputError: when ``sep`` or ``cls`` is not among ``special_ids``, or an id lies outside of ``starts_word``.
        """
        flags = np.asarray(starts_word, dtype=np.bool_).reshape(-1)
        missing = [name for name in ("sep", "cls") if name not in special_ids]
        if missing:
            raise InputError(
                f"The ids of {', '.join(f'<{name}>' for name in missing)} are not known, but every sequence ends with "
                "<sep> and <cls>: use a tokenizer that has them; pass special_ids where the corpus does not name them."
            )
        is_functional = np.zeros(len(flags), dtype=np.bool_)
        for name in FUNCTIONAL:
            if name not in special_ids:
                continue
            if not 0 <= special_ids[name] < len(flags):
                raise InputError(
                    f"<{name}> has the id {special_ids[name]}, but starts_word describes ids 0 to {len(flags) - 1}."
                )
            is_functional[special_ids[name]] = True
        return cls(flags, is_functional, special_ids["sep"], special_ids["cls"])

    def check(self, ids: Ids, where: str) -> None:
        """Refuse ids outside of the vocabulary.

        Raises:
            InputError: names the first such id, its place and the limit.
        """
        unsigned = ids.view(np.uint64)  # a negative id becomes a huge one
        if unsigned.max() >= len(self.starts_word):
            place = int(np.argmax(unsigned >= len(self.starts_word)))
            raise InputError(
                f"Token {place} of {where} has the id {int(ids[place])}, but ids run from 0 to "
                f"{len(self.starts_word) - 1}: the corpus was prepared with another tokenizer than the one given."
            )


class Sequence(NamedTuple):
    """One row of L positions and P targets; all int64.

    Attributes:
        input_ids: ``[L]``.
        token_type_ids: ``[L]``.
        order: ``[L]``.
        target_positions: ``[P]``, increasing.
    """

    input_ids: Ids
    token_type_ids: Ids
    order: Ids
    target_positions: Ids


def build_sequence(
    lane: Lane,
    begin: int,
    config: StreamConfig,
    share: float,
    vocabulary: Vocabulary,
    draws: Draws,
    any_subset: bool = False,
) -> Sequence:
    """``[reused part | A | <sep> | B | <sep> | <cls>]`` from lane position ``begin``.

    Args:
        lane: the text.
        begin: lane position of the reused part.
        config: settings.
        share: share of the tokens to predict.
        vocabulary: word starts and special ids.
        draws: random numbers of this row and step.
        any_subset: targets are random words of the whole sequence in lattice order (see ``any_subset``); the reused
            part then sees the new one.

    Raises:
        InputError: for an id outside of the vocabulary.
    """
    pair = choose_pair(lane, begin, config.reuse_len, config.text_len, config.consecutive_probability, draws)
    first = lane.tokens(begin, pair.a_begin + pair.a_len)
    second = lane.tokens(pair.b_begin, pair.b_begin + pair.b_len)
    ids = np.concatenate([first, [vocabulary.sep_id], second, [vocabulary.sep_id, vocabulary.cls_id]])
    vocabulary.check(ids, f"the sequence at token {lane.start} + {begin} of the corpus")
    types = np.zeros(config.seq_len, dtype=np.int64)
    types[len(first) + 1 :] = 1
    types[-1] = 2
    functional = vocabulary.is_functional[ids]
    starts_word = vocabulary.starts_word[ids]
    if any_subset:
        turn = slice(None, None, lane.direction)
        goal = target_count(share, int(np.count_nonzero(~functional)))
        targets = random_words(starts_word[turn], ~functional[turn], goal, draws)[turn]
        order = draw_order(targets, functional, 0, 0, "lattice", draws)
    else:
        targets = _targets(starts_word, ~functional, lane.direction, share, config, draws)
        order = draw_order(targets, functional, config.reuse_len, config.perm_size, config.order_kind, draws)
    return Sequence(ids, types, order, np.flatnonzero(targets).astype(np.int64))


def _targets(
    starts_word: Flags, maskable: Flags, direction: int, share: float, config: StreamConfig, draws: Draws
) -> Flags:
    """Targets of both parts, in proportion to what each can give; words are found in the direction people read them."""
    cut = config.reuse_len
    available = int(np.count_nonzero(maskable))
    reusable = int(np.count_nonzero(maskable[:cut]))
    total = target_count(share, available)
    of_reused = total * reusable // max(1, available)
    chosen = []
    for part, goal in ((slice(0, cut), of_reused), (slice(cut, None), total - of_reused)):
        targets = choose_targets(
            starts_word[part][::direction],
            maskable[part][::direction],
            goal,
            draws,
            max_span=config.max_span,
            rule=config.span_rule,
            context_factor=1.0 / share,
        )
        chosen.append(targets.mask[::direction])
    return np.concatenate(chosen)
