"""What every implementation of attention computes from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from xlnet.model.geometry import Geometry


@dataclass(frozen=True)
class AttentionInputs:
    """What every backend computes from; B sequences, R rows, S keys, T distances, N heads of size H.

    Attributes:
        query: ``[B, R, N, H]``, rows of both streams.
        key, value: ``[B, S, N, H]``, memory first.
        position_key: ``[T, N, H]``, projected sinusoid of each distance the geometry's table covers.
        content_bias, position_bias, segment_bias: ``[N, H]``, the paper's u, v and b.
        segment_embedding: ``[2, N, H]``: 0 same segment, 1 another.
        geometry: who sees whom, at which distance, in which segment.
        dropatt: dropout rate on the probabilities, 0 outside training.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    position_key: Tensor
    content_bias: Tensor
    position_bias: Tensor
    segment_bias: Tensor
    segment_embedding: Tensor
    geometry: Geometry
    dropatt: float = 0.0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What carries a gradient, in the order above."""
        return (
            self.query, self.key, self.value, self.position_key, self.content_bias, self.position_bias,
            self.segment_bias, self.segment_embedding,
        )  # fmt: skip
