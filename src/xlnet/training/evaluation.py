"""Held-out evaluation at a boundary between steps: when it is due, how it is run, and what is best so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.training.contracts import Evaluate
from xlnet.training.run import Run
from xlnet.training.run_state import preserved_random


def evaluation_due(run: Run, stop: str) -> bool:
    """At the start, every so many steps, and at the end; once per step, also across resumptions."""
    step, every = run.progress.step, run.config.evaluate_every
    due = step == 0 or bool(stop) or (every > 0 and step % every == 0)
    return due and run.progress.evaluated_step != step


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; afterwards every submodule is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def evaluate_now(run: Run, evaluate: Evaluate) -> None:
    """Measure, log, and remember whether it is the best so far.

    Of equal values the later is the best: a metric that stands still says nothing against having learnt. It is no gain,
    though, and ``patience`` goes on. Before the first step nothing was learnt, so that is never what is restored.
    """
    config, progress = run.config, run.progress
    metrics: dict[str, float] = {}
    if run.world.is_main:
        with evaluating(run.model), run.autocast(), preserved_random(run.device):
            metrics = {name: float(value) for name, value in evaluate(run.model).items()}
    progress.metrics = metrics = run.world.broadcast(metrics)
    progress.evaluated_step = progress.step
    run.reporter.evaluation(progress.step, metrics)
    if run.log is not None:
        run.log.write("evaluation", progress.step, metrics)
    if not config.best_metric:
        return
    if config.best_metric not in metrics:
        raise ConfigurationError(
            f"best_metric={config.best_metric!r} is not among the metrics of the evaluation ({', '.join(metrics)})."
            + did_you_mean(config.best_metric, metrics)
        )
    if config.restore_best and progress.step == 0:
        return
    value = metrics[config.best_metric]
    sign = 1.0 if config.best_direction == "max" else -1.0
    # Written so that a NaN is never better, and anything is better than none.
    first = progress.best_step < 0 and value == value
    gain = first or sign * value > sign * progress.best_value
    if gain or value == progress.best_value:
        progress.best_step, progress.best_value = progress.step, value
    progress.evaluations_without_gain = 0 if gain else progress.evaluations_without_gain + 1
