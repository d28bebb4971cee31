"""Packed rows give the states of the padded batch, whatever the padding, and leak nothing between texts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.model import XLNetForSequenceClassification, XLNetModel, encoder
from xlnet.model.packing import plan_packing


def model(**changes: Any) -> XLNetModel:
    torch.manual_seed(0)
    config = XLNetConfig(
        vocab_size=31, n_layer=2, d_model=16, n_head=2, d_head=6, d_inner=24, dropout=0.0, dropatt=0.0,
        initializer_range=0.3,
    )  # fmt: skip
    return XLNetModel(config.replace(**changes)).double()


def ragged(side: str, lengths: list[int], longest: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, 31, (len(lengths), longest))
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    return ids, mask if side == "right" else mask.flip(1)


COST = 64.0
LENGTHS = [[3, 9, 1, 5, 2], [2, 2, 12], [1, 1, 1], [0, 7, 2]]


@pytest.mark.parametrize(
    "changes", [{}, {"attn_type": "uni"}, {"attn_type": "uni", "same_length": True}, {"clamp_len": 3}]
)
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_states_and_gradients_of_the_padded_batch(
    lengths: list[int], side: str, segments: bool, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = model(**changes)
    ids, mask = ragged(side, lengths, 14)
    types = torch.randint(0, 2, ids.shape) if segments else None
    upstream = torch.randn(*ids.shape, 16).double() * mask[..., None]
    found = []
    for packed in (True, False):
        if not packed:
            monkeypatch.setattr(encoder, "plan_packing", lambda mask, cost: None)
        network.zero_grad()
        content = network(ids, mask, types).content
        (content * upstream).sum().backward()
        gradients = [p.grad.clone() for p in network.parameters() if p.grad is not None]
        found.append((content.detach() * mask[..., None], gradients))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    assert len(our_gradients) == len(their_gradients)
    for ours, theirs in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_a_text_depends_on_itself_alone() -> None:
    """Exactly: another text in the same packed row changes not one bit."""
    network = model()
    ids, mask = ragged("right", [5, 4, 9, 3], 12)
    packing = plan_packing(mask, COST)
    assert packing is not None
    assert len(packing.text) < 4
    before = network(ids, mask).content
    ids[1] = (ids[1] + 7) % 31
    after = network(ids, mask).content
    assert torch.equal(before[[0, 2, 3]], after[[0, 2, 3]])
    assert not torch.equal(before[1], after[1])


def test_what_is_not_packed() -> None:
    """Full batches, holes within a text, and models that must return a memory."""
    full = torch.ones(3, 5, dtype=torch.bool)
    assert plan_packing(full, COST) is None
    holes = torch.zeros(3, 9, dtype=torch.bool)
    holes[:, [0, 2]] = True
    assert plan_packing(holes, COST) is None
    assert plan_packing(torch.zeros(2, 4, dtype=torch.bool), COST) is None
    ids, mask = ragged("left", [2, 5, 1], 9)
    assert plan_packing(mask, COST) is not None
    assert model(mem_len=4)(ids, mask).memory is not None


def test_places_are_a_round_trip() -> None:
    torch.manual_seed(1)
    for _ in range(200):
        batch, longest = int(torch.randint(1, 9, ())), int(torch.randint(2, 20, ()))
        ids, mask = ragged("left", torch.randint(0, longest + 1, (batch,)).tolist(), longest)
        packing = plan_packing(mask, COST)
        if packing is None:
            continue
        rows = packing.pack(ids)
        assert int((packing.text >= 0).sum()) == int(mask.sum()) == len(packing.packed.unique())
        assert rows.numel() < 0.85 * ids.numel() + 1
        assert torch.equal(packing.unpack(rows[..., None].float())[..., 0], (ids * mask).float())


@pytest.mark.parametrize(("cost", "shape"), [(1e6, (1, 19)), (1e-6, (3, 8))])
def test_the_price_of_a_position_decides(cost: float, shape: tuple[int, int]) -> None:
    """Dear positions: one row without an empty place; dear pairs: rows as short as the longest text."""
    _, mask = ragged("right", [8, 8, 2, 1], 16)
    packing = plan_packing(mask, cost)
    assert packing is not None
    assert tuple(packing.text.shape) == shape


def test_classification_learns_from_packed_rows() -> None:
    """Dropout on, bfloat16 by autocast: the whole path, and the last real token is still the one that is read."""
    config = model().config.replace(dropout=0.1, dropatt=0.1, num_labels=3)
    classifier = XLNetForSequenceClassification(config)
    ids, mask = ragged("left", [3, 9, 2, 2], 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = classifier(ids, mask, labels=torch.tensor([0, 1, 2, 0]))
    out.loss.backward()
    assert torch.isfinite(out.logits).all()
    classifier.eval()
    alone = torch.cat([classifier(row[kept][None]).logits for row, kept in zip(ids, mask, strict=True)])
    torch.testing.assert_close(classifier(ids, mask).logits, alone, rtol=1e-4, atol=1e-5)
