"""Examples in, one prediction each out, whatever they are batched with; and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from xlnet.errors import InputError
from xlnet.float32 import float32_products
from xlnet.model import PretrainedModel
from xlnet.tasks.batches import sorted_batches
from xlnet.tasks.contract import Prediction, Row, Task
from xlnet.text import XLNetTokenizer
from xlnet.training.config import Precision
from xlnet.training.evaluation import evaluating
from xlnet.training.freed_memory import freed_memory_kept
from xlnet.training.precision import autocast

Advance = Callable[[int], None]
"""Called with the number of rows just done."""


def run_rows(
    model: torch.nn.Module,
    task: Task,
    rows: Sequence[Row],
    *,
    device: torch.device,
    batch_size: int = 32,
    advance: Advance | None = None,
) -> list[Any]:
    """The output of each row, in the order of the rows; the model is in eval mode and left in the mode it was in."""
    outputs: list[Any] = [None] * len(rows)
    with float32_products("auto", device), freed_memory_kept(device), evaluating(model):
        for places, batch in sorted_batches(task, rows, batch_size):
            for place, output in zip(places, task.outputs(model, batch.to(device)), strict=True):
                outputs[place] = output
            if advance is not None:
                advance(len(places))
    return outputs


def predict_examples(
    model: PretrainedModel,
    tokenizer: XLNetTokenizer,
    task: Task,
    examples: Sequence[Any],
    *,
    batch_size: int = 32,
    precision: Precision = "float32",
    advance: Advance | None = None,
) -> list[Prediction]:
    """One prediction for each example, in their order.

    Args:
        model: of the class the task asks for.
        tokenizer: the model's.
        task: says what rows and predictions are.
        examples: labels are not looked at.
        batch_size: rows at once; changes speed, not results (beyond rounding).
        precision: ``float32``, ``bfloat16`` or ``float16`` (autocast).
        advance: called with the number of rows done.

    Raises:
        InputError: an example that cannot be used.
    """
    task.check(examples, labelled=False)
    rows = task.features(examples, tokenizer, training=False)
    with autocast(model.device, precision):
        outputs = run_rows(model, task, rows, device=model.device, batch_size=batch_size, advance=advance)
    return task.predictions(examples, rows, outputs)


def evaluate_examples(
    model: PretrainedModel,
    tokenizer: XLNetTokenizer,
    task: Task,
    examples: Sequence[Any],
    *,
    batch_size: int = 32,
    precision: Precision = "float32",
    advance: Advance | None = None,
) -> dict[str, float]:
    """Metrics of the task on labelled examples; arguments as for :func:`predict_examples`.

    Raises:
        InputError: no examples, or one without label.
    """
    if not examples:
        raise InputError(f"{task.name}: there is nothing to evaluate on; the data holds no example.")
    task.check(examples, labelled=True)
    predictions = predict_examples(
        model, tokenizer, task, examples, batch_size=batch_size, precision=precision, advance=advance
    )
    return task.metrics(examples, predictions)


class DevMetrics:
    """Metrics on held-out examples, for the training loop; features are made once.

    Args:
        task: what to measure.
        held_out: examples by the name of their set; metrics of all but the first carry that name as prefix.
        tokenizer: gives ids.
        batch_size: rows at once.
    """

    def __init__(
        self, task: Task, held_out: Mapping[str, Sequence[Any]], tokenizer: XLNetTokenizer, batch_size: int = 32
    ) -> None:
        self._task = task
        self._batch_size = batch_size
        self._sets = {
            name: (examples, task.features(examples, tokenizer, training=False)) for name, examples in held_out.items()
        }

    def __call__(self, model: torch.nn.Module) -> dict[str, float]:
        device = next(model.parameters()).device
        found: dict[str, float] = {}
        for place, (name, (examples, rows)) in enumerate(self._sets.items()):
            outputs = run_rows(model, self._task, rows, device=device, batch_size=self._batch_size)
            metrics = self._task.metrics(examples, self._task.predictions(examples, rows, outputs))
            found |= {key if place == 0 else f"{name}/{key}": value for key, value in metrics.items()}
        return found
