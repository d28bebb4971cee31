"""Every kind of task trains and predicts in bfloat16, close to float32; predictions do not depend on labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_toys import toy_config, toy_run, toy_texts, toy_tokenizer
from test_tasks_overfit import families

from xlnet.errors import ConfigurationError
from xlnet.processor import Processor
from xlnet.tasks.families.pairwise import PairwiseClassification
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.predicting import predict_examples, run_rows
from xlnet.tasks.squad.examples import Answer, SquadExample
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.tasks.starting import start_model
from xlnet.training import precision as precision_module
from xlnet.training.precision import autocast

PASSAGE = "The value of a class is the name of its module."
CASES: dict[str, tuple[Any, list[Any]]] = {
    **families(),
    "compared": (PairwiseClassification(max_length=32), toy_texts(100)),
    "squad2": (
        QuestionAnswering(max_length=32, max_query_length=8),
        [SquadExample(str(i), "What is it?", PASSAGE, (Answer("value", 4),) if i % 2 else ()) for i in range(16)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_training_and_outputs_in_bfloat16(name: str, tmp_path: Path) -> None:
    task, examples = CASES[name]
    examples = examples[:16]
    tuned = toy_run(tmp_path / "run", task, examples, precision="bfloat16", steps=3)
    assert tuned.precision == "bfloat16"
    assert tuned.fit is not None
    assert np.isfinite(tuned.fit.loss)
    assert {p.dtype for p in tuned.model.parameters()} == {torch.float32}
    rows = task.features(examples, tuned.tokenizer, training=False)
    found = []
    for precision in ("float32", "bfloat16"):
        with autocast(tuned.model.device, precision):  # type: ignore[arg-type]
            outputs = run_rows(tuned.model, task, rows, device=tuned.model.device)
        if name == "squad2":
            outputs = [np.array([beams.cls_logit], dtype=np.float32) for beams in outputs]
        found.append(np.concatenate([np.ravel(output) for output in outputs]))
    assert found[0].dtype == found[1].dtype == np.float32
    assert not np.array_equal(*found)
    np.testing.assert_allclose(*found, atol=0.05 * max(1.0, float(np.abs(found[0]).max())))
    assert set(tuned.evaluate(examples)) == set(tuned.metrics)


ODD_LABELS = {
    "classification": "nobody's", "multi_label": ("nobody's",), "choice": (77,), "tokens": ("no", "such", "tag"),
    "listwise": {"0": 1e9}, "compared": "nobody's", "regression": float("inf"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_LABELS)
def test_prediction_does_not_look_at_labels(name: str) -> None:
    task, examples = CASES[name]
    odd, none = ([replace(e, label=label) for e in examples[:6]] for label in (ODD_LABELS[name], None))
    model = start_model(toy_config(), task, seed=1)
    assert predict_examples(model, toy_tokenizer(), task, odd) == predict_examples(model, toy_tokenizer(), task, none)


def test_a_loaded_model_predicts_in_what_it_is_told(tuned: FineTuned, tmp_path: Path) -> None:
    tuned.save_pretrained(tmp_path)
    half = FineTuned.from_pretrained(tmp_path, device="cpu", precision="bfloat16")
    texts = ["good value", "bad class of a module", ""]
    near, exact = half.predict(texts), tuned.predict(texts)
    for a, b in zip(near, exact, strict=True):
        assert a["probabilities"] != b["probabilities"]
        assert a["probabilities"]["1"] == pytest.approx(b["probabilities"]["1"], abs=0.02)
    vectors = half.embed(texts)
    assert vectors.dtype == torch.float32
    assert not torch.equal(vectors, tuned.embed(texts))
    torch.testing.assert_close(vectors, tuned.embed(texts), atol=0.05, rtol=0.05)


@pytest.mark.parametrize(("vendor", "count"), [("AuthenticAMD", 0), ("GenuineIntel", 1)])
def test_who_loads_in_an_arithmetic_that_is_slower_here_is_told(
    vendor: str, count: int, tuned: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    machine = Processor(vendor, "AVX512", frozenset({"avx512_bf16"}))
    monkeypatch.setattr(precision_module, "processor", lambda: machine)
    tuned.save_pretrained(tmp_path)
    for precision in ("float32", "bfloat16"):
        FineTuned.from_pretrained(tmp_path, device="cpu", precision=precision).predict(["good value"])  # type: ignore[arg-type]
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == count and all("float32, which is faster here" in text for text in said)


def test_float16_needs_a_gpu_and_words_are_checked(tuned: FineTuned) -> None:
    for precision, text in (("float16", "needs CUDA"), ("half", "bfloat16")):
        other = FineTuned(tuned.model, tuned.tokenizer, tuned.task, precision=precision)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=text):
            other.predict(["good"])
