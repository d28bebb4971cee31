"""Long texts: walking with a cache equals the encoder with hidden-state memory; memory use does not grow."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from generation_stand_ins import WordPieces, small_model

from xlnet.errors import ConfigurationError, InputError
from xlnet.generation import WalkConfig, log_prob, loss_by_memory_length, score_long_text, walk_log_probs, walk_states
from xlnet.model import XLNetLMHeadModel


def text_of(count: int, vocab_size: int = 30, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab_size, count).tolist()


@pytest.mark.parametrize("segment,memory", [(5, 7), (7, 5), (4, 0), (1, 3)])
def test_walking_equals_hidden_state_memory(segment: int, memory: int) -> None:
    model = small_model(30, mem_len=memory).double().eval()
    ids = torch.tensor([text_of(33)])
    want, kept = [], None
    for part in ids.split(segment, dim=1):
        order = torch.arange(part.shape[1])[None]
        with torch.no_grad():
            out = model(part, order=order, target_positions=order, memory=kept)
        kept = out.memory
        want.extend(out.logits.log_softmax(-1).gather(2, part[..., None]).flatten().tolist())
    walk = WalkConfig(segment_length=segment, memory_length=memory)
    got = torch.cat(list(walk_log_probs(model, ids[0].tolist(), walk)))
    assert got.tolist() == pytest.approx(want, abs=1e-10)


def test_states_equal_hidden_state_memory() -> None:
    model = small_model(30, mem_len=6).double().eval()
    ids = torch.tensor([text_of(20)])
    want, kept = [], None
    for part in ids.split(8, dim=1):
        with torch.no_grad():
            out = model.encoder(part, memory=kept)
        kept = out.memory
        want.append(out.content[0])
    walk = WalkConfig(segment_length=8, memory_length=6)
    for source in (model, model.encoder):
        got = torch.cat(list(walk_states(source, ids[0].tolist(), walk)))
        assert (got - torch.cat(want)).abs().max() < 1e-10


def test_a_text_that_fits_one_segment_is_scored_as_usual() -> None:
    model, tokenizer = small_model().double(), WordPieces()
    text = "the cat sat on the mat."
    want = log_prob(model, tokenizer.encode(text, special_tokens=False).input_ids)
    got = score_long_text(model, tokenizer, text)
    assert got.log_probs == pytest.approx(want.per_token, abs=1e-6)
    assert got.total == pytest.approx(want.total, abs=1e-5)
    assert got.perplexity == pytest.approx(math.exp(-want.total / 7), rel=1e-6)
    done: list[tuple[int, int]] = []
    score_long_text(
        model, tokenizer, text, config=WalkConfig(segment_length=3, memory_length=2),
        progress=lambda *a: done.append(a),
    )  # fmt: skip
    assert done == [(3, 7), (6, 7), (7, 7)]


def changed_places(walk: WalkConfig, model: XLNetLMHeadModel, place: int) -> list[int]:
    """Where log-probabilities move when one token changes (the token's own place left out)."""
    ids = text_of(40)
    other = [*ids]
    other[place] = (ids[place] + 1) % 30
    first, second = (torch.cat(list(walk_log_probs(model, one, walk))) for one in (ids, other))
    return [int(i) for i in (first - second).abs().gt(1e-9).nonzero()[:, 0] if i != place]


def test_same_length_limits_how_far_each_token_looks_back() -> None:
    model = small_model(30, n_layer=1).double()
    walk = WalkConfig(segment_length=8, memory_length=6)
    # Segments 8..15 and 16..23: without the limit the token at 11 is seen until its place leaves the memory of 16.
    assert changed_places(walk, model, 11) == list(range(12, 24))
    assert changed_places(replace(walk, same_length=True), model, 11) == list(range(12, 18))


def test_clamp_len_may_be_set_for_evaluation() -> None:
    model = small_model(30).double()
    clamped = small_model(30, clamp_len=3).double()
    clamped.load_state_dict(model.state_dict())
    ids = text_of(20)
    walk = WalkConfig(segment_length=8, memory_length=8)
    plain, set_here, own = (
        torch.cat(list(walk_log_probs(*arguments)))
        for arguments in (
            (model, ids, walk), (model, ids, replace(walk, clamp_len=3)), (clamped, ids, walk),
        )
    )  # fmt: skip
    assert (set_here - own).abs().max() < 1e-12
    assert (plain - own).abs().max() > 1e-3


def test_memory_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(30)
    caches = []
    make = WalkConfig.cache

    def remembered(self: WalkConfig, encoder: object) -> object:
        caches.append(make(self, encoder))
        return caches[-1]

    monkeypatch.setattr(WalkConfig, "cache", remembered)
    sizes = []
    for count in (500, 4000):
        parts = list(walk_log_probs(model, text_of(count), WalkConfig(segment_length=50, memory_length=30)))
        assert sum(len(part) for part in parts) == count
        sizes.append((caches[-1].capacity, caches[-1].positions.high - caches[-1].positions.low))
    assert sizes[0] == sizes[1]
    assert sizes[0][0] <= 4 * (2 * 30 + 50)


@pytest.mark.slow
def test_a_hundred_thousand_tokens() -> None:
    model = small_model(30, n_layer=1)
    walk = WalkConfig(segment_length=500, memory_length=600)
    total = sum(len(part) for part in walk_log_probs(model, text_of(100_000), walk))
    assert total == 100_000
    assert sum(len(part) for part in walk_states(model, text_of(100_000), walk)) == 100_000


def test_loss_by_memory_length_and_bad_input() -> None:
    model = small_model(30)
    losses = loss_by_memory_length(model, text_of(60), [0, 8, 100], WalkConfig(segment_length=16))
    assert list(losses) == [0, 8, 100]
    assert len(set(losses.values())) == 3
    for changes, words in (
        ({"segment_length": 0}, "segment_length=0"), ({"memory_length": -1}, "memory_length=-1"),
        ({"clamp_len": 0}, "clamp_len=0"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=words):
            WalkConfig(**changes)
    with pytest.raises(InputError, match="holds no piece"):
        score_long_text(model, WordPieces(), "")
    with pytest.raises(InputError, match="is 30, but ids run from 0 to 29"):
        list(walk_log_probs(model, [1, 30]))
