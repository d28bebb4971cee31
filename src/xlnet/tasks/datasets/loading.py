"""From a task's name and a place on disk to what a fine-tuning run needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.hub import is_hub, is_single
from xlnet.tasks.datasets.hub_forms import read_benchmark
from xlnet.tasks.datasets.own import KINDS, adjusted, has_split, is_labelled, kind, read_own
from xlnet.tasks.datasets.registry import BENCHMARKS, benchmark
from xlnet.tasks.datasets.tables import NoSplit
from xlnet.tasks.families.classification import TextClassification, balanced_weights
from xlnet.tasks.finetune import TaskData

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """A task with its data.

    Attributes:
        task: with all its settings.
        data: to learn from and to choose by.
        final: labelled sets to measure once, at the end, by name.
    """

    task: Task
    data: TaskData
    final: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def load_task(
    name: str,
    data: str | Path,
    *,
    dev: str | Path | None = None,
    dev_share: float = 0.1,
    limit: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read what ``xlnet finetune NAME --data DATA`` needs.

    Args:
        name: a benchmark (``sst2``), or a kind of task on files of one's own (``classify``).
        data: folder, or a file with the training examples; or a data set of the hub, as
            :mod:`xlnet.tasks.datasets.hub` says.
        dev: file to choose by; by default what the folder has, else ``dev_share`` of the training data.
        dev_share: share of the training examples held out where there is no other held-out set; 0 holds out none.
        limit: training examples at most, drawn at random; 0 is all.
        changes: settings of the task; ``class_weights`` may be ``"balanced"``.

    Raises:
        ConfigurationError: an unknown task or setting.
        InputError: data that is not there or cannot be used.
    """
    if not 0.0 <= dev_share < 1.0:
        raise ConfigurationError(f"dev_share={dev_share} must lie in [0, 1).")
    changes = dict(changes or {})
    weights = changes.pop("class_weights", None)
    place: str | Path = data if is_hub(data) else Path(data)
    if name in KINDS:
        loaded = _own(name, place, dev, changes)
    else:
        try:
            found = benchmark(name)
        except ConfigurationError:
            known = [*BENCHMARKS, *KINDS]
            raise ConfigurationError(
                f"{name!r} is no task; known are {', '.join(known)}.{did_you_mean(name, known)}"
            ) from None
        loaded = _official(found, place, dev, changes)
    if not loaded.data.held_out and dev_share > 0.0:
        train, held_out = split_off(loaded.data.train, dev_share, loaded.task.split_key)
        loaded = replace(loaded, data=TaskData(train, {"dev": held_out}))
        _log.warning("%s: %d of the training examples are held out to choose by.", name, len(held_out))
    if limit:
        loaded = replace(loaded, data=replace(loaded.data, train=sample(loaded.data.train, limit)))
    if weights is not None:
        loaded = replace(loaded, task=_weighted(loaded.task, loaded.data.train, weights))
    # What is measured last must not fail after the training.
    for examples in loaded.final.values():
        loaded.task.check(examples, labelled=True)
    return loaded


def _official(found: Benchmark, place: str | Path, dev: str | Path | None, changes: Mapping[str, Any]) -> Loaded:
    task = adjusted(found.task, changes)
    if not found.train:
        raise ConfigurationError(f"{task.name} has no training data: evaluate another task's model on it.")
    train = read_benchmark(found, place, found.train)
    if dev is not None:
        split = found.held_out[0] if found.held_out else "dev"
        return Loaded(task, TaskData(train, {"dev": read_benchmark(found, dev, split)}))
    held_out: dict[str, Sequence[Any]] = {}
    # A single set of rows is what to learn from; read again, it would be its own held-out data.
    alone = is_single(place)
    for number, split in enumerate(() if alone else found.held_out):
        try:
            held_out[split] = read_benchmark(found, place, split)
        except NoSplit as error:
            if number == 0:
                raise NoSplit(
                    f"{error} Where there are no held-out files, give one with --dev, or give the training file alone: "
                    "a share of it is held out then."
                ) from error
            _log.warning("%s: %s", task.name, error)
    final: dict[str, Sequence[Any]] = {}
    for split in () if alone else found.final:
        try:
            measured = read_benchmark(found, place, split)
        except NoSplit as error:
            _log.warning("%s: no final test: %s", task.name, error)
            continue
        if is_labelled(task.name, split, measured):
            final[split] = measured
    return Loaded(task, TaskData(train, held_out), final)


def _own(name: str, place: str | Path, dev: str | Path | None, changes: Mapping[str, Any]) -> Loaded:
    described = kind(name)
    task = adjusted(described.task, changes)
    train = read_own(task, place, "train")
    if dev is not None:
        held_out = {"dev": read_own(task, dev, "dev")}
    else:
        collection = name == "rank" and not is_hub(place) and Path(place).is_dir() and not has_split(place, "train")
        held_out = {"dev": read_own(task, place, "dev")} if has_split(place, "dev") or collection else {}
    final = {"test": read_own(task, place, "test")} if has_split(place, "test") else {}
    labelled = {split: found for split, found in final.items() if is_labelled(task.name, split, found)}
    if changes.get("label_names"):
        return Loaded(task, TaskData(train, held_out), labelled)
    return Loaded(described.fit(task, train), TaskData(train, held_out), labelled)


def split_off(
    examples: Sequence[Any], share: float, key: Callable[[Any], Hashable] = id
) -> tuple[list[Any], list[Any]]:
    """The same share of the examples each time, at least one, drawn at random; the rest keeps its order.

    Args:
        examples: those of equal ``key`` (questions on one article) stay together, so that nothing is learnt by heart.
        share: of the examples; the first whole groups that reach it are held out.
        key: which group an example belongs to; by default each is by itself.

    Raises:
        InputError: fewer than two groups.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(key(example), []).append(place)
    if len(groups) < 2:
        together = "" if len(examples) < 2 else " that belong together (one article, say)"
        raise InputError(
            f"{len(examples)} training examples{together} are too few to hold some out; give held-out data."
        )
    count = max(1, round(len(examples) * share))
    members, chosen = list(groups.values()), set[int]()
    for place in np.random.default_rng(0).permutation(len(members))[:-1]:
        if len(chosen) >= count:
            break
        chosen.update(members[place])
    train = [example for i, example in enumerate(examples) if i not in chosen]
    return train, [example for i, example in enumerate(examples) if i in chosen]


def sample(examples: Sequence[Any], count: int) -> list[Any]:
    """``count`` of the examples, the same each time, in their order."""
    chosen = np.sort(np.random.default_rng(1).permutation(len(examples))[:count])
    return [examples[i] for i in chosen]


def _weighted(task: Task, examples: Sequence[Any], weights: str | Sequence[float]) -> Task:
    if not isinstance(task, TextClassification):
        raise ConfigurationError(f"class_weights={weights!r}: {task.name} is no classification.")
    if weights == "balanced":
        return replace(task, class_weights=balanced_weights(examples, task.label_names))
    try:
        parts = weights.split(",") if isinstance(weights, str) else weights
        return replace(task, class_weights=tuple(float(part) for part in parts))
    except ValueError:
        raise ConfigurationError(
            f"class_weights={weights!r} must be 'balanced' or one number a label ({', '.join(task.label_names)}), "
            "with commas between."
        ) from None
