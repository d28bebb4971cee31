"""Segment recurrence: states of earlier segments that later ones may attend to (XLNet §2.5, Transformer-XL §3.2).

A memory is a value, never a module buffer: it goes in with a segment and a new one comes out. It keeps the last
``mem_len`` *real* positions of each row, right-aligned, so padding on either side is invisible to every later segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import InputError
from xlnet.model.tracing import being_traced


@dataclass(frozen=True)
class Memory:
    """States of earlier positions, one set a layer.

    Attributes:
        states: ``[n_layer, B, M, D]``, the *input* of each layer; detached.
        valid: ``[B, M]`` bool, True where a real position is kept; valid positions are the last ones.
        direction: ``[B]`` int64, +1 forward lane, -1 lane of reversed text.
    """

    states: Tensor
    valid: Tensor
    direction: Tensor

    @classmethod
    def empty(
        cls,
        config: XLNetConfig,
        batch_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        direction: Tensor | None = None,
    ) -> Memory:
        """A full-size memory without a valid position: it has constant shapes and acts like no memory at all."""
        shape = (config.n_layer, batch_size, config.mem_len, config.d_model)
        if direction is None:
            direction = torch.ones(batch_size, dtype=torch.int64, device=device)
        return cls(
            states=torch.zeros(shape, device=device, dtype=dtype),
            valid=torch.zeros(batch_size, config.mem_len, device=device, dtype=torch.bool),
            direction=direction,
        )

    @classmethod
    def attended_zeros(cls, config: XLNetConfig, batch_size: int, **options: object) -> Memory:
        """The release's start: zero states that *are* attended to. Takes the options of :meth:`empty`."""
        fresh = cls.empty(config, batch_size, **options)  # type: ignore[arg-type]
        return cls(fresh.states, torch.ones_like(fresh.valid), fresh.direction)

    @property
    def length(self) -> int:
        """M, how many positions there is room for."""
        return self.states.shape[2]

    @property
    def batch_size(self) -> int:
        """B, how many rows there are."""
        return self.states.shape[1]

    def select(self, rows: Tensor) -> Memory:
        """The memory of some rows, by index or by boolean mask."""
        return Memory(self.states[:, rows], self.valid[rows], self.direction[rows])

    def reset(self, rows: Tensor) -> Memory:
        """The same with the rows where the boolean ``rows [B]`` is True made empty (their text does not continue)."""
        keep = ~rows
        return Memory(self.states * keep[None, :, None, None], self.valid & keep[:, None], self.direction)

    def to(self, device: torch.device | str) -> Memory:
        """The same on another device."""
        return Memory(self.states.to(device), self.valid.to(device), self.direction.to(device))

    def to_dict(self) -> dict[str, Tensor]:
        """Named tensors, for saving."""
        return {"states": self.states, "valid": self.valid, "direction": self.direction}

    @classmethod
    def from_dict(cls, tensors: dict[str, Tensor]) -> Memory:
        """The reverse of :meth:`to_dict`."""
        return cls(tensors["states"], tensors["valid"], tensors["direction"])

    def check(self, config: XLNetConfig, batch_size: int, direction: Tensor | None) -> None:
        """Refuse a memory that cannot belong to this model and batch.

        Raises:
            InputError: naming both shapes.
        """
        layers, rows, _, width = self.states.shape
        if rows != batch_size:
            raise InputError(
                f"The memory holds {rows} rows but the batch has {batch_size}: each row continues its own text. "
                "Use memory.select(rows), or memory=None to start afresh."
            )
        if (layers, width) != (config.n_layer, config.d_model):
            raise InputError(
                f"The memory comes from a model of {layers} layers of width {width}; "
                f"this one has {config.n_layer} layers of width {config.d_model}."
            )
        compiling = being_traced()
        if direction is not None and not compiling and not torch.equal(direction, self.direction.to(direction)):
            raise InputError("A row's memory was read in the other direction: lanes must keep their direction.")


def remember(
    inputs: Tensor,
    previous: Memory | None,
    attention_mask: Tensor | None,
    direction: Tensor | None,
    config: XLNetConfig,
) -> Memory | None:
    """What the next segment may attend to: the first ``reuse_len`` positions of this one, after what was kept before.

    Args:
        inputs: ``[n_layer, B, L, D]``, the input of each layer.
        previous: the memory this segment was given, or None.
        attention_mask: ``[B, L]`` bool, or None where every position is real.
        direction: ``[B]``, or None for all forward.
        config: reads ``mem_len`` (0: no memory) and ``reuse_len`` (0: all positions).

    Returns:
        A full-size memory, or None where ``mem_len`` is 0.
    """
    if config.mem_len == 0:
        return None
    batch_size = inputs.shape[1]
    states = inputs.detach()[:, :, : config.reuse_len or None]
    real = torch.ones(batch_size, states.shape[2], dtype=torch.bool, device=inputs.device)
    if attention_mask is not None:
        real = attention_mask[:, : states.shape[2]]
    if previous is None:
        previous = Memory.empty(
            config, batch_size, device=inputs.device, dtype=inputs.dtype,
            direction=direction if direction is not None else torch.ones_like(real[:, 0], dtype=torch.int64),
        )  # fmt: skip
    if previous.length + states.shape[2] < config.mem_len:  # a memory made with a smaller mem_len grows to full size
        fresh = Memory.empty(config, batch_size, device=inputs.device, dtype=inputs.dtype, direction=previous.direction)
        room = config.mem_len - previous.length
        previous = Memory(
            torch.cat([fresh.states[:, :, :room], previous.states], dim=2),
            torch.cat([fresh.valid[:, :room], previous.valid], dim=1),
            previous.direction,
        )
    states = torch.cat([previous.states.to(states.dtype), states], dim=2)
    real = torch.cat([previous.valid, real], dim=1)
    if attention_mask is not None:
        # A stable sort on "is real" moves padding to the left and keeps the order of the text.
        place = real.to(torch.int8).argsort(dim=1, stable=True)
        real = real.gather(1, place)
        states = states.gather(2, place[None, :, :, None].expand(states.shape))
    return Memory(states[:, :, -config.mem_len :], real[:, -config.mem_len :], previous.direction)
