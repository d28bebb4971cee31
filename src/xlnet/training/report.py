"""What the user sees while a run goes on: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn


@dataclass(frozen=True)
class StepReport:
    """Numbers of the last ``log_every`` steps.

    Attributes:
        step: steps done.
        steps: steps planned.
        loss: mean over targets, nats.
        learning_rate: of the last step.
        gradient_norm: of the last step, before clipping.
        tokens_per_second: positions read, all processes together.
        eta_seconds: time left to the last planned step or to the time limit, whichever comes first.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    eta_seconds: float


class Reporter(Protocol):
    """Receives the news of a run, in process 0 only."""

    def start(self, steps: int, done: int) -> None: ...

    def step(self, report: StepReport) -> None: ...

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def message(self, text: str) -> None: ...

    def close(self) -> None: ...


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def describe(report: StepReport, perplexity: bool) -> str:
    """One line of numbers without the step."""
    likelihood = f"  perplexity {math.exp(min(report.loss, 700.0)):.4g}" if perplexity else ""
    return (
        f"loss {report.loss:.4f}{likelihood}  {report.tokens_per_second:,.0f} tokens/s  "
        f"lr {report.learning_rate:.2e}  ETA {clock(report.eta_seconds)}"
    )


def describe_metrics(metrics: Mapping[str, float]) -> str:
    """``loss 3.21  accuracy 0.9``."""
    return "  ".join(f"{name} {value:.5g}" for name, value in metrics.items())


class SilentReporter:
    """Says nothing."""

    def start(self, steps: int, done: int) -> None:
        """Nothing."""

    def step(self, report: StepReport) -> None:
        """Nothing."""

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainReporter:
    """A line on standard error for each piece of news.

    Args:
        perplexity: whether exp(loss) means something for this run.
    """

    def __init__(self, perplexity: bool = True) -> None:
        self.perplexity = perplexity

    def _line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def start(self, steps: int, done: int) -> None:
        """Where the run stands."""
        self._line(f"training: step {done} of {steps}")

    def step(self, report: StepReport) -> None:
        """The numbers."""
        self._line(f"step {report.step}/{report.steps}  {describe(report, self.perplexity)}")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """The held-out numbers."""
        self._line(f"step {step}  held out: {describe_metrics(metrics)}")

    def message(self, text: str) -> None:
        """Anything else."""
        self._line(text)

    def close(self) -> None:
        """Nothing to put away."""


class LiveReporter:
    """A bar that stays in place; evaluations and messages scroll above it.

    Args:
        perplexity: whether exp(loss) means something for this run.
        console: where to draw, standard error by default.
    """

    def __init__(self, perplexity: bool = True, console: Console | None = None) -> None:
        self.perplexity = perplexity
        self.progress = Progress(
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            console=console or Console(stderr=True),
        )
        self._task: TaskID | None = None

    def start(self, steps: int, done: int) -> None:
        """Draw the bar."""
        self._task = self.progress.add_task("starting", total=steps, completed=done)
        self.progress.start()

    def step(self, report: StepReport) -> None:
        """Move the bar."""
        if self._task is not None:
            description = describe(report, self.perplexity)
            self.progress.update(self._task, completed=report.step, description=description)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """A line above the bar."""
        self.message(f"step {step}  held out: {describe_metrics(metrics)}")

    def message(self, text: str) -> None:
        """A line above the bar."""
        self.progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self.progress.stop()


def default_reporter(perplexity: bool = True) -> Reporter:
    """Live on a terminal, plain lines where the output goes to a file or a pipe."""
    return LiveReporter(perplexity) if sys.stderr.isatty() else PlainReporter(perplexity)
