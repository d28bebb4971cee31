"""Yes or no by comparison: candidates for the same question compete, as the paper trained QNLI and WNLI.

For its submission to GLUE the paper makes QNLI a ranking of pairs (a sentence that answers the question against one
that does not), and takes the loss of Kocijan et al. (2019) for WNLI: the log-probability of the right candidate, and a
margin by which it must lead. Here the probability is the softmax over a pair of scores of the classification head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, check_choice
from xlnet.tasks.contract import Prediction, Row, TaskBatch
from xlnet.tasks.families.classification import TextClassification, softmax
from xlnet.tasks.families.multiple_choice import spread_choices
from xlnet.tasks.families.text import TextExample
from xlnet.text import XLNetTokenizer
from xlnet.training.contracts import Step


@dataclass(frozen=True, kw_only=True)
class PairwiseClassification(TextClassification):
    """One of two labels; examples with the same first text are candidates, of which one is right.

    Training sees each right candidate beside each wrong one of its group; an example without an opposite is learnt by
    itself with cross-entropy. In prediction the best of a group is right and the others wrong, so answers depend on
    which candidates are given together; one that stands alone is right where its score is above 0.

    Args:
        positive: the label of the right candidate.
        margin: by how much the right candidate's score must lead (Kocijan's beta).
        margin_weight: what the lack of that lead counts beside the cross-entropy (alpha); 0 for none.
    """

    family = "pairwise_classification"
    positive: str = "1"
    margin: float = 0.2
    margin_weight: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("positive", self.positive, self.label_names)
        if len(self.label_names) != 2:
            raise ConfigurationError(f"label_names={self.label_names}: candidates are right or wrong, two labels.")
        for key in ("margin", "margin_weight"):
            if not 0.0 <= getattr(self, key) < float("inf"):
                raise ConfigurationError(f"{key}={getattr(self, key)} must be at least 0.")
        refused = {
            "class_weights": bool(self.class_weights),
            "label_smoothing": self.label_smoothing > 0.0,
            "long_text": self.long_text == "windows",
        }
        for key, given in refused.items():
            if given:
                raise ConfigurationError(
                    f"{key}={getattr(self, key)!r}: {self.name} compares whole candidates, which leaves no room for it."
                )

    def model_settings(self) -> dict[str, Any]:
        """A single score."""
        return {"num_labels": 1, "labels": ()}

    def features(self, examples: Sequence[TextExample], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """As for any pair of texts; in training a row is a right candidate and a wrong one, or a lone example."""
        singles = super().features(examples, tokenizer, training=training)
        if not training:
            return singles
        rows = []
        for group in groups(examples):
            right = [i for i in group if examples[i].label == self.positive]
            wrong = [i for i in group if examples[i].label != self.positive]
            if not right or not wrong:
                rows += [singles[i] for i in group]
            rows += [
                Row(i, (*singles[i].sequences, *singles[j].sequences), (self.positive, examples[j].label))
                for i in right
                for j in wrong
            ]
        return rows

    def targets(self, rows: Sequence[Row]) -> Tensor:
        """``[B]`` float32: 1 for a pair and for a lone right candidate, 0 for a lone wrong one."""
        return torch.tensor([float(len(row.sequences) == 2 or row.label == self.positive) for row in rows])

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Cross-entropy of the right one of each pair, with its margin, and of lone examples."""
        scores = spread_choices(model(**batch.inputs).logits[:, 0].float(), batch.rows)
        # A lone example competes with the score 0.
        lead = scores[:, 0] if scores.shape[1] == 1 else scores[:, 0] - scores[:, 1].nan_to_num(neginf=0.0)
        sign = 2.0 * batch.labels["targets"] - 1.0
        losses = nn.functional.softplus(-sign * lead)
        if self.margin_weight:
            losses = losses + self.margin_weight * (self.margin - sign * lead).clamp(min=0.0)
        return Step(losses.sum(), len(batch.rows))

    def predictions(
        self, examples: Sequence[TextExample], rows: Sequence[Row], outputs: Sequence[NDArray[np.float32]]
    ) -> list[Prediction]:
        """``label``; ``score`` of the model; ``probabilities`` among the candidates of the group."""
        scores = np.array([float(output[0]) for output in outputs])
        (negative,) = [name for name in self.label_names if name != self.positive]
        records: list[Prediction] = [{} for _ in examples]
        for group in groups(examples):
            # A lone example competes with the score 0.
            own = scores[group] if len(group) > 1 else np.array([scores[group[0]], 0.0])
            shares, best = softmax(own), int(own.argmax())
            for place, i in enumerate(group):
                share = float(shares[place])
                named = {self.positive: share, negative: 1.0 - share}
                records[i] = {
                    "id": examples[i].id,
                    "label": self.positive if place == best else negative,
                    "score": float(scores[i]),
                    "probabilities": {name: named[name] for name in self.label_names},
                }
        return records


def groups(examples: Sequence[TextExample]) -> list[list[int]]:
    """Places of the examples with the same first text, in the order of the first of each."""
    found: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        found.setdefault(example.text, []).append(place)
    return list(found.values())
