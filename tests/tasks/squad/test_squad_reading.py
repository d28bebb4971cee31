"""SQuAD files of both versions are read; what is damaged is refused with its place in the JSON."""

from __future__ import annotations

import gzip
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from squad_recorded import squad_file, toy_squad, write_json

from xlnet.errors import InputError, XLNetError
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.datasets.registry import benchmark
from xlnet.tasks.squad.examples import Answer, SquadExample, check_answers, locate
from xlnet.tasks.squad.reading import read_squad
from xlnet.tasks.squad.task import QuestionAnswering
from xlnet.text import XLNetTokenizer

GOOD = {"id": "a", "question": "Who sat?", "answers": [{"text": "cat", "answer_start": 4}]}


def test_both_versions_are_read(tmp_path: Path) -> None:
    (found,) = read_squad(write_json(tmp_path / "x.json", squad_file([GOOD])))
    assert found == SquadExample(
        "a", "Who sat?", "The cat sat on the mat.", (Answer("cat", 4),), "t",
        f"{tmp_path / 'x.json'}: data[0].paragraphs[0].qas[0]",
    )  # fmt: skip
    questions = [
        {**GOOD, "is_impossible": False},
        {"id": "b", "question": "?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]},
        {"id": 7, "question": "?", "answers": []},
        {"id": "d", "question": "?"},
        {"id": "e", "question": "?", "answers": [], "is_impossible": False},
        {"id": "f", "question": "?", "answers": {"text": ["mat"], "answer_start": [19]}},
        {"id": "g", "question": "?", "answers": ["sat"]},
    ]
    path = tmp_path / "y.json.gz"
    path.write_bytes(gzip.compress(json.dumps(squad_file(questions)).encode()))
    examples = read_squad(path)
    assert [e.id for e in examples] == ["a", "b", "7", "d", "e", "f", "g"]
    assert [e.label for e in examples] == [("cat",), (), (), None, None, ("mat",), ("sat",)]


@pytest.mark.parametrize(("change", "message"), [
    (lambda q: q.pop("id"), r"data\[0\].paragraphs\[0\].qas\[0\] has no 'id'; present are 'question'"),
    (lambda q: q.update(id=""), r"qas\[0\].id is ''"),
    (lambda q: q.update(id="\udc00"), r"qas\[0\].id holds half a surrogate pair"),
    (lambda q: q.update(id=None), r"qas\[0\].id is None"),
    (lambda q: (q.pop("question"), q.update(qestion="x")), r"has no 'question'.*Did you mean 'qestion'"),
    (lambda q: q.update(question=3), r"qas\[0\].question must be a text, but is 3"),
    (lambda q: q.update(question="a\ud800b"), r"question holds half a surrogate pair \(U\+D800\) at character 1"),
    (lambda q: q.update(answers="cat"), r"qas\[0\].answers must be a list"),
    (lambda q: q.update(answers=[3]), r"answers\[0\] must be an object"),
    (lambda q: q.update(answers=[{"answer_start": 1}]), r"answers\[0\] has no 'text'"),
    (lambda q: q.update(answers=[{"text": " ", "answer_start": 1}]), "is empty. A question without an answer"),
    (lambda q: q.update(answers=[{"text": "cat", "answer_start": -1}]), r"answers\[0\].answer_start is -1"),
    (lambda q: q.update(answers=[{"text": "cat", "answer_start": "4"}]), "answer_start is '4'"),
    (lambda q: q.update(answers={"text": ["a"], "answer_start": []}), "has 1 texts but 0 places"),
    (lambda q: q.update(is_impossible="no"), "is_impossible is 'no'; it must be true or false"),
    (lambda q: q.update(is_impossible=True), "marked is_impossible but has the answer 'cat'"),
])  # fmt: skip
def test_damage_is_named_by_its_place(tmp_path: Path, change: Any, message: str) -> None:
    question = json.loads(json.dumps(GOOD))
    change(question)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(squad_file([question])), encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        read_squad(path)
    assert "x.json: data[0].paragraphs[0].qas[0]" in str(raised.value)


@pytest.mark.parametrize(("text", "message"), [
    ("", "x.json is no JSON"),
    ('{"data": [', "x.json is no JSON"),
    ("[" * 100_000, "x.json is no JSON"),
    ("[]", "x.json must be an object, but is \\[\\]"),
    ("{}", "x.json has no 'data'; present are none"),
    ('{"dat": []}', "Did you mean 'dat'"),
    ('{"data": []}', "holds no question"),
    ('{"data": [1]}', r"data\[0\] must be an object, but is 1"),
    ('{"data": [{"title": "t"}]}', r"data\[0\] has no 'paragraphs'"),
    ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\] has no 'context'"),
    ('{"data": [{"paragraphs": [{"context": null, "qas": []}]}]}', r"context must be a text, but is null"),
])  # fmt: skip
def test_files_of_another_form_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_squad(tmp_path / "x.json")


def test_missing_files_other_encodings_and_equal_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_squad(tmp_path / "no.json")
    (tmp_path / "x.json").write_bytes('{"data": "\u00e4"}'.encode("latin-1"))
    with pytest.raises(InputError, match="is not UTF-8"):
        read_squad(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"qas\[1\].id is 'a', as is that of .*qas\[0\]"):
        read_squad(write_json(tmp_path / "y.json", squad_file([GOOD, GOOD])))
    with pytest.raises(InputError, match=r"has no train-v1.1.json or train.json; it holds x.json, y.json"):
        benchmark("squad").read(tmp_path, "train")


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_damage_ends_in_a_bare_error(tmp_path: Path, data: st.DataObject) -> None:
    junk = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "text"]), inner, max_size=2),
        max_leaves=4,
    )
    values: Any = squad_file([dict(GOOD, answers=[{"text": "cat", "answer_start": 4}])])
    place: Any = values
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(junk)
            break
        place = place[key]
    path = write_json(tmp_path / "x.json", values)
    try:
        assert read_squad(path)
    except XLNetError as error:
        assert "x.json" in str(error)


def test_where_an_answer_stands() -> None:
    passage = "a cat, the cat and a dog"
    assert locate(passage, Answer("cat", 11)) == (11, 14)
    assert locate(passage, Answer(" cat ", 10)) == (11, 14)
    # At another place than it says: taken where it stands once, not where it stands twice.
    assert locate(passage, Answer("dog", 3)) == (21, 24)
    assert locate(passage, Answer("dog")) == (21, 24)
    assert locate(passage, Answer("cat", 3)) is None
    assert locate(passage, Answer("bird", 0)) is None
    assert locate(passage, Answer("dog", 10**9)) == (21, 24)


def test_answers_outside_their_passage_are_counted_reported_and_refused_past_one_in_a_hundred(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = [SquadExample(str(i), "?", "the cat", (Answer("cat", 4),)) for i in range(199)]
    bad = SquadExample("bad", "?", "the cat", (Answer("bird", 4),), where="f.json: data[3]")
    with caplog.at_level(logging.WARNING):
        check_answers("squad", [*good, bad])
    assert "1 of 200 answers do not stand in their passage" in caplog.text
    assert "f.json: data[3]: 'bird' at answer_start=4 (it is nowhere in it)" in caplog.text
    with pytest.raises(InputError, match=r"3 of 202 answers.*More than 1% are refused: answer_start counts characters"):
        check_answers("squad", [*good, bad, bad, bad])
    caplog.clear()
    check_answers("squad", good)
    assert not caplog.text


def test_an_answer_without_a_place_may_stand_at_several(
    tokenizer: XLNetTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """Plain texts as answers: scoring needs no place; training leaves out what it cannot learn, and says so."""
    example = SquadExample("a", "Which?", "a cat and a cat", (Answer("cat"),))
    nowhere = SquadExample("b", "Which?", "a cat and a cat", (Answer("dog"),))
    task = QuestionAnswering()
    task.check([example], labelled=True)
    assert task.features([example], tokenizer, training=True) == []
    assert "1 training questions are left out" in caplog.text
    assert len(task.features([example], tokenizer, training=False)) == 1
    for lost in (nowhere, replace(example, answers=(Answer("cat", 3),))):
        with pytest.raises(InputError, match="do not stand in their passage"):
            task.check([lost], labelled=True)


def test_the_task_says_what_it_needs() -> None:
    one, two = QuestionAnswering(name="squad", unanswerable=False), QuestionAnswering(name="squad2")
    impossible = SquadExample("a", "?", "the cat", (), where="f.json: data[0]")
    two.check([impossible], labelled=True)
    with pytest.raises(InputError, match=r"f.json: data\[0\]: the question has no answer.*use the task squad2"):
        one.check([impossible], labelled=True)
    for task in (one, two):
        unknown = SquadExample("a", "?", "the cat")
        task.check([unknown], labelled=False)
        with pytest.raises(InputError, match=r"there are no answers.*Use predict"):
            task.check([unknown], labelled=True)
    example = two.example({"question": "?", "context": "x", "answers": ["x"]}, "f:1", 3)
    assert (example.id, example.label) == ("3", ("x",))
    with pytest.raises(InputError, match="f:1: there is no column 'passage'; present are 'question'"):
        two.example({"question": "?"}, "f:1", 0)


def test_held_out_questions_are_on_articles_of_their_own(tmp_path: Path) -> None:
    path = write_json(tmp_path / "train-v2.0.json", toy_squad(24))
    loaded = load_task("squad2", path, dev_share=0.3)
    train, dev = loaded.data.train, loaded.data.held_out["dev"]
    assert len(train) + len(dev) == 24
    assert not {e.title for e in train} & {e.title for e in dev}
    assert len(dev) == 8
    write_json(tmp_path / "dev-v2.0.json", toy_squad(4))
    assert len(load_task("squad2", tmp_path).data.held_out["dev"]) == 4
    write_json(tmp_path / "one.json", squad_file([GOOD, {**GOOD, "id": "b"}]))
    with pytest.raises(InputError, match="belong together"):
        load_task("squad", tmp_path / "one.json")


@pytest.mark.data
def test_real_files_are_read_and_split_by_article(shared_data: Path) -> None:
    path = shared_data / "squad" / "squad2_half_dev.json"
    loaded = load_task("squad2", path, dev_share=0.25)
    train, dev = loaded.data.train, loaded.data.held_out["dev"]
    assert len(train) + len(dev) == 6078
    assert sum(e.label == () for e in (*train, *dev)) == 3168
    assert not {e.title for e in train} & {e.title for e in dev}
    loaded.task.check([*train, *dev], labelled=True)
    examples = read_squad(shared_data / "squad" / "xquad_en.json")
    assert len(examples) == 1190
    QuestionAnswering(unanswerable=False).check(examples, labelled=True)
    assert all(locate(e.passage, a) is not None for e in examples for a in e.answers or ())
