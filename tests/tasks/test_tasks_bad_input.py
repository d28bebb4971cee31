"""Bad input never loses a row, never gives a silent wrong answer, and always says where it is and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_toys import quick, toy_config, toy_texts, toy_tokenizer

from xlnet.errors import ConfigurationError, InputError
from xlnet.tasks.contract import Task
from xlnet.tasks.datasets.loading import load_task, split_off
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multiple_choice import ChoiceExample, MultipleChoice
from xlnet.tasks.families.ranking import Document, Ranking, RankingExample
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.families.token_classification import TokenClassification, WordsExample, word_windows
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.finetune import TaskData, check_data, finetune
from xlnet.tasks.starting import start_model
from xlnet.training.report import SilentReporter


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_a_missing_column_names_those_present(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "review,stars\ngood,5\n")
    with pytest.raises(InputError, match=r"a\.csv:2: there is no column 'text'; present are 'review', 'stars'"):
        load_task("classify", path)
    loaded = load_task("regress", path, dev=path, changes={"text_column": "review", "label_column": "stars"})
    assert (loaded.data.train[0].text, loaded.data.train[0].label) == ("good", 5.0)


def test_a_missing_label_column_is_not_a_missing_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlable\ngood\t1\nbad\t0\n")
    with pytest.raises(
        InputError, match=r"a\.tsv:2: there is no column 'label'; present are 'text', 'lable'.*Did you mean 'lable'"
    ):
        load_task("classify", path)


def test_an_unknown_label_names_row_and_allowed_labels(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "text\tlabel\ngood\tpos\nbad\tneg\n")
    dev = write(tmp_path / "dev.tsv", "text\tlabel\ngood\tpos\nbad\tnegg\n")
    loaded = load_task("classify", train, dev=dev)
    with pytest.raises(InputError, match=r"dev\.tsv:3: label 'negg' is not known; allowed are 'neg', 'pos'.*'neg'"):
        check_data(loaded.task, loaded.data)


def test_empty_texts_work(tmp_path: Path) -> None:
    examples = [TextExample(str(i), "" if i < 4 else "good", label=str(i % 2)) for i in range(8)]
    task = TextClassification(name="toy", max_length=16)
    model = start_model(toy_config(), task)
    tuned = finetune(model, toy_tokenizer(), task, TaskData(examples, {"dev": examples}), quick(steps=2), tmp_path,
                     reporter=SilentReporter())  # fmt: skip
    found = tuned.predict(["", "", "\u200b"])
    assert all(np.isfinite(list(record["probabilities"].values())).all() for record in found)
    assert tuned.embed([""]).isfinite().all()


def test_ragged_rows_name_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\ngood\t1\nbad\twith a tab\t0\n")
    with pytest.raises(InputError, match=r"a\.tsv:3 has 3 columns instead of 2 \(text, label\); 1 of 2 rows"):
        load_task("classify", path)
    path = write(tmp_path / "a.csv", 'text,label\n"two\nlines",1\nbad, with a comma,0\n')
    with pytest.raises(InputError, match=r"a\.csv:4 has 3 columns instead of 2"):
        load_task("classify", path)


def test_a_wrong_encoding_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\ngood\t1\ncaf\u00e9\t0\n", "latin-1")
    with pytest.raises(InputError, match=r"a\.tsv:3 is not UTF-8 \(byte 0xe9\).*iconv"):
        load_task("classify", path)
    path = write(tmp_path / "b.tsv", "\ufefftext\tlabel\ngood\t1\nbad\t0\n")
    assert load_task("classify", path).task.settings()["label_names"] == ["0", "1"]


def test_what_windows_calls_unicode_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\ngood\t1\nbad\t0\n", "utf-16")
    with pytest.raises(InputError, match="iconv -f utf-16"):
        load_task("classify", path)


def test_held_out_files_may_be_missing_but_not_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "".join(f"{i}\t{i}\tgenre\t-\t-\t-\t-\t-\ta\tb\t{'neutral'}\n" for i in range(3))
    head = "index\tpromptID\tgenre\tp1\tp2\tp3\tp4\tp5\tsentence1\tsentence2\tgold_label\n"
    write(tmp_path / "train.tsv", head + rows)
    with pytest.raises(InputError, match=r"no dev_matched\.tsv.* --dev, or give the training file alone"):
        load_task("mnli", tmp_path)
    assert len(load_task("mnli", tmp_path / "train.tsv").data.train) == 2
    write(tmp_path / "dev_matched.tsv", head + rows)
    assert list(load_task("mnli", tmp_path).data.held_out) == ["dev_matched"]
    assert "no dev_mismatched.tsv" in caplog.text
    write(tmp_path / "dev_mismatched.tsv", head + rows + "3\tcut short\n")
    with pytest.raises(InputError, match=r"dev_mismatched\.tsv:5 has 2 columns"):
        load_task("mnli", tmp_path)


def test_a_last_test_needs_labels_and_none_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = "label\ttext_a\n1\tgood\n0\tbad\n"
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.tsv", good)
    assert load_task("chnsenticorp", tmp_path).final == {}
    write(tmp_path / "test.tsv", "qid\ttext_a\n0\tgood\n")
    assert load_task("chnsenticorp", tmp_path).final == {}
    assert "test is not measured: 1 of its 1 examples have no label" in caplog.text
    write(tmp_path / "test.tsv", good)
    assert list(load_task("chnsenticorp", tmp_path).final) == ["test"]


def test_a_file_that_is_no_gzip_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tsv\.gz cannot be read"):
        load_task("classify", write(tmp_path / "a.tsv.gz", "text\tlabel\n"))
    with pytest.raises(InputError, match=r"a\.jsonl:2 is no JSON"):
        load_task("classify", write(tmp_path / "a.jsonl", '{"text": "x", "label": 1}\n{"text"\n'))
    with pytest.raises(InputError, match=r"b\.jsonl:1 must be a JSON object"):
        load_task("classify", write(tmp_path / "b.jsonl", "[1]\n"))
    with pytest.raises(InputError, match="does not exist"):
        load_task("sst2", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"has no train\.tsv; it holds"):
        load_task("sst2", tmp_path)


def test_a_held_out_set_with_one_class_works_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = TextClassification(name="toy", max_length=16, scores=("matthews", "f1", "macro_f1", "accuracy"))
    examples = [example for example in toy_texts(12) if example.label == "1"]
    tuned = finetune(start_model(toy_config(), task), toy_tokenizer(), task, TaskData(toy_texts(6), {"dev": examples}),
                     quick(steps=1), tmp_path, reporter=SilentReporter())  # fmt: skip
    assert tuned.metrics["matthews"] == 0.0
    assert "all 6 examples of the held-out set 'dev' have the label '1'" in caplog.text


def test_fewer_examples_than_a_batch_work(tmp_path: Path) -> None:
    task = TextClassification(name="toy", max_length=16)
    tuned = finetune(start_model(toy_config(), task), toy_tokenizer(), task, TaskData(toy_texts(3)),
                     quick(steps=0, epochs=2, batch_size=64), tmp_path, reporter=SilentReporter())  # fmt: skip
    assert tuned.fit is not None
    assert tuned.fit.step == 2


def test_labels_absent_at_evaluation_are_asked_for_and_prediction_goes_on(tuned: FineTuned) -> None:
    examples = [*toy_texts(2), TextExample("2", "good", where="dev.tsv:4")]
    with pytest.raises(InputError, match=r"dev\.tsv:4: there is no label.*Use predict"):
        tuned.evaluate(examples)
    assert len(tuned.predict(examples)) == 3
    with pytest.raises(InputError, match="nothing to evaluate on"):
        tuned.evaluate([])


def test_no_examples_are_refused() -> None:
    task = TextClassification(name="toy")
    with pytest.raises(InputError, match="training data holds no example"):
        check_data(task, TaskData([]))
    with pytest.raises(InputError, match="held-out set 'dev' holds no example"):
        check_data(task, TaskData(toy_texts(2), {"dev": []}))
    with pytest.raises(InputError, match="too few to hold some out"):
        split_off([1], 0.1)


def test_a_share_is_held_out_always_the_same_and_nothing_is_lost(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"text {i}\t{i % 2}\n" for i in range(30)))
    one, two = load_task("classify", path, dev_share=0.2), load_task("classify", path, dev_share=0.2)
    assert one.data == two.data
    assert len(one.data.held_out["dev"]) == 6
    ids = [e.id for e in [*one.data.train, *one.data.held_out["dev"]]]
    assert sorted(ids, key=int) == [str(i) for i in range(30)]
    assert len(load_task("classify", path, limit=5).data.train) == 5
    with pytest.raises(ConfigurationError, match="dev_share=1"):
        load_task("classify", path, dev_share=1.0)


def test_names_of_tasks_and_settings_get_a_hint(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\na\t1\nb\t0\n")
    with pytest.raises(ConfigurationError, match="Did you mean 'classify'"):
        load_task("clasify", path)
    with pytest.raises(ConfigurationError, match="regress has no such setting"):
        load_task("regress", path, changes={"label_smoothing": 0.1})
    with pytest.raises(ConfigurationError, match="is no classification"):
        load_task("regress", path, changes={"class_weights": "balanced"})
    with pytest.raises(ConfigurationError, match="must be 'balanced' or one number a label"):
        load_task("classify", path, changes={"class_weights": "heavy"})
    for name, key in (("choose", "max_choice_length"), ("rank", "max_query_length"), ("squad", "max_query_length")):
        with pytest.raises(ConfigurationError, match=f"smaller {key} too"):
            load_task(name, path, changes={"max_length": 16})
    with pytest.raises(ConfigurationError, match="has no training data"):
        load_task("ax", path)
    weighted = load_task("classify", path, dev=path, changes={"class_weights": "1,3"}).task
    assert weighted.settings()["class_weights"] == [1.0, 3.0]


@pytest.mark.parametrize(("task", "example", "match"), [
    (TextRegression(), TextExample("0", "x", label="high", where="a:2"), "a:2: label 'high' is no number"),
    (TextRegression(), TextExample("0", "x", label=float("nan"), where="a:2"), "is no number"),
    (MultipleChoice(), ChoiceExample("0", "c", ("a", "b"), (2,), where="a:2"), "label 2 is not known; allowed are 0"),
    (MultipleChoice(), ChoiceExample("0", "c", ("a",), (0,), where="a:2"), "1 choices; at least two"),
    (MultipleChoice(), ChoiceExample("0", "c", ("a", "b"), None, where="a:2"), "no label"),
    (TokenClassification(), WordsExample("0", ("a", "b"), ("O",), "a:2"), "2 words, but 1 tags"),
    (TokenClassification(), WordsExample("0", ("a",), ("X",), "a:2"), "label 'X' is not known"),
    (TokenClassification(), WordsExample("0", ("a",), None, "a:2"), "no tags"),
    (Ranking(), RankingExample("0", "q", (), {}, "a:2"), "no documents"),
    (Ranking(), RankingExample("0", "q", (Document("d", ""),), None, "a:2"), "no judgments"),
    (Ranking(), RankingExample("0", "q", (Document("d", ""),), {"d": 3.0}, "a:2"), "above max_grade"),
    (Ranking(), RankingExample("0", "q", (Document("d", ""), Document("d", "")), {}, "a:2"), "same id"),
])  # fmt: skip
def test_every_family_refuses_what_it_cannot_learn_from(task: Task, example: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        task.check([example], labelled=True)


@pytest.mark.parametrize(("task", "record", "match"), [
    (TextClassification(), {"text": 7}, "a:1: text must be a text, but is 7"),
    (TextClassification(pair_column="pair"), {"text": "x"}, "no column 'pair'; present are 'text'"),
    (TextRegression(), {"text": "x", "label": "two"}, "label 'two' is no number"),
    (MultipleChoice(), {"context": "x", "choices": "a"}, "choices must be a list"),
    (MultipleChoice(), {"context": "x", "choices": ["a", "b"], "label": "C"}, "a letter from A to B"),
    (TokenClassification(), {"sentence": ["x"]}, "words must be a list of texts; present are 'sentence'"),
    (TokenClassification(), {"words": ["x"], "tags": "O"}, "tags must be a list"),
    (Ranking(), {"query": "x"}, "documents must be a list"),
    (Ranking(), {"query": "x", "documents": [{"id": "1"}]}, "document 1: there is no column 'text'"),
])  # fmt: skip
def test_every_family_says_what_a_record_lacks(task: Task, record: dict[str, Any], match: str) -> None:
    # A label that cannot be read is refused where labels are needed.
    with pytest.raises(InputError, match=match):
        task.check([task.example(record, "a:1", 0)], labelled=True)


def test_words_without_pieces_and_words_longer_than_the_model_keep_their_tag() -> None:
    task = TokenClassification(max_length=16, label_names=("O", "B-X"), overlap=2)
    tokenizer = toy_tokenizer()
    words = ("\u200b", "value", "x" * 400, "", *(["class"] * 30))
    example = WordsExample("0", words, ("O",) * len(words))
    rows = task.features([example, WordsExample("1", ())], tokenizer, training=False)
    assert all(row.length <= 16 for row in rows)
    model = start_model(toy_config(), task)
    first, second = FineTuned(model, tokenizer, task).predict([example, WordsExample("1", ())])
    assert len(first["label"]) == len(words)
    assert second["label"] == []
    assert word_windows([3, 3, 3], 6, 1) == [(0, 2), (1, 3)]
    assert word_windows([], 6, 1) == [(0, 0)]
