"""The training loop: one for pretraining and fine-tuning, on one process or many, from the first step or in the middle.

    result = fit(model, objective, batches, FitConfig(steps=10_000), Path("runs/mine"), evaluate=held_out)

``objective(model, batch, carried)`` returns a summed loss, the number of targets and what to carry to the next batch of
the same lanes. All that decides the course of a run is in its checkpoints: a killed run goes on bit for bit (on CPU).
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, InputError, Interrupted
from xlnet.float32 import float32_products
from xlnet.training.config import FitConfig
from xlnet.training.contracts import Batches, Evaluate, Objective, SaveModel
from xlnet.training.device import choose_device
from xlnet.training.distributed import World
from xlnet.training.evaluation import evaluate_now, evaluation_due
from xlnet.training.freed_memory import freed_memory_kept
from xlnet.training.guards import check_finite, memory_errors
from xlnet.training.interrupts import Interrupts
from xlnet.training.optimizer import (
    Decays,
    LayerOf,
    build_optimizer,
    clip_gradients,
    gradients_of,
    scale_gradients,
    set_learning_rate,
)
from xlnet.training.plot import plot_metrics
from xlnet.training.precision import check_precision
from xlnet.training.report import Reporter, SilentReporter, StepReport, default_reporter
from xlnet.training.run import Run
from xlnet.training.run_files import write_folder
from xlnet.training.run_state import load_parameters
from xlnet.training.schedule import factor

MODEL = "model"
LOSS_PICTURE = "loss.png"


@dataclass(frozen=True)
class FitResult:
    """How a run ended.

    Attributes:
        step: steps done, over all resumptions.
        stopped_by: ``steps``, ``time`` or ``patience``.
        loss: mean loss of the last step, nats per target; NaN where none had a target.
        metrics: of the last evaluation; empty where there was none.
        best_step: step of the best evaluation, -1 without ``best_metric``.
        best_value: its metric.
        tokens: positions read.
        seconds: spent on training steps, evaluation and saving left out.
        checkpoint: the last run checkpoint.
        best_checkpoint: the best one, or None.
    """

    step: int
    stopped_by: str
    loss: float
    metrics: dict[str, float]
    best_step: int
    best_value: float
    tokens: int
    seconds: float
    checkpoint: Path
    best_checkpoint: Path | None


def fit(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    config: FitConfig,
    output: Path | str,
    *,
    evaluate: Evaluate | None = None,
    reporter: Reporter | None = None,
    save_model: SaveModel | None = None,
    layer_of: LayerOf | None = None,
    decays: Decays | None = None,
) -> FitResult:
    """Train ``model`` in place.

    Args:
        model: parameters in float32; moved to the device.
        objective: see :class:`Objective`.
        batches: see :class:`Batches`; under ``torchrun`` the share of this process.
        config: the settings.
        output: folder for ``run.json``, ``checkpoints/``, ``metrics.jsonl``, ``tensorboard/``, ``loss.png`` and
            ``model/``.
        evaluate: held-out metrics of the model, called in eval mode without gradients, in process 0.
        reporter: receives the news; by default a live display on a terminal, else lines on standard error.
        save_model: writes the model for use into the folder it is given, at the end and when interrupted.
        layer_of: layer of a parameter by name, for layer-wise decay; see :func:`native_layers`.
        decays: whether a parameter has weight decay; see :func:`native_decays`.

    Raises:
        ConfigurationError: settings that do not go together, or an output folder that holds another run.
        CheckpointError: ``resume``, but no checkpoint is usable or it belongs to another model.
        TrainingError: a loss or gradient is not finite, or the loss diverged.
        MachineError: disk full, out of memory, a device that is not there.
        Interrupted: Ctrl-C or SIGTERM; all is saved.
    """
    world = World.from_environment()
    device = choose_device(config.device, world.local_rank)
    check_precision(config.precision, device)
    if config.best_metric and evaluate is None:
        raise ConfigurationError(
            f"best_metric={config.best_metric!r} needs an evaluation, but there is no held-out data."
        )
    model.to(device)
    arithmetic = float32_products(config.float32_products, device)
    with arithmetic, freed_memory_kept(device), world.connect(device), Interrupts() as interrupts:
        run = Run(
            model=model,
            optimizer=build_optimizer(model, config.optimizer, layer_of, decays),
            batches=batches,
            config=config,
            output=Path(output),
            world=world,
            device=device,
            reporter=(reporter or default_reporter()) if world.is_main else SilentReporter(),
            interrupts=interrupts,
        )
        with closing(run):
            run.open()
            run.reporter.start(config.steps, run.progress.step)
            while True:
                stop = stop_reason(run)
                if evaluate is not None and stop != "interrupt" and evaluation_due(run, stop):
                    evaluate_now(run, evaluate)
                    stop = stop or stop_reason(run)
                if stop != "interrupt" and save_due(run, stop):
                    run.save()
                    stop = stop or stop_reason(run)
                if stop == "interrupt":
                    raise save_and_stop(run, save_model)
                if stop:
                    return finish(run, stop, save_model)
                train_step(run, objective)


def stop_reason(run: Run) -> str:
    """Why to stop at this boundary between steps, or an empty string; the same in every process."""
    config, progress = run.config, run.progress
    # A lone process need not wait for the next step to learn of a signal that came while it evaluated or saved.
    if run.interrupted or (run.world.size == 1 and run.interrupts.pending):
        return "interrupt"
    if progress.step >= config.steps:
        return "steps"
    if config.patience and progress.evaluations_without_gain >= config.patience:
        return "patience"
    return "time" if run.out_of_time else ""


def train_step(run: Run, objective: Objective) -> None:
    """Forward and backward over the micro-batches of one step, then update; or nothing at all if interrupted midway."""
    config, progress, world = run.config, run.progress, run.world
    began = time.monotonic()
    mark = run.mark() if config.accumulation > 1 and world.size == 1 else None
    losses: list[Tensor] = []
    counts: list[Tensor] = []
    tokens = 0
    run.optimizer.zero_grad(set_to_none=True)
    with memory_errors(progress.step + 1, run.last_good):
        for index in range(config.accumulation):
            last = index == config.accumulation - 1
            batch = run.next_batch()
            lanes = progress.micro_batches % run.lane_groups
            with world.synchronize(run.wrapped, last):
                with run.autocast():
                    step = objective(run.wrapped, batch, run.carried[lanes])
                run.scaler.scale(step.loss_sum).backward()
            run.carried[lanes] = step.carried and {key: value.detach() for key, value in step.carried.items()}
            losses.append(step.loss_sum.detach().float())
            counts.append(torch.as_tensor(step.count, device=run.device))
            tokens += int(getattr(batch, "token_count", 0))
            progress.micro_batches += 1
            if run.interrupts.pending and mark is not None and not last:
                run.rewind(mark)
                run.interrupted = True
                return
        loss_sum, count, tokens = update(run, torch.stack(losses).sum(), torch.stack(counts).sum(), tokens)
    seconds = time.monotonic() - began
    progress.step += 1
    progress.tokens += tokens
    progress.seconds += seconds
    progress.window_loss += loss_sum
    progress.window_count += count
    progress.window_steps += 1
    run.window_seconds += seconds
    run.window_tokens += tokens
    if progress.step % config.log_every == 0 or progress.step == config.steps:
        log_window(run)


def update(run: Run, loss_sum: Tensor, count: Tensor, tokens: int) -> tuple[float, float, int]:
    """Divide gradients by the targets of all processes, check, clip and step.

    Returns:
        Loss sum, targets and tokens of the step over all processes.
    """
    config, progress = run.config, run.progress
    run.scaler.unscale_(run.optimizer)
    gradients = gradients_of(run.optimizer)
    out_of_time = 0 < config.max_seconds <= time.monotonic() - run.started
    wide = torch.float32 if run.device.type == "mps" else torch.float64
    flags = torch.tensor([tokens, bool(run.interrupts.pending), out_of_time], device=run.device, dtype=wide)
    sums = run.world.sum(torch.cat([torch.stack([loss_sum.to(wide), count.to(wide)]), flags]))
    # One transfer brings all numbers of the step to the host; the norm is already the same in every process.
    norm = nn.utils.get_total_norm(gradients).to(wide).to(run.device).reshape(1)
    total, targets, all_tokens, interrupted, late, norm_of_sums = torch.cat([sums, norm]).tolist()
    run.interrupted = run.interrupted or interrupted > 0
    run.out_of_time = run.out_of_time or late > 0

    rate = config.optimizer.learning_rate * factor(progress.step, config.steps, config.schedule)
    run.learning_rate, scale = rate, run.world.size / max(1.0, targets)
    run.gradient_norm = norm_of_sums * scale
    loss = total / max(1.0, targets)
    # float16 overflows now and then by design: its scaler skips such steps and lowers the scale, unless it bottoms out.
    overflow = run.scaler.is_enabled() and run.scaler.get_scale() > 2.0**-20
    check_finite(loss, 0.0 if overflow else run.gradient_norm, progress.step + 1, run.model, run.last_good)
    if targets > 0:
        run.guard.see(loss, progress.step + 1, run.last_good)
        progress.last_loss = loss
        clip_gradients(gradients, config.clip_norm, norm_of_sums, scale)
        scale_gradients(run.optimizer)
        set_learning_rate(run.optimizer, rate)
        run.scaler.step(run.optimizer)
    run.scaler.update()
    return total, targets, int(all_tokens)


def log_window(run: Run) -> None:
    """Report the steps since the last report. ``waiting`` is the share of their time that passed before data came."""
    progress, config = run.progress, run.config
    if progress.window_count:
        per_step = run.window_seconds / max(1, progress.window_steps)
        eta = (config.steps - progress.step) * per_step
        if config.max_seconds:
            eta = min(eta, max(0.0, config.max_seconds - (time.monotonic() - run.started)))
        report = StepReport(
            step=progress.step,
            steps=config.steps,
            loss=progress.window_loss / progress.window_count,
            learning_rate=run.learning_rate,
            gradient_norm=run.gradient_norm,
            tokens_per_second=run.window_tokens / max(1e-9, run.window_seconds),
            eta_seconds=eta,
        )
        run.reporter.step(report)
        if run.log is not None:
            values = {
                "loss": report.loss,
                "learning_rate": report.learning_rate,
                "gradient_norm": report.gradient_norm,
                "tokens_per_second": report.tokens_per_second,
                "waiting": run.window_waiting / max(1e-9, run.window_seconds),
                "tokens": float(progress.tokens),
                "seconds": progress.seconds,
            }
            run.log.write("train", progress.step, values)
    progress.window_loss = progress.window_count = 0.0
    progress.window_steps = 0
    run.window_seconds = run.window_tokens = run.window_waiting = 0.0


def save_due(run: Run, stop: str) -> bool:
    """At the start, every so many steps (not while the loss is suspicious), at a new best, and at the end."""
    step, every = run.progress.step, run.config.save_every
    periodic = every > 0 and step % every == 0 and not run.guard.suspicious
    return run.saved_step != step and (step == 0 or bool(stop) or periodic or run.progress.best_step == step)


def save_and_stop(run: Run, save_model: SaveModel | None) -> Interrupted:
    """Save everything and say how to go on."""
    if run.saved_step != run.progress.step:
        run.save()
    export(run, save_model)
    signal = run.interrupts.pending or "a signal to another process"
    return Interrupted(
        f"Stopped by {signal} at step {run.progress.step} of {run.config.steps}. Everything is saved in "
        f"{run.checkpoints.path(run.saved_step)}. To go on, give the same command with --resume (resume=True)."
    )


def export(run: Run, save_model: SaveModel | None) -> None:
    """The model for use, and the picture of its loss."""
    if not run.world.is_main:
        return
    if save_model is not None:
        write_folder(run.output / MODEL, save_model)
    if run.config.plot and run.log is not None:
        try:
            plot_metrics(run.log.path, run.output / LOSS_PICTURE)
        except InputError as error:
            run.reporter.message(f"no {LOSS_PICTURE}: {error}")


def finish(run: Run, stop: str, save_model: SaveModel | None) -> FitResult:
    """Leave the right parameters in the model, export it, and sum up."""
    progress = run.progress
    best = run.checkpoints.path(progress.best_step) if progress.best_step >= 0 else None
    if run.config.restore_best and best is not None:
        load_parameters(best, run.model)
    export(run, save_model)
    return FitResult(
        step=progress.step,
        stopped_by=stop,
        loss=progress.last_loss,
        metrics=dict(progress.metrics),
        best_step=progress.best_step,
        best_value=progress.best_value,
        tokens=progress.tokens,
        seconds=progress.seconds,
        checkpoint=run.checkpoints.path(run.saved_step),
        best_checkpoint=best,
    )
