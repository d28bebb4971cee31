"""How step time and memory grow with length: quadratic time at most, memory linear in length.

    python benchmarks/growth.py [--lengths 512 1024 2048 4096] [--backends auto reference] [--plot growth.png] [--quick]

One layer-stack of the small shape, batch 1, no memory, a sixth predicted; each point in a fresh process. ``power`` is
the exponent between neighbouring lengths; memory counts what comes on top of a process that has only built the model.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from contenders import SHAPES, pretraining_step
from measure import Timing, comparison, fresh_process, machine, report, table, timed


def worker(arguments: dict[str, Any]) -> None:
    """One length in this process; length 16 stands for a process that holds nothing but the model."""
    torch.manual_seed(0)
    length = arguments["length"]
    shape = dataclasses.replace(SHAPES["small"], batch=1, length=length, memory=0, targets=max(1, length // 6))
    report(timed(pretraining_step(shape, torch.float32, arguments["backend"]), arguments["runs"], 1))


def powers(lengths: list[int], values: list[float]) -> list[float]:
    """Exponent of the growth between neighbours; the first has none."""
    pairs = zip(zip(lengths, values, strict=True), zip(lengths[1:], values[1:], strict=True), strict=False)
    return [math.nan] + [math.log(max(b, 1e-9) / max(a, 1e-9)) / math.log(n / m) for (m, a), (n, b) in pairs]


def main() -> None:
    parser = comparison(__doc__, ["auto"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--plot")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    if options.quick:
        options.lengths, options.runs = [256, 512, 1024], 1
    print(machine())
    rows = [["backend", "length", "step s", "power", "MB above the model", "power"]]
    curves: dict[str, list[Timing]] = {}
    for backend in options.backends:
        empty = fresh_process(__file__, {"length": 16, "backend": backend, "runs": 1})
        points = [
            fresh_process(__file__, {"length": length, "backend": backend, "runs": options.runs})
            for length in options.lengths
        ]
        curves[backend] = points
        extra = [max(0.0, point.peak_mb - empty.peak_mb) for point in points]
        times = [point.median for point in points]
        for length, seconds, p, mb, q in zip(
            options.lengths, times, powers(options.lengths, times), extra, powers(options.lengths, extra), strict=True
        ):
            rows.append([backend, str(length), f"{seconds:.3f}", f"{p:.2f}", f"{mb:.0f}", f"{q:.2f}"])
    print(table(rows))
    if options.plot:
        draw(options.plot, options.lengths, curves)


def draw(path: str, lengths: list[int], curves: dict[str, list[Timing]]) -> None:
    """Time and memory against length, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, points in curves.items():
        left.loglog(lengths, [point.median for point in points], "o-", label=name)
        right.loglog(lengths, [point.peak_mb for point in points], "o-", label=name)
    for axis, title in ((left, "seconds per step"), (right, "peak memory in MB")):
        axis.set_xlabel("length in tokens")
        axis.set_title(title)
        axis.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
