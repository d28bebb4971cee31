"""Heads that label: sequences (classes or a number), one of several choices, and single tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from xlnet.batch import IGNORED_LABEL
from xlnet.checkpoints import Head
from xlnet.configuration import XLNetConfig
from xlnet.errors import InputError
from xlnet.model.dropout import dropout
from xlnet.model.encoder import one_stream_encoder
from xlnet.model.initialization import initialize
from xlnet.model.outputs import ClassificationOutput
from xlnet.model.pretrained import PretrainedModel
from xlnet.model.summary import SequenceSummary


def example_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """``[B]`` losses: cross-entropy for integer labels ``[B]``, squared error where there is a single output, and
    binary cross-entropy averaged over classes for floating labels ``[B, num_labels]`` (several may hold at once).
    """
    if logits.shape[-1] == 1:
        return (logits[:, 0] - labels.to(logits.dtype)).square()
    if labels.ndim == 2:
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
        return loss.mean(dim=1)
    return nn.functional.cross_entropy(logits, labels, reduction="none")


class XLNetForSequenceClassification(PretrainedModel):
    """Classes of a text or a pair of texts; ``num_labels=1`` predicts a number."""

    head: ClassVar[Head] = "classification"

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        self.encoder = one_stream_encoder(config)
        self.summary = SequenceSummary(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialize(self.summary, config)
        initialize(self.classifier, config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, labels: Tensor | None = None, **inputs: Any
    ) -> ClassificationOutput:
        """``input_ids [B, L]`` to ``logits [B, num_labels]``; ``labels`` as in :func:`example_losses`."""
        real = None if attention_mask is None else attention_mask > 0
        encoded = self.encoder(input_ids, real, **inputs)
        logits = self.classifier(self.summary(encoded.content, real))
        out = ClassificationOutput(logits, encoder=encoded)
        if labels is not None:
            out.example_loss = example_losses(logits, labels)
            out.loss = out.example_loss.mean()
        return out


class XLNetForMultipleChoice(PretrainedModel):
    """The best of several texts: one score each, softmax over the choices (RACE, COPA)."""

    head: ClassVar[Head] = "multiple_choice"

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        self.encoder = one_stream_encoder(config)
        self.summary = SequenceSummary(config)
        self.classifier = nn.Linear(config.d_model, 1)
        initialize(self.summary, config)
        initialize(self.classifier, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """``input_ids [B, C, L]`` to ``logits [B, C]``; ``labels [B]`` is the index of the right choice.

        Raises:
            InputError: input without an axis of choices.
        """
        if input_ids.ndim != 3:
            raise InputError(f"input_ids has shape {list(input_ids.shape)}; it must be [batch, choices, length].")
        batch, choices = input_ids.shape[:2]
        real = None if attention_mask is None else (attention_mask > 0).flatten(0, 1)
        segments = None if token_type_ids is None else token_type_ids.flatten(0, 1)
        encoded = self.encoder(input_ids.flatten(0, 1), real, segments)
        logits = self.classifier(self.summary(encoded.content, real)).view(batch, choices)
        out = ClassificationOutput(logits, encoder=encoded)
        if labels is not None:
            out.example_loss = nn.functional.cross_entropy(logits, labels, reduction="none")
            out.loss = out.example_loss.mean()
        return out


class XLNetForTokenClassification(PretrainedModel):
    """A class for each token (named entities, parts of speech)."""

    head: ClassVar[Head] = "token_classification"

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        self.encoder = one_stream_encoder(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialize(self.classifier, config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, labels: Tensor | None = None, **inputs: Any
    ) -> ClassificationOutput:
        """``input_ids [B, L]`` to ``logits [B, L, num_labels]``; ``labels [B, L]``, -100 does not count."""
        encoded = self.encoder(input_ids, attention_mask, **inputs)
        states = dropout(encoded.content, self.config.summary_dropout, self.training)
        logits = self.classifier(states)
        out = ClassificationOutput(logits, encoder=encoded)
        if labels is not None:
            count = (labels != IGNORED_LABEL).sum().clamp(min=1)
            summed = nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
            )
            out.loss = summed / count
        return out
