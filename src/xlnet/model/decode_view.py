"""What rows of a decode call see of the cached keys, and at which distance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class View:
    """Rows against the keys ``start .. stop`` of the cache, computed once a call and read by every layer.

    Attributes:
        start, stop: columns of the cache; S of them.
        low, high: the distances of the table of position keys.
        index: ``[B, R, S]`` int64 place in that table.
        hidden: ``[B, 1, R, S]``, 0 where visible and hugely negative where not; None where everything is visible.
        blind: ``[B, R]`` bool, rows that see nothing; None where there are none.
        other_segment: ``[B, 1, R, S]`` 0 / 1; None where nothing is told apart.
    """

    start: int
    stop: int
    low: int
    high: int
    index: Tensor
    hidden: Tensor | None = None
    blind: Tensor | None = None
    other_segment: Tensor | None = None

    def rows_from(self, first: int) -> View:
        """The same without the first rows."""
        return replace(
            self,
            index=self.index[:, first:],
            hidden=None if self.hidden is None else self.hidden[:, :, first:],
            blind=None if self.blind is None else self.blind[:, first:],
            other_segment=None if self.other_segment is None else self.other_segment[:, :, first:],
        )

    def arrays(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """What there is of it, dense, under the names that ``decode.c`` gives them, for rows of ``dtype``."""
        given = {"index": self.index, "blind": self.blind}
        if self.hidden is not None:
            given["hidden"] = self.hidden.to(dtype)
        if self.other_segment is not None:
            given["other"] = self.other_segment.to(dtype)
        return {name: array.contiguous() for name, array in given.items() if array is not None}
