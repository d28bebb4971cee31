"""What one pretraining step reads, and the checks on ids that are made where batches are built."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from xlnet.errors import InputError

IGNORED_LABEL = -100
NO_TARGET = -1


@dataclass(frozen=True)
class PretrainingBatch:
    """One micro-batch of permutation language modelling.

    Shapes use B rows (one lane each), L positions, P predicted positions.

    Attributes:
        input_ids: ``[B, L]`` int64, the true tokens; nothing is masked out, visibility follows from ``order``.
        token_type_ids: ``[B, L]`` int64: 0 up to and with the first ``<sep>``, 1 to the second, 2 for ``<cls>``.
        order: ``[B, L]`` int64, place of each token in the factorization order; context tokens share the lowest.
        target_positions: ``[B, P]`` int64, where to predict; -1 is an unused place.
        labels: ``[B, P]`` int64, the tokens at those places; -100 where unused.
        direction: ``[B]`` int64, +1 for a forward lane, -1 for a lane of reversed text.
        reset_memory: ``[B]`` bool, True where the row does not continue the text of the previous batch.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    order: Tensor
    target_positions: Tensor
    labels: Tensor
    direction: Tensor
    reset_memory: Tensor

    def to(self, device: torch.device | str) -> PretrainingBatch:
        """The same batch on another device."""
        return PretrainingBatch(*(getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)))

    @property
    def token_count(self) -> int:
        """Number of positions B * L, the unit of tokens per second."""
        return self.input_ids.numel()


def check_ids(input_ids: Tensor, vocab_size: int, where: str = "input_ids") -> None:
    """Refuse ids that no embedding exists for, before they become a device assertion.

    Raises:
        InputError: names the first such id, its place and the limit.
    """
    wrong = (input_ids < 0) | (input_ids >= vocab_size)
    if bool(wrong.any()):
        place = tuple(int(i) for i in wrong.nonzero()[0])
        value = int(input_ids[place])
        raise InputError(
            f"{where}{list(place)} is {value}, but ids run from 0 to {vocab_size - 1}: "
            "the text was encoded with a tokenizer that does not belong to this model."
        )
