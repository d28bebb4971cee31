"""How the rows of an attention call lie to its keys: who sees whom, how far apart, in which segment (XLNet §2.3, §2.5).

Every row and every key carries four numbers (position, segment, order, valid). Visibility, distance and "another
segment" follow from them, in the reference path, in the fast paths and in cached decoding alike. Rows are the content
stream (each row is also a key) followed by the query stream (rows that may see what precedes their token, never it).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

SEES_NOTHING = torch.iinfo(torch.int64).min
ALWAYS_SEEN = SEES_NOTHING + 1


@dataclass(frozen=True)
class Keys:
    """What may be attended to; ``B1`` below is B, or 1 where all sequences agree.

    Attributes:
        position: ``[B1, S]`` int64; memory counts -M .. -1.
        order: ``[B, S]`` int64 place in the factorization order, or None where every row sees every key.
        segment: ``[B, S]`` int64, or None where nothing is told apart; memory counts as segment 0, as released.
        valid: ``[B, S]`` bool, False for padding, or None where all keys are real.
    """

    position: Tensor
    order: Tensor | None = None
    segment: Tensor | None = None
    valid: Tensor | None = None


@dataclass(frozen=True)
class Rows:
    """What attends.

    Attributes:
        position: ``[B1, R]`` int64.
        sees: ``[B, R]`` int64, the highest order that the row sees: its own (content) or one less (query); None: all.
        segment: ``[B, R]`` int64 or None.
        own_key: ``[R]`` int64, index of the key that is the row itself (always seen), -1 for query rows.
    """

    position: Tensor
    own_key: Tensor
    sees: Tensor | None = None
    segment: Tensor | None = None


@dataclass(frozen=True)
class Geometry:
    """Rows against keys, and the table of distances they read.

    Attributes:
        rows, keys: see above; R rows, S keys.
        lowest_distance, highest_distance: what the position table covers.
        direction: ``[B]`` int64 of +1 / -1, or None where all lanes run forward.
        explicit: ``[B, R, S]`` bool that replaces the rule of orders, or None.
        causal: ``attn_type="uni"``: no key to the right of the row.
        reach: with ``same_length``, how many positions back a row sees; None is no limit.
        shift_rows: how many leading rows are the consecutive tokens ``0 .. L-1`` of a key axis that ends with them and
            whose positions count up by one: those rows may read distances by a shift instead of a gather. 0: none.
    """

    rows: Rows
    keys: Keys
    lowest_distance: int
    highest_distance: int
    direction: Tensor | None = None
    explicit: Tensor | None = None
    causal: bool = False
    reach: int | None = None
    shift_rows: int = 0

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What a backend has worked out from this geometry, kept for the other layers and the backward pass."""
        return {}

    @cached_property
    def visible(self) -> Tensor | None:
        """``[B1, R, S]`` bool, True where the row may attend to the key; None where every row sees every key."""
        rows, keys = self.rows, self.keys
        rules: list[Tensor] = []
        if self.explicit is not None:
            rules.append(self.explicit)
        elif rows.sees is not None and keys.order is not None:
            rules.append(keys.order[:, None, :] <= rows.sees[:, :, None])
        if keys.valid is not None:
            rules.append(keys.valid[:, None, :])
        if self.causal:
            back = rows.position[:, :, None] - keys.position[:, None, :]
            rules.append((back >= 0) if self.reach is None else (back >= 0) & (back <= self.reach))
        if not rules:
            return None
        seen = rules[0]
        for rule in rules[1:]:
            seen = seen & rule
        number = torch.arange(keys.position.shape[1], device=rows.own_key.device)
        return seen | (number == rows.own_key[:, None])

    @cached_property
    def distance_index(self) -> Tensor:
        """``[B1, R, S]`` int64: which row of the position table each pair reads."""
        distance = self.rows.position[:, :, None] - self.keys.position[:, None, :]
        if self.direction is not None:
            distance = distance * self.direction[:, None, None]
        return distance.clamp(self.lowest_distance, self.highest_distance) - self.lowest_distance

    @cached_property
    def other_segment(self) -> Tensor | None:
        """``[B, R, S]`` bool, True where row and key belong to different segments; None where no segments are given."""
        if self.rows.segment is None or self.keys.segment is None:
            return None
        return self.rows.segment[:, :, None] != self.keys.segment[:, None, :]

    @property
    def has_segments(self) -> bool:
        """Whether segments are told apart at all."""
        return self.rows.segment is not None and self.keys.segment is not None

    def drop_rows(self, first: int) -> Geometry:
        """The same without the first ``first`` rows (the content stream, where nobody needs it any more)."""
        rows = self.rows
        kept = Rows(
            position=rows.position[:, first:],
            own_key=rows.own_key[first:],
            sees=None if rows.sees is None else rows.sees[:, first:],
            segment=None if rows.segment is None else rows.segment[:, first:],
        )
        explicit = None if self.explicit is None else self.explicit[:, first:]
        return dataclasses.replace(self, rows=kept, explicit=explicit, shift_rows=0 if first else self.shift_rows)

    def crop(self, number: int, first: int, last: int) -> Geometry:
        """One sequence and some of its rows, ``first`` up to ``last``; all keys. Its rows gather their distances."""
        rows, keys = self.rows, self.keys
        one = slice(number, number + 1)

        def of_sequence(values: Tensor) -> Tensor:
            return values[one] if values.shape[0] > 1 else values

        def of_rows(values: Tensor) -> Tensor:
            return of_sequence(values)[:, first:last]

        return dataclasses.replace(
            self,
            rows=Rows(
                position=of_rows(rows.position),
                own_key=rows.own_key[first:last],
                sees=None if rows.sees is None else of_rows(rows.sees),
                segment=None if rows.segment is None else of_rows(rows.segment),
            ),
            keys=Keys(
                position=of_sequence(keys.position),
                order=None if keys.order is None else of_sequence(keys.order),
                segment=None if keys.segment is None else of_sequence(keys.segment),
                valid=None if keys.valid is None else of_sequence(keys.valid),
            ),
            direction=None if self.direction is None else of_sequence(self.direction),
            explicit=None if self.explicit is None else of_rows(self.explicit),
            shift_rows=0,
        )
