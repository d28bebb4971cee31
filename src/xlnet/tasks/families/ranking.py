"""Order documents by how well they answer a query: three losses, graded judgments, the measures of TREC."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.model import XLNetForSequenceClassification
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.families.multiple_choice import spread_choices
from xlnet.tasks.families.ranking_examples import (
    Document,
    RankingExample,
    check_candidates,
    check_grades,
    check_queries,
    read_example,
)
from xlnet.tasks.families.sequences import Ids, encode_texts, join
from xlnet.tasks.ranking_metrics import GDEVAL_GRADE, ranked, ranking_metrics
from xlnet.text import XLNetTokenizer
from xlnet.training.contracts import Step

__all__ = ["Document", "Ranking", "RankingExample", "RankingLoss", "ranking_loss"]

RankingLoss = Literal["pointwise", "pairwise", "listwise"]
_LOSSES = ("pointwise", "pairwise", "listwise")
_EVALUATION_GROUP = 16


@dataclass(frozen=True, kw_only=True)
class Ranking(Task):
    """One score for a query with a document.

    Args:
        loss_kind: ``pointwise`` is cross-entropy of each document with its grade, ``pairwise`` the logistic loss of
            pairs with unlike grades (RankNet), ``listwise`` cross-entropy of the softmax over a list (ListNet).
        group_size: documents of a training list: one relevant, the others drawn from the rest of the candidates.
        max_grade: the highest grade of the judgments: ``pointwise`` learns each grade as a share of it. ERR is that of
            gdeval, whose highest grade is 4 whatever this is, unless this is above 4.
        max_query_length: pieces of a query at most.
        first_stage_weight: how much of the first stage's score, standardized for each query, is added at prediction.
        seed: of the draw of training lists.
    """

    family = "ranking"
    model_class = XLNetForSequenceClassification
    max_length: int = 256
    loss_kind: RankingLoss = "listwise"
    group_size: int = 8
    max_grade: float = 1.0
    max_query_length: int = 64
    first_stage_weight: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_kind not in _LOSSES:
            raise ConfigurationError(
                f"loss_kind={self.loss_kind!r} must be one of {', '.join(_LOSSES)}."
                + did_you_mean(self.loss_kind, _LOSSES)
            )
        if self.group_size < 2:
            raise ConfigurationError(f"group_size={self.group_size} must be at least 2.")
        if not self.max_grade > 0.0:
            raise ConfigurationError(f"max_grade={self.max_grade} must be above 0.")
        if not 1 <= self.max_query_length <= self.max_length - 4:
            raise ConfigurationError(
                f"max_query_length={self.max_query_length} must lie between 1 and max_length - 4 = "
                f"{self.max_length - 4}. With a smaller max_length give a smaller max_query_length too (task_settings)."
            )

    @property
    def metric(self) -> str:
        """``ndcg@20`` with the gains of trec_eval. Beside the paper's ClueWeb09-B put ``ndcg_exp@20`` and ``err@20``,
        which are gdeval's."""
        return "ndcg@20"

    def model_settings(self) -> dict[str, Any]:
        """A single output."""
        return {"num_labels": 1, "labels": ()}

    def example(self, record: Mapping[str, Any], where: str, number: int) -> RankingExample:
        """From ``query`` and ``documents``: records with ``text``, and ``id``, ``score``, ``label`` where known."""
        return read_example(record, where, number)

    def check(self, examples: Sequence[RankingExample], *, labelled: bool) -> None:
        """Candidates are there, each once; where labels are needed each query stands once, and its grades are whole
        numbers up to ``max_grade``."""
        for example in examples:
            check_candidates(example)
            if labelled:
                check_grades(example, self.max_grade)
        if labelled:
            check_queries(examples)

    def features(self, examples: Sequence[RankingExample], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """``query <sep> document <sep> <cls>``, several a row; for training one row for each relevant candidate."""
        queries = encode_texts(tokenizer, [example.query for example in examples])
        flat = encode_texts(tokenizer, [document.text for example in examples for document in example.documents])
        rows, start = [], 0
        for place, example in enumerate(examples):
            texts = flat[start : start + len(example.documents)]
            start += len(texts)
            grades = [(example.label or {}).get(document.id, 0.0) for document in example.documents]
            for group in self._groups(example.id, grades, training):
                sequences = tuple(self._sequence(queries[place], texts[i]) for i in group)
                label = None if example.label is None else tuple(max(0.0, grades[i]) for i in group)
                rows.append(Row(place, sequences, label, {"documents": group}))
        return rows

    def _sequence(self, query: Ids, document: Ids) -> Any:
        query = query[: self.max_query_length]
        return join(query, document[: self.max_length - 3 - len(query)])

    def _groups(self, name: str, grades: Sequence[float], training: bool) -> list[list[int]]:
        """Places of the documents of each row."""
        everything = list(range(len(grades)))
        relevant = [i for i in everything if grades[i] > 0]
        if not training or not relevant:
            size = self.group_size if training else _EVALUATION_GROUP
            parts = [everything[i : i + size] for i in range(0, len(everything), size)]
            return parts[:1] if training else parts
        generator = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        groups = []
        for chosen in relevant:
            others = [i for i in everything if grades[i] < grades[chosen]]
            drawn = generator.permutation(len(others))[: self.group_size - 1]
            groups.append([chosen, *(others[i] for i in drawn)])
        return groups

    def labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """``grades``: float ``[B, most documents]``, -1 where there is no document."""
        if any(row.label is None for row in rows):
            return {}
        parts = [torch.tensor(row.label, dtype=torch.float32) for row in rows]
        return {"grades": nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-1.0)}

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """The loss of ``loss_kind``; each list counts once."""
        scores = spread_choices(model(**batch.inputs).logits[:, 0].float(), batch.rows)
        return Step(ranking_loss(self.loss_kind, scores, batch.labels["grades"], self.max_grade), len(batch.rows))

    def outputs(self, model: nn.Module, batch: TaskBatch) -> list[NDArray[np.float32]]:
        """Scores of the documents of each row."""
        scores = model(**batch.inputs).logits[:, 0].float().cpu().numpy()
        ends = np.cumsum([len(row.sequences) for row in batch.rows])
        return np.split(scores, ends[:-1])

    def predictions(
        self, examples: Sequence[RankingExample], rows: Sequence[Row], outputs: Sequence[NDArray[np.float32]]
    ) -> list[Prediction]:
        """``ranking``: document ids and scores, best first, in the order the metrics look at (:func:`ranked`);
        ``label``: the first of them."""
        scores = [np.zeros(len(example.documents)) for example in examples]
        for row, found in zip(rows, outputs, strict=True):
            scores[row.example][row.extra["documents"]] = found
        records = []
        for example, own in zip(examples, scores, strict=True):
            if self.first_stage_weight:
                first = np.array([document.score for document in example.documents])
                own = own + self.first_stage_weight * (first - first.mean()) / max(1e-9, float(first.std()))
            named = {d.id: float(score) for d, score in zip(example.documents, own.astype(np.float32), strict=True)}
            ranking = [{"id": name, "score": named[name]} for name in ranked(named)]
            records.append({"id": example.id, "label": ranking[0]["id"], "ranking": ranking})
        return records

    def metrics(self, examples: Sequence[RankingExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """``ndcg@20``, ``ndcg_exp@20``, ``err@20``, ``mrr`` and ``map``, over all judged documents."""
        check_queries(examples)
        judgments = {example.id: dict(example.label or {}) for example in examples}
        runs = {p["id"]: {item["id"]: item["score"] for item in p["ranking"]} for p in predictions}
        return ranking_metrics(judgments, runs, max(GDEVAL_GRADE, self.max_grade))


def ranking_loss(kind: str, scores: Tensor, grades: Tensor, max_grade: float) -> Tensor:
    """Sum over lists of one of the three losses.

    Args:
        kind: ``pointwise``, ``pairwise`` or ``listwise``.
        scores: ``[B, K]``, minus infinity where there is no document.
        grades: ``[B, K]``, below 0 there.
        max_grade: what counts as fully relevant.
    """
    real = grades >= 0
    safe = torch.where(real, scores, 0.0)
    if kind == "pointwise":
        wanted = grades.clamp(min=0.0) / max_grade
        losses = nn.functional.binary_cross_entropy_with_logits(safe, wanted, reduction="none") * real
        return (losses.sum(dim=1) / real.sum(dim=1)).sum()
    if kind == "pairwise":
        better = (grades[:, :, None] > grades[:, None, :]) & real[:, None, :]
        losses = nn.functional.softplus(safe[:, None, :] - safe[:, :, None]) * better
        return (losses.sum(dim=(1, 2)) / better.sum(dim=(1, 2)).clamp(min=1)).sum()
    wanted = grades.clamp(min=0.0)
    shares = wanted / wanted.sum(dim=1, keepdim=True).clamp(min=1e-9)
    log_probabilities = torch.where(real, scores, -torch.inf).log_softmax(dim=1)
    return -(shares * torch.where(real, log_probabilities, 0.0)).sum()
