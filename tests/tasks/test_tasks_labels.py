"""Labels in all forms: what cannot be read is never guessed at, named where labels are needed, no matter elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from task_toys import toy_config, toy_tokenizer

from xlnet.cli.finetune import read_inputs
from xlnet.errors import InputError
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multi_label import MultiLabelClassification
from xlnet.tasks.families.multiple_choice import ChoiceExample, MultipleChoice, choice_label
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import TextExample, UnreadLabel
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.starting import start_model

SEVERAL = MultiLabelClassification(label_names=("toxic", "spam", "0", "1"))


@pytest.mark.parametrize(("value", "wanted"), [
    (["spam", " toxic "], ("spam", "toxic")), ("spam|toxic", ("spam", "toxic")), ("spam", ("spam",)),
    (("toxic",), ("toxic",)), ([], ()), ("", ()), (["0", "1"], ("0", "1")), (None, None),
])  # fmt: skip
def test_several_labels_are_a_list_of_texts_or_one_text(value: Any, wanted: Any) -> None:
    assert SEVERAL.read_label(value, "f:1") == wanted


@pytest.mark.parametrize(("value", "example"), [
    ([0, 1, 0], '["spam", "toxic"]'), ([1.0, 0.0], '["spam", "toxic"]'), ([True, False], '["spam", "toxic"]'),
    (["spam", None], '["spam", "toxic"]'), ([["spam"]], '["spam", "toxic"]'),
    ({"toxic": 0, "spam": 1}, '["spam"]'), (3, '["3"]'), (True, '["True"]'),
])  # fmt: skip
def test_anything_else_does_not_say_which_labels_hold(value: Any, example: str) -> None:
    found = SEVERAL.example({"text": "x", "label": value}, "f:7", 0)
    with pytest.raises(InputError) as error:
        SEVERAL.check([found], labelled=True)
    assert str(error.value).startswith(f"f:7: label {value!r} does not say which labels hold")
    assert f"{example} say" in str(error.value)


def test_bad_labels_are_named_before_their_names_are_gathered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": "x", "label": label}) + "\n" for label in (["a"], ["b"], [0, 1])))
    with pytest.raises(InputError, match=r"a\.jsonl:3: label \[0, 1\] does not say"):
        load_task("multilabel", path, dev=path)
    with pytest.raises(InputError, match=r"a\.jsonl:1: label \['a'\] must be the name of one class.*multilabel"):
        load_task("classify", path, dev=path)
    example = TextExample("0", "x", label="toxic", where="f:1")
    with pytest.raises(InputError, match=r"must be a tuple of names, \('toxic',\) say"):
        SEVERAL.check([example], labelled=True)


@pytest.mark.parametrize(("value", "wanted"), [
    (1, (1,)), ("1", (1,)), ("B", (1,)), ("y", (1,)), (["A", "y"], (0, 1)), (None, None), ("", None), ([], ()),
])  # fmt: skip
def test_a_choice_is_an_index_a_letter_or_an_answer(value: Any, wanted: Any) -> None:
    assert choice_label(value, ["x", "y"], "f:1") == wanted


@pytest.mark.parametrize(
    ("value", "count", "last"), [("?", 2, "B"), ("AB", 3, "C"), (True, 2, "B"), (["A", "?"], 2, "B"), ("?", 30, "Z")]
)
def test_another_choice_is_not_guessed_at(value: Any, count: int, last: str) -> None:
    found = choice_label(value, [f"choice {i}" for i in range(count)], "f:1")
    assert isinstance(found, UnreadLabel)
    assert f"an index from 0 to {count - 1}, a letter from A to {last}" in found.complaint


UNREAD: list[tuple[Task, dict[str, Any]]] = [
    (TextRegression(name="regress"), {"text": "good", "label": "n/a"}),
    (TextClassification(name="classify"), {"text": "good", "label": ["?"]}),
    (TextClassification(name="classify"), {"text": "good", "label": "unknown"}),
    (SEVERAL, {"text": "good", "label": [0, 1]}),
    (MultipleChoice(name="choose", max_length=64, max_choice_length=20),
     {"context": "It is.", "choices": ["x", "y"], "label": "?"}),
    (MultipleChoice(name="choose", max_length=64, max_choice_length=20),
     {"context": "It is.", "choices": ["x", "y"], "label": 7}),
]  # fmt: skip


@pytest.mark.parametrize(("task", "record"), UNREAD)
def test_prediction_does_not_look_at_labels_and_evaluation_names_them(
    task: Task, record: dict[str, Any], tmp_path: Path
) -> None:
    tuned = FineTuned(start_model(toy_config(), task), toy_tokenizer(), task)
    path = tmp_path / "new.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps({**record, "label": None}) + "\n")
    found = tuned.predict(read_inputs(tuned, path, "", labelled=False))
    assert [row["id"] for row in found] == ["0", "1"]
    with pytest.raises(InputError, match=r"new\.jsonl:1: label"):
        tuned.evaluate(read_inputs(tuned, path, "", labelled=True))


def test_labels_of_the_last_test_are_looked_at_before_training(tmp_path: Path) -> None:
    for split, label in (("train", "1.5"), ("dev", "2"), ("test", "n/a")):
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\ngood\t1\nbad\t{label}\n")
    with pytest.raises(InputError, match=r"test\.tsv:3: label 'n/a' is no number"):
        load_task("regress", tmp_path)


def test_questions_on_one_text_are_held_out_together(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"context": f"text {i // 3}", "choices": ["x", "y"], "label": 0} for i in range(30)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    data = load_task("choose", path, dev_share=0.3).data
    assert not {e.context for e in data.train} & {e.context for e in data.held_out["dev"]}
    # Without a text each question is by itself.
    lone = [ChoiceExample(str(i), "", ("x", "y"), (0,)) for i in range(2)]
    assert MultipleChoice().split_key(lone[0]) != MultipleChoice().split_key(lone[1])
