"""From files to a fine-tuned folder that answers questions, in both versions; and the official files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from squad_recorded import recorded, squad_file, toy_squad, write_json
from task_toys import quick, toy_config, toy_tokenizer

from xlnet.cli.finetune import evaluate_task, predict
from xlnet.errors import ConfigurationError, InputError, MachineError
from xlnet.tasks.datasets.loading import sample, split_off
from xlnet.tasks.datasets.outputs import write_predictions
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.squad.answering import Answerer
from xlnet.tasks.squad.benchmark import SQUAD
from xlnet.tasks.squad.files import n_best, read_predictions, write_squad
from xlnet.tasks.squad.reading import read_squad
from xlnet.tasks.squad.scoring import evaluate_squad
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer
from xlnet.training.report import SilentReporter

TASK = replace(SQUAD["squad2"].task, max_length=48, max_query_length=16, stride=12)


def run(folder: Path, task: Any, steps: int, **config: Any) -> FineTuned:
    """A short run on the toy questions."""
    examples = read_squad(write_json(folder / "toy.json", toy_squad(unanswerable=task.unanswerable)))
    data = TaskData(examples, {"dev": examples[:12]})
    model = start_model(toy_config(**config), task, seed=1)
    settings = quick(steps=steps, batch_size=12, learning_rate=4e-3)
    return finetune(model, toy_tokenizer(), task, data, settings, folder / "run", reporter=SilentReporter())


@pytest.fixture(scope="session")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    """After a few steps, loaded from its folder."""
    folder = tmp_path_factory.mktemp("squad")
    run(folder, TASK, 6)
    return Answerer.from_pretrained(folder / "run" / "model", device="cpu")


def questions() -> list[tuple[str, str]]:
    """Of very different lengths, with what tokenizers stumble over."""
    found = [(q["question"], p["context"]) for a in recorded()["input"]["data"]
             for p in a["paragraphs"] for q in p["qas"]]  # fmt: skip
    return [*found, ("", "Some value."), ("What?", ""), ("What?", "\u200b"), ("What?", " value ")]


def test_answers_do_not_depend_on_the_batch_and_stand_in_the_passage(answering: Answerer) -> None:
    pairs = questions()
    together = answering.answer_many(pairs, batch_size=64)
    for pair, found in zip(pairs, together, strict=True):
        alone = answering.answer(*pair)
        assert alone.text == found.text
        assert (alone.start, alone.end) == (found.start, found.end)
        assert alone.null_odds == pytest.approx(found.null_odds, abs=1e-5)
        assert [c.text for c in alone.candidates] == [c.text for c in found.candidates]
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-5)
        for candidate in found.candidates:
            assert pair[1][candidate.start : candidate.end] == candidate.text
            assert candidate.text == candidate.text.strip() != ""
        assert (found.text == "") == (found.start is None)
    assert together[-3].text == together[-2].text == ""
    assert together[-3].candidates == ()
    assert any(len(found.candidates) > 1 for found in together)
    with pytest.raises(InputError, match=r"input 1 must be \(question, passage\)"):
        answering.answer_many([("a", "b"), "c"])  # type: ignore[list-item]


def test_the_threshold_found_on_held_out_data_is_kept_in_the_folder(answering: Answerer) -> None:
    task, metrics = answering.tuned.task, answering.tuned.metrics
    assert isinstance(task, QuestionAnswering)
    assert task.null_threshold == metrics["usable_f1_thresh"]
    pair = questions()[0]
    for threshold, answered in ((float("inf"), True), (float("-inf"), False)):
        found = Answerer(replace(answering.tuned, task=replace(task, null_threshold=threshold))).answer(*pair)
        assert (found.text != "") == answered
    never = replace(task, null_threshold=float("-inf"), unanswerable=False)
    assert Answerer(replace(answering.tuned, task=never)).answer(*pair).text != ""
    assert never.calibrated(metrics) == never


def test_loss_is_that_of_the_head_on_rows_padded_on_the_right(tokenizer: XLNetTokenizer, tmp_path: Path) -> None:
    examples = read_squad(write_json(tmp_path / "x.json", toy_squad(8)))
    rows = TASK.features(examples, tokenizer, training=True)
    model = start_model(toy_config(), TASK, seed=3).eval()
    with torch.no_grad():
        step = TASK.loss(model, TASK.collate(rows))
        width = max(row.length for row in rows)
        total = 0.0
        for row in rows:
            (sequence,) = row.sequences
            free = width - len(sequence)
            mask = torch.tensor([[True] * len(sequence) + [False] * free])
            cls = len(sequence) - 1
            bar = torch.ones(1, width)
            bar[0, : row.extra["passage_length"]] = 0
            bar[0, cls] = 0
            total += model(
                torch.tensor([[*sequence.input_ids.tolist(), *[5] * free]]), mask,
                token_type_ids=torch.tensor([[*sequence.token_type_ids.tolist(), *[3] * free]]),
                p_mask=bar, cls_index=torch.tensor([cls]), start_positions=torch.tensor([row.label[0]]),
                end_positions=torch.tensor([row.label[1]]), is_impossible=torch.tensor([row.label[2]]),
            ).loss.item()  # fmt: skip
    assert step.count == len(rows)
    assert float(step.loss_sum) == pytest.approx(total, rel=1e-4)


def test_training_leaves_out_what_cannot_be_learnt(tokenizer: XLNetTokenizer, tmp_path: Path) -> None:
    good = {"id": "a", "question": "Who?", "answers": [{"text": "cat", "answer_start": 4}]}
    lost = {"id": "b", "question": "Who?", "answers": [{"text": "bird", "answer_start": 4}]}
    examples = read_squad(write_json(tmp_path / "x.json", squad_file([good, lost])))
    assert [row.example for row in TASK.features(examples, tokenizer, training=True)] == [0]
    assert [row.example for row in TASK.features(examples, tokenizer, training=False)] == [0, 1]


def test_official_files_are_written_and_score_as_evaluated(answering: Answerer, tmp_path: Path) -> None:
    path = write_json(tmp_path / "dev-v2.0.json", toy_squad(12))
    examples = read_squad(path)
    model = tmp_path / "model"
    answering.tuned.save_pretrained(model)
    out = tmp_path / "out"
    predict(str(path), model=str(model), submission=True, output=str(out), device="cpu")
    given, odds = read_predictions(out / "predictions.json"), read_predictions(out / "null_odds.json")
    lists = read_predictions(out / "nbest_predictions.json")
    assert list(given) == list(odds) == list(lists) == [e.id for e in examples]
    threshold = answering.tuned.task.null_threshold  # type: ignore[attr-defined]
    for name, entries in lists.items():
        assert given[name] == ("" if odds[name] > threshold else entries[0]["text"])
        assert set(entries[0]) == {"text", "probability", "start_log_prob", "end_log_prob"}
    measured = evaluate_task([str(path)], model=str(model), device="cpu")
    official = evaluate_squad({e.id: e.label or () for e in examples}, given)
    for key, value in official.items():
        assert measured[key] == pytest.approx(value, abs=1e-9)
    assert measured["best_f1"] >= measured["f1"] - 1e-9
    with pytest.raises(InputError, match="the id 'x' occurs twice"):
        write_squad([{"id": "x", "label": "", "null_odds": 0.0, "nbest": []}] * 2, out / "predictions.json")
    with pytest.raises(InputError, match="only predictions of question answering"):
        write_squad([{"id": "x", "label": "1"}], out / "predictions.json")
    assert n_best({"nbest": []}) == [{"text": "", "probability": 1.0, "start_log_prob": -1e6, "end_log_prob": -1e6}]
    (out / "bad.json").write_text("[]")
    with pytest.raises(InputError, match="must be a JSON object"):
        read_predictions(out / "bad.json")


def test_one_row_a_question_in_tsv_and_jsonl(answering: Answerer, tmp_path: Path) -> None:
    records = [{"question": "What?", "passage": "a\tvalue\nof\u2028it", "id": "x\ty"}, {"question": "", "context": ""}]
    predictions = answering.tuned.predict(records)
    predictions[0]["label"] = records[0]["passage"]
    write_predictions(predictions, tmp_path / "out.tsv")
    assert (tmp_path / "out.tsv").read_text().split("\n")[1:] == ["x y\ta value of it\t", "1\t\t", ""]
    write_predictions(predictions, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["x\ty", "1"]


def test_models_of_another_kind_and_impossible_settings_are_refused() -> None:
    task = TextClassification(max_length=16)
    with pytest.raises(InputError, match="fine-tuned for text_classification"):
        Answerer(FineTuned(start_model(toy_config(), task), toy_tokenizer(), task))
    for key in ("stride", "max_query_length", "max_answer_length", "n_best_size"):
        with pytest.raises(ConfigurationError, match=f"{key}=0 must be at least 1"):
            QuestionAnswering(**{key: 0})
    with pytest.raises(ConfigurationError, match="at most max_length - 4 = 60"):
        QuestionAnswering(max_length=64, max_query_length=61)


def test_a_model_that_gives_no_numbers_is_refused() -> None:
    model = start_model(toy_config(), TASK)
    with torch.no_grad():
        model.get_parameter("answerable.output.weight").fill_(float("nan"))
    with pytest.raises(MachineError, match="gives nan for question 0"):
        FineTuned(model, toy_tokenizer(), TASK).predict([("What?", "A value.")])


def test_groups_are_held_out_whole_and_single_examples_as_before() -> None:
    train, dev = split_off(list(range(100)), 0.2)
    chosen = set(np.random.default_rng(0).permutation(100)[:20].tolist())
    assert dev == sorted(chosen)
    assert len(train) == 80
    train, dev = split_off(list(range(100)), 0.2, key=lambda n: n // 10)
    assert len(dev) == 20
    assert {n // 10 for n in dev}.isdisjoint({n // 10 for n in train})
    assert split_off([1, 2], 0.99)[0]
    with pytest.raises(InputError, match="too few"):
        split_off([1, 1], 0.5, key=lambda n: n)


@pytest.mark.long
@pytest.mark.parametrize("unanswerable", [False, True])
def test_toy_questions_are_learnt(tmp_path: Path, unanswerable: bool) -> None:
    task = replace(TASK, unanswerable=unanswerable, max_length=64)
    tuned = run(tmp_path, task, 200)
    metrics = tuned.evaluate(read_squad(tmp_path / "toy.json"))
    assert metrics[task.metric] >= 95.0


@pytest.mark.long
@pytest.mark.data
def test_a_hundred_real_questions_are_learnt_by_heart(shared_data: Path, tmp_path: Path) -> None:
    examples = sample(read_squad(shared_data / "squad" / "squad2_half_dev.json")[:400], 100)
    task = replace(SQUAD["squad2"].task, max_length=384)
    tokenizer = XLNetTokenizer.from_pretrained(shared_data / "tokenizers" / "xlnet-base-cased")
    config = toy_config(vocab_size=32000, d_model=64, n_head=4, d_inner=128)
    data = TaskData(examples, {"dev": examples})
    settings = quick(steps=900, batch_size=20, learning_rate=2e-3, evaluate_every=150)
    tuned = finetune(start_model(config, task, seed=1), tokenizer, task, data, settings, tmp_path,
                     reporter=SilentReporter())  # fmt: skip
    metrics = tuned.evaluate(examples)
    assert metrics["best_f1"] >= 95.0
    assert metrics["f1"] >= 95.0
