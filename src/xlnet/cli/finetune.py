"""``xlnet finetune``, ``xlnet predict`` and the evaluation of fine-tuned folders: tasks from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from xlnet.cli.outputs import refuse_other_run
from xlnet.cli.progress import say
from xlnet.configuration import SummaryType
from xlnet.errors import ConfigurationError, InputError
from xlnet.float32 import Float32Products, products_in_words
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.datasets.hub import is_hub
from xlnet.tasks.datasets.hub_forms import read_benchmark
from xlnet.tasks.datasets.loading import Loaded, load_task
from xlnet.tasks.datasets.outputs import write_jsonl, write_predictions
from xlnet.tasks.datasets.own import adjusted, read_own
from xlnet.tasks.datasets.registry import BENCHMARKS, benchmark
from xlnet.tasks.datasets.tables import read_records
from xlnet.tasks.fine_tuned import FineTuned, read_task
from xlnet.tasks.finetune import finetune as finetune_model
from xlnet.tasks.seeds import finetune_seeds
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer
from xlnet.training.config import Precision
from xlnet.training.device import choose_device

_TASK_OPTIONS = (
    "max_length", "long_text", "stride", "class_weights", "label_smoothing", "text_column", "pair_column",
    "label_column",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FineTuneOptions(FineTuneConfig):
    """All settings of ``xlnet finetune`` besides its places.

    Args:
        max_length: tokens of a sequence at most; by default the task's.
        long_text: what is read of longer texts: head, tail, head_tail, or windows.
        stride: pieces between the starts of windows.
        class_weights: balanced, or one number a label with commas between.
        label_smoothing: share of the target spread over all labels.
        text_column: name of the text in your own files; by default text.
        pair_column: name of the second text, where there is one.
        label_column: name of the label; by default label.
        task_settings: further settings of the task, as JSON; for ranking say {"loss_kind": "pairwise"}.
        dropout: rate of all kinds of dropout; by default what the model has.
        summary: what sums up a text: its last state (<cls>), its first, their mean, or attention; by default what the
            model has.
    """

    max_length: int | None = None
    long_text: Literal["head", "tail", "head_tail", "windows"] | None = None
    stride: int | None = None
    class_weights: str | None = None
    label_smoothing: float | None = None
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    task_settings: dict[str, int | float | bool | str | list[str]] | None = None
    dropout: float | None = None
    summary: SummaryType | None = None

    def task_changes(self) -> dict[str, Any]:
        """Settings of the task that are given."""
        own = {key: getattr(self, key) for key in _TASK_OPTIONS if getattr(self, key) is not None}
        return {**own, **(self.task_settings or {})}

    def config(self) -> FineTuneConfig:
        """The settings of the run alone."""
        return FineTuneConfig(**{item.name: getattr(self, item.name) for item in fields(FineTuneConfig)})


def finetune(
    task: str,
    *,
    data: str,
    model: str,
    output: str,
    dev: str | None = None,
    dev_share: float = 0.1,
    limit: int = 0,
    seeds: int = 1,
    resume: bool = False,
    settings: FineTuneOptions = FineTuneOptions(),
) -> None:
    """Fine-tune a model on a task; prints the metrics as JSON.

    TASK is a benchmark in its official files (GLUE: cola sst2 mrpc qqp stsb mnli qnli rte wnli; SuperGLUE: boolq cb
    copa multirc record superglue-rte wic wsc; by comparing candidates: qnli-ranking wnli-ranking wsc-ranking; race
    race-middle race-high; imdb yelp2 yelp5 amazon2 amazon5 ag dbpedia chnsenticorp; squad squad2), or a kind of task on
    your own files: classify, multilabel, regress, choose, tag, rank.
    The output folder will hold model/ (what `xlnet predict` loads), result.json, and what a run needs to be resumed.

    Args:
        task: name of the task
        data: folder of the data, or the file to train on; or from the hub: hub (the benchmark's own), hub:OWNER/NAME,
            hub:OWNER/NAME:CONFIG
        model: folder or hub name of the model to start from; a fine-tuned one will do (mnli, then rte)
        output: folder of the run
        dev: file to choose the best weights by; by default what the data folder has
        dev_share: share of the training data held out where there is no other held-out data
        limit: training examples at most; 0 takes all
        seeds: runs with different seeds, from --seed on; the median and the spread are reported
        resume: go on with the run in the output folder; give the same other options
        settings: of the task and of the training
    """
    folder = Path(output)
    refuse_other_run(folder, resume, ("run.json", "seeds.json"))
    loaded = load_task(task, data, dev=dev, dev_share=dev_share, limit=limit, changes=settings.task_changes())
    tokenizer = XLNetTokenizer.from_pretrained(model)
    config = settings.config()
    say(f"{loaded.task.name}: {len(loaded.data.train):,} training examples"
        + "".join(f", {len(found):,} in {name}" for name, found in loaded.data.held_out.items()))  # fmt: skip
    if config.precision == "float32":
        say(products_in_words(config.float32_products, choose_device(config.device)))

    def fresh(seed: int) -> Any:
        return start_model(model, loaded.task, seed=seed, dropout=settings.dropout, summary=settings.summary)

    if seeds < 1:
        raise ConfigurationError(f"seeds={seeds} must be at least 1.")
    if seeds > 1:
        chosen = range(config.seed, config.seed + seeds)
        summary = finetune_seeds(
            fresh, tokenizer, loaded.task, loaded.data, config, folder, seeds=list(chosen), resume=resume
        )
        best, folder = summary.best, folder / f"seed-{summary.best_seed}"
        shown: dict[str, Any] = {
            name: {"median": spread.median, "lowest": spread.lowest, "highest": spread.highest}
            for name, spread in summary.metrics.items()
        }
    else:
        best = finetune_model(fresh(config.seed), tokenizer, loaded.task, loaded.data, config, folder, resume=resume)
        shown = dict(best.metrics)
    print(json.dumps({**shown, **_final_metrics(best, loaded, config)}, indent=2))
    say(f"model in {folder / 'model'}\ntry: xlnet predict FILE --model {folder / 'model'}")


def _final_metrics(best: FineTuned, loaded: Loaded, config: FineTuneConfig) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, examples in loaded.final.items():
        metrics = best.evaluate(examples, batch_size=config.evaluation_batch_size)
        found |= {f"{name}/{key}": value for key, value in metrics.items()}
    return found


def read_inputs(tuned: FineTuned, source: str | Path, split: str, *, labelled: bool) -> list[Any]:
    """Examples for a fine-tuned model: a split of its benchmark's official files, or the records of a file.

    Args:
        tuned: says what it reads.
        source: folder, file, or data set of the hub.
        split: of a folder or data set; empty takes ``test`` to predict and ``dev`` to evaluate.
        labelled: whether it is to be evaluated.
    """
    task = tuned.task
    source = source if is_hub(source) else Path(source)
    if task.name not in BENCHMARKS:
        if isinstance(source, Path) and source.is_file() and source.suffix not in (".txt", ".conll"):
            return [task.example(record.values, record.where, i) for i, record in enumerate(read_records(source))]
        return read_own(task, source, split or ("dev" if labelled else "test"))
    found = benchmark(task.name)
    passages = isinstance(task, QuestionAnswering) and str(source).removesuffix(".gz").endswith(".json")
    measured = (*found.held_out, *found.final, "dev")
    usual = measured if labelled else (*found.test, *found.final, "test")
    if not isinstance(source, Path) or split or labelled or source.is_dir() or passages:
        return read_benchmark(found, source, split or usual[0])
    try:
        return [task.example(record.values, record.where, i) for i, record in enumerate(read_records(source))]
    except InputError as error:
        raise InputError(f"{error} To read a file of {task.name}'s own form, add --split {measured[0]}.") from error


def predict(
    source: str,
    *,
    model: str,
    output: str = "-",
    split: str = "",
    submission: bool = False,
    text_column: str | None = None,
    pair_column: str | None = None,
    batch_size: int = 32,
    precision: Precision = "float32",
    float32_products: Float32Products = "auto",
    device: str = "auto",
) -> None:
    """Predict with a fine-tuned model: one record for each row of the source, in its order.

    Args:
        source: TSV, CSV or JSONL file with the columns the model was trained on; or the folder of its benchmark;
            or a data set of the hub, as for finetune
        model: fine-tuned folder
        output: file that ends in .jsonl, .tsv or (rankings) .run; - prints JSONL
        split: of a folder; by default test
        submission: write the file that the GLUE or SuperGLUE server takes instead, into the folder --output
        text_column: name of the text's column, where it is called otherwise than in training
        pair_column: name of the second text's column
        batch_size: rows at once
        precision: arithmetic; bfloat16 is faster on some machines (a warning says where it is slower)
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
        device: auto, cpu, cuda, cuda:N or mps
    """
    task = read_task(Path(model))[0]
    task = adjusted(task, {"text_column": text_column, "pair_column": pair_column})
    tuned = FineTuned.from_pretrained(
        model, device=device, task=task, precision=precision, float32_products=float32_products
    )
    if submission:
        write_submission(tuned, source, Path(output), split, batch_size)
        return
    predictions = tuned.predict(read_inputs(tuned, source, split, labelled=False), batch_size=batch_size)
    if output == "-":
        write_jsonl(predictions, sys.stdout)
    else:
        write_predictions(predictions, Path(output))
        say(f"{len(predictions):,} predictions in {output}")


def write_submission(tuned: FineTuned, source: str | Path, output: Path, split: str, batch_size: int) -> None:
    """The files that the server of the model's benchmark takes, one for each test split.

    Raises:
        ConfigurationError: there is no such server.
        InputError: no test files.
    """
    found = BENCHMARKS.get(tuned.task.name)
    if found is None or found.write is None:
        raise ConfigurationError(f"--submission: there is no server that takes predictions for {tuned.task.name}.")
    if output.suffix:
        raise ConfigurationError(f"--output {output} must be a folder with --submission; the server fixes the name.")
    output.mkdir(parents=True, exist_ok=True)
    for name, test in zip(found.submission, found.test, strict=True):
        if split and test != split:
            continue
        found.write(tuned.predict(read_benchmark(found, source, test), batch_size=batch_size), output / name)
        say(f"for the server: {output / name}")


def evaluate_task(
    inputs: Sequence[str],
    *,
    model: str,
    task: str | None = None,
    split: str = "",
    batch_size: int = 64,
    precision: Precision = "float32",
    device: str = "auto",
) -> Mapping[str, float]:
    """Metrics of a fine-tuned folder on labelled data.

    Args:
        inputs: one folder or file.
        model: fine-tuned folder.
        task: another benchmark with the same labels (``ax`` for a model of ``mnli``).
        split: of a folder; by default dev.
        batch_size: rows at once.
        precision: arithmetic of the forward pass.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    if len(inputs) != 1:
        raise InputError(f"Give one folder or file to evaluate on, not {len(inputs)}.")
    trained = read_task(Path(model))[0]
    chosen = None
    if task is not None and task != trained.name:
        chosen = benchmark(task).task
        ours, theirs = (getattr(found, "label_names", ()) for found in (trained, chosen))
        if type(chosen) is not type(trained) or ours != theirs:
            raise ConfigurationError(
                f"--task {task} has the labels {', '.join(theirs) or 'of another kind'}, but the model in {model} was "
                f"trained on {trained.name} with {', '.join(ours) or 'another kind of labels'}."
            )
    tuned = FineTuned.from_pretrained(model, device=device, task=chosen, precision=precision)
    examples = read_inputs(tuned, inputs[0], split, labelled=True)
    return tuned.evaluate(examples, batch_size=batch_size)
