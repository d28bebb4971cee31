"""A run under way: its parts, how it opens its folder, and how it saves and takes up its state."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xlnet.errors import CheckpointError, ConfigurationError, TrainingError
from xlnet.training.config import FitConfig
from xlnet.training.contracts import Batches, Carried
from xlnet.training.distributed import World
from xlnet.training.guards import LossGuard
from xlnet.training.interrupts import Interrupts
from xlnet.training.metrics_log import MetricsLog
from xlnet.training.precision import autocast, precision_note
from xlnet.training.report import Reporter
from xlnet.training.run_files import clean_partial, disk_errors, load_tensors, write_text
from xlnet.training.run_state import (
    CheckpointFolder,
    Progress,
    capture_random,
    check_plain,
    load_model_state,
    parameters_finite,
    progress_from,
    restore_random,
    seed_everything,
)

RUN_FILE = "run.json"
CHECKPOINTS = "checkpoints"
_OWN = (RUN_FILE, CHECKPOINTS, "metrics.jsonl")
_FREE_OF_MODEL = ("attention_backend", "pack_padding")  # other arithmetic, the same model


def never_began(output: Path) -> bool:
    """Whether a folder holds a run that ended before its first step: with nothing to go on from, it is free."""
    return (output / RUN_FILE).is_file() and not any(CheckpointFolder(output / CHECKPOINTS).steps())


def model_settings(model: nn.Module) -> dict[str, Any]:
    """Those of a model that has any, as plain values."""
    to_dict = getattr(getattr(model, "config", None), "to_dict", None)
    plain: dict[str, Any] = {} if to_dict is None else json.loads(json.dumps(to_dict()))
    return plain


def check_resume(output: Path, config: FitConfig, model: nn.Module) -> list[str]:
    """Compare with the run in a folder, if there is one, that is to be continued.

    Weights of the right shape do not say that it is the same model: dropout or memory may be others.

    Returns:
        Sentences about differences that are allowed but change the course of the run.

    Raises:
        ConfigurationError: names the first setting that must not change, with both values; or a damaged ``run.json``.
    """
    path = output / RUN_FILE
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        earlier, before = found["fit"], dict(found.get("model", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is damaged: the settings of the run cannot be read. Restore it, or delete it to accept the "
            "settings given now."
        ) from error
    notes = config.check_resumable(earlier, str(output))
    for key, value in model_settings(model).items():
        old = before.get(key, value)
        if old != value and key not in _FREE_OF_MODEL:
            raise ConfigurationError(
                f"The model has {key}={value!r}, but the run in {output} was started with {key}={old!r}. Resume it "
                f"with {old!r}, or choose another output folder for a new run."
            )
    return notes


@dataclass(kw_only=True)
class Run:
    """Everything the loop holds in its hands. ``carried[i]`` belongs to lane group i and to no other."""

    model: nn.Module
    optimizer: Optimizer
    batches: Batches
    config: FitConfig
    output: Path
    world: World
    device: torch.device
    reporter: Reporter
    interrupts: Interrupts
    progress: Progress = field(default_factory=Progress)
    carried: list[Carried | None] = field(default_factory=list)
    saved_step: int = -1
    interrupted: bool = False
    out_of_time: bool = False
    window_seconds: float = 0.0
    window_tokens: float = 0.0
    window_waiting: float = 0.0
    learning_rate: float = 0.0
    gradient_norm: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.checkpoints = CheckpointFolder(self.output / CHECKPOINTS)
        self.lane_groups: int = getattr(self.batches, "lane_groups", self.config.accumulation)
        self.scaler = torch.amp.GradScaler(
            self.device.type,
            enabled=self.config.precision == "float16",
            # Losses are summed, not averaged, over targets: gradients start that much larger than usual.
            init_scale=2.0**8,
        )
        self.guard = LossGuard(self.config.divergence_factor, self.config.divergence_steps)
        self.log: MetricsLog | None = None

    def open(self) -> None:
        """Check the folder, begin or resume, and wrap the model for its processes.

        Raises:
            ConfigurationError: the folder holds another run, or one with other settings.
            CheckpointError: every checkpoint is damaged, or they belong to another model.
        """
        self._claim_folder()
        if note := precision_note(self.config.precision, self.device):
            self._warn(note)
        found = self.checkpoints.newest(self._warn) if self.config.resume else None
        if found is None:
            seed_everything(self.config.seed + self.world.rank)
            self.carried = [None] * self.lane_groups
        else:
            self._restore(*found)
        if self.world.is_main:
            self.checkpoints.remove_after(self.progress.step if found else -1)
            settings = {"format": "xlnet-run-1", "fit": self.config.to_dict(), "model": model_settings(self.model)}
            write_text(self.output / RUN_FILE, json.dumps(settings, indent=2) + "\n")
            self.log = MetricsLog(self.output, self.progress.step if found else -1, self.config.tensorboard)
        self.wrapped = self.world.wrap(self.model, self.device)
        self.model.train()

    def _warn(self, text: str) -> None:
        if self.world.is_main:
            self.reporter.message(f"warning: {text}")

    def _claim_folder(self) -> None:
        """Process 0 looks, and every process learns of a refusal, so that none waits for another."""
        refusal = ""
        if self.world.is_main:
            try:
                with disk_errors(self.output):
                    self.output.mkdir(parents=True, exist_ok=True)
                clean_partial(self.output)
                clean_partial(self.output / CHECKPOINTS)
                self._check_folder()
            except ConfigurationError as error:
                refusal = str(error)
        refusal = self.world.broadcast(refusal)
        if refusal:
            raise ConfigurationError(refusal)

    def _check_folder(self) -> None:
        if not self.config.resume:
            present = [name for name in _OWN if (self.output / name).exists()]
            if present and not never_began(self.output):
                raise ConfigurationError(
                    f"output={str(self.output)!r} already holds a run ({', '.join(present)}), which would be "
                    "overwritten. Choose another folder, or continue that run with --resume (resume=True)."
                )
        else:
            for note in check_resume(self.output, self.config, self.model):
                self._warn(note)

    # -- saving ------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of this step and remove those that need not be kept.

        Raises:
            TrainingError: a parameter is not finite; nothing is written then.
            MachineError: the disk refuses; older checkpoints are intact.
        """
        if not parameters_finite(self.model):
            raise TrainingError(
                f"Step {self.progress.step}: a parameter is NaN or infinite, so no checkpoint is written. "
                f"{self.last_good} Lower optimizer.learning_rate."
            )
        own = {
            "carried": [_on_cpu(carried) for carried in self.carried],
            "batches": self.batches.state(),
            "random": capture_random(self.device),
        }
        check_plain(own["batches"], f"{type(self.batches).__name__}.state()")
        ranks = self.world.gather(own)
        self.progress.recent_losses, self.progress.suspicious_steps = self.guard.state()
        if self.world.is_main:
            shared = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "progress": dataclasses.asdict(self.progress),
            }
            about = {
                "loss": self.progress.last_loss if self.progress.last_loss == self.progress.last_loss else None,
                "metrics": self.progress.metrics,
                "torch": torch.__version__,
                "config": self.config.to_dict(),
            }
            self.checkpoints.save(self.progress.step, shared, ranks, about)
            if not self.guard.suspicious:
                # A loss that may be running away must not push out the last good checkpoint.
                self.checkpoints.prune(self.config.keep_last, {self.progress.best_step})
        self.saved_step = self.progress.step

    @property
    def last_good(self) -> str:
        """A sentence that says where the last good checkpoint lies."""
        if self.saved_step < 0:
            return "There is no checkpoint yet."
        return f"The last good checkpoint is {self.checkpoints.path(self.saved_step)}."

    def _restore(self, path: Path, shared: dict[str, Any]) -> None:
        size = len(list(path.glob("rank-*.pt")))
        if size != self.world.size:
            raise ConfigurationError(
                f"{path} was written by {size} processes, but {self.world.size} are running now: each has its own "
                f"lanes. Resume with {size}."
            )
        own = load_tensors(path / f"rank-{self.world.rank}.pt")
        load_model_state(self.model, shared["model"], path)
        names = [group["names"] for group in self.optimizer.param_groups]
        if [group.get("names") for group in shared["optimizer"]["param_groups"]] != names:
            raise CheckpointError(
                f"{path} holds the optimizer of other parameters: the same ones must be trainable as before."
            )
        self.optimizer.load_state_dict(shared["optimizer"])
        self.scaler.load_state_dict(shared["scaler"])
        self.progress = progress_from(shared["progress"])
        self.guard.losses = self.progress.recent_losses
        self.guard.suspicious_steps = self.progress.suspicious_steps
        if len(own["carried"]) != self.lane_groups:
            raise ConfigurationError(
                f"{path} carries memory for {len(own['carried'])} groups of lanes, but the data has "
                f"{self.lane_groups} now."
            )
        self.carried = [_on(self.device, carried) for carried in own["carried"]]
        self.batches.restore(own["batches"])
        restore_random(own["random"], self.device)
        self.saved_step = self.progress.step

    # -- within a step -----------------------------------------------------------------------------------------------

    def autocast(self) -> AbstractContextManager[Any]:
        """The arithmetic of the forward pass."""
        return autocast(self.device, self.config.precision)

    def mark(self) -> dict[str, Any]:
        """Where a step began, for :meth:`rewind`."""
        return {
            "batches": copy.deepcopy(self.batches.state()),
            "carried": list(self.carried),
            "random": capture_random(self.device),
            "progress": (self.progress.micro_batches, self.progress.tokens),
        }

    def rewind(self, mark: dict[str, Any]) -> None:
        """Undo the micro-batches of a step that will not be completed."""
        self.batches.restore(mark["batches"])
        self.carried = mark["carried"]
        restore_random(mark["random"], self.device)
        self.progress.micro_batches, self.progress.tokens = mark["progress"]
        self.optimizer.zero_grad(set_to_none=True)

    def next_batch(self) -> Any:
        """The next micro-batch, on the device.

        Raises:
            TrainingError: the stream, which must be endless, came to an end.
        """
        began = time.monotonic()
        try:
            batch = next(self.batches)
        except StopIteration:
            raise TrainingError(
                f"Step {self.progress.step + 1}: the data came to an end, but a run of {self.config.steps} steps needs "
                f"an endless stream that begins again. {self.last_good}"
            ) from None
        self.window_waiting += time.monotonic() - began
        return batch.to(self.device) if hasattr(batch, "to") else batch

    def close(self) -> None:
        """Put reporter and log away."""
        self.reporter.close()
        if self.log is not None:
            self.log.close()


def _on_cpu(carried: Carried | None) -> Carried | None:
    # A clone, because saving a view would save all that it is a view of.
    return None if carried is None else {key: value.detach().cpu().clone() for key, value in carried.items()}


def _on(device: torch.device, carried: dict[str, Tensor] | None) -> Carried | None:
    return None if carried is None else {key: value.to(device) for key, value in carried.items()}
