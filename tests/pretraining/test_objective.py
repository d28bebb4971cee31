"""The objective, its held-out loss and the counting baselines, on a corpus small enough to check by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from xlnet.batch import PretrainingBatch
from xlnet.configuration import XLNetConfig
from xlnet.model import Memory, XLNetLMHeadModel
from xlnet.pretraining.baselines import CountingModel, baseline_loss
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.evaluate import HeldOutLoss, held_out_loss
from xlnet.pretraining.fixed_batches import evaluation_batches
from xlnet.pretraining.objective import PermutationObjective
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.pretraining.vocabulary import resize_vocabulary

SPECIAL = {"sep": 4, "cls": 3, "pad": 5}
CONFIG = XLNetConfig(
    vocab_size=40,
    n_layer=2,
    d_model=16,
    n_head=2,
    d_head=8,
    d_inner=32,
    mem_len=8,
    reuse_len=8,
    dropout=0.0,
    dropatt=0.0,
)
STREAM = StreamConfig(seq_len=20, reuse_len=8, batch_size=4, predict_fraction=(0.25,))


def corpus(length: int = 2000, seed: int = 0) -> TokenCorpus:
    tokens = np.random.default_rng(seed).integers(9, 40, length)
    return TokenCorpus.from_arrays(
        tokens, np.arange(7, length, 8), np.array([length]), vocab_size=40, special_ids=SPECIAL
    )


def stream(**changes: object) -> PermutationStream:
    return PermutationStream(corpus(), STREAM, np.ones(40, bool), special_ids=SPECIAL)


@pytest.fixture
def model() -> XLNetLMHeadModel:
    torch.manual_seed(0)
    return XLNetLMHeadModel(CONFIG)


def test_memory_is_carried_from_batch_to_batch_and_reset_where_the_text_starts_anew(model: XLNetLMHeadModel) -> None:
    objective = PermutationObjective(CONFIG)
    batches = stream()
    first = objective(model, next(batches), None)
    memory = Memory.from_dict(first.carried)
    assert memory.valid.all() and memory.states.shape == (2, 4, 8, 16)
    batch = next(batches)
    kept = objective.memory(batch, first.carried)
    assert torch.equal(kept.states, memory.states)
    turned = PretrainingBatch(
        batch.input_ids, batch.token_type_ids, batch.order, batch.target_positions, batch.labels,
        -batch.direction, torch.ones_like(batch.reset_memory),
    )  # fmt: skip
    anew = objective.memory(turned, first.carried)
    assert not anew.valid.any() and torch.equal(anew.direction, turned.direction)
    assert PermutationObjective(CONFIG.replace(mem_len=0)).memory(batch, None) is None
    assert PermutationObjective(CONFIG, attended_zeros=True).memory(batch, None).valid.all()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_lane_that_turns_round_starts_without_memory_though_memory_is_never_reset(
    model: XLNetLMHeadModel, batch_size: int
) -> None:
    config = dataclasses.replace(STREAM, batch_size=batch_size, reset_memory="never")
    batches = PermutationStream(corpus(200), config, np.ones(40, bool), special_ids=SPECIAL)
    objective, carried, turns = PermutationObjective(CONFIG), None, 0
    direction = torch.tensor(batches.plan.directions(0, 0))
    for _ in range(2 * batches.steps_per_epoch + 1):  # the first batch of the third epoch included
        batch = next(batches)
        turned = batch.direction != direction
        memory = objective.memory(batch, carried)
        if carried is not None:
            assert torch.equal(memory.valid, Memory.from_dict(carried).valid & ~turned[:, None])
        assert torch.equal(memory.direction, batch.direction)
        carried, direction = objective(model, batch, carried).carried, batch.direction
        turns += int(turned.sum())
    assert turns == 2, "one lane, twice"


def test_loss_is_the_sum_over_targets(model: XLNetLMHeadModel) -> None:
    step = PermutationObjective(CONFIG)(model, next(stream()), None)
    assert int(step.count) == 4 * round(0.25 * 8) + 4 * round(0.25 * 9)
    assert abs(step.loss_sum.item() / int(step.count) - math.log(40)) < 0.1


def test_training_lowers_the_held_out_loss_of_a_regular_text() -> None:
    torch.manual_seed(0)
    config = CONFIG.replace(d_model=32, n_head=4, d_inner=64, initializer_range=0.1)
    model = XLNetLMHeadModel(config)
    tokens = np.tile(np.arange(9, 29), 100)
    text = TokenCorpus.from_arrays(
        tokens, np.arange(19, 2000, 20), np.array([2000]), vocab_size=40, special_ids=SPECIAL
    )
    batches = PermutationStream(text, STREAM, np.ones(40, bool), special_ids=SPECIAL)
    fixed = evaluation_batches(text, STREAM, np.ones(40, bool), 4, special_ids=SPECIAL)
    before = held_out_loss(model, fixed, config)["loss"]
    assert before == held_out_loss(model, fixed, config)["loss"], "the same targets each time"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    objective, carried = PermutationObjective(config), None
    for _ in range(120):
        step = objective(model, next(batches), carried)
        carried = step.carried
        optimizer.zero_grad()
        (step.loss_sum / step.count).backward()
        optimizer.step()
    metrics = HeldOutLoss(fixed, config)(model.eval())
    assert metrics["loss"] < 0.6 * before
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))


def test_counting_models_are_distributions() -> None:
    counting = CountingModel(corpus(500), 40)
    everything = np.arange(40)
    assert np.exp(counting.unigram_log_prob(everything)).sum() == pytest.approx(1.0)
    for left in (3, 9, 20):  # one never seen, two seen
        assert np.exp(counting.bigram_log_prob(np.full(40, left), everything)).sum() == pytest.approx(1.0)


def test_bigram_reads_the_left_neighbour_in_either_direction_and_only_where_the_order_shows_it() -> None:
    tokens = np.tile(np.arange(9, 29), 50)
    text = TokenCorpus.from_arrays(tokens, np.array([999]), np.array([1000]), vocab_size=40, special_ids=SPECIAL)
    counting = CountingModel(text, 40)

    def batches(direction: int, hidden: bool) -> Iterator[PretrainingBatch]:
        ids = torch.arange(9, 15)[None]
        ids = ids if direction == 1 else ids.flip(1)
        target = 3
        order = torch.zeros(1, 6, dtype=torch.int64)
        order[0, target] = 1
        if hidden:
            order[0, target - direction] = 2
        yield PretrainingBatch(
            ids, torch.zeros_like(ids), order, torch.tensor([[target]]), ids[:, target : target + 1],
            torch.tensor([direction]), torch.tensor([False]),
        )  # fmt: skip

    for direction in (1, -1):
        seen = baseline_loss(counting, batches(direction, hidden=False))
        assert seen.bigram == seen.bigram_always_visible < 0.2 < seen.unigram
        unseen = baseline_loss(counting, batches(direction, hidden=True))
        assert unseen.bigram == unseen.unigram and unseen.bigram_always_visible < 0.2
        assert unseen.targets == 1


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [25, 40, 55])
def test_vocabulary_can_grow_and_shrink_and_old_pieces_keep_their_weights(size: int, tied: bool) -> None:
    torch.manual_seed(0)
    config = CONFIG.replace(tie_word_embeddings=tied)
    model = XLNetLMHeadModel(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = resize_vocabulary(model, size)
    kept = min(size, 40)
    assert str(40) in report and model.config.vocab_size == size
    assert torch.equal(model.lm_bias[:kept], before["lm_bias"][:kept])
    assert torch.equal(model.encoder.word_embedding.weight[:kept], before["encoder.word_embedding.weight"][:kept])
    out = model(torch.tensor([[1, 2, size - 1]]))
    assert out.logits.shape == (1, 3, size) and out.logits.isfinite().all()
    assert all(p.requires_grad for p in model.parameters())
