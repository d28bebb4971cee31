"""The language-model head: states to a distribution over the vocabulary, tied to the word embedding (XLNet §2.2)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from xlnet.batch import IGNORED_LABEL
from xlnet.checkpoints import Head
from xlnet.configuration import XLNetConfig
from xlnet.errors import InputError
from xlnet.model.encoder import XLNetModel
from xlnet.model.initialization import initialize
from xlnet.model.loss import vocabulary_cross_entropy
from xlnet.model.outputs import LanguageModelOutput
from xlnet.model.pretrained import PretrainedModel


class XLNetLMHeadModel(PretrainedModel):
    """Predicts the tokens at ``target_positions`` from the query stream, or next states from the content stream."""

    head: ClassVar[Head] = "language_model"

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        self.encoder = XLNetModel(config)
        self.lm_bias = nn.Parameter(torch.zeros(config.vocab_size))
        if not config.tie_word_embeddings:
            self.lm_projection = nn.Linear(config.d_model, config.vocab_size, bias=False)
            initialize(self.lm_projection, config)

    @property
    def output_weight(self) -> Tensor:
        """``[V, D]``, the matrix whose rows are compared with a state."""
        if self.config.tie_word_embeddings:
            return self.encoder.word_embedding.weight
        return self.lm_projection.weight

    def logits(self, states: Tensor) -> Tensor:
        """``[..., D]`` to ``[..., V]``."""
        return nn.functional.linear(states, self.output_weight.to(states.dtype), self.lm_bias.to(states.dtype))

    def forward(
        self, input_ids: Tensor, *, labels: Tensor | None = None, need_logits: bool | None = None, **inputs: Any
    ) -> LanguageModelOutput:
        """Encode and predict.

        Args:
            input_ids: ``[B, L]``.
            labels: ``[B, P]`` int64, the tokens at the targets; -100 does not count. Needs ``target_positions``.
            need_logits: whether to return logits; by default only where no labels are given.
            inputs: all other arguments of :meth:`XLNetModel.forward`.

        Raises:
            InputError: labels without targets (a content state has seen its own token), or of another shape.
        """
        targets = inputs.get("target_positions")
        if labels is not None:
            if targets is None:
                raise InputError(
                    "labels need target_positions: without them the logits come from the content stream, "
                    "whose states have seen the very tokens they would predict."
                )
            if labels.shape != targets.shape:
                raise InputError(f"labels has shape {list(labels.shape)}; target_positions {list(targets.shape)}.")
        encoded = self.encoder(input_ids, **inputs)
        states = encoded.query if targets is not None else encoded.content
        out = LanguageModelOutput(memory=encoded.memory, encoder=encoded)
        if labels is not None:
            out.loss_sum = vocabulary_cross_entropy(states, self.output_weight, self.lm_bias, labels)
            out.target_count = (labels != IGNORED_LABEL).sum()
            out.loss = out.loss_sum / out.target_count.clamp(min=1)
        if need_logits or (need_logits is None and labels is None):
            out.logits = self.logits(states)
        return out
