"""What must hold for every input: no leak, padding and batch invisible, memory as one long text, errors that speak."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, InputError
from xlnet.model import (
    Memory,
    XLNetForMultipleChoice,
    XLNetForQuestionAnswering,
    XLNetForSequenceClassification,
    XLNetForTokenClassification,
    XLNetLMHeadModel,
    XLNetModel,
)

SMALL = XLNetConfig(
    vocab_size=50, n_layer=3, d_model=24, n_head=3, d_head=6, d_inner=32, dropout=0.0, dropatt=0.0,
    initializer_range=0.5, summary_dropout=0.0,
)  # fmt: skip


def encoder(seed: int = 0, **changes: object) -> XLNetModel:
    torch.manual_seed(seed)
    return XLNetModel(SMALL.replace(**changes)).double().eval()


def language_model(seed: int = 0, **changes: object) -> XLNetLMHeadModel:
    torch.manual_seed(seed)
    return XLNetLMHeadModel(SMALL.replace(**changes)).double().eval()


def same(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() < tolerance)


def gradients_of(model: torch.nn.Module) -> list[Tensor]:
    """Copies; a parameter that took no part (segments not given) counts as zero."""
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


ORDER = torch.tensor([[1, 3, 0, 5, 2, 4]])  # place of each position in the factorization 2, 0, 4, 1, 5, 3


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


@pytest.mark.parametrize("kind", ["last", "first", "mean", "attn"])
def test_summaries_skip_padding(kind: str) -> None:
    torch.manual_seed(0)
    model = XLNetForSequenceClassification(SMALL.replace(summary_type=kind)).double().eval()
    text = [10, 11, 12, 4, 3]
    ids = torch.tensor([[5, 5, *text], [*text, 5, 5]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    alone = model(torch.tensor([text])).logits
    assert same(model(ids, mask).logits, alone.expand(2, -1))


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


def test_question_answering_beams() -> None:
    torch.manual_seed(0)
    model = XLNetForQuestionAnswering(SMALL.replace(start_n_top=2, end_n_top=3)).double().eval()
    ids = torch.tensor([[7, 8, 9, 10, 4, 3], [7, 8, 4, 3, 5, 5]])
    mask = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]])
    out = model(ids, mask, p_mask=torch.tensor([[False] * 4 + [True] * 2] * 2))
    assert out.end_top_log_probs.shape == (2, 6)
    for values in (out.start_top_log_probs, out.end_top_log_probs, out.start_log_probs):
        assert (values <= 0).all()
    ends = out.end_top_log_probs.view(2, 2, 3)
    assert (ends[..., :-1] >= ends[..., 1:]).all(), "ends of one start stand together, best first"
    named = model(ids, mask, cls_index=torch.tensor([5, 3]))
    assert same(model(ids, mask).cls_logits, named.cls_logits), "<cls> is the last real token by default"
    short = XLNetForQuestionAnswering(SMALL).double().eval()(ids[:, :3])
    assert short.start_top_index.shape == (2, 3) and short.end_top_index.shape == (2, 9)


def test_question_answering_loss_ignores_answers_outside_the_window() -> None:
    torch.manual_seed(0)
    model = XLNetForQuestionAnswering(SMALL).double().eval()
    ids = torch.tensor([[7, 8, 9, 10, 4, 3], [9, 8, 7, 10, 4, 3]])
    start, end = torch.tensor([1, 17]), torch.tensor([2, 18])
    both = model(ids, start_positions=start, end_positions=end, is_impossible=torch.tensor([0, 1]))
    alone = model(ids[:1], start_positions=start[:1], end_positions=end[:1])
    answerability = torch.nn.functional.binary_cross_entropy_with_logits(
        both.cls_logits, torch.tensor([0.0, 1.0], dtype=torch.float64)
    )
    assert same(both.loss, alone.loss + 0.5 * answerability)
    assert start.shape == (2,)


def test_multiple_choice_and_token_classification_shapes() -> None:
    ids = torch.randint(0, 50, (2, 3, 5))
    out = XLNetForMultipleChoice(SMALL)(ids, labels=torch.tensor([0, 2]))
    assert out.logits.shape == (2, 3) and out.loss.ndim == 0
    tags = XLNetForTokenClassification(SMALL.replace(num_labels=4))
    out = tags(ids[:, 0], labels=torch.tensor([[0, 1, 2, 3, -100]] * 2))
    assert out.logits.shape == (2, 5, 4) and out.loss.isfinite()


def test_several_labels_at_once() -> None:
    model = XLNetForSequenceClassification(SMALL.replace(num_labels=3))
    out = model(torch.randint(0, 50, (2, 5)), labels=torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    assert out.example_loss.shape == (2,) and out.loss.isfinite()


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
