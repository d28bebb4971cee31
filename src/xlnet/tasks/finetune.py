"""Fine-tuning: a model, a tokenizer, a task and its data in, a :class:`FineTuned` out. The same loop as pretraining."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xlnet.errors import InputError
from xlnet.float32 import float32_products
from xlnet.model import PretrainedModel
from xlnet.tasks.batches import BucketedBatches
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.contract import Task, TaskBatch
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.freezing import freeze_layers
from xlnet.tasks.lora import add_lora
from xlnet.tasks.predicting import DevMetrics
from xlnet.text import XLNetTokenizer
from xlnet.training.contracts import Carried, Step
from xlnet.training.distributed import World
from xlnet.training.evaluation import evaluating
from xlnet.training.loop import fit
from xlnet.training.precision import autocast
from xlnet.training.report import Reporter, default_reporter
from xlnet.training.run_files import write_text

RESULT_FILE = "result.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskData:
    """Examples to learn from and to choose by.

    Attributes:
        train: at least one example.
        held_out: sets by name; the first decides which checkpoint is best. May be empty: then the last weights stay.
    """

    train: Sequence[Any]
    held_out: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskObjective:
    """The loss of a task as the loop wants it."""

    task: Task

    def __call__(self, model: Any, batch: TaskBatch, carried: Carried | None) -> Step:
        return self.task.loss(model, batch)


def check_data(task: Task, data: TaskData) -> None:
    """Refuse data that cannot be used; warn of data that can hardly be.

    Raises:
        InputError: no training examples, an empty held-out set, or what :meth:`Task.check` refuses.
    """
    if not data.train:
        raise InputError(f"{task.name}: the training data holds no example.")
    task.check(data.train, labelled=True)
    for name, examples in data.held_out.items():
        if not examples:
            raise InputError(f"{task.name}: the held-out set {name!r} holds no example.")
        task.check(examples, labelled=True)
        labels = {repr(getattr(example, "label", place)) for place, example in enumerate(examples)}
        if len(labels) == 1:
            _log.warning(
                "%s: all %d examples of the held-out set %r have the label %s; %s tells little there.",
                task.name, len(examples), name, labels.pop(), task.metric,
            )  # fmt: skip


def check_model(model: PretrainedModel, tokenizer: XLNetTokenizer, task: Task) -> None:
    """Refuse a model that does not fit tokenizer or task.

    Raises:
        InputError: names both sides.
    """
    if not isinstance(model, task.model_class):
        raise InputError(f"{task.name} needs a {task.model_class.__name__}, not a {type(model).__name__}.")
    if tokenizer.vocab_size > model.config.vocab_size:
        raise InputError(
            f"The tokenizer has {tokenizer.vocab_size} pieces, but the model only vocab_size="
            f"{model.config.vocab_size}. Use the tokenizer the model was made with."
        )
    for key, value in task.model_settings().items():
        if getattr(model.config, key) != value:
            raise InputError(
                f"{task.name} needs a model with {key}={value!r}, but it has {getattr(model.config, key)!r}. "
                "Load it with start_model(path, task)."
            )


def finetune(
    model: PretrainedModel,
    tokenizer: XLNetTokenizer,
    task: Task,
    data: TaskData,
    config: FineTuneConfig,
    output: str | Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
) -> FineTuned:
    """Train ``model`` in place on a task.

    Args:
        model: of the task's class, with its head; see :func:`~xlnet.tasks.starting.start_model`.
        tokenizer: the model's.
        task: what to learn.
        data: what to learn from.
        config: how.
        output: folder of the run: ``model/`` is what :meth:`FineTuned.from_pretrained` loads, ``result.json`` the
            metrics, the rest is as in pretraining.
        resume: go on with the run in the output folder; begin anew where there is none.
        reporter: receives progress.

    Returns:
        The model with its best (or last) weights, in eval mode, and its metrics on the held-out data; it predicts in
        the arithmetic it was trained in.

    Raises:
        InputError, ConfigurationError, TrainingError, MachineError, Interrupted: as the checks and the loop say.
    """
    output = Path(output)
    check_model(model, tokenizer, task)
    check_data(task, data)
    freeze_layers(model, config.frozen_layers)
    if config.lora_rank:
        add_lora(model, config.lora_rank)
    world = World.from_environment()
    batches = BucketedBatches(
        task,
        task.features(data.train, tokenizer, training=True),
        config.micro_batch_size,
        seed=config.seed,
        rank=world.rank,
        world_size=world.size,
    )
    held_out = {name: list(examples) for name, examples in data.held_out.items()}
    measure = DevMetrics(task, held_out, tokenizer, config.evaluation_batch_size) if held_out else None
    settings = config.fit_config(batches.batches_per_epoch, task.metric if held_out else "", resume)
    result = fit(
        model,
        TaskObjective(task),
        batches,
        settings,
        output,
        evaluate=measure,
        reporter=reporter or default_reporter(perplexity=False),
        save_model=FineTuned(model, tokenizer, task).save_pretrained,
    )
    model.eval()
    metrics = dict(result.metrics)
    if measure is not None and settings.restore_best and result.best_step != result.step:
        products = float32_products(config.float32_products, model.device)
        with products, evaluating(model), autocast(model.device, config.precision):
            metrics = measure(model)
    tuned = FineTuned(
        model, tokenizer, task.calibrated(metrics), metrics, result, config.precision, config.float32_products
    )
    if world.is_main:
        tuned.write_task(output / "model")
        summary = {
            "task": task.name,
            "metrics": metrics,
            "steps": result.step,
            "best_step": result.best_step,
            "seconds": result.seconds,
            "train_examples": len(data.train),
            "held_out_examples": {name: len(examples) for name, examples in held_out.items()},
            "config": asdict(config),
        }
        write_text(output / RESULT_FILE, json.dumps(summary, indent=2) + "\n")
    return tuned
