"""What is shown, drawn and logged."""

from __future__ import annotations

import io
import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from xlnet.errors import InputError, MachineError
from xlnet.training.metrics_log import MetricsLog, read_metrics
from xlnet.training.plot import plot_metrics, smooth
from xlnet.training.report import (
    LiveReporter,
    PlainReporter,
    Reporter,
    SilentReporter,
    StepReport,
    clock,
    default_reporter,
)

REPORT = StepReport(
    step=20, steps=100, loss=2.0, learning_rate=1e-3, gradient_norm=0.5, tokens_per_second=12345.6, eta_seconds=75
)


def tell(reporter: Reporter) -> None:
    reporter.start(100, 10)
    reporter.step(REPORT)
    reporter.evaluation(20, {"loss": 1.5, "accuracy": 0.25})
    reporter.message("warning: [disk] nearly full")
    reporter.close()


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    tell(PlainReporter())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: step 10 of 100"
    assert lines[1] == "step 20/100  loss 2.0000  perplexity 7.389  12,346 tokens/s  lr 1.00e-03  ETA 1:15"
    assert lines[2] == "step 20  held out: loss 1.5  accuracy 0.25"
    assert lines[3] == "warning: [disk] nearly full"
    tell(PlainReporter(perplexity=False))
    assert "perplexity" not in capsys.readouterr().err


def test_live_display() -> None:
    stream = io.StringIO()
    tell(LiveReporter(console=Console(file=stream, force_terminal=True, width=140)))
    text = stream.getvalue()
    for part in ("20/100", "perplexity 7.389", "12,346 tokens/s", "accuracy 0.25", "[disk]"):
        assert part in text


def test_default_depends_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(default_reporter(), PlainReporter)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(default_reporter(), LiveReporter)
    tell(SilentReporter())


def test_clock() -> None:
    assert [clock(s) for s in (0, 59.6, 3600, 3725, math.inf, math.nan)] == [
        "0:00", "1:00", "1:00:00", "1:02:05", "-:--", "-:--",
    ]  # fmt: skip


def test_huge_losses_do_not_break_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    PlainReporter().step(StepReport(1, 2, 1e6, 0.0, 0.0, 0.0, 0.0))
    assert "loss 1000000.0000" in capsys.readouterr().err


def test_log_round_trip_and_cut(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, tensorboard=False)
    for step in range(1, 6):
        log.write("train", step, {"loss": 1.0 / step if step < 5 else math.nan})
    log.close()
    assert [r["loss"] for r in read_metrics(log.path)][3:] == [0.25, None]
    MetricsLog(tmp_path, after_step=3, tensorboard=False).close()
    assert [r["step"] for r in read_metrics(log.path)] == [1, 2, 3]
    log.path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl:2 is not a JSON object: 'nonsense'"):
        list(read_metrics(log.path))


def test_log_on_a_full_disk(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    log = object.__new__(MetricsLog)
    log.path, log._board = tmp_path / "metrics.jsonl", None
    log._file = log.path.open("w")
    with pytest.raises(MachineError, match="No space left"):
        log.write("train", 1, {"loss": 1.0})


def test_picture(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    records = [{"kind": "train", "step": s, "loss": 5.0 / s} for s in range(1, 50)]
    records += [{"kind": "evaluation", "step": s, "loss": 6.0 / s, "accuracy": 0.1} for s in (1, 25, 49)]
    records += [{"kind": "train", "step": 50, "loss": None}]
    log.write_text("".join(json.dumps(r) + "\n" for r in records))
    plot_metrics(log, tmp_path / "loss.png", title="a title")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "loss.png").stat().st_size > 5000
    plot_metrics(log, tmp_path / "loss.svg", held_out="accuracy")
    text = (tmp_path / "loss.svg").read_text()
    assert "<svg" in text
    log.write_text("")
    with pytest.raises(InputError, match="holds no loss yet"):
        plot_metrics(log, tmp_path / "none.png")
    with pytest.raises(InputError, match="is not there"):
        plot_metrics(tmp_path / "nothing.jsonl", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_smoothing_starts_with_the_first_value_and_keeps_a_constant() -> None:
    assert smooth([3.0, 3.0, 3.0]) == pytest.approx([3.0, 3.0, 3.0])
    assert smooth([4.0, 0.0])[0] == pytest.approx(4.0)
    values = smooth([float(i) for i in range(100)])
    assert all(a < b for a, b in pairwise(values)) and values[-1] < 99
