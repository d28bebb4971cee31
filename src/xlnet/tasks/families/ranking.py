"""Order documents by how well they answer a query: three losses, graded judgments, the measures of TREC."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.model import XLNetForSequenceClassification
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.families.multiple_choice import spread_choices
from xlnet.tasks.families.sequences import Ids, encode_texts, join
from xlnet.tasks.families.text import column, record_id
from xlnet.tasks.ranking_metrics import ranking_metrics
from xlnet.text import XLNetTokenizer
from xlnet.training.contracts import Step

RankingLoss = Literal["pointwise", "pairwise", "listwise"]
_LOSSES = ("pointwise", "pairwise", "listwise")
_EVALUATION_GROUP = 16


@dataclass(frozen=True)
class Document:
    """A candidate.

    Attributes:
        id: its name in the judgments.
        text: of the document; may be empty.
        score: of the first stage (BM25), 0 where there is none.
    """

    id: str
    text: str
    score: float = 0.0


@dataclass(frozen=True)
class RankingExample:
    """A query and its candidates.

    Attributes:
        id: of the query.
        query: its text.
        documents: candidates in the order of the first stage.
        label: grades of relevance by document id, 0 and less not relevant; also of documents that are no candidates,
            which count in the metrics. None where not known.
        where: file and line, for messages.
    """

    id: str
    query: str
    documents: tuple[Document, ...]
    label: Mapping[str, float] | None = field(default=None, hash=False)
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Ranking(Task):
    """One score for a query with a document.

    Args:
        loss_kind: ``pointwise`` is cross-entropy of each document with its grade, ``pairwise`` the logistic loss of
            pairs with unlike grades (RankNet), ``listwise`` cross-entropy of the softmax over a list (ListNet).
        group_size: documents of a training list: one relevant, the others drawn from the rest of the candidates.
        max_grade: the highest grade there is.
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
        """``ndcg@20``, as in the paper's ClueWeb experiments."""
        return "ndcg@20"

    def model_settings(self) -> dict[str, Any]:
        """A single output."""
        return {"num_labels": 1, "labels": ()}

    def example(self, record: Mapping[str, Any], where: str, number: int) -> RankingExample:
        """From ``query`` and ``documents``: records with ``text``, and ``id``, ``score``, ``label`` where known."""
        found = record.get("documents")
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            raise InputError(
                f"{where}: documents must be a list of records with a text, but is {type(found).__name__}."
            )
        documents = [
            Document(
                record_id(item, i), column(item, "text", f"{where}, document {i + 1}"), float(item.get("score") or 0)
            )
            for i, item in enumerate(found)
        ]
        grades = {d.id: float(item["label"]) for d, item in zip(documents, found, strict=True) if "label" in item}
        query = column(record, "query", where)
        return RankingExample(record_id(record, number), query, tuple(documents), grades or None, where)

    def check(self, examples: Sequence[RankingExample], *, labelled: bool) -> None:
        """Candidates are there, each once; grades are at most ``max_grade``."""
        for example in examples:
            where = example.where or f"query {example.id}"
            if not example.documents:
                raise InputError(f"{where}: there are no documents to rank.")
            if len({document.id for document in example.documents}) != len(example.documents):
                raise InputError(f"{where}: two documents have the same id.")
            if not labelled:
                continue
            if example.label is None:
                raise InputError(f"{where}: there are no judgments, and training and evaluation need them.")
            highest = max(example.label.values(), default=0.0)
            if highest > self.max_grade:
                raise InputError(f"{where}: grade {highest} is above max_grade={self.max_grade}.")

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
        """``ranking``: document ids and scores, best first; ``label``: the first of them."""
        scores = [np.zeros(len(example.documents)) for example in examples]
        for row, found in zip(rows, outputs, strict=True):
            scores[row.example][row.extra["documents"]] = found
        records = []
        for example, own in zip(examples, scores, strict=True):
            if self.first_stage_weight:
                first = np.array([document.score for document in example.documents])
                own = own + self.first_stage_weight * (first - first.mean()) / max(1e-9, float(first.std()))
            order = np.argsort(-own, kind="stable")
            ranking = [{"id": example.documents[i].id, "score": float(own[i])} for i in order]
            records.append({"id": example.id, "label": ranking[0]["id"], "ranking": ranking})
        return records

    def metrics(self, examples: Sequence[RankingExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """``ndcg@20``, ``err@20``, ``mrr`` and ``map``, over all judged documents."""
        judgments = {example.id: dict(example.label or {}) for example in examples}
        runs = {p["id"]: {item["id"]: item["score"] for item in p["ranking"]} for p in predictions}
        return ranking_metrics(judgments, runs, self.max_grade)


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
