"""The loop chooses the float32 products by its setting, which a resumed run must keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training_toys import ToyStream, parameters, toy_config, toy_evaluate, toy_model, toy_objective

from xlnet.errors import ConfigurationError
from xlnet.training.loop import fit
from xlnet.training.report import SilentReporter


@pytest.mark.parametrize(("setting", "word"), [("auto", "bf16"), ("onednn", "bf16"), ("default", None)])
def test_steps_and_evaluations_run_inside(
    setting: str, word: str | None, tmp_path: Path, products_seen: Callable
) -> None:
    before, model = torch.backends.mkldnn.matmul.fp32_precision, toy_model()
    seen, backward = products_seen(model), []
    model.lm_head.weight.register_hook(lambda _: backward.append(torch.backends.mkldnn.matmul.fp32_precision))
    config = toy_config(steps=2, float32_products=setting)
    fit(model, toy_objective, ToyStream(lane_groups=2), config, tmp_path, evaluate=toy_evaluate,
        reporter=SilentReporter())  # fmt: skip
    assert set(seen) == set(backward) == {word or before}
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_an_error_puts_the_switch_back(tmp_path: Path, products_seen: Callable) -> None:
    def refuse(*_: object) -> None:
        raise ZeroDivisionError

    before, model = torch.backends.mkldnn.matmul.fp32_precision, toy_model()
    products_seen(model)
    with pytest.raises(ZeroDivisionError):
        fit(model, refuse, ToyStream(), toy_config(), tmp_path, reporter=SilentReporter())  # type: ignore[arg-type]
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.usefixtures("onednn")
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    ends = []
    for output, steps in ((tmp_path / "whole", (6,)), (tmp_path / "parts", (4, 6))):
        for number, stop in enumerate(steps):
            model = toy_model()
            config = toy_config(steps=6, save_every=2, float32_products="onednn", resume=number > 0)
            stream = ToyStream(lane_groups=2)
            if stop < 6:
                with pytest.raises(StopAt):
                    fit(model, stopping(stop), stream, config, output, reporter=SilentReporter())
            else:
                fit(model, toy_objective, stream, config, output, reporter=SilentReporter())
        ends.append(parameters(model))
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


class StopAt(Exception):
    """What a killed run is in this test."""


def stopping(step: int) -> Callable:
    """The objective, until it has been asked for so many steps of two micro-batches."""
    asked = 0

    def objective(*arguments: object) -> object:
        nonlocal asked
        asked += 1
        if asked > 2 * step:
            raise StopAt
        return toy_objective(*arguments)  # type: ignore[arg-type]

    return objective


def test_a_resumed_run_keeps_the_setting(tmp_path: Path) -> None:
    def train(**changes: object) -> None:
        config = toy_config(**{"steps": 2, **changes})
        fit(toy_model(), toy_objective, ToyStream(lane_groups=2), config, tmp_path, reporter=SilentReporter())

    train(float32_products="default")
    with pytest.raises(ConfigurationError, match=r"float32_products='auto'.*started with float32_products='default'"):
        train(resume=True, steps=4)
    settings = json.loads((tmp_path / "run.json").read_text())
    del settings["fit"]["float32_products"]
    (tmp_path / "run.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigurationError, match="started with float32_products='default'"):
        train(resume=True, steps=4)
    train(resume=True, steps=4, float32_products="default")
