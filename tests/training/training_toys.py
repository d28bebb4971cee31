"""A small recurrent language model with dropout and carried state, its endless stream; running, stopping, comparing."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from xlnet.errors import XLNetError
from xlnet.training.config import FitConfig
from xlnet.training.contracts import Step
from xlnet.training.distributed import Shard, World
from xlnet.training.loop import FitResult, fit
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.report import SilentReporter, StepReport
from xlnet.training.schedule import ScheduleConfig

VOCABULARY = 11

# Each process is forked from a server that has imported torch and started no thread. Forked from the test process
# itself, a child may inherit a lock that one of its many threads held at that moment, and never end.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["xlnet.training.loop"])


class ToyModel(nn.Module):
    """Embedding, one recurrent layer, dropout, output; ``[B, L]`` ids and ``[B, D]`` state to logits and state."""

    def __init__(self, dropout: float = 0.2, width: int = 8) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList([nn.GRU(width, width, batch_first=True)])
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.lm_head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.layers[0](self.dropout(self.word_embedding(ids)), hidden[None])
        return self.lm_head(self.dropout(self.norm(states))), last[0]


@dataclass
class ToyBatch:
    """``[B, L + 1]`` tokens, and which lanes they belong to."""

    tokens: Tensor
    group: int

    @property
    def token_count(self) -> int:
        return self.tokens[:, 1:].numel()


class ToyStream:
    """``lane_groups`` groups of ``rows`` lanes; every lane counts upwards in steps of its own, with noise."""

    def __init__(self, rows: int = 2, lane_groups: int = 1, length: int = 6, only_rows: slice = slice(None)) -> None:
        self.rows, self.lane_groups, self.length, self.only_rows = rows, lane_groups, length, only_rows
        self.position = 0
        self.poison: dict[int, str] = {}

    def __next__(self) -> ToyBatch:
        group, turn = self.position % self.lane_groups, self.position // self.lane_groups
        generator = torch.Generator().manual_seed(self.position)
        lanes = torch.arange(self.rows)[:, None] + self.rows * group
        where = torch.arange(self.length + 1)[None] + turn * self.length
        noise = torch.randint(0, 2, where.shape, generator=generator)
        self.position += 1
        return ToyBatch(((lanes + 1) * where + noise)[self.only_rows] % VOCABULARY, group)

    def state(self) -> dict[str, Any]:
        return {"position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def toy_objective(model: nn.Module, batch: ToyBatch, carried: dict[str, Tensor] | None) -> Step:
    """Next-token loss; every row drops targets of its own so that counts differ between micro-batches."""
    hidden = torch.zeros(len(batch.tokens), 8) if carried is None else carried["hidden"]
    logits, last = model(batch.tokens[:, :-1], hidden)
    labels = batch.tokens[:, 1:].clone()
    labels[labels == batch.tokens[:, :1]] = -100
    loss = nn.functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100
    )
    return Step(loss, (labels != -100).sum(), {"hidden": last.detach().float()})


def toy_evaluate(model: nn.Module) -> dict[str, float]:
    """Mean loss on batches far away; draws random numbers on purpose, which training must not notice."""
    torch.rand(3)
    stream = ToyStream(rows=4)
    stream.position = 10_000
    batches = [next(stream) for _ in range(3)]
    steps = [toy_objective(model, batch, None) for batch in batches]
    return {"loss": float(sum(s.loss_sum for s in steps) / sum(s.count for s in steps))}


def toy_model(seed: int = 1, dropout: float = 0.2) -> ToyModel:
    torch.manual_seed(seed)
    return ToyModel(dropout)


def toy_config(**changes: Any) -> FitConfig:
    settings: dict[str, Any] = {
        "steps": 12,
        "accumulation": 2,
        "optimizer": OptimizerConfig(learning_rate=0.02),
        "schedule": ScheduleConfig(warmup_steps=2),
        "save_every": 4,
        "log_every": 3,
        "device": "cpu",
        "tensorboard": False,
        "plot": False,
    }
    return FitConfig(**{**settings, **changes})


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def train_alone(output: Path, options: dict[str, Any], environment: dict[str, str], messages: Path) -> None:
    """Body of a process of its own; a stop is a message and an exit code, as on the command line."""
    torch.set_num_threads(1)
    os.environ.update(environment)
    sys.exit(_train(output, dict(options), messages))


def _train(output: Path, options: dict[str, Any], messages: Path) -> int:
    rows, share = options.pop("rows", 2), options.pop("share", "")
    world = World.from_environment()
    model = toy_model(dropout=options.pop("dropout", 0.2))
    stream: Any = ToyStream(rows=rows, lane_groups=options.get("accumulation", 2))
    if share == "rows":
        each = rows // world.size
        stream.only_rows = slice(world.rank * each, (world.rank + 1) * each)
    elif share == "items":
        stream = Shard(ToyStream(rows=rows, lane_groups=options.get("accumulation", 2) * world.size), world)
    if options.pop("sgd", False):
        options["optimizer"] = OptimizerConfig(kind="release", learning_rate=0.02, epsilon=0.5)
    config = toy_config(**options)
    try:
        result = fit(
            model, toy_objective, stream, config, output, evaluate=toy_evaluate, reporter=SilentReporter(),
            save_model=lambda folder: torch.save(model.state_dict(), folder / "weights.pt"),
        )  # fmt: skip
    except XLNetError as error:
        messages.write_text(str(error))
        return error.exit_code
    if world.is_main:
        torch.save({"parameters": model.state_dict(), "loss": result.loss}, output / "end.pt")
    return 0


def start(output: Path, environment: dict[str, str] | None = None, **options: Any) -> BaseProcess:
    """Train in a process of its own, to be killed or interrupted."""
    messages = output.with_name(f"{output.name}-{(environment or {}).get('RANK', '0')}.txt")
    process = PROCESSES.Process(target=train_alone, args=(output, options, environment or {}, messages))
    process.start()
    return process


class Collector(SilentReporter):
    """Remembers the news."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self.evaluations: list[tuple[int, dict]] = []
        self.messages: list[str] = []

    def step(self, report: StepReport) -> None:
        self.reports.append(report)

    def evaluation(self, step: int, metrics: Any) -> None:
        self.evaluations.append((step, dict(metrics)))

    def message(self, text: str) -> None:
        self.messages.append(text)


def run(output: Path, *, model: nn.Module | None = None, stream: Any = None, objective: Any = toy_objective,
        evaluate: Any = toy_evaluate, reporter: Any = None, save_model: Any = None, **changes: Any,
        ) -> tuple[nn.Module, FitResult]:  # fmt: skip
    model = model or toy_model()
    config = toy_config(**changes)
    stream = stream or ToyStream(lane_groups=config.accumulation)
    reporter = reporter or SilentReporter()
    return model, fit(
        model, objective, stream, config, output, evaluate=evaluate, reporter=reporter, save_model=save_model
    )


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parameters(a).values(), parameters(b).values(), strict=True))


def stop_after(calls: int, act: Callable[[], None]) -> Any:
    """The toy objective that acts once, after so many calls."""
    count = 0

    def objective(model: nn.Module, batch: ToyBatch, carried: Any) -> Step:
        nonlocal count
        count += 1
        step = toy_objective(model, batch, carried)
        if count == calls:
            act()
        return step

    return objective


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def timeless(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second", "waiting")} for r in records]
