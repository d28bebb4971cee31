"""Settings of one training run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from xlnet.errors import ConfigurationError, check_choice, known_keys
from xlnet.float32 import FLOAT32_PRODUCTS, Float32Products
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.schedule import ScheduleConfig

Precision = Literal["float32", "bfloat16", "float16"]
_CHOICES = {
    "precision": ("float32", "bfloat16", "float16"),
    "float32_products": FLOAT32_PRODUCTS,
    "best_direction": ("min", "max"),
}
_AT_LEAST_ONE = ("steps", "accumulation", "log_every", "keep_last")
_AT_LEAST_ZERO = (
    "clip_norm", "seed", "max_seconds", "evaluate_every", "save_every", "patience", "divergence_steps",
)  # fmt: skip
_SEED_BELOW = 1 << 63  # torch takes 64 bits, and every process adds its rank
# A resumed run may change these; all others decide which numbers come out and must stay.
_FREE_ON_RESUME = {
    "device", "max_seconds", "save_every", "keep_last", "log_every", "tensorboard", "plot", "resume",
    "divergence_factor", "divergence_steps",
}  # fmt: skip


@known_keys
@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How long, how, and how safely to train.

    Args:
        steps: optimizer steps of the whole run, which the schedule spans.
        accumulation: micro-batches per step.
        optimizer: the update.
        schedule: the learning rate over the steps.
        clip_norm: limit of the global gradient norm; 0 is no limit.
        precision: arithmetic of the forward pass; parameters stay float32. ``bfloat16`` is the faster on most GPUs, but
            not on every CPU (a warning says so); ``float16`` scales the loss and needs CUDA.
        float32_products: which library multiplies float32 matrices on a CPU: ``auto`` (the faster one of those that
            truly compute in float32), ``default`` (torch's) or ``onednn``; see :mod:`xlnet.float32`.
        device: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        seed: of dropout and all else drawn while training, below 2^63.
        max_seconds: stop this call after so many seconds, as if finished; 0 is no limit. It may be resumed.
        evaluate_every: steps between evaluations; 0 evaluates at start and end only.
        save_every: steps between checkpoints; 0 saves at start and end only.
        keep_last: newest checkpoints kept, besides the best.
        log_every: steps averaged into one line of the log.
        best_metric: name of the evaluation metric that decides which checkpoint is best, of equals the last; none if
            empty.
        best_direction: whether the best is the smallest (``min``) or largest (``max``).
        restore_best: leave the model with the best parameters instead of the last; never those of step 0.
        patience: stop after so many evaluations in a row without a better ``best_metric``; 0 never stops early.
        divergence_factor: a loss above this multiple of its running median is suspicious.
        divergence_steps: so many suspicious steps in a row stop the run; 0 switches the check off.
        tensorboard: also write TensorBoard event files.
        plot: draw the loss to ``loss.png`` at the end.
        resume: go on from the newest checkpoint in the output folder; begin anew where there is none.
    """

    steps: int = 1000
    accumulation: int = 1
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    clip_norm: float = 1.0
    precision: Precision = "float32"
    float32_products: Float32Products = "auto"
    device: str = "auto"
    seed: int = 0
    max_seconds: float = 0.0
    evaluate_every: int = 0
    save_every: int = 500
    keep_last: int = 2
    log_every: int = 10
    best_metric: str = ""
    best_direction: Literal["min", "max"] = "min"
    restore_best: bool = False
    patience: int = 0
    divergence_factor: float = 2.0
    divergence_steps: int = 50
    tensorboard: bool = True
    plot: bool = True
    resume: bool = False

    def __post_init__(self) -> None:
        for key, allowed in _CHOICES.items():
            value = getattr(self, key)
            check_choice(key, value, allowed)
        for keys, lowest in ((_AT_LEAST_ONE, 1), (_AT_LEAST_ZERO, 0)):
            for key in keys:
                value = getattr(self, key)
                if not lowest <= value < float("inf"):
                    finite = "a finite number of " if value == float("inf") else ""
                    raise ConfigurationError(f"{key}={value} must be {finite}at least {lowest}.")
        if self.seed >= _SEED_BELOW:
            raise ConfigurationError(f"seed={self.seed} must be below 2^63 = {_SEED_BELOW}.")
        if self.schedule.warmup_steps > self.steps:
            raise ConfigurationError(
                f"schedule.warmup_steps={self.schedule.warmup_steps} is more than steps={self.steps}: "
                "the peak would never be reached. Shorten the warm-up or train longer."
            )
        if not self.divergence_factor > 1.0:
            raise ConfigurationError(f"divergence_factor={self.divergence_factor} must be above 1.")
        for key in ("patience", "restore_best"):
            if getattr(self, key) and not self.best_metric:
                raise ConfigurationError(f"{key}={getattr(self, key)} needs best_metric: name the metric that decides.")

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, ready for JSON."""
        return dataclasses.asdict(self)

    def check_resumable(self, earlier: dict[str, Any], where: str) -> list[str]:
        """Compare with the settings of the run that is to be continued.

        Returns:
            Sentences about differences that are allowed but change the course of the run.

        Raises:
            ConfigurationError: names the first setting that must not change, with both values.
        """
        # Runs older than a setting did what its given value does.
        now, before = _flat(self.to_dict()), {"float32_products": "default", **_flat(earlier)}
        notes = []
        for key in sorted(now.keys() | before.keys()):
            old, new = before.get(key), now.get(key)
            if key in _FREE_ON_RESUME or old == new:
                continue
            if key not in ("steps", "evaluate_every", "patience"):
                raise ConfigurationError(
                    f"{key}={new!r}, but the run in {where} was started with {key}={old!r}. "
                    f"Resume it with {old!r}, or choose another output folder for a new run."
                )
            notes.append(f"{key} was {old!r} and is now {new!r}; from here the run goes another way than planned.")
        return notes


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
