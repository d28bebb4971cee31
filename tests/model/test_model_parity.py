"""Parity with an independent implementation on random weights: one stream, two streams, memory, heads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.model import Memory, XLNetModel

transformers = pytest.importorskip("transformers", reason="parity needs the development extra `transformers`")

CONFIG = XLNetConfig(
    vocab_size=60, n_layer=3, d_model=24, n_head=4, d_head=6, d_inner=40, dropout=0.0, dropatt=0.0, mem_len=6,
    initializer_range=0.3,
)  # fmt: skip


def peer(config: XLNetConfig) -> torch.nn.Module:
    return transformers.XLNetModel(
        transformers.XLNetConfig(
            vocab_size=config.vocab_size, d_model=config.d_model, n_layer=config.n_layer, n_head=config.n_head,
            d_inner=config.d_inner, ff_activation="gelu_new", untie_r=True, dropout=0.0, mem_len=config.mem_len,
            attn_type=config.attn_type, clamp_len=config.clamp_len,
        )
    ).eval()  # fmt: skip


def copy_weights(theirs: torch.nn.Module, ours: XLNetModel) -> None:
    """Ours into theirs, tensor by tensor."""
    shape = (CONFIG.d_model, CONFIG.n_head, CONFIG.d_head)
    with torch.no_grad():
        theirs.mask_emb.copy_(ours.mask_embedding.view(1, 1, -1))
        theirs.word_embedding.weight.copy_(ours.word_embedding.weight)
        for number, (layer, mine) in enumerate(zip(theirs.layer, ours.layers, strict=True)):
            biases = ours.attention_biases[number]
            layer.rel_attn.r_w_bias.copy_(biases.content)
            layer.rel_attn.r_r_bias.copy_(biases.position)
            layer.rel_attn.r_s_bias.copy_(biases.segment)
            layer.rel_attn.seg_embed.copy_(mine.attention.segment_embedding)
            for name, part in (("q", "query"), ("k", "key"), ("v", "value"), ("r", "position")):
                getattr(layer.rel_attn, name).copy_(getattr(mine.attention, part).weight.T.reshape(shape))
            layer.rel_attn.o.copy_(mine.attention.output.weight.reshape(shape))
            layer.rel_attn.layer_norm.load_state_dict(mine.attention.norm.state_dict())
            layer.ff.layer_1.load_state_dict(mine.feed_forward.inner.state_dict())
            layer.ff.layer_2.load_state_dict(mine.feed_forward.outer.state_dict())
            layer.ff.layer_norm.load_state_dict(mine.feed_forward.norm.state_dict())


def pair(**changes: object) -> tuple[XLNetModel, torch.nn.Module]:
    torch.manual_seed(5)
    ours = XLNetModel(CONFIG.replace(**changes)).eval()
    theirs = peer(ours.config)
    copy_weights(theirs, ours)
    return ours, theirs


def batch() -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.randint(6, 60, (3, 9), generator=torch.Generator().manual_seed(2))
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, :3] = 0
    mask[2, :1] = 0
    segments = torch.tensor([[0] * 5 + [1] * 3 + [2]] * 3)
    return ids, mask, segments


@pytest.mark.parametrize("changes", [{}, {"clamp_len": 3}])
def test_one_stream(changes: dict[str, object]) -> None:
    ours, theirs = pair(**changes)
    ids, mask, segments = batch()
    expected = theirs(ids, attention_mask=mask.float(), token_type_ids=segments).last_hidden_state
    found = ours(ids, mask, segments).content
    real = mask.bool()
    assert (found - expected)[real].abs().max() < 2e-5


def test_two_streams_with_memory_over_two_segments() -> None:
    ours, theirs = pair()
    generator = torch.Generator().manual_seed(3)
    mems, memory = None, None
    for _ in range(2):
        ids = torch.randint(6, 60, (2, 8), generator=generator)
        segments = torch.tensor([[0] * 5 + [1] * 2 + [2]] * 2)
        order = torch.tensor([[0, 0, 0, 2, 1, 0, 3, 0], [0, 1, 0, 0, 0, 2, 0, 3]])
        targets = torch.tensor([[3, 4, 6], [1, 5, 7]])
        # A content row always sees itself, so the strict rule serves both streams there.
        perm_mask = ~((order[:, None] < order[:, :, None]) | ((order[:, None] == 0) & (order[:, :, None] == 0)))
        mapping = torch.nn.functional.one_hot(targets, 8).float()
        expected = theirs(
            ids, perm_mask=perm_mask.float(), target_mapping=mapping, mems=mems, token_type_ids=segments, use_mems=True
        )
        found = ours(ids, token_type_ids=segments, order=order, target_positions=targets, memory=memory)
        assert (found.query - expected.last_hidden_state).abs().max() < 2e-5
        mems, memory = expected.mems, found.memory
        assert isinstance(memory, Memory)
        for layer in range(CONFIG.n_layer):
            kept = mems[layer].transpose(0, 1)
            assert (memory.states[layer][:, -kept.shape[1] :] - kept).abs().max() < 2e-5


def test_gradients() -> None:
    ours, theirs = pair()
    ids, mask, segments = batch()
    weights = torch.randn(3, 9, CONFIG.d_model, generator=torch.Generator().manual_seed(1)) * mask[..., None]
    (theirs(ids, attention_mask=mask.float(), token_type_ids=segments).last_hidden_state * weights).sum().backward()
    (ours(ids, mask, segments).content * weights).sum().backward()
    expected = theirs.word_embedding.weight.grad
    assert (ours.word_embedding.weight.grad - expected).abs().max() < 2e-5 * expected.abs().max()
    for layer, mine in zip(theirs.layer, ours.layers, strict=True):
        expected = layer.rel_attn.k.grad.flatten(1).T
        assert (mine.attention.key.weight.grad - expected).abs().max() < 2e-5 * expected.abs().max()
