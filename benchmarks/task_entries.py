"""The rows of the table of ``benchmarks/tasks.py``: where their data lies, how it is trained on, what needs no network.

Held-out data is never learnt from: SQuAD's is split by article, BoolQ's at a place in the file (passages of one article
stand together); held-out passages of BoolQ and reviews of IMDB that also stand in the training data are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.loading import sample, split_off
from xlnet.tasks.datasets.ranking import read_ranking
from xlnet.tasks.datasets.registry import BENCHMARKS
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multiple_choice import MultipleChoice
from xlnet.tasks.families.ranking import Ranking
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.finetune import TaskData
from xlnet.tasks.metrics import Scored, score
from xlnet.tasks.squad.task import QuestionAnswering

HELD_OUT_AT_MOST = 5000


@dataclass(frozen=True)
class Entry:
    """One row of the table: where its data lies below the data folder, and how it is trained on.

    Settings are those of a small model, which learns at rates ten times those of the release.

    Attributes:
        folder: below the data folder.
        max_length: tokens.
        epochs: passes over the training examples.
        batch_size: examples of a step.
        learning_rate: peak rate.
        limit: training examples at most, 0 for all.
        train, dev: splits.
        share: share of ``train`` kept for measuring, where there is no other split.
        tokenizer: below the data folder, where the models' own does not know the script; then only random weights of
            the models' shape can be trained.
        changes: further settings of the task.
    """

    folder: str
    max_length: int = 64
    epochs: float = 5.0
    batch_size: int = 32
    learning_rate: float = 5e-4
    limit: int = 0
    train: str = "train"
    dev: str = "dev"
    share: float = 0.0
    tokenizer: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> tuple[Any, ...]:
        """What the examples depend on."""
        return (self.folder, self.limit, self.train, self.dev, self.share)


TASKS: dict[str, Entry] = {
    "sst2": Entry("glue", epochs=1.0, batch_size=64),
    "imdb": Entry("imdb", 512, epochs=2.0, batch_size=16, limit=5000, dev="test", changes={"long_text": "head_tail"}),
    "cola": Entry("glue"),
    "rte": Entry("glue", 192),
    "mrpc": Entry("glue", 128),
    "stsb": Entry("glue"),
    "mnli": Entry("glue", 96, epochs=2.0, dev="dev_matched"),
    "qnli": Entry("glue", 128, epochs=4.0),
    "boolq": Entry("superglue", 256, epochs=4.0, train="dev", dev="", share=0.25),
    "squad2": Entry(
        "squad/squad2_half_dev.json", 256, epochs=2.0, batch_size=16, dev="", share=0.25, changes={"stride": 96}
    ),
    "race": Entry("race", 256, epochs=2.0, batch_size=8),
    "cranfield": Entry("ranking/cranfield", 128, epochs=3.0, batch_size=8),
    "chnsenticorp": Entry("chnsenticorp", 128, epochs=4.0, tokenizer="tokenizers/chinese-xlnet"),
}


def load(name: str, entry: Entry, data: Path, limit: int) -> tuple[Task, TaskData]:
    """Task and data of a row.

    Args:
        name: of the row.
        entry: its settings.
        data: folder of all data.
        limit: training and held-out examples at most, 0 for the row's own limits.
    """
    if name == "cranfield":
        task: Task = Ranking(
            name=name, max_length=entry.max_length, max_grade=4.0, group_size=8, first_stage_weight=1.0
        )
        train, dev = (read_ranking(data / entry.folder, split, candidates=50) for split in ("train", "dev"))
        return task, TaskData(sample(train, limit) if limit else train, {"dev": dev})
    found = BENCHMARKS[name]
    changes: dict[str, Any] = {"max_length": entry.max_length, **entry.changes}
    if isinstance(found.task, MultipleChoice):
        changes["max_choice_length"] = min(found.task.max_choice_length, entry.max_length // 3)
    task = replace(found.task, **changes)
    train = found.read(data / entry.folder, entry.train)
    if isinstance(task, QuestionAnswering):
        train, dev = split_off(train, entry.share, task.split_key)
    elif entry.share:
        cut = round(len(train) * (1 - entry.share))
        train, dev = train[:cut], train[cut:]
    else:
        dev = found.read(data / entry.folder, entry.dev)
    if name in ("imdb", "boolq"):
        seen = {example.text for example in train}
        dev = [example for example in dev if example.text not in seen]
    if isinstance(task, TextRegression):
        task = task.standardized(train)
    most = min(limit or len(train), entry.limit or len(train))
    return task, TaskData(sample(train, most), {"dev": sample(dev, min(len(dev), limit or HELD_OUT_AT_MOST))})


def bag_of_words(task: Task, data: TaskData) -> float | None:
    """TF-IDF of words and their pairs with logistic (or ridge) regression, the task's own metric; None where a bag of
    words says nothing (choices, answers) or a better baseline is there (ranking)."""
    if not isinstance(task, TextClassification | TextRegression):
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    chinese = task.name == "chnsenticorp"
    words = TfidfVectorizer(
        analyzer="char" if chinese else "word", ngram_range=(1, 3) if chinese else (1, 2), min_df=2, sublinear_tf=True
    )
    learner = Ridge() if isinstance(task, TextRegression) else LogisticRegression(C=10.0, max_iter=1000)

    def texts(examples: Sequence[Any]) -> list[str]:
        return [f"{e.text} {e.pair or ''}" for e in examples]

    (dev,) = data.held_out.values()
    pipeline = make_pipeline(words, learner).fit(texts(data.train), [e.label for e in data.train])
    predicted = pipeline.predict(texts(dev)).tolist()
    return score([task.metric], Scored([e.label for e in dev], predicted, task.names))[task.metric]


def first_stage(task: Task, data: TaskData) -> float | None:
    """BM25's own order."""
    if not isinstance(task, Ranking):
        return None
    (dev,) = data.held_out.values()
    runs = [{"id": e.id, "ranking": [{"id": d.id, "score": d.score} for d in e.documents]} for e in dev]
    return task.metrics(list(dev), runs)[task.metric]


def majority(task: Task, data: TaskData) -> float | None:
    """Always the most frequent label of the training data; for SQuAD 2.0 never an answer; for choices a guess."""
    (dev,) = data.held_out.values()
    if isinstance(task, QuestionAnswering):
        return sum(not e.answers for e in dev) / len(dev) if task.unanswerable else None
    if isinstance(task, MultipleChoice):
        return sum(len(e.label) / len(e.choices) for e in dev) / len(dev)
    if not isinstance(task, TextClassification):
        return None
    labels = [e.label for e in data.train]
    most = max(set(labels), key=labels.count)
    return score([task.metric], Scored([e.label for e in dev], [most] * len(dev), task.names))[task.metric]
