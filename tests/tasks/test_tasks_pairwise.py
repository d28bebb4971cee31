"""QNLI, WNLI and WSC by comparison: candidates for one text compete, in training and in the answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from task_toys import toy_run
from torch import nn

from xlnet.errors import ConfigurationError
from xlnet.tasks.datasets.registry import BENCHMARKS
from xlnet.tasks.families.pairwise import PairwiseClassification
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.text import XLNetTokenizer

TASK = PairwiseClassification(name="toy", max_length=32, pair_column="pair")


def example(name: str, text: str, pair: str, label: str | None) -> TextExample:
    return TextExample(name, text, pair, label)


GROUPED = [
    example("a", "who", "value", "1"), example("b", "who", "class", "0"), example("c", "who", "module", "0"),
    example("d", "what", "value", "0"), example("e", "when", "table", "1"), example("f", "who", "list", "1"),
]  # fmt: skip


class Scores(nn.Module):
    """Gives these numbers, a sequence each."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, **inputs: Any) -> Any:
        return SimpleNamespace(logits=self.values[:, None])


def test_rows_are_right_beside_wrong_and_lone_examples(tokenizer: XLNetTokenizer) -> None:
    rows = TASK.features(GROUPED, tokenizer, training=True)
    assert [(GROUPED[row.example].id, len(row.sequences)) for row in rows] == [
        ("a", 2), ("a", 2), ("f", 2), ("f", 2), ("d", 1), ("e", 1),
    ]  # fmt: skip
    plain = TASK.features(GROUPED, tokenizer, training=False)
    assert [len(row.sequences) for row in plain] == [1] * 6
    assert rows[1].sequences[0] is not rows[1].sequences[1]
    assert rows[1].sequences[1].input_ids.tolist() == plain[2].sequences[0].input_ids.tolist()


@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_the_loss_is_that_of_the_formula(weight: float, tokenizer: XLNetTokenizer) -> None:
    task = replace(TASK, margin_weight=weight, margin=0.4)
    rows = task.features(GROUPED, tokenizer, training=True)
    batch = task.collate([rows[0], rows[4], rows[5]])
    model = Scores([1.0, 0.8, 2.0, 0.3])
    step = task.loss(model, batch)
    leads = [0.2, -2.0, 0.3]
    wanted = sum(math.log1p(math.exp(-lead)) + weight * max(0.0, 0.4 - lead) for lead in leads)
    assert step.count == 3
    assert step.loss_sum.item() == pytest.approx(wanted, rel=1e-5)
    step.loss_sum.backward()
    gradient = model.values.grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert gradient[0] < 0 < gradient[1]
    assert gradient[2] > 0 > gradient[3]


def test_the_best_of_a_group_is_right_and_a_lone_one_above_zero(tokenizer: XLNetTokenizer) -> None:
    task = replace(TASK, label_names=("no", "yes"), positive="yes")
    rows = task.features(GROUPED, tokenizer, training=False)
    outputs = [np.array([value], dtype=np.float32) for value in (-3.0, -1.0, -2.0, -0.1, 0.1, -4.0)]
    found = task.predictions(GROUPED, rows, outputs)
    assert [p["label"] for p in found] == ["no", "yes", "no", "no", "yes", "no"]
    assert [p["id"] for p in found] == list("abcdef")
    assert sum(found[i]["probabilities"]["yes"] for i in (0, 1, 2, 5)) == pytest.approx(1.0)
    assert found[4]["probabilities"]["yes"] == pytest.approx(1 / (1 + math.exp(-0.1)))
    assert list(found[0]["probabilities"]) == ["no", "yes"]


def test_it_learns_saves_and_answers_alike(tmp_path: Path) -> None:
    words = ["value", "class", "module", "table", "list", "file"]
    examples = [
        example(f"{i}{side}", f"question {words[i % 6]} {words[i // 6 % 6]}", pair, label)
        for i in range(12)
        for side, pair, label in (("r", "good", "1"), ("w", "bad", "0"))
    ]
    task = replace(TASK, margin_weight=1.0)
    tuned = toy_run(tmp_path / "run", task, examples, steps=40, batch_size=6)
    assert tuned.evaluate(examples)["accuracy"] == 1.0
    again = FineTuned.from_pretrained(tmp_path / "run" / "model", device="cpu")
    assert again.task == task
    assert [p["label"] for p in again.predict(examples)] == [e.label for e in examples]


def test_the_benchmarks_read_the_plain_files(tmp_path: Path) -> None:
    lines = ["index\tquestion\tsentence\tlabel", "0\tWho?\tHe.\tentailment", "1\tWho?\tNo.\tnot_entailment"]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    found = BENCHMARKS["qnli-ranking"]
    assert found.read(tmp_path, "train") == BENCHMARKS["qnli"].read(tmp_path, "train")
    assert found.submission == ("QNLI.tsv",)
    assert json.loads(json.dumps(found.task.settings()))["positive"] == "entailment"
    for name in ("wnli-ranking", "wsc-ranking"):
        task = BENCHMARKS[name].task
        assert isinstance(task, PairwiseClassification)
        assert task.margin_weight == 5.0


@pytest.mark.parametrize(
    "changes",
    [
        {"positive": "2"}, {"label_names": ("0", "1", "2")}, {"margin": -1.0}, {"margin_weight": float("nan")},
        {"class_weights": (1.0, 2.0)}, {"label_smoothing": 0.1}, {"long_text": "windows"},
    ],
)  # fmt: skip
def test_settings_that_cannot_hold_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        PairwiseClassification(**changes)
