"""Small models and made-up data for the tests of tasks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from xlnet.configuration import XLNetConfig
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.contract import Task
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer
from xlnet.training.report import SilentReporter

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
WORDS = [
    "value",
    "class",
    "function",
    "module",
    "object",
    "string",
    "number",
    "list",
    "table",
    "file",
    "name",
    "code",
    "text",
    "type",
    "method",
    "license",
]


def toy_tokenizer() -> XLNetTokenizer:
    """2,000 pieces."""
    return XLNetTokenizer.from_pretrained(GOLDEN / "text" / "spiece.model")


def toy_config(**changes: Any) -> XLNetConfig:
    """A model that trains in milliseconds, without dropout."""
    values: dict[str, Any] = {
        "vocab_size": 2000, "n_layer": 2, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64,
        "dropout": 0.0, "dropatt": 0.0, "summary_dropout": 0.0, "initializer_range": 0.1,
    }  # fmt: skip
    return XLNetConfig(**{**values, **changes})


def toy_texts(count: int, seed: int = 0) -> list[TextExample]:
    """Texts whose label says whether "good" or "bad" stands somewhere among other words."""
    generator = random.Random(seed)
    examples = []
    for number in range(count):
        label = number % 2
        words = generator.choices(WORDS, k=generator.randint(2, 12))
        words.insert(generator.randrange(len(words) + 1), ("bad", "good")[label])
        examples.append(TextExample(str(number), " ".join(words), label=str(label), where=f"row {number + 1}"))
    return examples


def quick(**changes: Any) -> FineTuneConfig:
    """Settings for a toy run."""
    values: dict[str, Any] = {
        "steps": 4, "batch_size": 8, "learning_rate": 3e-3, "save_every": 0, "device": "cpu", "warmup": 0.1,
        "evaluate_every": 1000,
    }  # fmt: skip
    return FineTuneConfig(**{**values, **changes})


def toy_run(output: Path, task: Task | None = None, examples: list[Any] | None = None, **changes: Any) -> FineTuned:
    """A short fine-tuning run."""
    task = task or TextClassification(name="toy", max_length=32)
    examples = examples if examples is not None else toy_texts(24)
    data = TaskData(examples, {"dev": examples[:8]})
    model = start_model(toy_config(), task, seed=1)
    return finetune(model, toy_tokenizer(), task, data, quick(**changes), output, reporter=SilentReporter())
