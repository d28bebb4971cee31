"""The question-answering head: start, end given start, and whether there is an answer at all (``get_qa_outputs``)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from xlnet.checkpoints import Head
from xlnet.configuration import XLNetConfig
from xlnet.model.dropout import dropout
from xlnet.model.encoder import one_stream_encoder
from xlnet.model.initialization import initialize
from xlnet.model.outputs import QuestionAnsweringOutput
from xlnet.model.pretrained import PretrainedModel
from xlnet.model.summary import boundary


class EndScorer(nn.Module):
    """Score of each end, given a start: dense over [state, start state], tanh, layer normalization, dense."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * config.d_model, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.output = nn.Linear(config.d_model, 1)

    def forward(self, states: Tensor, start_states: Tensor) -> Tensor:
        """``states [B, L, D]`` and ``start_states [B, K, D]`` to ``[B, K, L]``."""
        count, length = start_states.shape[1], states.shape[1]
        both = torch.cat(
            [states[:, None].expand(-1, count, -1, -1), start_states[:, :, None].expand(-1, -1, length, -1)], dim=-1
        )
        return self.output(self.norm(self.hidden(both).tanh()))[..., 0]


class AnswerableScorer(nn.Module):
    """Logit of "no answer here" from the probability-weighted start state and the ``<cls>`` state."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.hidden = nn.Linear(2 * config.d_model, config.d_model)
        self.output = nn.Linear(config.d_model, 1, bias=False)

    def forward(self, start_state: Tensor, cls_state: Tensor) -> Tensor:
        """Two of ``[B, D]`` to ``[B]``."""
        hidden = self.hidden(torch.cat([start_state, cls_state], dim=-1)).tanh()
        return self.output(dropout(hidden, self.config.dropout, self.training))[..., 0]


class XLNetForQuestionAnswering(PretrainedModel):
    """Extractive question answering with a beam of starts and, for each, a beam of ends."""

    head: ClassVar[Head] = "question_answering"

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        self.encoder = one_stream_encoder(config)
        self.start = nn.Linear(config.d_model, 1)
        self.end = EndScorer(config)
        self.answerable = AnswerableScorer(config)
        for part in (self.start, self.end, self.answerable):
            initialize(part, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        p_mask: Tensor | None = None,
        cls_index: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        is_impossible: Tensor | None = None,
        **inputs: Any,
    ) -> QuestionAnsweringOutput:
        """Find answers; with start and end positions also the loss.

        Args:
            input_ids: ``[B, L]``.
            attention_mask: ``[B, L]``, non-zero for real tokens.
            p_mask: ``[B, L]`` of any dtype, non-zero where an answer cannot start or end (question, separators).
            cls_index: ``[B]`` position of ``<cls>``; by default the last real token.
            start_positions, end_positions: ``[B]`` gold positions; one outside the sequence is left out of the loss.
            is_impossible: ``[B]`` of any dtype, non-zero where the text holds no answer.
            inputs: other arguments of the encoder.
        """
        real = None if attention_mask is None else attention_mask > 0
        encoded = self.encoder(input_ids, real, **inputs)
        states = encoded.content
        batch, length = input_ids.shape
        rows = torch.arange(batch, device=input_ids.device)
        if cls_index is None:
            last = torch.full_like(rows, length - 1)
            cls_index = last if real is None else boundary(real)
        banned = torch.zeros_like(input_ids, dtype=torch.bool) if p_mask is None else p_mask > 0
        if real is not None:
            banned = banned | ~real

        start_log_probs = _log_probabilities(self.start(states)[..., 0], banned)
        expected_start = torch.einsum("bl,bld->bd", start_log_probs.exp().to(states.dtype), states)
        out = QuestionAnsweringOutput(
            start_log_probs=start_log_probs,
            cls_logits=self.answerable(expected_start, states[rows, cls_index]),
            encoder=encoded,
        )
        if start_positions is None or end_positions is None:
            self._search(out, states, banned)
            return out
        inside = (start_positions >= 0) & (start_positions < length) & (end_positions >= 0) & (end_positions < length)
        start, end = start_positions.clamp(0, length - 1), end_positions.clamp(0, length - 1)
        end_scores = self.end(states, states[rows, start][:, None])[:, 0]
        out.end_log_probs = _log_probabilities(end_scores, banned)
        spans = start_log_probs[rows, start] + out.end_log_probs[rows, end]
        out.loss = -(spans * inside).sum() / (2 * inside.sum().clamp(min=1))
        if is_impossible is not None:
            impossible = (is_impossible > 0).to(out.cls_logits.dtype)
            out.loss = out.loss + 0.5 * nn.functional.binary_cross_entropy_with_logits(out.cls_logits, impossible)
        return out

    def _search(self, out: QuestionAnsweringOutput, states: Tensor, banned: Tensor) -> None:
        """Fill in the beams; a beam is never wider than the sequence."""
        batch, length = banned.shape
        starts, ends = min(self.config.start_n_top, length), min(self.config.end_n_top, length)
        out.start_top_log_probs, out.start_top_index = out.start_log_probs.topk(starts, dim=-1)
        index = out.start_top_index[..., None].expand(-1, -1, states.shape[-1])
        end_log_probs = _log_probabilities(self.end(states, states.gather(1, index)), banned[:, None])
        best, place = end_log_probs.topk(ends, dim=-1)
        out.end_top_log_probs = best.reshape(batch, starts * ends)
        out.end_top_index = place.reshape(batch, starts * ends)


def _log_probabilities(scores: Tensor, banned: Tensor) -> Tensor:
    """Log-softmax over the last axis in at least float32, with banned positions at about -1e30, as released."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.where(banned, -1e30, scores).log_softmax(dim=-1)
