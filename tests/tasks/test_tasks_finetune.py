"""Fine-tuning: parity with an independent implementation, exact resume, best weights, seeds, and what can be frozen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_toys import quick, toy_config, toy_run, toy_texts, toy_tokenizer
from torch import nn

from xlnet.checkpoints import convert
from xlnet.errors import ConfigurationError, InputError
from xlnet.model import XLNetLMHeadModel
from xlnet.tasks.batches import BucketedBatches
from xlnet.tasks.families.classification import TextClassification, balanced_weights
from xlnet.tasks.families.multiple_choice import MultipleChoice, spread_choices
from xlnet.tasks.families.ranking import Ranking, ranking_loss
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.freezing import freeze_layers
from xlnet.tasks.lora import add_lora, merged
from xlnet.tasks.seeds import finetune_seeds
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.tasks.starting import start_model
from xlnet.training.report import SilentReporter, StepReport
from xlnet.training.schedule import ScheduleConfig, factor


class Losses(SilentReporter):
    """Keeps the loss of every step; may break off."""

    def __init__(self, stop_at: int = -1) -> None:
        self.losses: list[float] = []
        self.stop_at = stop_at

    def step(self, report: StepReport) -> None:
        self.losses.append(report.loss)
        if report.step == self.stop_at:
            raise RuntimeError("broken off")


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_first_ten_losses_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    examples: list[Any] = toy_texts(40)
    task: Any = TextClassification(name="toy", max_length=32)
    if kind == "regression":
        examples = [replace(e, label=float(i % 5)) for i, e in enumerate(examples)]
        task = TextRegression(name="toy", max_length=32)
    tokenizer, config = toy_tokenizer(), quick(steps=10, learning_rate=1e-3, weight_decay=0.0, log_every=1)
    model = start_model(toy_config(), task, seed=2)
    model.save_pretrained(tmp_path / "native")
    convert(tmp_path / "native", tmp_path / "hf", "hf")
    theirs = transformers.XLNetForSequenceClassification.from_pretrained(tmp_path / "hf")
    reporter = Losses()
    finetune(model, tokenizer, task, TaskData(examples), config, tmp_path / "run", reporter=reporter)

    theirs.train()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3, eps=config.epsilon, weight_decay=0.0)
    batches = BucketedBatches(task, task.features(examples, tokenizer, training=True), 8, seed=config.seed)
    schedule = ScheduleConfig(warmup_steps=1)
    losses = []
    for step in range(10):
        batch = next(batches)
        inputs = {**batch.inputs, "attention_mask": batch.inputs["attention_mask"].float()}
        loss = theirs(**inputs, labels=batch.labels["targets"]).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = 1e-3 * factor(step, 10, schedule)
        optimizer.step()
    assert np.allclose(reporter.losses, losses, atol=1e-5, rtol=0)
    assert len(set(np.round(losses, 4))) == 10


def test_a_run_that_broke_off_goes_on_bit_for_bit(tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=32)
    data = TaskData(toy_texts(20), {"dev": toy_texts(8, seed=1)})
    config = quick(steps=7, batch_size=6, accumulation=2, save_every=2, log_every=1, evaluate_every=3)

    def run(name: str, **options: Any) -> FineTuned:
        model = start_model(toy_config(dropout=0.1, dropatt=0.1), task, seed=1)
        return finetune(model, toy_tokenizer(), task, data, config, tmp_path / name, **options)

    whole = run("whole", reporter=SilentReporter())
    with pytest.raises(RuntimeError, match="broken off"):
        run("parts", reporter=Losses(stop_at=5))
    resumed = run("parts", resume=True, reporter=SilentReporter())
    for (name, a), b in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert whole.metrics == resumed.metrics
    other = TaskData(toy_texts(19), data.held_out)
    with pytest.raises(Exception, match="other training data"):
        same = start_model(toy_config(dropout=0.1, dropatt=0.1), task, seed=1)
        finetune(same, toy_tokenizer(), task, other, config, tmp_path / "parts", resume=True)


def test_accumulation_changes_no_step(tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=32)
    # Rows of one length, so that the micro-batches of a step hold the rows of the whole batch.
    data = TaskData([TextExample(str(i), "good" if i % 2 else "bad", label=str(i % 2)) for i in range(8)])
    found = []
    for parts in (1, 2, 4):
        model = start_model(toy_config(), task, seed=1)
        reporter = Losses()
        finetune(model, toy_tokenizer(), task, data, quick(steps=3, accumulation=parts, log_every=1),
                 tmp_path / str(parts), reporter=reporter)  # fmt: skip
        found.append(reporter.losses)
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert found[0] == pytest.approx(found[2], abs=1e-6)


def test_the_best_weights_are_kept_and_patience_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.1, 0.2, 0.9, 0.3, 0.2, 0.1, 0.1])
    task = TextClassification(name="toy", max_length=32)
    snapshots: list[torch.Tensor] = []

    def metrics(self: Any, model: Any) -> dict[str, float]:
        snapshots.append(model.classifier.weight.detach().clone())
        return {"accuracy": next(scores, 0.0)}

    monkeypatch.setattr("xlnet.tasks.predicting.DevMetrics.__call__", metrics)
    tuned = toy_run(tmp_path / "run", task, steps=20, evaluate_every=1, patience=2)
    assert tuned.fit is not None
    assert (tuned.fit.stopped_by, tuned.fit.step, tuned.fit.best_step) == ("patience", 4, 2)
    saved = FineTuned.from_pretrained(tmp_path / "run" / "model", device="cpu").model
    assert torch.equal(saved.get_parameter("classifier.weight"), snapshots[2])
    assert not torch.equal(snapshots[2], snapshots[4])


def test_several_seeds_are_summed_up(tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=32)
    data = TaskData(toy_texts(24), {"dev": toy_texts(11, seed=9)})
    summary = finetune_seeds(lambda seed: start_model(toy_config(), task, seed=seed), toy_tokenizer(), task, data,
                             quick(steps=3), tmp_path, seeds=[4, 5, 6], reporter=SilentReporter())  # fmt: skip
    found = summary.metrics["accuracy"]
    assert sorted(found.values)[1] == found.median
    assert (min(found.values), max(found.values)) == (found.lowest, found.highest)
    assert summary.best.metrics["accuracy"] == found.highest
    values = json.loads((tmp_path / "seeds.json").read_text())
    assert values["metrics"]["accuracy"]["median"] == found.median
    assert (tmp_path / f"seed-{summary.best_seed}" / "model" / "task.json").is_file()
    for seeds in ([], [1, 1]):
        with pytest.raises(ConfigurationError, match="different integers"):
            finetune_seeds(lambda seed: summary.best.model, toy_tokenizer(), task, data, quick(), tmp_path, seeds=seeds)


def test_a_seed_gives_the_same_run_and_another_gives_another(tmp_path: Path) -> None:
    runs = []
    for place, seed in enumerate((0, 0, 1)):
        reporter = Losses()
        task = TextClassification(name="toy", max_length=32)
        finetune(start_model(toy_config(), task, seed=seed), toy_tokenizer(), task, TaskData(toy_texts(24)),
                 quick(seed=seed, log_every=1), tmp_path / str(place), reporter=reporter)  # fmt: skip
        runs.append(reporter.losses)
    assert runs[0] == runs[1] != runs[2]


def test_from_mnli_to_rte(tmp_path: Path) -> None:
    mnli = TextClassification(name="mnli", label_names=("contradiction", "entailment", "neutral"))
    rte = TextClassification(name="rte", label_names=("entailment", "not_entailment"))
    other = TextClassification(name="other", label_names=("yes", "no"))
    model = start_model(toy_config(), mnli, seed=1)
    FineTuned(model, toy_tokenizer(), mnli).save_pretrained(tmp_path / "mnli")
    start = start_model(tmp_path / "mnli", rte, seed=2)
    same = {name for name, value in start.state_dict().items() if torch.equal(value, dict(model.state_dict())[name])
            if value.shape == model.state_dict()[name].shape}  # fmt: skip
    assert {"summary.projection.weight", "encoder.layers.1.attention.query.weight"} <= same
    assert start.get_parameter("classifier.weight").shape == (2, 32)
    FineTuned(start, toy_tokenizer(), rte).save_pretrained(tmp_path / "rte")
    again = start_model(tmp_path / "rte", rte, seed=3)
    assert torch.equal(again.get_parameter("classifier.weight"), start.get_parameter("classifier.weight"))
    # Labels of another name, or of another task by the same names, are learnt from nothing.
    for task in (other, replace(rte, name="qnli")):
        fresh = start_model(tmp_path / "rte", task, seed=3)
        assert not torch.equal(fresh.get_parameter("classifier.weight"), start.get_parameter("classifier.weight"))
        assert torch.equal(fresh.get_parameter("summary.projection.weight"), model.summary.projection.weight)
    # A folder that says nothing of its task keeps what has these labels.
    (tmp_path / "rte" / "task.json").unlink()
    again = start_model(tmp_path / "rte", replace(rte, name="qnli"), seed=3)
    assert torch.equal(again.get_parameter("classifier.weight"), start.get_parameter("classifier.weight"))


def test_heads_without_labels_are_kept_and_others_are_not(tmp_path: Path) -> None:
    for first, second in (
        (MultipleChoice(name="race"), MultipleChoice(name="copa")),
        (QuestionAnswering(name="squad", unanswerable=False), QuestionAnswering(name="squad2")),
    ):
        model = start_model(toy_config(), first, seed=1)
        FineTuned(model, toy_tokenizer(), first).save_pretrained(tmp_path / first.name)
        start = start_model(tmp_path / first.name, second, seed=2)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in start.state_dict().items())
    ranking, stsb = Ranking(name="rank"), TextRegression(name="stsb")
    model = start_model(toy_config(), ranking, seed=1)
    FineTuned(model, toy_tokenizer(), ranking).save_pretrained(tmp_path / "rank")
    start = start_model(tmp_path / "rank", stsb, seed=2)
    assert {n for n, v in start.state_dict().items() if not torch.equal(v, model.state_dict()[n])} == {
        "classifier.weight"
    }


@pytest.mark.parametrize("kind", ["mean", "first", "attn"])
def test_another_summary_on_the_same_weights(kind: Any, tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=32)
    XLNetLMHeadModel(toy_config()).save_pretrained(tmp_path / "pretrained")
    model = start_model(tmp_path / "pretrained", task, summary=kind)
    assert model.config.summary_type == kind
    tuned = finetune(model, toy_tokenizer(), task, TaskData(toy_texts(8)), quick(steps=1), tmp_path / "run")
    again = FineTuned.from_pretrained(tmp_path / "run" / "model", device="cpu")
    assert again.model.config.summary_type == kind
    assert again.predict(["good"]) == tuned.predict(["good"])
    if kind != "attn":
        kept = start_model(tmp_path / "run" / "model", replace(task, name="other"), summary="last")
        assert torch.equal(kept.get_parameter("summary.projection.weight"), model.summary.projection.weight)


def test_frozen_layers_stay_as_they_are(tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=32)
    before = {k: v.clone() for k, v in start_model(toy_config(), task, seed=1).state_dict().items()}
    after = toy_run(tmp_path / "run", task, frozen_layers=1, keep_best=False).model.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert not [
        n
        for n in changed
        if n.startswith(("encoder.layers.0.", "encoder.word_embedding", "encoder.attention_biases.0."))
    ]
    assert "encoder.layers.1.attention.query.weight" in changed
    model = start_model(toy_config(), task)
    freeze_layers(model, -1)
    assert {n.split(".")[0] for n, p in model.named_parameters() if p.requires_grad} == {"summary", "classifier"}
    with pytest.raises(ConfigurationError, match="has 2 layers"):
        freeze_layers(model, 3)


def test_low_rank_additions_train_little_and_merge_exactly(tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=32)
    model = start_model(toy_config(), task, seed=1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    inputs = task.collate(task.features(toy_texts(4), toy_tokenizer(), training=False)).inputs
    with torch.no_grad():
        plain = model.eval()(**inputs).logits
        add_lora(model, 4)
        assert torch.equal(model(**inputs).logits, plain)
    trained = sum(p.numel() for n, p in model.named_parameters() if p.requires_grad and n.startswith("encoder"))
    assert trained == 2 * 4 * 2 * 4 * 32
    tuned = toy_run(tmp_path / "run", task, lora_rank=4, keep_best=False)
    loaded = FineTuned.from_pretrained(tmp_path / "run" / "model", device="cpu")
    after = loaded.model.state_dict()
    assert set(after) == set(before)
    assert not torch.equal(
        after["encoder.layers.0.attention.query.weight"], before["encoder.layers.0.attention.query.weight"]
    )
    assert torch.equal(
        after["encoder.layers.0.feed_forward.inner.weight"], before["encoder.layers.0.feed_forward.inner.weight"]
    )
    texts = ["good value", "bad"]
    for a, b in zip(tuned.predict(texts), loaded.predict(texts), strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-6)
    assert merged(loaded.model) is loaded.model
    with pytest.raises(ConfigurationError, match="between 1 and 32"):
        add_lora(start_model(toy_config(), task), 33)


def test_weights_and_smoothing_of_the_loss() -> None:
    examples = toy_texts(5)
    plain = TextClassification(max_length=32)
    assert balanced_weights(examples, ("0", "1")) == pytest.approx((5 / (2 * 3), 5 / (2 * 2)))
    task = replace(plain, class_weights=(0.5, 2.0), label_smoothing=0.2)
    model = start_model(toy_config(), task).eval()
    batch = task.collate(task.features(examples, toy_tokenizer(), training=True))
    logits = model(**batch.inputs).logits
    step = task.loss(model, batch)
    log_p = logits.log_softmax(dim=1)
    weights, targets = torch.tensor([0.5, 2.0]), batch.labels["targets"]
    rows = torch.arange(5)
    by_hand = -0.8 * weights[targets] * log_p[rows, targets] - 0.1 * (weights * log_p).sum(dim=1)
    assert step.count == 5
    assert step.loss_sum.item() == pytest.approx(by_hand.sum().item(), rel=1e-5)
    with pytest.raises(ConfigurationError, match="3 class_weights are given for 2 labels"):
        replace(plain, class_weights=(1.0, 1.0, 1.0))


def test_ranking_losses_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.0, -1.0], [0.5, 2.0, -torch.inf]], requires_grad=True)
    grades = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, -1.0]])
    p = scores.detach().sigmoid()
    wanted = torch.tensor([[1.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
    cross = -(wanted * p.log() + (1 - wanted) * (1 - p).log())
    pointwise = cross[0].mean() + cross[1, :2].mean()
    assert ranking_loss("pointwise", scores, grades, 2.0).item() == pytest.approx(pointwise.item(), rel=1e-5)
    pairs = [nn.functional.softplus(torch.tensor(d)).item() for d in (0.0 - 1.0, -1.0 - 1.0, 0.0 - -1.0)]
    pairwise = sum(pairs) / 3 + nn.functional.softplus(torch.tensor(-1.5)).item()
    assert ranking_loss("pairwise", scores, grades, 2.0).item() == pytest.approx(pairwise, rel=1e-5)
    log_p = scores[0].log_softmax(0)
    listwise = -(2 / 3 * log_p[0] + 1 / 3 * log_p[2]) - scores[1, :2].log_softmax(0)[1]
    assert ranking_loss("listwise", scores, grades, 2.0).item() == pytest.approx(listwise.item(), rel=1e-5)
    for kind in ("pointwise", "pairwise", "listwise"):
        (gradient,) = torch.autograd.grad(ranking_loss(kind, scores, grades, 2.0), scores)
        assert gradient.isfinite().all()
        assert gradient[1, 2] == 0
        # A list in which nothing is relevant teaches nothing that is not finite.
        assert ranking_loss(kind, scores[:1], torch.zeros(1, 3), 2.0).isfinite()


def test_choices_of_unlike_numbers_are_spread_over_rows(tokenizer: Any) -> None:
    from xlnet.tasks.contract import Row

    rows = [Row(0, (None,) * 2), Row(1, (None,) * 3)]  # type: ignore[arg-type]
    spread = spread_choices(torch.arange(5.0), rows)
    assert spread.tolist() == [[0.0, 1.0, -torch.inf], [2.0, 3.0, 4.0]]


def test_settings_are_checked() -> None:
    for changes, match in (
        ({"batch_size": 0}, "batch_size=0"), ({"batch_size": 6, "accumulation": 4}, "divisible"),
        ({"epochs": 0.0, "steps": 0}, "above 0"), ({"warmup": -1.0}, "warmup"),
        ({"frozen_layers": -2}, "frozen_layers"), ({"lora_rank": -1}, "lora_rank"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=match):
            quick(**changes)
    config = quick(steps=0, epochs=2.5, batch_size=8, accumulation=2, warmup=0.1)
    fitted = config.fit_config(11, "accuracy")
    assert (fitted.steps, fitted.schedule.warmup_steps, fitted.accumulation) == (15, 2, 2)
    assert quick(warmup=3).fit_config(5, "").schedule.warmup_steps == 3
    assert quick().fit_config(5, "").best_metric == ""


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    task = TextClassification(name="toy")
    data = TaskData(toy_texts(4))
    three = start_model(toy_config(), TextClassification(label_names=("a", "b", "c")))
    with pytest.raises(InputError, match="num_labels=2, but it has 3"):
        finetune(three, toy_tokenizer(), task, data, quick(), tmp_path)
    with pytest.raises(InputError, match="2000 pieces"):
        finetune(start_model(toy_config(vocab_size=100), task), toy_tokenizer(), task, data, quick(), tmp_path)
