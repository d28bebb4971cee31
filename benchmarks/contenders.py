"""The same work for this library and for transformers' XLNet: a pretraining step, a fine-tuning step, an encoding.

Every function here returns a callable that does the work once, on synthetic ids; both sides get the same shapes, rates
of dropout, targets and optimizer (AdamW, the fused one on our side and on the peer's). Each side runs in what its user
gets by default: ours inside ``float32_products()`` and ``freed_memory_kept``, as this library's own loops (training,
prediction, embedding) do; the peer as torch is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.float32 import float32_products
from xlnet.model import XLNetForSequenceClassification, XLNetLMHeadModel, XLNetModel
from xlnet.training.freed_memory import freed_memory_kept

Work = Callable[[], object]
# A benchmark's process measures one contender and ends.
_surroundings = contextlib.ExitStack()


@dataclass(frozen=True)
class Shape:
    """A model and the batch it is measured with."""

    n_layer: int
    d_model: int
    n_head: int
    d_inner: int
    vocab_size: int
    batch: int
    length: int = 512
    memory: int = 384
    targets: int = 85

    def config(self, **changes: Any) -> XLNetConfig:
        """Ours."""
        return XLNetConfig(
            vocab_size=self.vocab_size, n_layer=self.n_layer, d_model=self.d_model, n_head=self.n_head,
            d_head=self.d_model // self.n_head, d_inner=self.d_inner,
        ).replace(**changes)  # fmt: skip

    def peer_config(self, **changes: Any) -> Any:
        """Theirs, with the same rates of dropout."""
        from transformers import XLNetConfig as PeerConfig

        return PeerConfig(
            vocab_size=self.vocab_size, n_layer=self.n_layer, d_model=self.d_model, n_head=self.n_head,
            d_inner=self.d_inner, ff_activation="gelu", dropout=0.1, **changes,
        )  # fmt: skip


SHAPES = {
    "small": Shape(4, 256, 4, 1024, 8000, batch=4),
    "base": Shape(12, 768, 12, 3072, 32000, batch=2),
    "tiny": Shape(2, 64, 2, 128, 500, batch=2, length=48, memory=32, targets=8),
}


def precision(dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 through autocast, as anybody would run it; nothing for float32."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=dtype)


def by_default(work: Work, peer: bool = False) -> Work:
    """The work in the surroundings that the loops of its side give it by default, from its first run to the last."""
    if not peer:
        _surroundings.enter_context(float32_products())
        _surroundings.enter_context(freed_memory_kept(torch.device("cpu")))
    return work


def chosen_places(shape: Shape) -> Tensor:
    """``[B, P]`` sorted target positions."""
    return torch.stack([torch.randperm(shape.length)[: shape.targets].sort().values for _ in range(shape.batch)])


def pretraining_step(shape: Shape, dtype: torch.dtype, backend: str = "auto", fused: bool = True) -> Work:
    """Two streams, memory, loss, backward, AdamW: ours."""
    config = shape.config(mem_len=shape.memory, reuse_len=shape.length // 2, attention_backend=backend)
    model = XLNetLMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    ids = torch.randint(10, shape.vocab_size, (shape.batch, shape.length))
    targets = chosen_places(shape)
    order = torch.stack([torch.randperm(shape.length) for _ in range(shape.batch)]) + 1
    context = torch.ones_like(ids, dtype=torch.bool).scatter(1, targets, False)
    segments = (torch.arange(shape.length) > 2 * shape.length // 3).long().expand_as(ids)
    direction = torch.tensor([1, -1] * shape.batch)[: shape.batch].sort(descending=True).values
    memory = None

    def step() -> float:
        nonlocal memory
        with precision(dtype):
            out = model(
                ids, order=order.masked_fill(context, 0), target_positions=targets, labels=ids.gather(1, targets),
                token_type_ids=segments, direction=direction, memory=memory,
            )  # fmt: skip
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        memory = out.memory
        return float(out.loss.detach())

    return by_default(step)


def peer_pretraining_step(shape: Shape, dtype: torch.dtype, fused: bool = True) -> Work:
    """The same in transformers."""
    from transformers import XLNetLMHeadModel as PeerModel

    model = PeerModel(shape.peer_config(mem_len=shape.memory, reuse_len=shape.length // 2)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    ids = torch.randint(10, shape.vocab_size, (shape.batch, shape.length))
    targets = chosen_places(shape)
    hidden = (torch.rand(shape.batch, shape.length, shape.length) < 0.3).float()
    mapping = torch.zeros(shape.batch, shape.targets, shape.length).scatter_(2, targets[..., None], 1.0)
    segments = (torch.arange(shape.length) > 2 * shape.length // 3).long().expand_as(ids)
    memory = None

    def step() -> float:
        nonlocal memory
        with precision(dtype):
            out = model(
                ids, perm_mask=hidden, target_mapping=mapping, labels=ids.gather(1, targets),
                token_type_ids=segments, mems=memory, use_mems=True,
            )  # fmt: skip
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        memory = out.mems
        return float(out.loss.detach())

    return step


def padded(shape: Shape, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Random ids and their mask, padded on the left."""
    longest = max(lengths)
    ids = torch.randint(10, shape.vocab_size, (len(lengths), longest))
    mask = torch.arange(longest)[None] >= longest - torch.tensor(lengths)[:, None]
    return ids, mask


def finetuning_step(shape: Shape, lengths: list[int], peer: bool, backend: str = "auto") -> Work:
    """One classification step on a padded batch."""
    ids, mask = padded(shape, lengths)
    labels = torch.randint(0, 2, (len(lengths),))
    model: Any
    if peer:
        from transformers import XLNetForSequenceClassification as PeerClassifier

        model = PeerClassifier(shape.peer_config()).train()
    else:
        model = XLNetForSequenceClassification(shape.config(attention_backend=backend)).train()
    if peer:
        mask = mask.float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> float:
        loss = model(ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return by_default(step, peer)


def encoding(shape: Shape, batches: list[list[int]], peer: bool, backend: str = "auto") -> Work:
    """Hidden states of padded batches, without gradients."""
    data = [padded(shape, lengths) for lengths in batches]
    model: Any
    if peer:
        from transformers import XLNetModel as PeerModel

        model = PeerModel(shape.peer_config()).eval()
    else:
        model = XLNetModel(shape.config(attention_backend=backend)).eval()

    def encode() -> None:
        with torch.inference_mode():
            for ids, mask in data:
                given = mask.float() if peer else mask
                model(ids, attention_mask=None if bool(mask.all()) else given)

    return by_default(encode, peer)
