"""Memory as one long text: what of earlier segments is seen, kept, reset and limited."""

from __future__ import annotations

import pytest
import torch
from small_models import encoder, same

from xlnet.model import Memory


@pytest.mark.parametrize("changes", [{"attn_type": "uni"}, {"attn_type": "bi"}, {"attn_type": "uni", "clamp_len": 3}])
def test_memory_equals_one_long_window_where_visibility_is_causal(changes: dict[str, object]) -> None:
    model = encoder(mem_len=8, **changes)
    ids = torch.randint(0, 50, (2, 8), generator=torch.Generator().manual_seed(1))
    whole = model(ids, order=torch.arange(8).expand(2, -1)).content
    half = torch.arange(4).expand(2, -1)
    first = model(ids[:, :4], order=half)
    second = model(ids[:, 4:], order=half, memory=first.memory)
    assert same(first.content, whole[:, :4]) and same(second.content, whole[:, 4:])


def test_memory_of_padded_rows_stays_invisible() -> None:
    """A padded first segment, a padded second segment, and both: all equal the texts without padding (case 9)."""
    model = encoder(mem_len=3)
    first, second = [10, 11], [12, 13, 14]
    memory = model(torch.tensor([first])).memory
    expected = model(torch.tensor([second]), memory=memory).content[0]
    left, right = [5, 5, *first], [*first, 5, 5]
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])
    memory = model(torch.tensor([left, right]), mask).memory
    assert memory.valid.tolist() == [[False, True, True]] * 2
    out = model(torch.tensor([second, second]), memory=memory).content
    assert same(out[0], expected) and same(out[1], expected)
    ids = torch.tensor([[5, *second], [*second, 5]])
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]])
    out = model(ids, mask, memory=memory).content
    assert same(out[0, 1:], expected) and same(out[1, :3], expected)


def test_memory_shape_reuse_and_reset() -> None:
    model = encoder(mem_len=4)
    ids = torch.randint(0, 50, (3, 6), generator=torch.Generator().manual_seed(1))
    memory = model(ids).memory
    assert memory.states.shape == (3, 3, 4, 24) and not memory.states.requires_grad
    assert encoder(mem_len=4, reuse_len=3)(ids).memory.valid.sum(1).tolist() == [3, 3, 3]
    empty = Memory.empty(model.config, 3, dtype=torch.float64)
    assert same(model(ids, memory=empty).content, model(ids).content)
    partly = memory.reset(torch.tensor([False, True, False]))
    out = model(ids, memory=partly).content
    assert same(out[1], model(ids).content[1]) and same(out[0], model(ids, memory=memory).content[0])
    assert same(
        model(ids[1:2], memory=memory.select(torch.tensor([1]))).content[0], model(ids, memory=memory).content[1]
    )
    assert encoder()(ids).memory is None
    again = Memory.from_dict(memory.to_dict())
    assert torch.equal(again.states, memory.states) and torch.equal(again.valid, memory.valid)


def test_older_memory_is_kept_behind_newer() -> None:
    model = encoder(mem_len=5)
    ids = torch.randint(0, 50, (2, 3), generator=torch.Generator().manual_seed(1))
    first = model(ids).memory
    second = model(ids, memory=first).memory
    assert torch.equal(second.states[:, :, :2], first.states[:, :, 3:]) and second.valid.all()


def test_memory_may_be_longer_at_evaluation_than_in_training() -> None:
    short, long = encoder(mem_len=2, attn_type="uni"), encoder(mem_len=12, attn_type="uni")
    long.load_state_dict(short.state_dict())
    ids = torch.randint(0, 50, (1, 12), generator=torch.Generator().manual_seed(1))
    memory, pieces = None, []
    for part in ids.split(4, dim=1):
        out = long(part, memory=memory)
        memory = out.memory
        pieces.append(out.content)
    assert same(torch.cat(pieces, dim=1), long(ids).content)


def test_same_length_limits_how_far_back_a_token_sees() -> None:
    model = encoder(attn_type="uni", same_length=True, mem_len=3, n_layer=1)
    ids = torch.randint(0, 50, (1, 8), generator=torch.Generator().manual_seed(1))
    memory = model(ids[:, :4]).memory
    base = model(ids[:, 4:], memory=memory).content
    moved = Memory(memory.states.clone(), memory.valid, memory.direction)
    moved.states[:, :, 0] += 1.0  # the oldest memory: three back from the first token, out of reach for the others
    changes = (model(ids[:, 4:], memory=moved).content - base).abs().amax(-1)[0] > 0
    assert changes.tolist() == [True, False, False, False]
