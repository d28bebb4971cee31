"""A fine-tuned folder is one object: its predictions and vectors depend on the text alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from task_toys import toy_config, toy_texts, toy_tokenizer

from xlnet.errors import CheckpointError, ConfigurationError, InputError
from xlnet.model import XLNetModel
from xlnet.tasks.embedding import embed_texts
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multi_label import MultiLabelClassification
from xlnet.tasks.families.multiple_choice import MultipleChoice
from xlnet.tasks.families.ranking import Ranking
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.families.token_classification import TokenClassification
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.starting import start_model

TEXTS = ["good value", "", "the bad function of the class " * 9, "good", "caf\u00e9 \u4e2d\u6587", "bad number"]


def test_predictions_keep_order_and_do_not_depend_on_the_batch(tuned: FineTuned) -> None:
    together = tuned.predict(TEXTS, batch_size=6)
    assert [p["id"] for p in together] == [str(i) for i in range(6)]
    for size in (1, 2, 4):
        apart = tuned.predict(TEXTS, batch_size=size)
        for a, b in zip(together, apart, strict=True):
            assert a["label"] == b["label"]
            assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-6)
    alone = tuned.predict([TEXTS[4]])[0]
    assert alone["probabilities"] == pytest.approx(together[4]["probabilities"], abs=1e-6)
    assert sum(together[0]["probabilities"].values()) == pytest.approx(1.0)
    assert not tuned.model.training


def test_every_kind_of_input_is_read(tuned: FineTuned) -> None:
    records = tuned.predict([{"text": "good", "id": "a"}, "good", toy_texts(1)[0], ("good",)])
    assert [record["id"] for record in records] == ["a", "1", "0", "3"]
    for record in (records[1], records[3]):  # rows of a batch may round differently, by their place in a product
        assert record["probabilities"] == pytest.approx(records[0]["probabilities"], abs=1e-6)
    assert tuned.predict([]) == []
    with pytest.raises(InputError, match=r"predict\(\[text\]\)"):
        tuned.predict("good")
    with pytest.raises(InputError, match="input 0: toy reads text, but 2 texts are given"):
        tuned.predict([("good", "bad")])
    with pytest.raises(InputError, match=r"input 1: there is no column 'text'; present are 'txt'.*Did you mean 'txt'"):
        tuned.predict([{"text": "x"}, {"txt": "y"}])


@pytest.mark.parametrize(("value", "match"), [
    (float("nan"), r"input 1 is nan; it must be a text \(a str\), a record"),
    (None, "input 1 is None; it must be a text"),
    (["good", "bad"], r"input 1 is \['good', 'bad'\]; it must be a text"),
    (b"good", "input 1 is b'good'; it must be a text"),
    ((None,), "input 1: text must be a text, but is None"),
    ("a\ud83d", r"input 1: text holds half a surrogate pair \(U\+D83D\) at character 1"),
    (TextExample("7", "\udc00", where="f.jsonl:8"), r"f\.jsonl:8: text holds half a surrogate pair"),
    (TextExample("7", None), "row 2: text must be a text, but is None"),  # type: ignore[arg-type]
])  # fmt: skip
def test_inputs_that_are_no_text_are_named(value: object, match: str, tuned: FineTuned) -> None:
    with pytest.raises(InputError, match=match):
        tuned.predict(["good", value])


def test_what_a_pair_looks_like_is_said() -> None:
    task = TextClassification(max_length=16, text_column="premise", pair_column="hypothesis")
    tuned = FineTuned(start_model(toy_config(), task), toy_tokenizer(), task)
    with pytest.raises(
        InputError, match=r"input 0 is \['a', 'b'\]; it must be a tuple \(premise, hypothesis\), a record"
    ):
        tuned.predict([["a", "b"]])


def test_one_input_instead_of_a_list_is_refused_and_evaluation_reads_records(tuned: FineTuned) -> None:
    with pytest.raises(
        InputError, match=r"predict takes a list of inputs, not one record. Write predict\(\[record\]\)"
    ):
        tuned.predict({"text": "good"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="predict takes a list of inputs, not None"):
        tuned.predict(None)  # type: ignore[arg-type]
    (label,) = [record["label"] for record in tuned.predict(["good"])]
    assert tuned.evaluate([{"text": "good", "label": label}])["accuracy"] == 1.0
    with pytest.raises(InputError, match="input 0: there is no label"):
        tuned.evaluate(["good"])
    with pytest.raises(InputError, match="input 1: text must be a text, but is None"):
        tuned.embed(["good", None])  # type: ignore[list-item]


def test_predictions_in_training_mode_are_those_of_eval_mode(tmp_path: Path) -> None:
    task = TextClassification(max_length=32)
    model = start_model(toy_config(dropout=0.5, summary_dropout=0.5), task)
    model.train()
    tuned = FineTuned(model, toy_tokenizer(), task)
    assert tuned.predict(TEXTS) == tuned.predict(TEXTS)
    assert torch.equal(tuned.embed(TEXTS), tuned.embed(TEXTS))
    assert model.training


@pytest.mark.parametrize("pooling", ["mean", "last", "first"])
def test_vectors_do_not_depend_on_the_batch(tuned: FineTuned, pooling: str) -> None:
    together = tuned.embed(TEXTS, pooling=pooling, batch_size=6)  # type: ignore[arg-type]
    assert together.shape == (6, 32)
    assert together.isfinite().all()
    for i, text in enumerate(TEXTS):
        assert torch.allclose(tuned.embed([text], pooling=pooling)[0], together[i], atol=1e-6)  # type: ignore[arg-type]


def test_mean_pooling_is_the_mean_of_the_pieces_of_the_text() -> None:
    model, tokenizer = XLNetModel(toy_config()), toy_tokenizer()
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    encoded = tokenizer(["good value of a class"])
    with torch.no_grad():
        content = model.eval()(**{name: encoded[name] for name in encoded}).content
    assert content is not None
    vector = embed_texts(model, tokenizer, ["good value of a class", "bad"])[0]
    assert torch.allclose(vector, content[0, :-2].mean(dim=0), atol=1e-5)
    with pytest.raises(ConfigurationError, match="Did you mean 'mean'"):
        embed_texts(model, tokenizer, ["x"], pooling="mena")  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [
    TextClassification(name="a", label_names=("x", "y", "z"), class_weights=(1.0, 2.0, 0.5), label_smoothing=0.1,
                       long_text="windows", stride=9, pair_column="pair"),
    MultiLabelClassification(name="b", label_names=("x", "y")),
    TextRegression(name="c", mean=2.0, scale=0.5, lowest=0.0),
    MultipleChoice(name="d", answer_metrics=True),
    TokenClassification(name="e", label_names=("O", "B-X")),
    Ranking(name="f", loss_kind="pairwise", max_grade=4.0),
], ids=lambda task: task.family)  # fmt: skip
def test_every_family_comes_back_from_its_folder(task: object, tmp_path: Path) -> None:
    assert isinstance(task, TextClassification | MultiLabelClassification | TextRegression | MultipleChoice
                      | TokenClassification | Ranking)  # fmt: skip
    FineTuned(start_model(toy_config(), task), toy_tokenizer(), task, {"accuracy": 0.5}).save_pretrained(tmp_path)
    loaded = FineTuned.from_pretrained(tmp_path, device="cpu")
    assert loaded.task == task
    assert loaded.metrics == {"accuracy": 0.5}
    assert loaded.tokenizer.fingerprint == toy_tokenizer().fingerprint


def test_families_read_records_and_predict(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer()

    def predict(task: object, record: dict[str, object]) -> dict[str, object]:
        return FineTuned(start_model(toy_config(), task), tokenizer, task).predict([record])[0]  # type: ignore[arg-type]

    pair = predict(TextClassification(pair_column="pair"), {"text": "a", "pair": "b"})
    assert pair["label"] in ("0", "1")
    found = predict(MultiLabelClassification(label_names=("x", "y")), {"text": "a"})
    assert set(found["probabilities"]) == {"x", "y"}  # type: ignore[call-overload]
    assert isinstance(predict(TextRegression(), {"text": "a"})["label"], float)
    choice = predict(MultipleChoice(max_length=64, max_choice_length=20),
                     {"context": "It is.", "question": "What _ it?", "choices": ["is", "was", "were"]})  # fmt: skip
    assert choice["answer"] in ("is", "was", "were")
    tags = predict(TokenClassification(label_names=("O", "B-X")), {"words": ["EU", "\u200b", "rejects"]})
    assert len(tags["label"]) == 3  # type: ignore[arg-type]
    ranking = predict(Ranking(), {"query": "q", "documents": [{"id": "d", "text": "x"}, {"id": "e", "text": ""}]})
    assert {item["id"] for item in ranking["ranking"]} == {"d", "e"}  # type: ignore[attr-defined,index]


def test_a_fine_tuned_folder_that_is_none_or_damaged_is_refused(tuned: FineTuned, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no fine-tuned model"):
        FineTuned.from_pretrained(tmp_path)
    tuned.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "task.json").read_text())
    for wrong, match in (
        ("{", "is damaged"),
        (json.dumps({**values, "family": "text_clasification"}), "Did you mean 'text_classification'"),
        (json.dumps({**values, "settings": {"max_lenght": 9}}), "Did you mean 'max_length'"),
    ):
        (tmp_path / "task.json").write_text(wrong)
        with pytest.raises(CheckpointError, match=match):
            FineTuned.from_pretrained(tmp_path)


@dataclass(frozen=True, kw_only=True)
class Shouting(TextClassification):
    """A task of the user's own."""

    family = "shouting"

    def features(self, examples, tokenizer, *, training):  # type: ignore[no-untyped-def]
        return super().features([type(e)(e.id, e.text.upper(), label=e.label) for e in examples], tokenizer,
                                training=training)  # fmt: skip


def test_a_task_of_ones_own_is_given_when_loading(tmp_path: Path) -> None:
    task = Shouting(max_length=16)
    FineTuned(start_model(toy_config(), task), toy_tokenizer(), task).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"from_pretrained\(folder, task=...\)"):
        FineTuned.from_pretrained(tmp_path)
    loaded = FineTuned.from_pretrained(tmp_path, task=task, device="cpu")
    a, b = loaded.predict(["good", "GOOD"])
    assert a["probabilities"] == b["probabilities"]


def test_last_real_token_is_read_whatever_the_padding_side() -> None:
    task = TextClassification(max_length=16)
    model = start_model(toy_config(), task).eval()
    tokenizer = toy_tokenizer()
    with torch.no_grad():
        logits = []
        for side in ("left", "right"):
            encoded = tokenizer(["good value", "a bad name of a class"], padding_side=side)  # type: ignore[arg-type]
            logits.append(model(**{name: encoded[name] for name in encoded}).logits)
    assert np.allclose(*[found.numpy() for found in logits], atol=1e-5)
