"""Run checkpoints: everything a run needs to go on as if nothing had happened.

``checkpoints/step-0000000500/`` holds ``state.pt`` (parameters, optimizer, scaler, progress), ``rank-0.pt`` for each
process (carried memory, data position, random state) and ``manifest.json`` (step, metrics, settings, checksums).
"""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xlnet.errors import CheckpointError
from xlnet.training.run_files import disk_errors, load_tensors, read_manifest, save_tensors, write_folder

_NAME = re.compile(r"step-(\d{10})")


@dataclass
class Progress:
    """Counters of a run; plain values that travel with its checkpoints."""

    step: int = 0
    micro_batches: int = 0
    tokens: int = 0
    seconds: float = 0.0
    window_loss: float = 0.0
    window_count: float = 0.0
    window_steps: int = 0
    last_loss: float = float("nan")
    evaluated_step: int = -1
    metrics: dict[str, float] = field(default_factory=dict)
    best_step: int = -1
    best_value: float = float("nan")
    evaluations_without_gain: int = 0
    recent_losses: list[float] = field(default_factory=list)
    suspicious_steps: int = 0


def capture_random(device: torch.device) -> dict[str, Any]:
    """State of the generators of Python, numpy and torch, and of ``device`` if it has its own."""
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    captured: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": {**state, "state": {"key": state["state"]["key"].tolist(), "pos": int(state["state"]["pos"])}},
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        captured["cuda"] = torch.cuda.get_rng_state(device)
    return captured


def restore_random(captured: dict[str, Any], device: torch.device) -> None:
    """Put back what :func:`capture_random` took."""
    random.setstate(captured["python"])
    key = np.array(captured["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state({**captured["numpy"], "state": {"key": key, "pos": captured["numpy"]["state"]["pos"]}})
    torch.set_rng_state(captured["torch"])
    if device.type == "cuda" and "cuda" in captured:
        torch.cuda.set_rng_state(captured["cuda"], device)


@contextmanager
def preserved_random(device: torch.device) -> Iterator[None]:
    """Whatever is drawn inside leaves no trace outside, so that evaluating more often changes no training."""
    captured = capture_random(device)
    try:
        yield
    finally:
        restore_random(captured, device)


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, numpy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def check_plain(value: Any, where: str) -> None:
    """Refuse what could not be read back without running code.

    Raises:
        TypeError: names the place; it is a fault of the class whose state it is.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            check_plain(key, f"a key of {where}")
            check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_plain(item, f"{where}[{index}]")
    # Exact types: a numpy float is a float to isinstance, but not to a loader that runs no code.
    elif value is not None and type(value) not in (bool, int, float, str, bytes) and not isinstance(value, Tensor):
        raise TypeError(f"{where} is a {type(value).__name__}; a state holds plain values and tensors only.")


def parameters_finite(model: nn.Module) -> bool:
    """True when no parameter holds a NaN or an infinity."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


class CheckpointFolder:
    """The checkpoints of one run, oldest to newest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step lies or would lie."""
        return self.folder / f"step-{step:010d}"

    def steps(self) -> list[int]:
        """Steps with a checkpoint, whole or damaged, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name)))

    def save(self, step: int, shared: dict[str, Any], ranks: list[dict[str, Any]], about: dict[str, Any]) -> Path:
        """Write a checkpoint as a whole.

        Args:
            step: its step.
            shared: what all processes have in common.
            ranks: what each process has of its own, by rank.
            about: readable facts for the manifest.

        Raises:
            MachineError: when the disk refuses; all older checkpoints are as they were.
        """

        def write(folder: Path) -> None:
            save_tensors(shared, folder / "state.pt")
            for rank, state in enumerate(ranks):
                save_tensors(state, folder / f"rank-{rank}.pt")

        path = self.path(step)
        write_folder(path, write, {"step": step, "processes": len(ranks), **about})
        return path

    def prune(self, keep_last: int, keep: set[int]) -> None:
        """Remove all but the newest ``keep_last`` and the steps in ``keep``."""
        for step in self.steps()[:-keep_last]:
            if step not in keep:
                with disk_errors(self.path(step)):
                    shutil.rmtree(self.path(step))

    def newest(self, warn: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
        """Path and shared state of the newest whole checkpoint, or None where there is none at all.

        A damaged one is passed over with a warning.

        Raises:
            CheckpointError: when there are checkpoints, but every one is damaged.
        """
        faults: list[str] = []
        for step in reversed(self.steps()):
            path = self.path(step)
            try:
                read_manifest(path)
                shared = load_tensors(path / "state.pt")
            except CheckpointError as error:
                faults.append(str(error))
                warn(f"{error} The checkpoint before it is used.")
                continue
            return path, shared
        if faults:
            raise CheckpointError(
                f"{self.folder} holds no usable checkpoint: {faults[0]} "
                "Start anew in another output folder, or restore the folder from a copy."
            )
        return None

    def remove_after(self, step: int) -> None:
        """Remove (damaged) checkpoints of later steps, which the run is about to make again."""
        for later in self.steps():
            if later > step:
                shutil.rmtree(self.path(later), ignore_errors=True)


def load_parameters(checkpoint: Path, model: nn.Module) -> None:
    """Give ``model`` the parameters of a run checkpoint.

    Raises:
        CheckpointError: when the checkpoint is damaged or of another model.
    """
    read_manifest(checkpoint)
    load_model_state(model, load_tensors(checkpoint / "state.pt")["model"], checkpoint)


def load_model_state(model: nn.Module, state: dict[str, Tensor], checkpoint: Path) -> None:
    """As ``load_state_dict``, with an error that says what does not fit."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:4]]
        raise CheckpointError(
            f"{checkpoint} belongs to another model: {' '.join(lines)} Resume with the model settings of that run."
        ) from error


def progress_from(values: dict[str, Any]) -> Progress:
    """Progress as it was saved; entries of other versions are left at their defaults."""
    known = {f.name for f in dataclasses.fields(Progress)}
    return Progress(**{key: value for key, value in values.items() if key in known})
