"""What the models return: dataclasses that are also pytrees, so that wrappers and compilers can walk through them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.utils import _pytree as pytree

from xlnet.model.memory import Memory


@dataclass
class EncoderOutput:
    """Output of :class:`~xlnet.model.encoder.XLNetModel`.

    Attributes:
        content: ``[B, L, D]`` last content states; None where nobody needs them (two streams, last layer).
        query: ``[B, P, D]`` last query states; None without ``target_positions``.
        memory: what the next segment may attend to; None where ``mem_len`` is 0.
        hidden_states: on request, ``n_layer + 1`` content states ``[B, L, D]`` (embedding first).
        query_hidden_states: on request, ``n_layer + 1`` query states ``[B, P, D]``.
        attentions: on request, per layer ``[B, N, R, S]`` probabilities; rows are content, then query.
    """

    content: Tensor | None = None
    query: Tensor | None = None
    memory: Memory | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    query_hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class LanguageModelOutput:
    """Output of the language-model head.

    Attributes:
        loss: scalar, ``loss_sum / max(1, target_count)``; None without labels.
        loss_sum: scalar, summed negative log-likelihood in nats.
        target_count: scalar int64, number of labels that count.
        logits: ``[B, P, V]``, or ``[B, L, V]`` of the content stream; None where labels are given
            and logits were not asked for.
        memory: see :class:`EncoderOutput`.
        encoder: the encoder's own output.
    """

    loss: Tensor | None = None
    loss_sum: Tensor | None = None
    target_count: Tensor | None = None
    logits: Tensor | None = None
    memory: Memory | None = None
    encoder: EncoderOutput | None = None


@dataclass
class ClassificationOutput:
    """Output of the classification, regression, multiple-choice and token-classification heads.

    Attributes:
        logits: ``[B, num_labels]``; ``[B, choices]`` (multiple choice); ``[B, L, num_labels]`` (token classification).
        loss: scalar mean over examples (tokens); None without labels.
        example_loss: ``[B]`` loss of each example, None for token classification.
        encoder: the encoder's own output.
    """

    logits: Tensor
    loss: Tensor | None = None
    example_loss: Tensor | None = None
    encoder: EncoderOutput | None = None


@dataclass
class QuestionAnsweringOutput:
    """Output of the question-answering head; all log-probabilities are at most 0.

    Attributes:
        start_log_probs: ``[B, L]`` log p(start).
        end_log_probs: in training ``[B, L]`` log p(end | gold start); None otherwise.
        start_top_log_probs, start_top_index: ``[B, start_n_top]`` best starts, best first.
        end_top_log_probs, end_top_index: ``[B, start_n_top * end_n_top]``; entry ``i * end_n_top + j`` is the j-th best
            end for start i (start-major).
        cls_logits: ``[B]`` logit of "the question has no answer here".
        loss: scalar, ``(start + end) / 2``, plus half the answerability loss where ``is_impossible`` is given.
        encoder: the encoder's own output.
    """

    start_log_probs: Tensor
    cls_logits: Tensor
    end_log_probs: Tensor | None = None
    start_top_log_probs: Tensor | None = None
    start_top_index: Tensor | None = None
    end_top_log_probs: Tensor | None = None
    end_top_index: Tensor | None = None
    loss: Tensor | None = None
    encoder: EncoderOutput | None = None


for _output in (Memory, EncoderOutput, LanguageModelOutput, ClassificationOutput, QuestionAnsweringOutput):
    pytree.register_dataclass(_output)
