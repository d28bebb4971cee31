"""The same fine-tuning with several seeds, and what they agree on: median and spread of each metric."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from xlnet.errors import ConfigurationError
from xlnet.model import PretrainedModel
from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.contract import Task
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.text import XLNetTokenizer
from xlnet.training.report import Reporter
from xlnet.training.run_files import write_text

SUMMARY_FILE = "seeds.json"


@dataclass(frozen=True)
class Spread:
    """One metric over seeds.

    Attributes:
        values: one a seed.
        median: of them.
        lowest, highest: of them.
    """

    values: tuple[float, ...]
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class SeedSummary:
    """What several runs came to.

    Attributes:
        seeds: in the order they were run.
        metrics: spread of each metric.
        best: the run with the best deciding metric.
        best_seed: its seed.
    """

    seeds: tuple[int, ...]
    metrics: Mapping[str, Spread]
    best: FineTuned
    best_seed: int


def spread(values: Sequence[float]) -> Spread:
    """Median and extremes."""
    return Spread(tuple(values), statistics.median(values), min(values), max(values))


def finetune_seeds(
    make_model: Callable[[int], PretrainedModel],
    tokenizer: XLNetTokenizer,
    task: Task,
    data: TaskData,
    config: FineTuneConfig,
    output: str | Path,
    *,
    seeds: Sequence[int],
    resume: bool = False,
    reporter: Reporter | None = None,
) -> SeedSummary:
    """Run :func:`finetune` once a seed, in ``output/seed-N``; ``seeds.json`` sums up.

    Args:
        make_model: gives the model to start from, its new head drawn with the seed.
        seeds: different integers, at least one; finished ones are not trained again with ``resume``.
        tokenizer, task, data, config, output, resume, reporter: as for :func:`finetune`; the seed replaces its own.

    Raises:
        ConfigurationError: no seeds, or one twice.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigurationError(f"seeds={list(seeds)} must be different integers, at least one.")
    if not data.held_out:
        raise ConfigurationError("Several seeds need held-out data: there is nothing to compare them by.")
    runs: dict[int, Mapping[str, float]] = {}
    best: FineTuned | None = None
    best_seed = seeds[0]
    for seed in seeds:
        folder = Path(output) / f"seed-{seed}"
        run = finetune(
            make_model(seed),
            tokenizer,
            task,
            data,
            replace(config, seed=seed),
            folder,
            resume=resume,
            reporter=reporter,
        )
        runs[seed] = run.metrics
        if best is None or run.metrics[task.metric] > best.metrics[task.metric]:
            best, best_seed = run, seed
    if best is None:
        raise ConfigurationError("No seed was run.")
    metrics = {name: spread([runs[seed][name] for seed in seeds]) for name in runs[seeds[0]]}
    summary = SeedSummary(tuple(seeds), metrics, best, best_seed)
    values = {
        "task": task.name,
        "seeds": list(seeds),
        "best_seed": best_seed,
        "metrics": {name: asdict(value) for name, value in metrics.items()},
    }
    write_text(Path(output) / SUMMARY_FILE, json.dumps(values, indent=2) + "\n")
    return summary
