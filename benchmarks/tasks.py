"""What pretraining is worth: tasks from pretrained weights, from random weights, and from a bag of words.

    python benchmarks/tasks.py MODEL --data ../shared/data --output runs/tasks --tasks sst2 cola --seeds 3
    python benchmarks/tasks.py books=models/small-books reviews=runs/reviews/model --seeds 3

One column for each model (``name=folder``), beside random weights of the first model's shape under the same settings,
TF-IDF with logistic regression, BM25 where documents are ranked, and the most frequent label. Rows and their settings
are in ``task_entries.py``; options on the command line change them for all rows.

Each cell of the table is a line of ``results.jsonl`` in the output folder as soon as it is known. The same command goes
on where it was stopped: cells that are there with the same model and settings are not run again, and a run that was
stopped in the middle is taken up at its last checkpoint. The last weights are measured, not the best on the held-out
data, which would flatter every cell; only the threshold of SQuAD 2.0 is searched there, as its official scorer does.
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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import torch
from task_entries import TASKS, Entry, bag_of_words, first_stage, load, majority

from xlnet.checkpoints import read_checkpoint
from xlnet.configuration import SummaryType
from xlnet.errors import XLNetError
from xlnet.processor import processor
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.contract import Task
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer
from xlnet.training.config import Precision
from xlnet.training.report import SilentReporter

BASELINES = {"majority": majority, "bm25": first_stage, "tf-idf": bag_of_words}


def entry_of(name: str, options: argparse.Namespace) -> Entry:
    """A row with what the command line changes."""
    given = {key: getattr(options, key) for key in ("epochs", "learning_rate", "batch_size", "max_length")}
    return replace(TASKS[name], **{key: value for key, value in given.items() if value is not None})


def learnt_with(entry: Entry, options: argparse.Namespace) -> dict[str, Any]:
    """Settings of a run that its result depends on, but for the seed."""
    return {
        "epochs": entry.epochs, "steps": options.steps, "batch_size": entry.batch_size, "warmup": 0.1,
        "learning_rate": entry.learning_rate, "layer_decay": options.layer_decay,
        "weight_decay": options.weight_decay, "precision": options.precision,
    }  # fmt: skip


def settings(entry: Entry, seed: int, options: argparse.Namespace) -> FineTuneConfig:
    """Of one run."""
    return FineTuneConfig(
        **learnt_with(entry, options), seed=seed, keep_best=False, evaluate_every=1_000_000, save_every=300,
        device=options.device,
    )  # fmt: skip


def bfloat16_or_float32() -> Precision:
    """The faster arithmetic here: not every GPU has bfloat16, and not every processor that has it gains by it."""
    gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bfloat16" if gpu or processor().bfloat16_is_faster else "float32"


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
    """Markdown of the deciding metrics, in percent, and of what they were reached with; seconds are those of the run
    of median length."""
    starts = list(dict.fromkeys(start for cells in rows.values() for start in cells))
    lines = [f"| task | metric | {' | '.join(starts)} | examples, epochs, length | seconds |"]
    lines.append("|---" * (len(starts) + 4) + "|")
    for name, cells in rows.items():
        known = [cell for found in cells.values() for cell in found]
        trained = [cell for cell in known if "steps" in cell]
        metric = known[0]["metric"] if known else "?"
        seconds = f"{statistics.median(cell['seconds'] for cell in trained):.0f}" if trained else "-"
        how = f"{trained[0]['train']:,}, {trained[0]['epochs']:g}, {trained[0]['max_length']}" if trained else "-"
        values = " | ".join(shown(cells.get(start, ())) for start in starts)
        lines.append(f"| {name} | {metric} | {values} | {how} | {seconds} |")
    return "\n".join(lines)


def sources(name: str, options: argparse.Namespace) -> dict[str, str]:
    """Folder of the model of each column that is trained; nothing for random weights."""
    return {"random": "", **({} if TASKS[name].tokenizer else options.models)}


def run_keys(name: str, options: argparse.Namespace) -> dict[str, str]:
    """What the cells of each column are known by: all that they depend on."""
    entry = entry_of(name, options)
    data = fingerprint(name, entry.data, options.limit)
    keys = dict.fromkeys(BASELINES, data)
    shape = json.dumps(asdict(read_checkpoint(first_model(options)).config), sort_keys=True)
    tokenizer = tokenizer_of(name, options).fingerprint.encode()
    how = (data, learnt_with(entry, options), entry.max_length, entry.changes, options.summary, options.dropout)
    for start, folder in sources(name, options).items():
        source = (Path(folder) / "model.safetensors").read_bytes() if folder else shape.encode()
        keys[start] = fingerprint(how, hashlib.sha256(source + tokenizer).hexdigest())
    return keys


def first_model(options: argparse.Namespace) -> str:
    """The folder that gives shape and tokenizer."""
    return next(iter(options.models.values()))


def tokenizer_of(name: str, options: argparse.Namespace) -> XLNetTokenizer:
    """The first model's, or the row's own."""
    own = TASKS[name].tokenizer
    return XLNetTokenizer.from_pretrained(options.data / own if own else first_model(options))


def run_task(
    name: str, options: argparse.Namespace, results: Results, *, again: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """All cells of a row: those that are known, and, unless ``again`` is False, the others too."""
    keys = run_keys(name, options)
    if again:
        task, data = load(name, entry_of(name, options), options.data, options.limit)
        for start, baseline in BASELINES.items():
            began = time.monotonic()
            value = None if results.of(name, start, keys[start]) else baseline(task, data)
            if value is not None:
                results.add(
                    task=name, metric=task.metric, start=start, run=keys[start], seed=0, value=value,
                    seconds=round(time.monotonic() - began, 1), train=len(data.train),
                )  # fmt: skip
        # A seed of each before the next seed: a table that is stopped early has both.
        for seed in range(options.first_seed, options.seeds):
            for start in sources(name, options):
                if start in options.starts and all(c["seed"] != seed for c in results.of(name, start, keys[start])):
                    results.add(**run_cell(name, start, seed, keys[start], task, data, options))
    return {start: results.of(name, start, key) for start, key in keys.items()}


def run_cell(
    name: str, start: str, seed: int, key: str, task: Task, data: TaskData, options: argparse.Namespace
) -> dict[str, Any]:
    """Fine-tune once and measure."""
    entry = entry_of(name, options)
    config = settings(entry, seed, options)
    folder = options.output / "unfinished" / f"{name}-{start}-{seed}-{key}"
    tokenizer = tokenizer_of(name, options)
    shape = read_checkpoint(first_model(options)).config.replace(vocab_size=tokenizer.vocab_size)
    model = start_model(
        sources(name, options)[start] or shape, task, seed=seed, dropout=options.dropout, summary=options.summary
    )
    tuned = finetune(model, tokenizer, task, data, config, folder, resume=True, reporter=SilentReporter())
    shutil.rmtree(folder)
    steps, seconds = (tuned.fit.step, tuned.fit.seconds) if tuned.fit else (0, 0.0)
    # The scorer of SQuAD speaks in percent, all others in fractions.
    scale = 0.01 if isinstance(task, QuestionAnswering) else 1.0
    return {
        "task": name, "metric": task.metric, "start": start, "run": key, "seed": seed,
        "value": scale * tuned.metrics[task.metric], "seconds": round(seconds, 1), "train": len(data.train),
        "steps": steps, "epochs": entry.epochs, "max_length": entry.max_length, "metrics": dict(tuned.metrics),
        "learning_rate": config.learning_rate, "precision": config.precision, "summary": options.summary,
        "model": sources(name, options)[start],
    }  # fmt: skip


def named_model(text: str) -> tuple[str, str]:
    """``name=folder``, or a folder alone, whose column is called ``pretrained``."""
    name, found, folder = text.partition("=")
    return (name, folder) if found else ("pretrained", text)


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=named_model, metavar="[NAME=]MODEL",
                        help="pretrained folders with the same tokenizer; a column each")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK",
                        help=f"of {', '.join(TASKS)}; by default all")  # fmt: skip
    parser.add_argument("--starts", nargs="+", metavar="COLUMN", help="random and names of models; by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0, help="leave out the seeds below it, which ran elsewhere")
    parser.add_argument("--limit", type=int, default=0, help="training and held-out examples at most")
    parser.add_argument("--steps", type=int, default=0, help="optimizer steps instead of epochs")
    parser.add_argument("--epochs", type=float, help="by default the row's, as all without a default here")
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--max_length", type=int)
    parser.add_argument("--learning_rate", type=float)
    parser.add_argument("--layer_decay", type=float, default=1.0)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    parser.add_argument("--summary", choices=get_args(SummaryType), default="last")
    parser.add_argument("--dropout", type=float, default=0.1, help="of all kinds; small models come without any")
    parser.add_argument("--precision", default=bfloat16_or_float32(), choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true", help="only print what is known")
    options = parser.parse_args()
    if not 0 <= options.first_seed < options.seeds:
        parser.error(f"--first_seed {options.first_seed} leaves none of the seeds 0 to {options.seeds - 1} to run.")
    names = [name for name, _ in options.models]
    options.models = dict(options.models)
    taken = {*BASELINES, "random"} & set(names)
    if taken or len(options.models) < len(names):
        parser.error(f"models need names of their own (name=folder), not {', '.join(names)}.")
    columns = ["random", *options.models]
    options.starts = options.starts or columns
    unknown = [start for start in options.starts if start not in columns]
    if unknown:
        parser.error(f"--starts {unknown[0]} is no column; there are {', '.join(columns)}.")
    if len({XLNetTokenizer.from_pretrained(folder).fingerprint for folder in options.models.values()}) > 1:
        parser.error("the models have different tokenizers; random weights can be compared with one of them only.")
    return options


def main() -> int:
    """Run what is asked for; the table is printed however it ends."""
    options = read_options()
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
