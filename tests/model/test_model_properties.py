"""What must hold for every input: no leak, padding and batch invisible, errors that speak."""

from __future__ import annotations

import itertools

import pytest
import torch
from small_models import ORDER, SMALL, encoder, gradients_of, language_model, same
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, InputError
from xlnet.model import Memory, XLNetLMHeadModel, XLNetModel


def test_tokens_see_what_the_order_allows_and_nothing_else() -> None:
    """Changing token j moves query i iff j comes before i, content i iff j comes before i or is i (XLNet §2.3)."""
    model = encoder()
    ids = torch.tensor([[7, 8, 9, 10, 11, 12]])
    targets = torch.arange(6)[None]
    base = model(ids, order=ORDER, target_positions=targets, output_hidden_states=True)
    for j in range(6):
        changed = ids.clone()
        changed[0, j] = 40
        out = model(changed, order=ORDER, target_positions=targets, output_hidden_states=True)
        query_moves = (out.query - base.query).abs().amax(-1)[0] > 0
        content_moves = (out.content - base.content).abs().amax(-1)[0] > 0
        assert torch.equal(query_moves, ORDER[0] > ORDER[0, j])
        assert torch.equal(content_moves, ORDER[0] >= ORDER[0, j])


def test_gradient_of_a_target_reaches_only_earlier_tokens() -> None:
    """The leak test on gradients: exactly zero for the token itself and every later one; the first sees nothing."""
    model = language_model(untie_r=False)
    ids = torch.tensor([[7, 8, 9, 10, 11, 12], [12, 11, 20, 9, 8, 7]])
    order = torch.cat([ORDER, ORDER.flip(1)])
    for position in range(6):
        model.zero_grad()
        embedded = model.encoder.word_embedding(ids).detach().requires_grad_()
        handle = model.encoder.word_embedding.register_forward_hook(lambda *_, e=embedded: e)
        targets = torch.full((2, 1), position)
        out = model.encoder(ids, order=order, target_positions=targets)
        handle.remove()
        model.logits(out.query).log_softmax(-1)[:, 0, 3].sum().backward()
        reached = embedded.grad.abs().amax(-1) > 0
        assert torch.equal(reached, order < order[:, position : position + 1])


def test_revealed_targets_count() -> None:
    """A target that precedes another in the order is seen by it (cases 5 and 6: the chain rule in one pass)."""
    model = language_model()
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
    order = torch.tensor([[0, 0, 0, 0, 0, 0, 1, 2]])
    targets = torch.tensor([[6, 7]])
    together = model(ids, order=order, target_positions=targets).logits
    other = ids.clone()
    other[0, 6] = 33
    assert not same(model(other, order=order, target_positions=targets).logits[:, 1], together[:, 1], 1e-3)
    junk = ids.clone()
    junk[0, 7] = 44
    alone = model(junk, order=order, target_positions=torch.tensor([[7]])).logits
    assert same(alone[:, 0], together[:, 1])


def test_target_positions_select_rows_in_the_given_order() -> None:
    model = encoder()
    ids = torch.tensor([[7, 8, 9, 10, 11, 12], [12, 11, 10, 9, 8, 7]])
    order = ORDER.expand(2, -1)
    full = model(ids, order=order, target_positions=torch.arange(6).expand(2, -1)).query
    some = model(ids, order=order, target_positions=torch.tensor([[3, 1], [-1, 4]]))
    assert same(some.query[0], full[0, [3, 1]])
    assert same(some.query[1, 1], full[1, 4])
    assert (some.query[1, 0] == 0).all(), "an unused place has a zero state"


def test_unused_places_carry_no_gradient_and_no_loss() -> None:
    model = language_model()
    ids, order = torch.tensor([[7, 8, 9, 10, 11, 12]]), ORDER
    padded = model(ids, order=order, target_positions=torch.tensor([[3, -1, 1]]), labels=torch.tensor([[10, -100, 8]]))
    padded.loss.backward()
    gradients = gradients_of(model)
    model.zero_grad()
    plain = model(ids, order=order, target_positions=torch.tensor([[3, 1]]), labels=torch.tensor([[10, 8]]))
    plain.loss.backward()
    assert same(padded.loss, plain.loss) and int(padded.target_count) == 2
    assert all(same(a, b) for a, b in zip(gradients, gradients_of(model), strict=True))
    none = model(ids, order=order, target_positions=torch.tensor([[-1]]), labels=torch.tensor([[-100]]))
    assert none.loss.item() == 0.0 and int(none.target_count) == 0


def test_a_row_that_sees_nothing_attends_to_nothing() -> None:
    """The release makes such a row attend to all keys uniformly, the answer among them; here nothing moves it."""
    model = encoder()
    targets = torch.tensor([[2]])
    results = [
        model(torch.tensor([ids]), order=ORDER, target_positions=targets).query
        for ids in ([7, 8, 9, 10, 11, 12], [30, 31, 32, 33, 34, 35])
    ]
    assert torch.equal(*results)
    out = model(torch.tensor([[7, 8, 9, 10, 11, 12]]), order=ORDER, target_positions=targets, output_attentions=True)
    assert (out.attentions[0][0, :, -1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.int32, torch.float32, torch.float64])
def test_padding_is_invisible_on_either_side_and_in_any_mask_dtype(dtype: torch.dtype) -> None:
    model = encoder()
    text = [10, 11, 12, 4, 3]
    alone = model(torch.tensor([text])).content[0]
    ids = torch.tensor([[5, 5, *text], [*text, 5, 5]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]).to(dtype)
    out = model(ids, mask).content
    assert same(out[0, 2:], alone) and same(out[1, :5], alone)


def test_batch_composition_changes_nothing() -> None:
    """Unlike rows of unlike lengths, with order, segments and directions, equal themselves run alone."""
    model = encoder()
    ids = torch.tensor([[7, 8, 9, 10, 11, 12], [13, 14, 15, 16, 5, 5], [5, 21, 22, 23, 24, 25]])
    mask = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]])
    order = torch.stack([ORDER[0], ORDER[0].flip(0), torch.arange(6)])
    segments = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 4, 4], [4, 0, 0, 0, 1, 2]])
    direction = torch.tensor([1, -1, 1])
    targets = torch.tensor([[1, 3], [0, 2], [5, -1]])
    inputs = {
        "input_ids": ids, "attention_mask": mask, "order": order, "token_type_ids": segments,
        "direction": direction, "target_positions": targets,
    }  # fmt: skip
    together = model(**inputs, output_hidden_states=True)
    for row in range(3):
        alone = model(**{k: v[row : row + 1] for k, v in inputs.items()}, output_hidden_states=True)
        assert same(alone.query[0], together.query[row])
        real = mask[row].bool()
        assert same(alone.content[0, real], together.content[row, real])


def test_segments_are_relative() -> None:
    model = encoder()
    ids = torch.tensor([[7, 8, 9, 10, 11, 12]])
    out = model(ids, token_type_ids=torch.tensor([[0, 0, 0, 1, 1, 2]])).content
    assert same(model(ids, token_type_ids=torch.tensor([[7, 7, 7, 3, 3, 5]])).content, out)
    none = model(ids).content
    assert same(model(ids, token_type_ids=torch.full((1, 6), 3)).content, none)
    assert not same(model(ids, token_type_ids=torch.tensor([[0, 0, 0, 0, 0, 2]])).content, none, 1e-3)


def test_reversed_lane_is_the_mirror_of_a_forward_one() -> None:
    model = encoder()
    ids = torch.tensor([[7, 8, 9, 10, 11, 12]])
    plain = model(ids).content
    batch = torch.cat([ids, ids.flip(1), ids])
    out = model(batch, direction=torch.tensor([1, -1, 1])).content
    assert same(out[0:1], plain) and same(out[1:2].flip(1), plain) and same(out[2:3], plain)


def test_tied_biases_are_one_set_and_odd_head_sizes_work() -> None:
    assert len(encoder(untie_r=False).attention_biases) == 1
    model = XLNetModel(SMALL.replace(d_model=14, n_head=5, d_head=3))
    assert model(torch.tensor([[1, 2, 3]])).content.shape == (1, 3, 14)
    with pytest.raises(ConfigurationError, match="d_model=15 must be even"):
        SMALL.replace(d_model=15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_stays_finite_with_fully_padded_rows(dtype: torch.dtype) -> None:
    full, low = language_model(initializer_range=0.05), language_model(initializer_range=0.05).to(dtype)
    ids = torch.tensor([[7, 8, 9, 10, 11, 12], [5, 5, 5, 5, 5, 5]])
    mask = torch.tensor([[1] * 6, [0] * 6])
    inputs = {"attention_mask": mask, "order": ORDER.expand(2, -1), "target_positions": torch.tensor([[1, 3], [0, 2]])}
    exact, rough = full(ids, **inputs).logits, low(ids, **inputs).logits
    assert rough.isfinite().all()
    assert (rough[0].double() - exact[0]).abs().max() < (1e-2 if dtype == torch.float16 else 8e-2)
    loss = low(ids, **inputs, labels=torch.tensor([[8, 10], [-100, -100]])).loss
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in low.parameters())


def test_gradient_checkpointing_changes_nothing() -> None:
    ids = torch.tensor([[7, 8, 9, 10, 11, 12]])
    gradients = []
    for on in (False, True):
        model = language_model(dropout=0.3, dropatt=0.3).train()
        model.encoder.gradient_checkpointing = on
        torch.manual_seed(3)
        out = model(ids, order=ORDER, target_positions=torch.tensor([[1, 3]]), labels=torch.tensor([[8, 10]]))
        out.loss.backward()
        gradients.append(gradients_of(model))
    assert all(same(a, b) for a, b in zip(*gradients, strict=True))


def test_dropout_is_off_in_eval_mode_and_on_in_training() -> None:
    model = encoder(dropout=0.5, dropatt=0.5)
    ids = torch.tensor([[7, 8, 9, 10, 11, 12]])
    assert torch.equal(model(ids).content, model(ids).content)
    model.train()
    assert not torch.equal(model(ids).content, model(ids).content)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"target_positions": torch.tensor([[1]])}, "needs order"),
        ({"order": ORDER, "visible": torch.ones(1, 6, 6, dtype=torch.bool)}, "not both"),
        ({"order": ORDER[:, :5]}, "order has shape"),
        ({"token_type_ids": torch.zeros(2, 6)}, "token_type_ids has shape"),
        ({"visible": torch.ones(1, 6, 6)}, "must be a boolean"),
        ({"direction": torch.ones(3)}, "direction has shape"),
        ({"order": ORDER, "target_positions": torch.tensor([1])}, "target_positions has shape"),
        ({"memory": Memory.empty(SMALL.replace(mem_len=4), 4)}, "holds 4 rows but the batch has 1"),
        ({"memory": Memory.empty(SMALL.replace(mem_len=4, d_model=10), 1)}, "of width 10"),
    ],
)
def test_inputs_that_do_not_belong_together_are_refused(inputs: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        XLNetModel(SMALL)(torch.tensor([[7, 8, 9, 10, 11, 12]]), **inputs)


def test_labels_without_targets_are_refused() -> None:
    with pytest.raises(InputError, match="seen the very tokens"):
        XLNetLMHeadModel(SMALL)(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]]))
    with pytest.raises(TypeError):
        XLNetLMHeadModel(SMALL)(torch.tensor([[1, 2]]), foo=1)


def test_joint_probability_sums_to_one_over_all_completions() -> None:
    """Enumerated: vocabulary 5, three targets, 125 completions (any-order density is a density)."""
    model = language_model(vocab_size=5)
    order = torch.tensor([[0, 2, 1, 3]])
    targets = torch.tensor([[1, 2, 3]])
    completions = torch.tensor([[4, *rest] for rest in itertools.product(range(5), repeat=3)])
    rows = len(completions)
    logits = model(
        completions, order=order.expand(rows, -1), target_positions=targets.expand(rows, -1)
    ).logits.log_softmax(-1)
    joint = logits.gather(-1, completions[:, 1:, None])[..., 0].sum(-1)
    assert abs(float(joint.exp().sum().detach()) - 1.0) < 1e-12


def test_outputs_are_pytrees() -> None:
    out = encoder(mem_len=2)(torch.tensor([[1, 2, 3]]))
    leaves = torch.utils._pytree.tree_leaves(out)
    assert sum(isinstance(leaf, Tensor) for leaf in leaves) == 4


@pytest.mark.parametrize("wrong", [-1, 50])
def test_an_id_without_embedding_is_named(wrong: int) -> None:
    model = XLNetModel(XLNetConfig(vocab_size=50, n_layer=1, d_model=8, n_head=2, d_head=4, d_inner=8))
    ids = torch.tensor([[1, 2, 3], [4, wrong, 6]])
    with pytest.raises(InputError, match=rf"input_ids\[1, 1\] is {wrong}, but ids run from 0 to 49"):
        model(ids)
