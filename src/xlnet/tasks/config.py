"""Settings of a fine-tuning run, flat and in the words of the papers; those of the loop follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from xlnet.errors import ConfigurationError, check_choice, known_keys
from xlnet.float32 import FLOAT32_PRODUCTS, Float32Products
from xlnet.training.config import FitConfig, Precision
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.schedule import ScheduleConfig, ScheduleKind


@known_keys
@dataclass(frozen=True, kw_only=True)
class FineTuneConfig:
    """How to fine-tune; the defaults follow BERT's procedure with the paper's learning rate (XLNet table 8).

    Args:
        epochs: passes over the training data, where ``steps`` is 0.
        steps: optimizer steps instead of epochs, as the paper counts.
        batch_size: rows of a step in one process.
        accumulation: parts a batch is computed in, one after the other, to save memory.
        learning_rate: peak rate.
        warmup: steps to reach it; a number below 1 is a fraction of all steps.
        schedule: of the learning rate after the warm-up.
        layer_decay: each layer learns at this fraction of the one above it (paper, table 8: 0.75 for SQuAD).
        layer_decay_mode: ``lr`` as the paper says, or ``gradient`` as the release does.
        optimizer: ``adamw``, or the ``release``'s update.
        weight_decay: decoupled.
        epsilon: of Adam.
        clip_norm: limit of the gradient norm.
        precision: arithmetic of the forward pass.
        float32_products: library for float32 matrices on a CPU: auto, default or onednn.
        device: auto, cpu, cuda, cuda:N or mps
        seed: of dropout, of the order of the data, and (on the command line) of the new head.
        evaluate_every: steps between evaluations on the held-out data; 0 is once an epoch.
        evaluation_batch_size: rows at once in evaluation.
        patience: stop after so many evaluations without a better metric; 0 never stops early.
        keep_best: end with the weights of the best evaluation instead of the last.
        frozen_layers: lowest layers (with the embedding) that stay as they are; -1 is all of them.
        lora_rank: train low-rank additions of this rank instead of the attention matrices; 0 trains everything.
        save_every: steps between checkpoints to resume from, besides the best; 0 saves at start and end only.
        max_seconds: stop this call after so many seconds; 0 is no limit.
        log_every: steps averaged into one line of the log.
        tensorboard: also write TensorBoard files.
    """

    epochs: float = 3.0
    steps: int = 0
    batch_size: int = 32
    accumulation: int = 1
    learning_rate: float = 2e-5
    warmup: float = 0.1
    schedule: ScheduleKind = "linear"
    layer_decay: float = 1.0
    layer_decay_mode: Literal["lr", "gradient"] = "lr"
    optimizer: Literal["adamw", "release"] = "adamw"
    weight_decay: float = 0.01
    epsilon: float = 1e-6
    clip_norm: float = 1.0
    precision: Precision = "float32"
    float32_products: Float32Products = "auto"
    device: str = "auto"
    seed: int = 0
    evaluate_every: int = 0
    evaluation_batch_size: int = 64
    patience: int = 0
    keep_best: bool = True
    frozen_layers: int = 0
    lora_rank: int = 0
    save_every: int = 500
    max_seconds: float = 0.0
    log_every: int = 10
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_choice("float32_products", self.float32_products, FLOAT32_PRODUCTS)
        for key in ("batch_size", "accumulation", "evaluation_batch_size"):
            if getattr(self, key) < 1:
                raise ConfigurationError(f"{key}={getattr(self, key)} must be at least 1.")
        if self.steps < 0 or (self.steps == 0 and not 0.0 < self.epochs < math.inf):
            raise ConfigurationError(f"steps={self.steps} or epochs={self.epochs} must be above 0.")
        if self.batch_size % self.accumulation:
            raise ConfigurationError(
                f"batch_size={self.batch_size} must be divisible by accumulation={self.accumulation}: "
                "a batch is computed in that many equal parts."
            )
        if not 0.0 <= self.warmup < math.inf:
            raise ConfigurationError(f"warmup={self.warmup} must be a number of steps, or a fraction of them below 1.")
        if self.frozen_layers < -1:
            raise ConfigurationError(f"frozen_layers={self.frozen_layers} must be at least 0, or -1 for all.")
        if self.lora_rank < 0:
            raise ConfigurationError(f"lora_rank={self.lora_rank} must not be negative; 0 trains everything.")

    @property
    def micro_batch_size(self) -> int:
        """Rows computed at once."""
        return self.batch_size // self.accumulation

    def fit_config(self, batches_per_epoch: int, metric: str, resume: bool = False) -> FitConfig:
        """The loop's settings for this much data.

        Args:
            batches_per_epoch: micro-batches.
            metric: that decides which checkpoint is best; empty without held-out data.
            resume: go on with the run in the output folder.
        """
        epoch = max(1, math.ceil(batches_per_epoch / self.accumulation))
        steps = self.steps or max(1, math.ceil(epoch * self.epochs))
        warmup = round(self.warmup * steps) if self.warmup < 1.0 else round(self.warmup)
        return FitConfig(
            steps=steps,
            accumulation=self.accumulation,
            optimizer=OptimizerConfig(
                kind=self.optimizer,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                epsilon=self.epsilon,
                layer_decay=self.layer_decay,
                layer_decay_mode=self.layer_decay_mode,
            ),
            schedule=ScheduleConfig(kind=self.schedule, warmup_steps=warmup),
            clip_norm=self.clip_norm,
            precision=self.precision,
            float32_products=self.float32_products,
            device=self.device,
            seed=self.seed,
            max_seconds=self.max_seconds,
            evaluate_every=(self.evaluate_every or min(epoch, steps)) if metric else 0,
            save_every=self.save_every,
            keep_last=1,
            log_every=self.log_every,
            best_metric=metric if self.keep_best or self.patience else "",
            best_direction="max",
            restore_best=self.keep_best and bool(metric),
            patience=self.patience if metric else 0,
            # Losses of few examples jump, and fall towards zero: a multiple of their median says nothing here.
            divergence_steps=0,
            tensorboard=self.tensorboard,
            resume=resume,
        )
