"""A fine-tuned folder as one object: model, tokenizer and task, with ``predict``, ``evaluate`` and ``embed``.

classifier = FineTuned.from_pretrained("runs/sst2/model")
classifier.predict(["a gorgeous film", "two hours I want back"])   # [{"id": "0", "label": "1", "probabilities": ...
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from xlnet.errors import CheckpointError, ConfigurationError, InputError
from xlnet.float32 import Float32Products, float32_products
from xlnet.model import PretrainedModel
from xlnet.tasks.catalog import family
from xlnet.tasks.contract import Prediction, Task
from xlnet.tasks.embedding import Pooling, embed_texts
from xlnet.tasks.families.text import whole_text
from xlnet.tasks.lora import merged
from xlnet.tasks.predicting import evaluate_examples, predict_examples
from xlnet.tasks.progress import progress_bar
from xlnet.text import XLNetTokenizer
from xlnet.training.config import Precision
from xlnet.training.device import choose_device
from xlnet.training.loop import FitResult
from xlnet.training.precision import autocast, precision_note
from xlnet.training.run_files import write_text

T = TypeVar("T")
TASK_FILE = "task.json"
_FORMAT = "xlnet-task-1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FineTuned:
    """A model for a task.

    Attributes:
        model: in eval mode.
        tokenizer: the model's.
        task: what the model was trained for, with its settings.
        metrics: on the held-out data of its training, with the weights as they are; empty where not known.
        fit: how the training ended, right after :func:`~xlnet.tasks.finetune.finetune`; else None.
        precision: arithmetic of the forward pass, ``float32``, ``bfloat16`` or ``float16``; weights stay float32.
        float32_products: library for float32 matrices on a CPU; see :func:`~xlnet.float32.float32_products`.
    """

    model: PretrainedModel
    tokenizer: XLNetTokenizer
    task: Task
    metrics: Mapping[str, float] = field(default_factory=dict)
    fit: FitResult | None = None
    precision: Precision = "float32"
    float32_products: Float32Products = "auto"

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        task: Task | None = None,
        precision: Precision = "float32",
        float32_products: Float32Products = "auto",
    ) -> FineTuned:
        """Load what :meth:`save_pretrained` wrote.

        Args:
            folder: with weights, tokenizer and ``task.json``.
            device: where to put the model.
            task: use this instead of ``task.json`` (a task of your own).
            precision: arithmetic of the forward pass; a warning is logged where bfloat16 is slower than float32.
            float32_products: library for float32 matrices on a CPU: auto, default or onednn.

        Raises:
            CheckpointError: no fine-tuned folder, or a damaged one.
        """
        folder = Path(folder)
        found, metrics = (task, {}) if task is not None else read_task(folder)
        model = found.model_class.from_pretrained(folder)
        placed = model.to(choose_device(device))
        if note := precision_note(precision, placed.device):
            _log.warning("%s", note)
        tokenizer = XLNetTokenizer.from_pretrained(folder)
        return cls(placed, tokenizer, found, metrics, precision=precision, float32_products=float32_products)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights, configuration, tokenizer and ``task.json``."""
        folder = Path(folder)
        merged(self.model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.write_task(folder)

    def write_task(self, folder: Path) -> None:
        """Write ``task.json`` alone: what the model is for, and its metrics."""
        values = {"format": _FORMAT, "family": self.task.family, "settings": self.task.settings()}
        write_text(folder / TASK_FILE, json.dumps({**values, "metrics": dict(self.metrics)}, indent=2) + "\n")

    def predict(
        self, inputs: Sequence[Any], *, batch_size: int = 32, show_progress: bool | None = None
    ) -> list[Prediction]:
        """One prediction for each input, in their order, independent of what they are batched with.

        Args:
            inputs: texts, (text, pair) tuples, records (dicts as in JSONL), or examples of the task.
            batch_size: rows at once.
            show_progress: a bar on standard error; by default for long lists on a terminal.

        Raises:
            InputError: names the first input that cannot be used.
        """
        examples = self._examples(inputs, "predict")
        return self._over(predict_examples, "predicting", examples, batch_size, show_progress)

    def _over(
        self,
        work: Callable[..., T],
        title: str,
        examples: Sequence[Any],
        batch_size: int,
        show_progress: bool | None,
    ) -> T:
        """``work`` on the examples, with a bar."""
        settings = {"batch_size": batch_size, "precision": self.precision}
        products = float32_products(self.float32_products, self.model.device)
        with products, progress_bar(title, len(examples), show_progress) as advance:
            return work(self.model, self.tokenizer, self.task, examples, **settings, advance=advance)

    def _examples(self, inputs: Any, verb: str) -> list[Any]:
        """Examples of any inputs."""
        one = {str: ("string", "text"), Mapping: ("record", "record")}
        for kind, (what, name) in one.items():
            if isinstance(inputs, kind):
                raise InputError(f"{verb} takes a list of inputs, not one {what}. Write {verb}([{name}]).")
        if not isinstance(inputs, Iterable):
            raise InputError(f"{verb} takes a list of inputs, not {inputs!r}.")
        return [self._example(value, place) for place, value in enumerate(inputs)]

    def _example(self, value: Any, place: int) -> Any:
        where = f"input {place}"
        if isinstance(value, Mapping):
            return self.task.example(value, where, place)
        columns = [getattr(self.task, "text_column", "text"), getattr(self.task, "pair_column", "")]
        wanted = [name for name in columns if name]
        if isinstance(value, str | tuple):
            texts = (value,) if isinstance(value, str) else value
            if len(texts) != len(wanted):
                raise InputError(
                    f"{where}: {self.task.name} reads {' and '.join(wanted)}, but {len(texts)} "
                    f"text{'s are' if len(texts) > 1 else ' is'} given."
                )
            return self.task.example(dict(zip(wanted, texts, strict=True)), where, place)
        if not hasattr(value, "id"):
            form = f"tuple ({', '.join(wanted)})" if len(wanted) > 1 else "text (a str)"
            raise InputError(
                f"{where} is {value!r}; it must be a {form}, a record (a dict as in JSONL), or an example of the task."
            )
        return value

    def evaluate(
        self, examples: Sequence[Any], *, batch_size: int = 32, show_progress: bool | None = None
    ) -> dict[str, float]:
        """Metrics on labelled examples.

        Args:
            examples: of the task, or records (dicts as in JSONL) with labels.
            batch_size: rows at once.
            show_progress: a bar on standard error; by default for long lists on a terminal.

        Raises:
            InputError: no example, one without label, or one that cannot be used.
        """
        found = self._examples(examples, "evaluate")
        return self._over(evaluate_examples, "evaluating", found, batch_size, show_progress)

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: Pooling = "mean",
        batch_size: int = 32,
        show_progress: bool | None = None,
    ) -> Tensor:
        """Sentence vectors ``[N, D]`` float32 on the CPU; see :func:`~xlnet.tasks.embedding.embed_texts`.

        Raises:
            InputError: names the first text that is none.
        """
        for place, text in enumerate(texts):
            whole_text(text, "text", f"input {place}")
        arithmetic = autocast(self.model.device, self.precision)
        products = float32_products(self.float32_products, self.model.device)
        with products, arithmetic, progress_bar("embedding", len(texts), show_progress) as advance:
            return embed_texts(
                self.model,
                self.tokenizer,
                texts,
                pooling=pooling,
                max_length=self.task.max_length,
                batch_size=batch_size,
                advance=advance,
            )


def is_fine_tuned(folder: str | Path) -> bool:
    """Whether this is the folder of a fine-tuned model."""
    return (Path(folder) / TASK_FILE).is_file()


def read_task(folder: Path) -> tuple[Task, dict[str, float]]:
    """The task of a fine-tuned folder and the metrics of its training.

    Raises:
        CheckpointError: no ``task.json``, or one that cannot be read.
    """
    path = folder / TASK_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        kind, settings, metrics = values["family"], values["settings"], values.get("metrics", {})
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} has no {TASK_FILE}, so it is no fine-tuned model. Make one with: "
            f"xlnet finetune TASK --model {folder}"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error}).") from error
    try:
        return family(kind).from_settings(settings), metrics
    except (ConfigurationError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error
