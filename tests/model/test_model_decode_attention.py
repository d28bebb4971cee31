"""The kernel of a decode step against the plain formula: odd sizes, hidden keys, blind rows, segments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from xlnet.model import decode_attention
from xlnet.model.decode_view import View


def plain(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, biases: tuple[Tensor, Tensor, Tensor],
    difference: Tensor, index: Tensor, hidden: Tensor | None, blind: Tensor | None, other: Tensor | None,
) -> Tensor:  # fmt: skip
    content, position, segment = biases
    score = torch.einsum("brnh,bnsh->bnrs", query + content, keys)
    distance = torch.einsum("brnh,nth->bnrt", query + position, table)
    score = score + distance.gather(-1, index[:, None].expand(score.shape))
    if other is not None:
        score = score + torch.einsum("brnh,nh->bnr", query + segment, difference)[..., None] * other
    score = score * query.shape[-1] ** -0.5
    weights = (score if hidden is None else score + hidden).softmax(dim=-1)
    if blind is not None:
        weights = weights.masked_fill(blind[:, None, :, None], 0.0)
    return torch.einsum("bnrs,bnsh->brnh", weights, values)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize(
    ("batch", "rows", "heads", "size", "count"), [(1, 2, 3, 64, 21), (3, 1, 2, 5, 1), (2, 8, 5, 20, 34)]
)
def test_equals_the_plain_formula(
    batch: int, rows: int, heads: int, size: int, count: int, segments: bool, masked: bool, dtype: torch.dtype,
    tolerance: float,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    capacity, distances = count + 7, 2 * count + 3
    query = torch.randn(batch, rows, heads, size, dtype=dtype)
    keys, values = (torch.randn(batch, heads, capacity, size, dtype=dtype)[:, :, 2 : 2 + count] for _ in range(2))
    table = torch.randn(heads, distances + 4, size, dtype=dtype)[:, 1 : 1 + distances]
    biases = (torch.randn(heads, size), torch.randn(heads, size), torch.randn(heads, size))
    biases = (biases[0].to(dtype), biases[1].to(dtype), biases[2].to(dtype))
    difference = torch.randn(heads, size, dtype=dtype)
    index = torch.randint(0, distances, (batch, rows, count))
    other = (torch.rand(batch, 1, rows, count) < 0.5).to(dtype) if segments else None
    hidden = blind = None
    if masked:
        seen = torch.rand(batch, rows, count) < 0.6
        seen[:, 0], seen[0, -1] = True, False
        blind = ~seen.any(dim=-1)
        hidden = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
    if not decode_attention.serves(query, keys):
        pytest.skip("no C compiler, or not Linux")
    expected = plain(query, keys, values, table, biases, difference, index, hidden, blind, other)
    view = View(0, count, 0, distances - 1, index, hidden, blind, other)
    attended = decode_attention.attend(query, keys, values, table, biases, difference, view)
    torch.testing.assert_close(attended, expected, rtol=tolerance, atol=tolerance)


def test_what_is_left_to_torch() -> None:
    """Many rows (a prompt), other precisions, and no key at all."""
    keys = torch.randn(1, 2, 3, 4)
    assert not decode_attention.serves(torch.randn(1, decode_attention.MOST_ROWS + 1, 2, 4), keys)
    assert not decode_attention.serves(torch.randn(1, 1, 2, 4).bfloat16(), keys.bfloat16())
    assert not decode_attention.serves(torch.randn(1, 1, 2, 4), keys[:, :, :0])
