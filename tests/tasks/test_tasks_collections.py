"""Collections of documents, queries and judgments: the Web Track's forms, splits, and no query lost in silence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from task_toys import toy_config, toy_tokenizer

from xlnet.errors import InputError
from xlnet.tasks.datasets.collections import read_cranfield_judgments, read_qrels, read_trec_queries
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.datasets.own import is_labelled, kind, read_own
from xlnet.tasks.datasets.ranking import read_ranking
from xlnet.tasks.families.ranking import Ranking
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.starting import start_model

TOPICS = """<?xml version="1.0" encoding="UTF-8"?>
<webtrack2009>
  <!-- <topic number="0" type="faceted"><query>not one</query></topic>
  -->
  <topic number="1" type="faceted">
    <query> obama
      family tree </query>
    <description>Find information on a family.</description>
    <subtopic number="1" type="nav">Find the <i>site</i>.</subtopic>
  </topic>
  <topic number='2' type="ambiguous"><query>AT&amp;T</query><description>x</description></topic>
</webtrack2009>
"""


def collection(folder: Path, queries: int = 7, judged: int = 6) -> Path:
    """A folder with as many queries as said, the last of them without judgments."""
    words = [f"word{i}" for i in range(queries)]
    documents = [f"<DOC><DOCNO>d{i}</DOCNO>{word} text</DOC>" for i, word in enumerate(words)]
    (folder / "docs.trec").write_text("\n".join(documents))
    topics = [f'<topic number="{i}"><query>{word}</query></topic>' for i, word in enumerate(words)]
    (folder / "topics.xml").write_text(f"<topics>{''.join(topics)}</topics>")
    if judged:
        (folder / "qrels.txt").write_text("".join(f"{i} 0 d{i} 1\n" for i in range(judged)))
    return folder


@pytest.mark.parametrize("root", ["webtrack2009", "topics"])
def test_topics_of_the_web_track(tmp_path: Path, root: str) -> None:
    path = tmp_path / "wt09.topics.full.xml"
    path.write_text(TOPICS.replace("webtrack2009", root))
    assert read_trec_queries(path) == {"1": "obama family tree", "2": "AT&T"}
    path.write_text('<topics>\n<topic number="3"><title>cold</title></topic>\n</topics>')
    assert read_trec_queries(path) == {"3": "cold"}


@pytest.mark.parametrize(("text", "match"), [
    ("<a>\n<topic><query>x</query></topic>", r"t\.xml:2: there must be <topic number="),
    ('<!--\n-->\n<topic number="1"><description>x</description></topic>', r"t\.xml:3: there must be .* a <query>"),
    ("\n\n<top>\n<title>x\n</top>", r"t\.xml:3: in <top> there must be a <num>"),
    ('<topic number="1"><query>x</query></topic>' * 2, "'1' stands there twice"),
    ("<topics></topics>", r"holds no <top>\.\.\.</top>, nor <topic number"),
])  # fmt: skip
def test_topics_that_cannot_be_used_are_named(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "t.xml"
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        read_trec_queries(path)


def test_judgments_of_the_web_track_of_2009(tmp_path: Path) -> None:
    path = tmp_path / "prels.gz"
    path.write_bytes(gzip.compress(b"1 clueweb09-en01 2 1 1.0\n1 clueweb09-en02 0 0 0.0063\n"))
    assert read_qrels(path) == {"1": {"clueweb09-en01": 2.0, "clueweb09-en02": 0.0}}


@pytest.mark.parametrize(("line", "match"), [
    ("1 0 a 0.4", r"qrels:2: the grade of relevance '0\.4' must be a whole number"),
    ("1 0 a nan", r"qrels:2: the grade of relevance 'nan' must be a whole number"),
    ("1 0 a x", r"qrels:2: the grade of relevance 'x' must be a whole number"),
    ("1 0 b 0", "qrels:2: query 1, document b has the grade 0 here and 2 further up"),
    ("1 0 a", "qrels:2 must be 'query 0 document grade'"),
])  # fmt: skip
def test_judgments_that_cannot_be_used_are_named(tmp_path: Path, line: str, match: str) -> None:
    path = tmp_path / "qrels"
    path.write_text(f"1 0 b 2\n{line}\n")
    with pytest.raises(InputError, match=match):
        read_qrels(path)


def test_grades_of_cranfield_are_those_of_cranfield(tmp_path: Path) -> None:
    path = tmp_path / "cranqrel"
    for line, match in (("1 2 2.5", "must be a whole number"), ("1 2 6", r"must be 1 \(best\) to 5"), ("1 2", "query")):
        path.write_text(f"1 1 1\n{line}\n")
        with pytest.raises(InputError, match=f"cranqrel:2.*{match}"):
            read_cranfield_judgments(path)


@pytest.mark.parametrize("judged", [6, 0])
def test_every_query_of_a_collection_is_predicted(tmp_path: Path, judged: int) -> None:
    pytest.importorskip("bm25s")
    task = Ranking(name="rank", max_length=32, max_query_length=8)
    examples = read_own(task, collection(tmp_path, judged=judged), "test")
    assert [example.id for example in examples] == list("0123456")
    assert [example.label for example in examples] == [{f"d{i}": 1.0} for i in range(judged)] + [None] * (7 - judged)
    found = FineTuned(start_model(toy_config(), task), toy_tokenizer(), task).predict(examples)
    assert [prediction["id"] for prediction in found] == list("0123456")


def test_splits_of_a_collection_hold_the_judged_queries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("bm25s")
    collection(tmp_path)
    ids = {split: [e.id for e in read_own(Ranking(), tmp_path, split)] for split in ("train", "dev", "all")}
    assert ids == {"train": list("1234"), "dev": list("05"), "all": list("012345")}
    assert "1 of 7 queries have no judgments and are left out of train: '6'" in caplog.text
    with pytest.raises(InputError, match=r"query 6: there are no judgments.*--split all"):
        Ranking().check(read_own(Ranking(), tmp_path, "test"), labelled=True)
    with pytest.raises(InputError, match=r"no split 'devv' of a collection; there are .* Did you mean 'dev'"):
        read_own(Ranking(), tmp_path, "devv")


def test_a_collection_without_judgments_cannot_be_learnt_from(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    collection(tmp_path, judged=0)
    with pytest.raises(InputError, match="must hold one file with qrel"):
        read_ranking(tmp_path, "dev")
    (tmp_path / "qrels.txt").write_text("wt09-1 0 d1 1\n")
    with pytest.raises(InputError, match=r"no query has judgments.* '0', '1', .* those of the judgments 'wt09-1'"):
        read_ranking(tmp_path, "train")


def test_unknown_splits_of_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\nx\t1\n")
    for task in (kind("classify").task, kind("rank").task):
        for split in ("foo", "all"):
            with pytest.raises(InputError, match=f"no split '{split}'; there are train, dev, test"):
                read_own(task, tmp_path, split)
    # A folder of files by split is no collection because the one that is asked for is not there.
    with pytest.raises(InputError, match=r"has no test\.tsv"):
        read_own(kind("rank").task, tmp_path, "test")


def test_a_split_is_measured_only_with_all_its_labels(caplog: pytest.LogCaptureFixture) -> None:
    known = TextExample("0", "a", label="1", where="test.tsv:2")
    unknown = TextExample("1", "b", where="test.tsv:3")
    assert is_labelled("classify", "test", [known])
    assert not caplog.text
    assert not is_labelled("classify", "test", [known, unknown])
    assert "test is not measured: 1 of its 2 examples have no label (the first is test.tsv:3)" in caplog.text
    with pytest.raises(InputError, match="classify: test holds no example"):
        is_labelled("classify", "test", [])


def test_grades_above_those_of_gdeval_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for highest in (4, 5):
        documents = [{"id": "a", "text": "x", "label": highest}, {"id": "b", "text": "y", "label": 0}]
        lines = [json.dumps({"query": "q", "documents": documents})] * 2
        (tmp_path / "train.jsonl").write_text("\n".join(lines))
        assert load_task("rank", tmp_path).task.settings()["max_grade"] == highest
        assert ("grades go up to 5" in caplog.text) == (highest == 5)
