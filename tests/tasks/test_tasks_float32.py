"""Fine-tuning and prediction choose the float32 products by their setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from task_toys import quick, toy_config, toy_run, toy_texts, toy_tokenizer

from xlnet.errors import ConfigurationError
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.starting import start_model
from xlnet.training.report import SilentReporter


@pytest.mark.parametrize(("setting", "word"), [("auto", "bf16"), ("onednn", "bf16"), ("default", None)])
def test_a_run_and_what_comes_of_it(setting: str, word: str | None, tmp_path: Path, products_seen: Callable) -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    word = word or before
    task, examples = TextClassification(name="toy", max_length=32), toy_texts(12)
    model = start_model(toy_config(), task, seed=1)
    seen = products_seen(model)
    config = quick(float32_products=setting, steps=3)
    tuned = finetune(
        model, toy_tokenizer(), task, TaskData(examples, {"dev": examples}), config, tmp_path, reporter=SilentReporter()
    )
    assert json.loads((tmp_path / "run.json").read_text())["fit"]["float32_products"] == setting
    for use in (lambda: None, lambda: tuned.predict(examples), lambda: tuned.evaluate(examples),
                lambda: tuned.embed(["good", "bad code"])):  # fmt: skip
        use()
        assert set(seen) == {word}
        seen.clear()
        seen.append(word)
    seen.clear()
    replace(tuned, float32_products="default").predict(examples)
    assert set(seen) == {before}
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.usefixtures("onednn")
def test_predictions_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    task, examples = TextClassification(name="toy", max_length=32), toy_texts(24)
    wide = toy_config(d_model=128, d_head=64, d_inner=256)
    data = TaskData(examples, {"dev": examples[:8]})
    tuned = finetune(
        start_model(wide, task, seed=1), toy_tokenizer(), task, data, quick(), tmp_path, reporter=SilentReporter()
    )
    together, alone = tuned.predict(examples, batch_size=24), tuned.predict(examples, batch_size=1)
    for one, other in zip(together, alone, strict=True):
        assert one["label"] == other["label"]
        for label, value in one["probabilities"].items():
            assert abs(value - other["probabilities"][label]) < 2e-5
    embedded = [tuned.embed([example.text for example in examples], batch_size=size) for size in (24, 1)]
    torch.testing.assert_close(*embedded, rtol=2e-5, atol=2e-5)


def test_unknown_word(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"float32_products='onednm'.*Did you mean 'onednn'"):
        toy_run(tmp_path, float32_products="onednm")
