"""Extractive question answering as a task: a passage and a question in, a stretch of the passage (or nothing) out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError, MachineError
from xlnet.model import XLNetForQuestionAnswering
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.families.sequences import Ids, encode_texts, join
from xlnet.tasks.families.text import column, record_id
from xlnet.tasks.squad.examples import SquadExample, check_answers, locate
from xlnet.tasks.squad.reading import read_question
from xlnet.tasks.squad.scoring import evaluate_squad, mean_scores, raw_scores, usable_threshold
from xlnet.tasks.squad.search import Beams, Candidate, best_answers, null_odds, probabilities
from xlnet.tasks.squad.windows import EncodedPassage, Window, encode_passage, max_context, window_spans
from xlnet.text import XLNetTokenizer
from xlnet.training.contracts import Step

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class QuestionAnswering(Task):
    """Answers cut from a passage, as in SQuAD 1.1 and 2.0; defaults are those of the release.

    Args:
        unanswerable: some questions have no answer in their passage (2.0); else each is given one (1.1).
        stride: pieces between the starts of the windows that a long passage is read in.
        max_query_length: pieces of a question at most; longer ones lose their end.
        max_answer_length: pieces of an answer at most.
        n_best_size: answers of the n-best list at most.
        null_threshold: with ``unanswerable``, no answer is given where the log-odds of "no answer" are above this;
            fine-tuning sets it to what is best on the held-out data.
        text_column: name of the question in records.
        pair_column: name of the passage in records; ``context`` will do too.
    """

    family: ClassVar[str] = "question_answering"
    model_class = XLNetForQuestionAnswering
    max_length: int = 512
    unanswerable: bool = True
    stride: int = 128
    max_query_length: int = 64
    max_answer_length: int = 64
    n_best_size: int = 5
    null_threshold: float = 0.0
    text_column: str = "question"
    pair_column: str = "passage"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("stride", "max_query_length", "max_answer_length", "n_best_size"):
            if getattr(self, key) < 1:
                raise ConfigurationError(f"{key}={getattr(self, key)} must be at least 1.")
        if self.max_query_length > self.max_length - 4:
            raise ConfigurationError(
                f"max_query_length={self.max_query_length} must be at most max_length - 4 = {self.max_length - 4}: "
                "<sep> twice, <cls> and a piece of the passage need room too. With a smaller max_length give a smaller "
                "max_query_length too (task_settings)."
            )

    @property
    def metric(self) -> str:
        """F1, where there are unanswerable questions at the best threshold."""
        return "best_f1" if self.unanswerable else "f1"

    def example(self, record: Mapping[str, Any], where: str, number: int) -> SquadExample:
        """From question and passage, and ``answers`` and ``is_impossible`` as in SQuAD's files, where given."""
        passage = "context" if self.pair_column not in record and "context" in record else self.pair_column
        question = column(record, self.text_column, where)
        return read_question(record, column(record, passage, where), question, record_id(record, number), where)

    def split_key(self, example: SquadExample) -> str:
        """Questions on one article stay together; without its title, those on one passage."""
        return example.title or example.passage

    def calibrated(self, metrics: Mapping[str, float]) -> QuestionAnswering:
        """With the threshold at which F1 is best on the held-out data."""
        if not self.unanswerable or "usable_f1_thresh" not in metrics:
            return self
        return replace(self, null_threshold=float(metrics["usable_f1_thresh"]))

    def check(self, examples: Sequence[SquadExample], *, labelled: bool) -> None:
        """Answers are known, in their passages, and there where the task has no unanswerable questions."""
        if not labelled:
            return
        for place, example in enumerate(examples):
            where = example.where or f"question {place + 1} ({example.id})"
            if example.answers is None:
                raise InputError(
                    f"{where}: there are no answers, and training and evaluation need them. Use predict for questions "
                    "without; one that the passage cannot answer has is_impossible: true."
                )
            if not example.answers and not self.unanswerable:
                raise InputError(
                    f"{where}: the question has no answer, and {self.name} has an answer to each (as SQuAD 1.1). "
                    "For data as SQuAD 2.0 use the task squad2, or unanswerable=True."
                )
        check_answers(self.name, examples)

    def features(self, examples: Sequence[SquadExample], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """One row for each window; in training those with the first answer that stands in the passage have its place.

        A training question whose answers cannot be found in its passage has no rows.
        """
        questions = encode_texts(tokenizer, [example.question for example in examples])
        passages: dict[str, EncodedPassage] = {}
        rows: list[Row] = []
        lost = 0
        for place, (example, question) in enumerate(zip(examples, questions, strict=True)):
            if example.passage not in passages:
                passages[example.passage] = encode_passage(tokenizer, example.passage)
            encoded = passages[example.passage]
            answer = answer_pieces(example, encoded) if training else None
            if training and example.answers and answer is None:
                lost += 1
                continue
            rows += self._rows(place, encoded, question[: self.max_query_length], answer, training)
        if lost:
            _log.warning(
                "%s: %d training questions are left out: their answers stand at no place, or at several.",
                self.name,
                lost,
            )
        return rows

    def _rows(
        self, place: int, encoded: EncodedPassage, question: Ids, answer: tuple[int, int] | None, training: bool
    ) -> list[Row]:
        spans = window_spans(len(encoded), self.max_length - 3 - len(question), self.stride)
        widest = max_context(spans) if not training else []
        rows = []
        for number, (start, end) in enumerate(spans):
            sequence = join(encoded.input_ids[start:end], question)
            if not training:
                window = Window(encoded.starts[start:end], encoded.ends[start:end], widest[number])
                rows.append(Row(place, (sequence,), extra={"passage_length": end - start, "window": window}))
                continue
            cls = len(sequence) - 1
            label = (cls, cls, True)
            if answer is not None and start <= answer[0] and answer[1] < end:
                label = (answer[0] - start, answer[1] - start, False)
            rows.append(Row(place, (sequence,), label, {"passage_length": end - start}))
        return rows

    def collate(self, rows: Sequence[Row]) -> TaskBatch:
        """Padding is on the left; ``p_mask`` bars question and marks: answers lie in the passage or on ``<cls>``."""
        batch = super().collate(rows)
        rows_count, width = batch.inputs["input_ids"].shape
        barred = torch.ones(rows_count, width, dtype=torch.bool)
        barred[:, -1] = False
        for i, row in enumerate(rows):
            first = width - row.length
            barred[i, first : first + row.extra["passage_length"]] = False
        more = {"p_mask": barred, "cls_index": torch.full((rows_count,), width - 1)}
        return TaskBatch({**batch.inputs, **more}, batch.labels, batch.rows)

    def labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """``start``, ``end`` ``[B]``, from the end of the row back (-1 is ``<cls>``); ``impossible`` ``[B]``."""
        if any(row.label is None for row in rows):
            return {}
        return {
            "start": torch.tensor([row.label[0] - row.length for row in rows]),
            "end": torch.tensor([row.label[1] - row.length for row in rows]),
            "impossible": torch.tensor([row.label[2] for row in rows]),
        }

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Half of the losses of start and end, plus half that of answerability, summed over windows (run_squad.py)."""
        width = batch.inputs["input_ids"].shape[1]
        out = model(
            **batch.inputs,
            start_positions=width + batch.labels["start"],
            end_positions=width + batch.labels["end"],
            is_impossible=batch.labels["impossible"],
        )
        # Every window has a place for its start and end, so the head's mean is over all of them.
        return Step(out.loss * len(batch.rows), len(batch.rows))

    def outputs(self, model: nn.Module, batch: TaskBatch) -> list[Beams]:
        """The beams of each window."""
        out = model(**batch.inputs)
        width = batch.inputs["input_ids"].shape[1]
        start_scores, end_scores = (_host(scores) for scores in (out.start_top_log_probs, out.end_top_log_probs))
        starts, ends = (index.cpu().numpy() for index in (out.start_top_index, out.end_top_index))
        logits = _host(out.cls_logits)
        count = starts.shape[1]
        found = []
        for i, row in enumerate(batch.rows):
            shift = width - row.length
            end_table, end_index = (table[i].reshape(count, -1) for table in (end_scores, ends))
            found.append(Beams(start_scores[i], starts[i] - shift, end_table, end_index - shift, float(logits[i])))
        return found

    def predictions(
        self, examples: Sequence[SquadExample], rows: Sequence[Row], outputs: Sequence[Beams]
    ) -> list[Prediction]:
        """A record for each question.

        ``label``: the answer, empty where there is none; ``answer``, ``start``, ``end``: the best stretch of the
        passage, whatever the odds (empty and None where there is no such stretch); ``null_odds``: log-odds of "no
        answer"; ``nbest``: the best answers with their probabilities among themselves.

        Raises:
            MachineError: the model gives no numbers.
        """
        gathered: list[tuple[list[Window], list[Beams]]] = [([], []) for _ in examples]
        for row, output in zip(rows, outputs, strict=True):
            gathered[row.example][0].append(row.extra["window"])
            gathered[row.example][1].append(output)
        records = []
        for example, (windows, beams) in zip(examples, gathered, strict=True):
            odds = null_odds(beams)
            if not all(np.isfinite(found.cls_logit) for found in beams):
                raise MachineError(
                    f"The model gives {odds} for question {example.id}: its weights are damaged, or the precision is "
                    "too low. Try float32."
                )
            found = best_answers(
                example.passage, windows, beams, max_answer_length=self.max_answer_length, n_best=self.n_best_size
            )
            records.append({"id": example.id, **self._record(found, odds)})
        return records

    def _record(self, found: Sequence[Candidate], odds: float) -> Prediction:
        best = found[0] if found else None
        answer = best.text if best else ""
        nbest = [
            {
                "text": candidate.text,
                "start": candidate.start,
                "end": candidate.end,
                "probability": probability,
                "start_log_prob": candidate.start_log_prob,
                "end_log_prob": candidate.end_log_prob,
            }
            for candidate, probability in zip(found, probabilities(found), strict=True)
        ]
        return {
            "label": "" if self.unanswerable and odds > self.null_threshold else answer,
            "answer": answer,
            "start": best.start if best else None,
            "end": best.end if best else None,
            "null_odds": odds,
            "nbest": nbest,
        }

    def metrics(self, examples: Sequence[SquadExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """In percent, by the names of the official scorer: ``exact``, ``f1``, and with unanswerable questions these of
        both kinds of question at ``null_threshold``, and the best threshold for each with what it gives; and
        ``usable_f1_thresh``, which gives the best F1 when it is used (see :func:`usable_threshold`).
        """
        gold = {str(i): example.label or () for i, example in enumerate(examples)}
        answers = {str(i): prediction["answer"] for i, prediction in enumerate(predictions)}
        if not self.unanswerable:
            return mean_scores(*raw_scores(gold, answers))
        odds = {str(i): float(prediction["null_odds"]) for i, prediction in enumerate(predictions)}
        answerable = {name: bool(texts) for name, texts in gold.items()}
        usable = usable_threshold(raw_scores(gold, answers)[1], odds, answerable)
        return evaluate_squad(gold, answers, odds, self.null_threshold) | {"usable_f1_thresh": usable}


def _host(values: Tensor) -> NDArray[np.float32]:
    return values.float().cpu().numpy()


def answer_pieces(example: SquadExample, encoded: EncodedPassage) -> tuple[int, int] | None:
    """First and last piece of the first answer that stands in the passage; None without one."""
    for answer in example.answers or ():
        span = locate(example.passage, answer)
        pieces = None if span is None else encoded.span(*span)
        if pieces is not None:
            return pieces
    return None
