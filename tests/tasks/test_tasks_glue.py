"""GLUE files are read as the release reads them, in every official form; the server's files are written as it wants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xlnet.errors import ConfigurationError, InputError
from xlnet.tasks.datasets.glue import GLUE
from xlnet.tasks.datasets.glue_files import write_glue
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.datasets.registry import BENCHMARKS, benchmark

RECORDED = json.loads((Path(__file__).resolve().parents[1] / "golden/tasks/glue_examples.json").read_text())
PLAIN = {
    "cola": ("gj04\t1\t\tIt works.", "gj04\t0\t*\tWorks it."),
    "sst2": ("sentence\tlabel", 'a "fine" film \t1', "a bad film \t0"),
    "qnli": ("index\tquestion\tsentence\tlabel", "0\tWho?\tHe did.\tentailment", "1\tWhy?\tNo.\tnot_entailment"),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\tA b.\tC.\tnot_entailment", "1\tD.\tE.\tentailment"),
    "wnli": ("index\tsentence1\tsentence2\tlabel", "0\tA b.\tC.\t1", "1\tD.\tE.\t0"),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "7\t1\t2\tA?\tB?\t0", "8\t3\t4\tC?\tC?\t1"),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t5\t6\tA b.\tA c.", "0\t7\t8\tD.\tE."),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tg\tf\ty\to\ts\ts\tA.\tB.\t2.500", "1\tg\tf\ty\to\ts\ts\tC.\tD.\t0.0",
    ),
    "ax": ("Lexical\tDomain\tPremise\tHypothesis\tLabel", "x\td\tA.\tB.\tentailment", "x\td\tC.\tD.\tneutral"),
}  # fmt: skip
TEST_HEADERS = {
    "cola": ("index\tsentence", "0\tIs it?"),
    "sst2": ("index\tsentence", "0\tgood"),
    "mrpc": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t1\t2\tA.\tB."),
    "qqp": ("id\tquestion1\tquestion2", "0\tA?\tB?"),
    "ax": ("index\tsentence1\tsentence2", "0\tA.\tB."),
}


def write(path: Path, lines: tuple[str, ...], end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(end.join(lines) + end, encoding="utf-8", newline="")
    return path


def test_mnli_is_what_the_release_read_and_a_ragged_row_is_named(golden: Path, tmp_path: Path) -> None:
    read = GLUE["mnli"].read
    source = golden / "tasks" / "glue" / "mnli"
    with pytest.raises(InputError, match=r"train\.tsv:5 has 2 columns instead of 12"):
        read(source, "train")
    # The release drops such a row without a word; with it taken out both read the same.
    lines = [line for line in (source / "train.tsv").read_text().split("\n") if "short line" not in line]
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    found = read(tmp_path, "train")
    wanted = RECORDED["mnli_matched"]
    assert [(e.text, e.pair, e.label) for e in found] == [
        (w["text_a"], w["text_b"], w["label"]) for w in wanted["train"]
    ]
    assert list(GLUE["mnli"].task.settings()["label_names"]) == wanted["labels"]
    for split, name, part in (("dev_matched", "mnli_matched", "dev"), ("dev_mismatched", "mnli_mismatched", "dev")):
        (example,) = read(source, split)
        (wanted_example,) = RECORDED[name][part]
        assert (example.text, example.pair, example.label) == tuple(
            wanted_example[k] for k in ("text_a", "text_b", "label")
        )
    (test,) = read(source, "test_matched")
    assert (test.text, test.pair, test.label) == ("test a", "test b", None)


def test_stsb_is_what_the_release_read(golden: Path) -> None:
    for split in ("train", "dev"):
        found = GLUE["stsb"].read(golden / "tasks" / "glue" / "sts-b", split)
        wanted = [(w["text_a"], w["text_b"], w["label"]) for w in RECORDED["sts-b"][split]]
        assert [(e.text, e.pair, e.label) for e in found] == wanted
    (test,) = GLUE["stsb"].read(golden / "tasks" / "glue" / "sts-b", "test")
    assert (test.text, test.label) == ("t", None)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ten_rows_in_the_official_form(name: str, end: str, tmp_path: Path) -> None:
    found = BENCHMARKS[name]
    header, *rows = PLAIN[name] if name != "cola" else ("", *PLAIN[name])
    lines = (*((header,) if header else ()), *(row for _ in range(5) for row in rows))
    file = "diagnostic-full.tsv" if name == "ax" else "train.tsv"
    write(tmp_path / file, lines, end)
    examples = found.read(tmp_path, "dev" if name == "ax" else "train")
    assert len(examples) == 10
    found.task.check(examples, labelled=True)
    assert examples[0].text and not examples[0].text.endswith("\r")
    assert (examples[0].pair is None) == (name in ("cola", "sst2"))
    assert len({example.label for example in examples}) == 2
    assert examples[2].where.endswith(f":{3 + bool(header)}")


@pytest.mark.parametrize("name", TEST_HEADERS)
def test_the_test_files_of_the_server_have_no_labels(name: str, tmp_path: Path) -> None:
    write(tmp_path / ("diagnostic.tsv" if name == "ax" else "test.tsv"), TEST_HEADERS[name])
    (example,) = BENCHMARKS[name].read(tmp_path, "test")
    assert example.label is None
    assert example.text


def test_mrpc_as_microsoft_distributes_it(tmp_path: Path) -> None:
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    rows = tuple(f"{i % 2}\t{i}\t{i + 100}\tText {i}.\tOther {i}." for i in range(10))
    write(tmp_path / "msr_paraphrase_train.txt", (header, *rows), "\r\n")
    write(tmp_path / "msr_paraphrase_test.txt", (header, *rows[:3]), "\r\n")
    read = BENCHMARKS["mrpc"].read
    train, dev = read(tmp_path, "train"), read(tmp_path, "dev")
    assert (len(train), len(dev)) == (9, 1)
    write(tmp_path / "dev_ids.tsv", ("3\t103", "4\t104"))
    train, dev = read(tmp_path, "train"), read(tmp_path, "dev")
    assert [e.text for e in dev] == ["Text 3.", "Text 4."]
    assert (len(train), len(read(tmp_path, "test"))) == (8, 3)


def test_a_few_broken_rows_of_qqp_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    header, *rows = PLAIN["qqp"]
    write(tmp_path / "train.tsv", (header, *(rows * 1000), "9\tbroken"))
    assert len(BENCHMARKS["qqp"].read(tmp_path, "train")) == 2000
    assert "1 of 2001 rows" in caplog.text
    write(tmp_path / "train.tsv", (header, *rows, "9\tbroken"))
    with pytest.raises(InputError, match=r"train\.tsv:4 has 2 columns instead of 6"):
        BENCHMARKS["qqp"].read(tmp_path, "train")


def test_no_row_of_a_test_is_left_out_since_the_server_counts_them(tmp_path: Path) -> None:
    header, row = TEST_HEADERS["qqp"]
    write(tmp_path / "test.tsv", (header, *([row] * 2000), "9\tbroken"))
    with pytest.raises(InputError, match=r"test\.tsv:2002 has 2 columns instead of 3"):
        BENCHMARKS["qqp"].read(tmp_path, "test")
    pairs = ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *(["1\t5\t6\tA.\tB."] * 3))
    write(tmp_path / "msr_paraphrase_train.txt", pairs)
    write(tmp_path / "msr_paraphrase_test.txt", pairs)
    assert len(BENCHMARKS["mrpc"].read(tmp_path, "test")) == 3


@pytest.mark.parametrize("name", ["qnli", "wnli", "qnli-ranking", "wnli-ranking"])
def test_candidates_for_one_text_are_held_out_together(name: str, tmp_path: Path) -> None:
    header, *rows = PLAIN[name.removesuffix("-ranking")]
    labels = [row.split("\t")[-1] for row in rows]
    path = write(tmp_path / "a.tsv", (header, *(f"{i}\ttext {i // 3}\tone {i}\t{labels[i % 2]}" for i in range(30))))
    data = load_task(name, path, dev_share=0.3).data
    assert len(data.held_out["dev"]) == 9
    assert not {e.text for e in data.train} & {e.text for e in data.held_out["dev"]}


def test_the_download_folder_itself_will_do(tmp_path: Path) -> None:
    write(tmp_path / "SST-2" / "dev.tsv", PLAIN["sst2"])
    assert len(BENCHMARKS["sst2"].read(tmp_path, "dev")) == 2


def test_submissions(tmp_path: Path) -> None:
    write_glue([{"id": "a", "label": "entailment"}, {"id": "b", "label": "neutral"}], tmp_path / "AX.tsv")
    assert (tmp_path / "AX.tsv").read_text() == "index\tprediction\n0\tentailment\n1\tneutral\n"
    write_glue([{"id": "a", "label": 2.0}], tmp_path / "STS-B.tsv")
    assert (tmp_path / "STS-B.tsv").read_text() == "index\tprediction\n0\t2.000\n"
    assert BENCHMARKS["mnli"].submission == ("MNLI-m.tsv", "MNLI-mm.tsv")


def test_names_of_benchmarks_are_forgiving_and_typos_get_a_hint() -> None:
    assert benchmark("SST-2") is BENCHMARKS["sst2"]
    assert benchmark("AX_b") is BENCHMARKS["ax-b"]
    with pytest.raises(ConfigurationError, match="Did you mean 'boolq'"):
        benchmark("bolq")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "train", "dev"),
    [("cola", 8551, 1043), ("sst2", 67349, 872), ("mrpc", 3576, 500), ("stsb", 5749, 1500), ("qnli", 4470, 993),
     ("rte", 2490, 277), ("wnli", 635, 71)],
)  # fmt: skip
def test_real_files_have_their_rows(name: str, train: int, dev: int, shared_data: Path) -> None:
    found = BENCHMARKS[name]
    for split, count in (("train", train), ("dev", dev)):
        examples = found.read(shared_data / "glue", split)
        found.task.check(examples, labelled=True)
        assert len(examples) == count
