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
from xlnet.cli.task_inputs import asked_task, check_submission, read_inputs, write_submission
from xlnet.configuration import SummaryType
from xlnet.errors import ConfigurationError, InputError
from xlnet.float32 import Float32Products, products_in_words
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.datasets.loading import Loaded, load_task
from xlnet.tasks.datasets.outputs import check_predictions, write_jsonl, write_predictions
from xlnet.tasks.datasets.own import adjusted
from xlnet.tasks.fine_tuned import FineTuned, read_task
from xlnet.tasks.finetune import RESULT_FILE
from xlnet.tasks.finetune import finetune as finetune_model
from xlnet.tasks.seeds import finetune_seeds
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer
from xlnet.training.config import Precision
from xlnet.training.device import choose_device
from xlnet.training.run_files import write_text

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
            hub:OWNER/NAME:CONFIG, each with @REVISION if need be
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
    final = final_metrics(best, loaded, config)
    if final:
        add_to_result(folder / RESULT_FILE, final)
    print(json.dumps({**shown, **final}, indent=2))
    say(f"model in {folder / 'model'}\ntry: xlnet predict FILE --model {folder / 'model'}")


def final_metrics(best: FineTuned, loaded: Loaded, config: FineTuneConfig) -> dict[str, float]:
    """Metrics on the sets that are measured once, at the end, as ``SET/METRIC``."""
    found: dict[str, float] = {}
    for name, examples in loaded.final.items():
        metrics = best.evaluate(examples, batch_size=config.evaluation_batch_size)
        found |= {f"{name}/{key}": value for key, value in metrics.items()}
    return found


def add_to_result(path: Path, final: Mapping[str, float]) -> None:
    """Put the final metrics beside those of the held-out data in ``result.json``."""
    values = json.loads(path.read_text(encoding="utf-8"))
    write_text(path, json.dumps({**values, "final_metrics": dict(final)}, indent=2) + "\n")


def predict(
    source: str,
    *,
    model: str,
    output: str = "-",
    split: str = "",
    submission: bool = False,
    task: str | None = None,
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
        submission: write what the benchmark's own server or scorer takes instead (GLUE, SuperGLUE, SQuAD), into the
            folder --output
        task: another benchmark with the same labels, such as ax for a model of mnli
        text_column: name of the text's column, where it is called otherwise than in training
        pair_column: name of the second text's column
        batch_size: rows at once
        precision: arithmetic; bfloat16 is faster on some machines (a warning says where it is slower)
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
        device: auto, cpu, cuda, cuda:N or mps
    """
    chosen = asked_task(read_task(Path(model))[0], task, model)
    chosen = adjusted(chosen, {"text_column": text_column, "pair_column": pair_column})
    if submission:
        check_submission(chosen, Path(output))
    elif output != "-":
        check_predictions(chosen, Path(output))
    tuned = FineTuned.from_pretrained(
        model, device=device, task=chosen, precision=precision, float32_products=float32_products
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


def evaluate_task(
    inputs: Sequence[str],
    *,
    model: str,
    task: str | None = None,
    split: str = "",
    batch_size: int = 64,
    precision: Precision = "float32",
    device: str = "auto",
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
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
        text_column, pair_column, label_column: names of the columns, where they are called otherwise than in training.
    """
    if len(inputs) != 1:
        raise InputError(f"Give one folder or file to evaluate on, not {len(inputs)}.")
    chosen = asked_task(read_task(Path(model))[0], task, model)
    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    chosen = adjusted(chosen, columns)
    tuned = FineTuned.from_pretrained(model, device=device, task=chosen, precision=precision)
    examples = read_inputs(tuned, inputs[0], split, labelled=True)
    return tuned.evaluate(examples, batch_size=batch_size)
