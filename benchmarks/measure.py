"""What all benchmarks share: medians with their spread, fresh processes for peak memory, the machine in words."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from xlnet.processor import processor


@dataclass
class Timing:
    """Seconds by the clock and of CPU for each run; peak memory of the process in MB."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def cpu_median(self) -> float:
        """CPU seconds, which other processes on the machine disturb less."""
        return statistics.median(self.cpu)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.wall) - min(self.wall)) / self.median

    def add(self, other: Timing) -> None:
        """Append another process's runs of the same work."""
        self.wall += other.wall
        self.cpu += other.cpu
        self.peak_mb = max(self.peak_mb, other.peak_mb)


def timed(work: Callable[[], object], runs: int, warm_up: int = 2) -> Timing:
    """Run and measure; on CUDA the device is waited for."""

    def wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    for _ in range(warm_up):
        work()
    timing = Timing()
    for _ in range(runs):
        wait()
        start, start_cpu = time.perf_counter(), time.process_time()
        work()
        wait()
        timing.wall.append(time.perf_counter() - start)
        timing.cpu.append(time.process_time() - start_cpu)
    timing.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return timing


def fresh_process(script: str, arguments: dict[str, Any]) -> Timing:
    """Run ``script --worker JSON`` in a process of its own, which prints a timing as JSON on its last line.

    Raises:
        RuntimeError: with what the process wrote, where it failed.
    """
    done = subprocess.run(
        [sys.executable, script, "--worker", json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{arguments} failed:\n{done.stderr[-2000:]}")
    return Timing(**json.loads(done.stdout.strip().splitlines()[-1]))


def report(timing: Timing) -> None:
    """The last line of a worker."""
    print(json.dumps(asdict(timing)))


def alternate(script: str, contenders: dict[str, dict[str, Any]], rounds: int) -> dict[str, Timing]:
    """Measure contenders in turn, several rounds, so that a slow drift of the machine meets all of them."""
    timings: dict[str, Timing] = {name: Timing() for name in contenders}
    for _ in range(rounds):
        for name, arguments in contenders.items():
            timings[name].add(fresh_process(script, arguments))
    return timings


def comparison(text: str | None, backends: list[str], runs: int = 5, rounds: int = 2) -> argparse.ArgumentParser:
    """A command line with what every comparison takes; ``text`` is the script's own."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=backends, help="attention backends to measure")
    parser.add_argument("--runs", type=int, default=runs, help="timed runs in each process")
    parser.add_argument("--rounds", type=int, default=rounds, help="processes for each contender, taken in turn")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    return parser


def machine() -> str:
    """Processor, cores in use, load and versions."""
    model = ", ".join(sorted(processor().models)) or platform.processor() or platform.machine()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{model}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads{load}; "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def matrix_product_rate(dtype: torch.dtype, size: int = 1024, runs: int = 5) -> float:
    """GFLOP/s of a square product in ``dtype``: what the machine can do at best."""
    left, right = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    out = torch.empty(size, size, dtype=dtype)
    return 2 * size**3 / timed(lambda: torch.mm(left, right, out=out), runs).median / 1e9


def table(rows: list[list[str]]) -> str:
    """Markdown; the first row is the head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)
