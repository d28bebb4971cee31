"""What pretraining is worth: tasks from pretrained weights, from random weights, and TF-IDF with logistic regression.

    python benchmarks/tasks.py MODEL --data ../shared/data --output runs/tasks --tasks sst2 cola --seeds 3

Writes one JSON line a cell to ``results.jsonl`` in the output folder as soon as it is known, and prints a table of
medians at the end; cells that are there already are not run again. Settings follow from the size of the training data:
small sets get more epochs. Random weights have the pretrained model's shape and the same settings. The last weights are
measured, not the best on the held-out data, which would flatter every cell.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xlnet.checkpoints import read_checkpoint
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.loading import sample
from xlnet.tasks.datasets.ranking import read_ranking
from xlnet.tasks.datasets.registry import BENCHMARKS
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multiple_choice import MultipleChoice
from xlnet.tasks.families.ranking import Ranking
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.metrics import Scored, score
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer
from xlnet.training.report import SilentReporter


@dataclass(frozen=True)
class Entry:
    """One row of the table: where its data lies below the data folder, and what is trained on.

    Attributes:
        folder: below the data folder.
        max_length: tokens.
        limit: training examples at most, 0 for all.
        train, dev: splits.
        share: share of ``train`` kept for measuring, where there is no other split (BoolQ has only its val).
    """

    folder: str
    max_length: int = 64
    limit: int = 0
    train: str = "train"
    dev: str = "dev"
    share: float = 0.0


TASKS: dict[str, Entry] = {
    "sst2": Entry("glue"),
    "imdb": Entry("imdb", 512, 5000, dev="test"),
    "cola": Entry("glue"),
    "rte": Entry("glue", 128),
    "mrpc": Entry("glue", 128),
    "stsb": Entry("glue"),
    "qnli": Entry("glue", 128),
    "mnli": Entry("glue", 96, dev="dev_matched"),
    "boolq": Entry("superglue", 256, train="dev", dev="", share=0.25),
    "race": Entry("race", 384),
    "chnsenticorp": Entry("chnsenticorp", 192),
    "cranfield": Entry("ranking/cranfield", 192),
}


def load(name: str, data: Path, limit: int) -> tuple[Task, TaskData]:
    """Task and data of a row."""
    entry = TASKS[name]
    if name == "cranfield":
        task: Task = Ranking(
            name=name, max_length=entry.max_length, max_grade=4.0, group_size=8, first_stage_weight=1.0
        )
        train, dev = (read_ranking(data / entry.folder, split, candidates=50) for split in ("train", "dev"))
        return task, TaskData(sample(train, limit) if limit else train, {"dev": dev})
    found = BENCHMARKS[name]
    changes: dict[str, Any] = {"max_length": entry.max_length}
    if isinstance(found.task, MultipleChoice):
        changes["max_choice_length"] = min(found.task.max_choice_length, entry.max_length // 3)
    task = replace(found.task, **changes)
    train = found.read(data / entry.folder, entry.train)
    if entry.share:
        # Passages of the same article stand together in BoolQ: the end of the file is held out, not a random share.
        cut = round(len(train) * (1 - entry.share))
        train, dev = train[:cut], train[cut:]
    else:
        dev = found.read(data / entry.folder, entry.dev)
    if isinstance(task, TextRegression):
        task = task.standardized(train)
    most = min(limit or len(train), entry.limit or len(train))
    return task, TaskData(sample(train, most), {"dev": sample(dev, min(len(dev), limit or 5000))})


def settings(examples: int, seed: int, learning_rate: float, precision: Any) -> FineTuneConfig:
    """Enough steps for small sets, few epochs for large ones."""
    epochs = 3.0 if examples >= 20000 else 6.0 if examples >= 4000 else 10.0
    return FineTuneConfig(
        epochs=epochs, batch_size=32, learning_rate=learning_rate, warmup=0.1, seed=seed, save_every=0,
        precision=precision, layer_decay=0.9, keep_best=False, evaluate_every=1_000_000,
    )  # fmt: skip


def bag_of_words(task: Task, data: TaskData) -> float | None:
    """TF-IDF of words and their pairs with logistic (or ridge) regression, the task's own metric; None where a bag of
    words says nothing (choices) or a better baseline is there (ranking)."""
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
    """Always the most frequent label of the training data."""
    if not isinstance(task, TextClassification):
        return None
    labels = [e.label for e in data.train]
    most = max(set(labels), key=labels.count)
    (dev,) = data.held_out.values()
    return score([task.metric], Scored([e.label for e in dev], [most] * len(dev), task.names))[task.metric]


class Results:
    """Cells of the table, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.cells: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def has(self, **key: Any) -> bool:
        """Whether this cell is known."""
        return any(all(cell.get(k) == v for k, v in key.items()) for cell in self.cells)

    def add(self, **cell: Any) -> None:
        """Keep and show a cell."""
        self.cells.append(cell)
        with self.path.open("a") as file:
            file.write(json.dumps(cell) + "\n")
        print(json.dumps(cell), flush=True)

    def median(self, task: str, start: str) -> str:
        """Of the seeds, with their spread."""
        values = [c["value"] for c in self.cells if (c["task"], c["start"]) == (task, start) and c["value"] is not None]
        if not values:
            return "-"
        shown = f"{100 * statistics.median(values):.1f}"
        return shown if len(values) < 2 else f"{shown} ({100 * min(values):.1f}-{100 * max(values):.1f}, {len(values)})"


def table(results: Results, names: Sequence[str]) -> str:
    """Markdown: medians of the deciding metric, in percent."""
    starts = ("majority", "bm25", "tf-idf", "random", "pretrained")
    lines = ["| task | metric | " + " | ".join(starts) + " |", "|---" * (len(starts) + 2) + "|"]
    for name in names:
        metric = next((cell["metric"] for cell in results.cells if cell["task"] == name), "?")
        lines.append(f"| {name} | {metric} | " + " | ".join(results.median(name, start) for start in starts) + " |")
    return "\n".join(lines)


def run_task(name: str, options: argparse.Namespace, results: Results) -> None:
    """All cells of a row."""
    task, data = load(name, options.data, options.limit)
    count = len(data.train)
    baselines = {"majority": majority, "bm25": first_stage, "tf-idf": bag_of_words}
    for start, baseline in baselines.items():
        if not results.has(task=name, start=start):
            value = baseline(task, data)
            if value is not None:
                results.add(task=name, metric=task.metric, start=start, seed=0, value=value, train=count)
    tokenizer = XLNetTokenizer.from_pretrained(options.model)
    shape = read_checkpoint(options.model).config
    for start, source in (("random", shape), ("pretrained", options.model)):
        if start not in options.starts:
            continue
        for seed in range(options.seeds):
            if results.has(task=name, start=start, seed=seed):
                continue
            model = start_model(source, task, seed=seed)
            config = settings(count, seed, options.learning_rate, options.precision)
            if options.steps:
                config = replace(config, steps=options.steps)
            folder = options.output / name / f"{start}-{seed}-{int(time.time())}"
            began = time.monotonic()
            tuned = finetune(model, tokenizer, task, data, config, folder, reporter=SilentReporter())
            results.add(
                task=name, metric=task.metric, start=start, seed=seed, value=tuned.metrics[task.metric], train=count,
                steps=tuned.fit.step if tuned.fit else 0, seconds=round(time.monotonic() - began, 1),
                metrics=dict(tuned.metrics), learning_rate=config.learning_rate,
            )  # fmt: skip
            if time.monotonic() - began > options.long and seed == 0:
                break


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pretrained folder")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    parser.add_argument("--starts", nargs="+", choices=["random", "pretrained"], default=["random", "pretrained"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="training and held-out examples at most")
    parser.add_argument("--steps", type=int, default=0, help="optimizer steps instead of the usual epochs")
    parser.add_argument("--long", type=float, default=600.0, help="a run above so many seconds has one seed only")
    parser.add_argument("--learning_rate", type=float, default=2e-4)
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    options = parser.parse_args()
    results = Results(options.output / "results.jsonl")
    for name in options.tasks:
        run_task(name, options, results)
    print(table(results, options.tasks))


if __name__ == "__main__":
    main()
