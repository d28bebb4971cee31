"""RACE, IMDB, the CSV sets, TREC and SMART: official files in, examples out; each malformed row is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from xlnet.errors import InputError
from xlnet.tasks.datasets.collections import (
    read_cranfield_judgments,
    read_qrels,
    read_smart,
    read_smart_documents,
    read_smart_queries,
    read_trec_documents,
    read_trec_queries,
)
from xlnet.tasks.datasets.race import race_question
from xlnet.tasks.datasets.ranking import read_collection, read_ranking
from xlnet.tasks.datasets.registry import BENCHMARKS
from xlnet.tasks.families.text import UnreadLabel

HERE = Path(__file__).resolve().parents[1] / "golden" / "tasks"
RECORDED = json.loads((HERE / "glue_examples.json").read_text())
RACE = json.loads((HERE / "race_features.json").read_text())


def test_race_is_what_the_release_read() -> None:
    found = BENCHMARKS["race"].read(HERE / "race", "train")
    for example, wanted in zip(found, RACE["examples"], strict=True):
        assert example.context == wanted["context"]
        assert list(example.choices) == wanted["qa_list"]
        assert (example.label, example.group) == ((wanted["label"],), wanted["level"])
    assert len(BENCHMARKS["race-high"].read(HERE / "race", "train")) == 1


def test_a_damaged_race_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "middle"
    folder.mkdir(parents=True)
    (folder / "7.txt").write_text('{"article": "a", "questions": ["q"], "options": [["x", "y"]], "answers": ["C"]}')
    found = BENCHMARKS["race"]
    examples = found.read(tmp_path, "train")
    with pytest.raises(InputError, match=r"7\.txt, question 1: answer 'C' must be a letter from A to B"):
        found.task.check(examples, labelled=True)
    found.task.check(examples, labelled=False)
    (folder / "7.txt").write_text(
        '{"article": "a", "questions": ["q", "r"], "options": [["x", "y"]], "answers": ["A"]}'
    )
    with pytest.raises(InputError, match=r"7\.txt is no RACE passage"):
        BENCHMARKS["race"].read(tmp_path, "train")


@pytest.mark.parametrize(("changes", "match"), [
    ({"questions": "q"}, "is no RACE passage .*must be lists"),
    ({"options": ["xy"]}, "question 1: options must be a list of texts, but is 'xy'"),
    ({"options": [["x", None]]}, "question 1: options must be a text, but is None"),
    ({"article": None}, "question 1: article must be a text, but is None"),
    ({"article": "a\ud800"}, r"question 1: article holds half a surrogate pair \(U\+D800\) at character 1"),
])  # fmt: skip
def test_a_race_file_of_other_values_is_named(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    passage = {"article": "a", "questions": ["q"], "options": [["x", "y"]], "answers": ["A"]}
    (tmp_path / "train" / "middle").mkdir(parents=True)
    (tmp_path / "train" / "middle" / "7.txt").write_text(json.dumps({**passage, **changes}))
    with pytest.raises(InputError, match=r"7\.txt.*" + match):
        BENCHMARKS["race"].read(tmp_path, "train")


def test_race_without_answers_has_no_labels_and_a_letter_is_one_character() -> None:
    def label(answer: str | None, count: int = 4) -> object:
        names = [f"choice {i}" for i in range(count)]
        return race_question("a", "q", names, answer, "id", "high", "f, question 1").label

    assert label(None) is None
    assert label("") is None
    assert (label("A"), label("D")) == ((0,), (3,))
    for answer, count, last in (("BC", 4, "D"), ("E", 4, "D"), ("a", 4, "D"), ("?", 30, "Z")):
        wanted = UnreadLabel(f"f, question 1: answer {answer!r} must be a letter from A to {last}.")
        assert label(answer, count) == wanted


def test_imdb_folder_and_table(tmp_path: Path) -> None:
    read = BENCHMARKS["imdb"].read
    # The recorded names of splits: the release's test is what it called dev.
    for split, name in (("train", "train"), ("test", "dev")):
        wanted = [(w["text_a"], w["label"]) for w in RECORDED["imdb"][name]]
        assert [(e.text, e.label) for e in read(HERE / "glue" / "imdb", split)] == wanted
    with gzip.open(tmp_path / "train.tsv.gz", "wt", encoding="utf-8", newline="") as file:
        file.write("label\ttext\n0\tA\u0085b<br />c\n1\tGood\n")
    assert [(e.text, e.label) for e in read(tmp_path, "train")] == [("A\u0085b c", "neg"), ("Good", "pos")]


def test_yelp_is_what_the_release_read() -> None:
    read = BENCHMARKS["yelp5"].read
    for split, name in (("train", "train"), ("test", "dev")):
        wanted = [(w["text_a"], w["label"]) for w in RECORDED["yelp5"][name]]
        assert [(e.text, e.label) for e in read(HERE / "glue" / "yelp5", split)] == wanted


@pytest.mark.parametrize(("name", "classes", "titled"), [
    ("yelp2", 2, False), ("yelp5", 5, False), ("amazon2", 2, True), ("amazon5", 5, True), ("ag", 4, True),
    ("dbpedia", 14, True),
])  # fmt: skip
def test_the_csv_sets_of_zhang_et_al(name: str, classes: int, titled: bool, tmp_path: Path) -> None:
    title = '"A ""title"", here",' if titled else ""
    lines = [f'"{1 + i % classes}",{title}"text {i}, with a comma"' for i in range(10)]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    examples = BENCHMARKS[name].read(tmp_path, "train")
    BENCHMARKS[name].task.check(examples, labelled=True)
    assert len(examples) == 10
    assert examples[0].text == ('A "title", here ' if titled else "") + "text 0, with a comma"


def test_trec_forms(tmp_path: Path) -> None:
    documents, queries, qrels = tmp_path / "docs.trec", tmp_path / "topics.trec", tmp_path / "qrels.txt"
    documents.write_text("<DOC>\n<DOCNO> A-1 </DOCNO>\n<TEXT>two\nlines</TEXT>\n</DOC>\n<DOC><DOCNO>B</DOCNO></DOC>\n")
    assert read_trec_documents(documents) == {"A-1": "two lines", "B": ""}
    queries.write_text("<top>\n<num> Number: 301\n<title> Topic: crime\n\n<desc> Description:\nlong\n</top>\n")
    assert read_trec_queries(queries) == {"301": "crime"}
    qrels.write_text("301 0 A-1 2\n301 0 B -1\n")
    assert read_qrels(qrels) == {"301": {"A-1": 2.0, "B": -1.0}}
    (example,) = read_ranking(tmp_path, "all")
    assert {d.id for d in example.documents} == {"A-1", "B"}
    qrels.write_text("301 0 A-1\n")
    with pytest.raises(InputError, match=r"qrels\.txt:1 must be 'query 0 document grade'"):
        read_qrels(qrels)
    documents.write_text("<DOC><DOCNO>A</DOCNO></DOC><DOC><DOCNO>A</DOCNO></DOC>")
    with pytest.raises(InputError, match="'A' stands there twice"):
        read_trec_documents(documents)


def test_smart_forms(tmp_path: Path) -> None:
    path = tmp_path / "cran.all.1400"
    path.write_text(".I 1\n.T\na title .\n.A\n\n.W\nfirst part .\n.W\nsecond\n.I 2\n.T\nonly title\n.W\n.I 3\n.W\n")
    assert read_smart_documents(path) == {"1": "first part . second", "2": "only title", "3": ""}
    assert read_smart(path)[0][1]["T"] == "a title ."
    path.write_text(".I 004\n.W\nwhat\n.I 017\n.W\nwhy\n")
    assert read_smart_queries(path) == {"1": "what", "2": "why"}
    path.write_text("1 184 2\n1 29 -1\n2 12 4\n")
    assert read_cranfield_judgments(path) == {"1": {"184": 3.0}, "2": {"12": 1.0}}
    path.write_text("text without entry\n")
    with pytest.raises(InputError, match=r"cran\.all\.1400:1: text before"):
        read_smart(path)


@pytest.mark.data
def test_cranfield_and_vaswani(shared_data: Path) -> None:
    cranfield = read_collection(shared_data / "ranking" / "cranfield")
    assert (len(cranfield.documents), len(cranfield.queries), len(cranfield.judgments)) == (1400, 225, 225)
    assert [name for name, text in cranfield.documents.items() if not text] == ["471", "995"]
    vaswani = read_collection(shared_data / "ranking" / "vaswani")
    assert (len(vaswani.documents), len(vaswani.queries)) == (11429, 93)
    train, dev = (read_ranking(shared_data / "ranking" / "cranfield", split) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (180, 45)
    assert not {e.id for e in train} & {e.id for e in dev}


@pytest.mark.data
def test_real_race_and_imdb(shared_data: Path) -> None:
    assert len(BENCHMARKS["race"].read(shared_data / "race", "train")) == 800
    assert len(BENCHMARKS["race"].read(shared_data / "race", "dev")) == 200
    assert len(BENCHMARKS["chnsenticorp"].read(shared_data / "chnsenticorp", "dev")) == 1139
    assert len(BENCHMARKS["imdb"].read(shared_data / "imdb", "test")) == 25000
