"""What pretraining is worth: tasks from pretrained weights, from random weights, and TF-IDF with logistic regression.

    python benchmarks/tasks.py MODEL --data ../shared/data --output runs/tasks --tasks sst2 cola --seeds 3

Each cell of the table is a line of ``results.jsonl`` in the output folder as soon as it is known. The same command goes
on where it was stopped: cells that are there with the same model and settings are not run again, and a run that was
stopped in the middle is taken up at its last checkpoint. Random weights have the pretrained model's shape and the same
settings. The last weights are measured, not the best on the held-out data, which would flatter every cell.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from xlnet.checkpoints import read_checkpoint
from xlnet.errors import XLNetError
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
from xlnet.training.config import Precision
from xlnet.training.report import SilentReporter


@dataclass(frozen=True)
class Entry:
    """One row of the table: where its data lies below the data folder, and how it is trained on.

    Settings are those of a small model, which learns at rates ten times those of the release.

    Attributes:
        folder: below the data folder.
        max_length: tokens.
        epochs: passes over the training examples.
        batch_size: examples of a step.
        limit: training examples at most, 0 for all.
        train, dev: splits.
        share: share of ``train`` kept for measuring, where there is no other split (BoolQ has only its val).
        changes: further settings of the task.
    """

    folder: str
    max_length: int = 64
    epochs: float = 5.0
    batch_size: int = 32
    limit: int = 0
    train: str = "train"
    dev: str = "dev"
    share: float = 0.0
    changes: Mapping[str, Any] = field(default_factory=dict)


TASKS: dict[str, Entry] = {
    "sst2": Entry("glue", epochs=1.0, batch_size=64),
    "cola": Entry("glue"),
    "mrpc": Entry("glue", 96),
    "stsb": Entry("glue"),
    "rte": Entry("glue", 96),
    "qnli": Entry("glue", 96, epochs=4.0),
    "mnli": Entry("glue", 64, epochs=2.0, dev="dev_matched"),
    "imdb": Entry("imdb", 192, epochs=3.0, limit=3000, dev="test", changes={"long_text": "head_tail"}),
    "boolq": Entry("superglue", 160, epochs=4.0, train="dev", dev="", share=0.25),
    "race": Entry("race", 192, epochs=3.0, batch_size=8),
    "cranfield": Entry("ranking/cranfield", 96, epochs=3.0, batch_size=8),
    "chnsenticorp": Entry("chnsenticorp", 128, epochs=4.0),
}
NOT_ENGLISH = ("chnsenticorp",)
STARTS = ("majority", "bm25", "tf-idf", "random", "pretrained")


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
    changes: dict[str, Any] = {"max_length": entry.max_length, **entry.changes}
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


def settings(entry: Entry, seed: int, options: argparse.Namespace) -> FineTuneConfig:
    """Of one run."""
    return FineTuneConfig(
        epochs=entry.epochs, steps=options.steps, batch_size=entry.batch_size, learning_rate=options.learning_rate,
        warmup=0.1, seed=seed, precision=options.precision, keep_best=False, evaluate_every=1_000_000, save_every=300,
        device=options.device,
    )  # fmt: skip


def bfloat16_or_float32() -> Precision:
    """The faster arithmetic: bfloat16 where the processor multiplies in it, else it is emulated and slower."""
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bfloat16" if gpu or (known is not None and known()) else "float32"


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


def fingerprint(*parts: Any) -> str:
    """Short hash of settings."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


class Results:
    """Cells of the table, kept in a file, one a line; those of other settings stay there but are not looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.cells: list[dict[str, Any]] = []
        # A line that was being written when the machine stopped is no cell; what is added must not stick to it.
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):
                self.cells.append(json.loads(line))
        if len(self.cells) < len(lines):
            path.write_text("".join(json.dumps(cell) + "\n" for cell in self.cells))

    def of(self, name: str, start: str, wanted: str) -> list[dict[str, Any]]:
        """Known cells of one entry of the table."""
        return [cell for cell in self.cells if (cell["task"], cell["start"], cell["run"]) == (name, start, wanted)]

    def add(self, **cell: Any) -> None:
        """Keep and show a cell."""
        self.cells.append(cell)
        with self.path.open("a") as file:
            file.write(json.dumps(cell) + "\n")
        shown = f"{cell['task']} {cell['start']} seed {cell['seed']}: {cell['metric']} {100 * cell['value']:.1f}"
        print(f"{shown}, {cell['seconds']:.0f} s", file=sys.stderr, flush=True)


def shown(cells: Sequence[Mapping[str, Any]]) -> str:
    """Median in percent, with extremes and number of several seeds."""
    values = [100 * cell["value"] for cell in cells]
    if not values:
        return "-"
    median = f"{statistics.median(values):.1f}"
    return median if len(values) == 1 else f"{median} ({min(values):.1f} to {max(values):.1f}, {len(values)} seeds)"


def table(rows: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """Markdown of the deciding metrics, in percent; seconds are the median of a run from pretrained weights."""
    lines = [f"| task | metric | {' | '.join(STARTS)} | seconds a run |", "|---" * (len(STARTS) + 3) + "|"]
    for name, cells in rows.items():
        metric = next((cell["metric"] for found in cells.values() for cell in found), "?")
        taken = [cell["seconds"] for cell in cells.get("pretrained", ())]
        seconds = f"{statistics.median(taken):.0f}" if taken else "-"
        lines.append(f"| {name} | {metric} | {' | '.join(shown(cells.get(s, ())) for s in STARTS)} | {seconds} |")
    return "\n".join(lines)


def run_task(
    name: str, options: argparse.Namespace, results: Results, *, again: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """All cells of a row: those that are known, and, unless ``again`` is False, the others too."""
    entry = TASKS[name]
    basis = fingerprint(entry, options.limit)
    keys = dict.fromkeys(("majority", "bm25", "tf-idf"), basis)
    shape = read_checkpoint(options.model).config
    weights = hashlib.sha256((Path(options.model) / "model.safetensors").read_bytes()).hexdigest()
    for start, source in (("random", shape), ("pretrained", weights)):
        keys[start] = fingerprint(basis, source, settings(entry, 0, options))
    if again:
        task, data = load(name, options.data, options.limit)
        for start, baseline in {"majority": majority, "bm25": first_stage, "tf-idf": bag_of_words}.items():
            began = time.monotonic()
            value = None if results.of(name, start, keys[start]) else baseline(task, data)
            if value is not None:
                results.add(
                    task=name, metric=task.metric, start=start, run=keys[start], seed=0, value=value,
                    seconds=round(time.monotonic() - began, 1), train=len(data.train),
                )  # fmt: skip
        # A seed of each before the next seed: a table that is stopped early has both.
        for seed in range(options.seeds):
            for start in options.starts:
                if all(cell["seed"] != seed for cell in results.of(name, start, keys[start])):
                    results.add(**run_cell(name, start, seed, keys[start], task, data, options))
    return {start: results.of(name, start, key) for start, key in keys.items()}


def run_cell(
    name: str, start: str, seed: int, key: str, task: Task, data: TaskData, options: argparse.Namespace
) -> dict[str, Any]:
    """Fine-tune once and measure."""
    source = options.model if start == "pretrained" else read_checkpoint(options.model).config
    config = settings(TASKS[name], seed, options)
    folder = options.output / "unfinished" / f"{name}-{start}-{seed}-{key}"
    tokenizer = XLNetTokenizer.from_pretrained(options.model)
    tuned = finetune(
        start_model(source, task, seed=seed, dropout=options.dropout), tokenizer, task, data, config, folder,
        resume=True, reporter=SilentReporter(),
    )  # fmt: skip
    shutil.rmtree(folder)
    steps, seconds = (tuned.fit.step, tuned.fit.seconds) if tuned.fit else (0, 0.0)
    return {
        "task": name, "metric": task.metric, "start": start, "run": key, "seed": seed,
        "value": tuned.metrics[task.metric], "seconds": round(seconds, 1), "train": len(data.train), "steps": steps,
        "metrics": dict(tuned.metrics), "learning_rate": config.learning_rate, "precision": config.precision,
        "model": str(options.model),
    }  # fmt: skip


def main() -> int:
    """Run what is asked for; the table is printed however it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pretrained folder")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/tasks"))
    english = [name for name in TASKS if name not in NOT_ENGLISH]
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=english, metavar="TASK",
                        help=f"of {', '.join(TASKS)}; by default those in English")  # fmt: skip
    parser.add_argument("--starts", nargs="+", choices=["random", "pretrained"], default=["random", "pretrained"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="training and held-out examples at most")
    parser.add_argument("--steps", type=int, default=0, help="optimizer steps instead of the usual epochs")
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--dropout", type=float, default=0.1, help="of all kinds; small models come without any")
    parser.add_argument("--precision", default=bfloat16_or_float32(), choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true", help="only print what is known")
    options = parser.parse_args()
    results = Results(options.output / "results.jsonl")
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    try:
        for name in options.tasks:
            rows[name] = run_task(name, options, results, again=not options.table)
    except XLNetError as error:
        print(f"error: {error}\nThe same command goes on from here.", file=sys.stderr)
        return error.exit_code
    finally:
        for name in options.tasks:
            rows.setdefault(name, run_task(name, options, results, again=False))
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
