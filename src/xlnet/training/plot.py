"""The falling loss as a picture."""

from __future__ import annotations

from pathlib import Path

from xlnet.errors import InputError
from xlnet.training.metrics_log import read_metrics
from xlnet.training.run_files import PARTIAL, disk_errors

HELD_OUT = "loss"


def smooth(values: list[float], weight: float = 0.9) -> list[float]:
    """Exponential running mean, corrected for its start so that the first value stands for itself."""
    smoothed, mean = [], 0.0
    for index, value in enumerate(values, start=1):
        mean = weight * mean + (1.0 - weight) * value
        smoothed.append(mean / (1.0 - weight**index))
    return smoothed


def plot_metrics(metrics: Path, path: Path, title: str = "", held_out: str = HELD_OUT) -> None:
    """Draw training loss (raw and smoothed) and held-out points over the steps.

    Args:
        metrics: a ``metrics.jsonl``.
        path: the picture; its suffix (``.png``, ``.svg``, ``.pdf``) decides the format.
        title: line above the picture.
        held_out: name of the evaluation metric to draw, where it was measured.

    Raises:
        InputError: when the log is missing or has no number to draw.
        MachineError: when the picture cannot be written.
    """
    if not metrics.is_file():
        raise InputError(f"{metrics} is not there; a run writes it as metrics.jsonl in its output folder.")
    train: list[tuple[int, float]] = []
    points: list[tuple[int, float]] = []
    for record in read_metrics(metrics):
        kind, value = record.get("kind"), record.get(held_out if record.get("kind") == "evaluation" else "loss")
        if value is not None and kind in ("train", "evaluation"):
            (train if kind == "train" else points).append((int(record["step"]), float(value)))
    if not train and not points:
        raise InputError(f"{metrics} holds no loss yet; train for at least log_every steps.")

    # Here and not above: the import takes a second. The object interface needs no display and no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if train:
        steps, losses = [list(column) for column in zip(*train, strict=True)]
        axes.plot(steps, losses, color="tab:blue", alpha=0.25, linewidth=0.8)
        axes.plot(steps, smooth(losses), color="tab:blue", label="training (smoothed)")
    if points:
        steps, losses = [list(column) for column in zip(*points, strict=True)]
        axes.plot(steps, losses, "o-", color="tab:orange", markersize=4, label="held out")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per target)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    partial = path.with_name(PARTIAL + path.name)
    with disk_errors(path):
        figure.savefig(partial)
        partial.replace(path)
