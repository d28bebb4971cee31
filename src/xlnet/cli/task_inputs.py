"""What the commands on fine-tuned models read, and which of a benchmark's tasks they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from xlnet.cli.outputs import check_folder
from xlnet.cli.progress import say
from xlnet.errors import ConfigurationError, InputError
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.hub import is_hub
from xlnet.tasks.datasets.hub_forms import read_benchmark
from xlnet.tasks.datasets.own import read_own
from xlnet.tasks.datasets.registry import BENCHMARKS, benchmark
from xlnet.tasks.datasets.tables import read_records
from xlnet.tasks.families.token_classification import TokenClassification
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.squad.task import QuestionAnswering

_READING = ("max_length", "long_text", "stride")


def asked_task(trained: Task, name: str | None, model: str) -> Task:
    """The task a model was trained for, or another benchmark with the same labels, read at the same length.

    Args:
        trained: what the model was trained for.
        name: of the other benchmark (``ax`` for a model of ``mnli``), or None.
        model: its folder, for messages.

    Raises:
        ConfigurationError: an unknown benchmark, or one with other labels.
    """
    if name is None or name == trained.name:
        return trained
    other = benchmark(name).task
    ours, theirs = (getattr(found, "label_names", ()) for found in (trained, other))
    if type(other) is not type(trained) or ours != theirs:
        raise ConfigurationError(
            f"--task {name} has the labels {', '.join(theirs) or 'of another kind'}, but the model in {model} was "
            f"trained on {trained.name} with {', '.join(ours) or 'another kind of labels'}."
        )
    return replace(other, **{key: getattr(trained, key) for key in _READING if hasattr(trained, key)})


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
    alone = isinstance(source, Path) and source.is_file()
    if task.name not in BENCHMARKS:
        if isinstance(source, Path) and alone and not isinstance(task, TokenClassification):
            return _records(task, source)
        return read_own(task, source, split or ("dev" if labelled else "test"))
    found = benchmark(task.name)
    passages = isinstance(task, QuestionAnswering) and str(source).removesuffix(".gz").endswith(".json")
    measured = (*found.held_out, *found.final, "dev")
    if isinstance(source, Path) and alone and labelled and not split and not passages:
        return _official_or_records(found, task, source, measured[0])
    usual = measured if labelled else (*found.test, *found.final, "test")
    if not isinstance(source, Path) or split or labelled or source.is_dir() or passages:
        return read_benchmark(found, source, split or usual[0])
    try:
        return _records(task, source)
    except InputError as error:
        raise InputError(f"{error} To read a file of {task.name}'s own form, add --split {measured[0]}.") from error


def _records(task: Task, source: Path) -> list[Any]:
    return [task.example(record.values, record.where, i) for i, record in enumerate(read_records(source))]


def _official_or_records(found: Benchmark, task: Task, source: Path, split: str) -> list[Any]:
    """A labelled file is in the benchmark's own form, or holds the columns of its task."""
    try:
        return read_benchmark(found, source, split)
    except InputError as official:
        try:
            return _records(task, source)
        except InputError as plain:
            raise InputError(
                f"{official} Nor is it a table or JSONL with the columns of {task.name}: {plain}"
            ) from official


def check_submission(task: Task, output: Path) -> Benchmark:
    """What writes the server's files for a task; looked at before the work.

    Raises:
        ConfigurationError: there is no such server, or the output is no folder.
    """
    found = BENCHMARKS.get(task.name)
    if found is None or found.write is None:
        raise ConfigurationError(f"--submission: there is no server that takes predictions for {task.name}.")
    if output.suffix:
        raise ConfigurationError(f"--output {output} must be a folder with --submission; the server fixes the name.")
    check_folder(output)
    return found


def write_submission(tuned: FineTuned, source: str | Path, output: Path, split: str, batch_size: int) -> None:
    """The files that the server of the model's benchmark takes, one for each test split.

    Raises:
        ConfigurationError: as :func:`check_submission`.
        InputError: no test files.
    """
    found = check_submission(tuned.task, output)
    output.mkdir(parents=True, exist_ok=True)
    for name, test in zip(found.submission, found.test, strict=True):
        if split and test != split:
            continue
        assert found.write is not None
        found.write(tuned.predict(read_benchmark(found, source, test), batch_size=batch_size), output / name)
        say(f"for the server: {output / name}")
