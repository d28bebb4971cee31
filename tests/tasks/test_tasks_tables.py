"""Tables and CoNLL files: no row is lost or taken into another unnoticed, and what is wrong is named with its line."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_toys import toy_config, toy_tokenizer

from xlnet.cli.finetune import read_inputs
from xlnet.errors import InputError
from xlnet.tasks.datasets.conll import read_conll, read_words
from xlnet.tasks.datasets.csv_rows import csv_rows
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.datasets.tables import read_csv, read_jsonl, read_records, read_tsv
from xlnet.tasks.families.token_classification import TokenClassification
from xlnet.tasks.fine_tuned import FineTuned
from xlnet.tasks.starting import start_model

CELLS = st.text(st.sampled_from('ab",\n\r \u2028'), max_size=6)


def test_tables_keep_every_row(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\nfirst\n\nthird\u2028still\n", encoding="utf-8", newline="")
    assert [r.values["text"] for r in read_tsv(path)] == ["first", "", "third\u2028still"]
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"two\nlines, and ""quotes"""\n2,x\n', newline="")
    assert [(r.where.rsplit(":")[-1], r.values["text"]) for r in read_csv(path)] == [
        ("2", 'two\nlines, and "quotes"'), ("4", "x"),
    ]  # fmt: skip
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x"}\n\n{"text": "y"}', newline="")
    assert [r.where for r in read_jsonl(path)] == [f"{path}:1", f"{path}:3"]
    shutil.copy(path, tmp_path / "b.txt")
    with pytest.raises(InputError, match=r"must end in \.tsv, \.csv or \.jsonl"):
        read_records(tmp_path / "b.txt")


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"text": ["a", ""], "label": [1, 0]}), tmp_path / "a.parquet")
    assert [r.values for r in read_records(tmp_path / "a.parquet")] == [
        {"text": "a", "label": 1}, {"text": "", "label": 0},
    ]  # fmt: skip
    (tmp_path / "b.parquet").write_text("no parquet")
    with pytest.raises(InputError, match=r"b\.parquet cannot be read as Parquet"):
        read_records(tmp_path / "b.parquet")


@pytest.mark.parametrize(("text", "line"), [
    ('label,text\n1,"oops\n0,fine\n1,ok\n', 2),
    ('label,text\n"1\n2","oops\n0,fine\n1,ok', 3),
    ('label,text\n1,ok\n0,"', 3),
    ('label,"text\n1,ok\n', 1),
    ('label,text\r\n1,"two\r\nlines"\r\n0,"oops\r\n', 4),
])  # fmt: skip
def test_a_quote_left_open_is_named_with_the_line_it_stands_in(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    with pytest.raises(InputError, match=rf"a\.csv:{line}: the double quote that opens a text here is not closed"):
        read_csv(path)


def test_a_quote_left_open_takes_no_rows_up_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('label,text\n0,good\n1,"oops\n0,"fine"\n1,ok\n', newline="")
    with pytest.raises(InputError, match=r"a\.csv:3: .* more follows after the quote that closes it"):
        read_csv(path)
    # Within a line nothing is lost.
    path.write_text('label,text\n1,"o"ops\n0,5" wide\n', newline="")
    assert [r.values["text"] for r in read_csv(path)] == ["oops", '5" wide']


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=5))
def test_whatever_is_written_as_csv_is_read_again(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    assert [values for _, values in csv_rows(file.getvalue(), Path("a.csv"))] == rows


def test_long_texts_are_read_and_the_limit_of_others_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "word " * 30_000 + ",1\n")
    before = csv.field_size_limit()
    (record,) = read_csv(path)
    assert len(record.values["text"]) == 150_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(("ending", "mark"), [("tsv", "\t"), ("csv", ",")])
def test_two_columns_of_one_name_are_refused(ending: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_text(mark.join(["text", "label", "text"]) + "\n" + mark.join("abc") + "\n")
    with pytest.raises(InputError, match=rf"a\.{ending}:1: more than one column is called 'text'"):
        read_records(path)
    # Spreadsheets end rows with empty columns.
    path.write_text(mark.join(["text", "", ""]) + "\n" + mark.join(["a", "", ""]) + "\n")
    assert [r.values["text"] for r in read_records(path)] == ["a"]
    path.write_text("\n" + mark.join(["text", "label"]) + "\n")
    with pytest.raises(InputError, match=rf"a\.{ending}:1 is empty; the first line must name the columns"):
        read_records(path)


def test_conll(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(
        "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nBonn NNP B-NP B-LOC\n", newline=""
    )
    first, second = read_conll(path)
    assert (first.words, first.label) == (("EU", "rejects"), ("B-ORG", "O"))
    assert (second.words, second.where) == (("Bonn",), f"{path}:7")
    path.write_text("EU NNP B-ORG\nrejects O\n")
    with pytest.raises(InputError, match=r"train\.txt:2 has 2 columns instead of 3"):
        read_conll(path)


def test_other_white_space_is_part_of_a_word(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(
        "10\u00a0000 CD O\nNew\u3000York\tNNP B-LOC \r\n\u00a0 X O\n \t\nend NN O\n", encoding="utf-8", newline=""
    )
    first, second = read_conll(path)
    assert first.words == ("10\u00a0000", "New\u3000York", "\u00a0")
    assert first.label == ("O", "B-LOC", "O")
    assert (second.words, second.where) == (("end",), f"{path}:5")


def test_comments_are_no_words_and_the_word_is_no_comment(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(
        "# NN B-NP O\n12 CD I-NP O\n\n# newpar\n# sent_id = 2\n# text = # 3\nA DT B-NP O\n# NN I-NP O\n\n"
        "# newdoc id = b\n# two words\nB NN B-NP O\n\n# = B-NP O\n"
    )
    assert [(e.words, e.where.rsplit(":")[-1]) for e in read_conll(path)] == [
        (("#", "12"), "1"), (("A", "#"), "7"), (("B",), "12"), (("#",), "14"),
    ]  # fmt: skip
    path.write_text("#global.columns = FORM TAG\n# id = 1\nA O\n\n# newpar\n# O\n")
    assert [e.words for e in read_conll(path)] == [("A",), ("#",)]


def test_words_without_tags_can_be_predicted_but_not_learnt_from(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("# sent_id = 1\nEU\nrejects\n\n#\n1\n")
    task = TokenClassification(name="tag", max_length=16, label_names=("O", "B-X"))
    tuned = FineTuned(start_model(toy_config(), task), toy_tokenizer(), task)
    found = tuned.predict(read_inputs(tuned, path, "", labelled=False))
    assert [(record["words"], len(record["label"])) for record in found] == [(["EU", "rejects"], 2), (["#", "1"], 2)]
    with pytest.raises(InputError, match=r"new\.txt:2: there are no tags"):
        tuned.evaluate(read_inputs(tuned, path, "", labelled=True))
    with pytest.raises(InputError, match=r"new\.txt holds words without tags"):
        load_task("tag", path)
    path.write_text("EU\nrejects O\n")
    with pytest.raises(InputError, match=r"new\.txt:2 has 2 columns instead of 1"):
        read_conll(path)


def test_half_a_surrogate_among_words_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"words": ["a"]}) + "\n" + json.dumps({"words": ["b", "\ud800"]}) + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl:2: words holds half a surrogate pair"):
        read_words(path, "test")
