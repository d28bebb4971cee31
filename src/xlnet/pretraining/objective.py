"""The objective of the paper on one page: order, visibility, two streams, loss and memory (XLNet §2.2-§2.5, eq. 5).

    max_theta  E_z [ sum over t > c of  log p(x_{z_t} | x_{z_<t}) ]

* *order*: the batch carries one integer a token, its place z in a sampled factorization order.
* *visibility*: content row i sees key j iff ``order[j] <= order[i]``, a query row iff ``order[j] < order[i]``.
* *two streams*: the query stream runs at the predicted places only (the last part of the order, t > c); it knows where
  it predicts and what came before in the order, never the token itself.
* *loss*: cross-entropy of the true tokens at those places.
* *memory*: states of the lane's earlier segments are attended to, without gradient.
"""

from __future__ import annotations

import torch
from torch import nn

from xlnet.batch import PretrainingBatch
from xlnet.configuration import XLNetConfig
from xlnet.model import Memory
from xlnet.training.contracts import Carried, Step


class PermutationObjective:
    """Permutation language modelling as the training loop wants it: batch in, summed loss and next memory out.

    Args:
        config: of the model; its ``mem_len`` says whether memory is kept.
        attended_zeros: start from zero memories that are attended to, as the release does; by default from none.
    """

    def __init__(self, config: XLNetConfig, attended_zeros: bool = False) -> None:
        self.config = config
        self.attended_zeros = attended_zeros

    def __call__(self, model: nn.Module, batch: PretrainingBatch, carried: Carried | None) -> Step:
        """One micro-batch; see :class:`~xlnet.training.contracts.Objective`."""
        out = model(
            batch.input_ids,
            token_type_ids=batch.token_type_ids,
            order=batch.order,
            target_positions=batch.target_positions,
            labels=batch.labels,
            direction=batch.direction,
            memory=self.memory(batch, carried),
        )
        return Step(out.loss_sum, out.target_count, None if out.memory is None else out.memory.to_dict())

    def memory(self, batch: PretrainingBatch, carried: Carried | None) -> Memory | None:
        """What this batch may attend to: the lanes' earlier states, without the rows whose text starts anew."""
        if self.config.mem_len == 0:
            return None
        if carried is None:
            start = Memory.attended_zeros if self.attended_zeros else Memory.empty
            rows = batch.input_ids.shape[0]
            return start(self.config, rows, device=batch.input_ids.device, direction=batch.direction)
        memory = Memory.from_dict(carried)
        # Of an odd number of lanes one turns round from epoch to epoch: with reset_memory="never" this alone resets it.
        anew = batch.reset_memory | (batch.direction != memory.direction)
        if not bool(anew.any()):
            return memory
        memory = memory.reset(anew)
        return Memory(memory.states, memory.valid, torch.where(anew, batch.direction, memory.direction))
