"""The heads of tasks: summaries, answers, choices, classes."""

from __future__ import annotations

import pytest
import torch
from small_models import SMALL, same

from xlnet.model import (
    XLNetForMultipleChoice,
    XLNetForQuestionAnswering,
    XLNetForSequenceClassification,
    XLNetForTokenClassification,
)


@pytest.mark.parametrize("kind", ["last", "first", "mean", "attn"])
def test_summaries_skip_padding(kind: str) -> None:
    torch.manual_seed(0)
    model = XLNetForSequenceClassification(SMALL.replace(summary_type=kind)).double().eval()
    text = [10, 11, 12, 4, 3]
    ids = torch.tensor([[5, 5, *text], [*text, 5, 5]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    alone = model(torch.tensor([text])).logits
    assert same(model(ids, mask).logits, alone.expand(2, -1))


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
