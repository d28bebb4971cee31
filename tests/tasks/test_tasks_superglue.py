"""SuperGLUE's JSONL: what each task reads, and what its server takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xlnet.errors import InputError
from xlnet.tasks.datasets.loading import load_task
from xlnet.tasks.datasets.registry import BENCHMARKS

PASSAGE = "Ann met Bob.\n@highlight\nAnn left"
LINES: dict[str, dict[str, Any]] = {
    "boolq": {"question": "is it so", "passage": "It is so.", "idx": 3, "label": True},
    "cb": {"premise": "A.", "hypothesis": "B", "label": "neutral", "idx": 0},
    "copa": {"premise": "It fell.", "choice1": "He pushed.", "choice2": "He slept.", "question": "cause", "label": 0,
             "idx": 1},
    "multirc": {"idx": 5, "passage": {"text": "P.", "questions": [
        {"question": "Q?", "idx": 7,
         "answers": [{"text": "a", "idx": 8, "label": 0}, {"text": "b", "idx": 9, "label": 1}]},
    ]}},
    "record": {"idx": 1, "passage": {"text": PASSAGE, "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 10},
                                                                  {"start": 24, "end": 26}]},
               "qas": [{"idx": 4, "query": "@placeholder stayed.",
                        "answers": [{"start": 8, "end": 10, "text": "Bob"}]}]},
    "superglue-rte": {"premise": "A.", "hypothesis": "B.", "label": "entailment", "idx": 0},
    "wic": {"word": "bank", "sentence1": "The bank.", "sentence2": "A bank.", "idx": 2, "label": False},
    "wsc": {"text": "Mark told Pete lies about himself, and he was angry.", "idx": 6, "label": True,
            "target": {"span1_index": 0, "span1_text": "Mark", "span2_index": 7, "span2_text": "he"}},
    "ax-b": {"sentence1": "A.", "sentence2": "B.", "label": "entailment", "idx": "0"},
    "ax-g": {"premise": "A.", "hypothesis": "B.", "label": "not_entailment", "idx": 0, "pair_id": 1},
}  # fmt: skip
FILES = {"ax-b": "AX-b.jsonl", "ax-g": "AX-g.jsonl"}


def read(name: str, tmp_path: Path, *records: dict[str, Any]) -> list[Any]:
    path = tmp_path / FILES.get(name, "val.jsonl")
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return BENCHMARKS[name].read(tmp_path, "dev")


@pytest.mark.parametrize("name", LINES)
def test_each_form_is_read_and_checked(name: str, tmp_path: Path) -> None:
    examples = read(name, tmp_path, *[LINES[name]] * 10)
    assert len(examples) == (20 if name == "multirc" else 10)
    BENCHMARKS[name].task.check(examples, labelled=True)


def test_what_the_models_read(tmp_path: Path) -> None:
    first = {name: read(name, tmp_path, LINES[name])[0] for name in LINES}
    assert (first["boolq"].text, first["boolq"].pair, first["boolq"].label) == ("It is so.", "is it so", "true")
    assert first["copa"].choices[0] == "What was the cause of this? He pushed."
    assert (first["multirc"].pair, first["multirc"].group, first["multirc"].id) == ("Q? a", "5-7", "5-7-8")
    assert first["record"].names == ("Ann", "Bob")
    assert first["record"].choices == ("Ann stayed.", "Bob stayed.")
    assert first["record"].label == (1,)
    assert first["record"].context == "Ann met Bob. Ann left"
    assert first["wic"].text == "bank: The bank."
    assert first["wsc"].pair == "Mark told Pete lies about himself, and Mark was angry."
    assert (first["wsc"].label, first["wic"].label) == ("true", "false")


def test_a_pronoun_beside_its_index_is_found_and_a_missing_one_refused(tmp_path: Path) -> None:
    record = json.loads(json.dumps(LINES["wsc"]))
    record["target"]["span2_index"] = 9
    (example,) = read("wsc", tmp_path, record)
    assert example.pair == "Mark told Pete lies about himself, and Mark was angry."
    record["target"]["span2_text"] = "she"
    with pytest.raises(InputError, match=r"val\.jsonl:1: the pronoun 'she' does not stand"):
        read("wsc", tmp_path, record)


def test_missing_keys_name_those_present(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"val\.jsonl:2: there is no column 'passage'; present are 'question'"):
        read("boolq", tmp_path, LINES["boolq"], {"question": "x"})
    with pytest.raises(InputError, match=r"val\.jsonl:1: there is no key 'qas'"):
        read("record", tmp_path, {k: v for k, v in LINES["record"].items() if k != "qas"})


def changed(name: str, **changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(LINES[name])), **changes}


@pytest.mark.parametrize(("name", "record", "match"), [
    ("copa", changed("copa", question="reason"), "question 'reason' must be cause or effect"),
    ("multirc", changed("multirc", passage="P."), "passage must be of the kind object, but is 'P.'"),
    ("multirc", changed("multirc", passage={"text": "P.", "questions": {}}), "questions must be of the kind list"),
    ("record", changed("record", passage={"text": "P.", "entities": [{"start": "0", "end": 2}]}),
     "start must be of the kind number, but is '0'"),
    ("record", changed("record", qas=["x"]), "there is no key 'idx'; present are 'x'"),
    ("wsc", changed("wsc", target={"span1_text": "a", "span2_text": "he", "span2_index": None}),
     "span2_index must be of the kind number, but is None"),
])  # fmt: skip
def test_values_of_another_kind_are_named(name: str, record: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"val\.jsonl:2: " + match):
        read(name, tmp_path, LINES[name], record)


@pytest.mark.parametrize(("name", "record", "match"), [
    ("copa", changed("copa", label="first"), "label 'first' is not known; allowed are an index from 0 to 1"),
    ("copa", changed("copa", label=[]), "there is no label"),
    ("copa", changed("copa", label=2), "label 2 is not known"),
    ("record", changed("record", qas=[{"idx": 0, "query": "@placeholder", "answers": [{"txt": "Bob"}]}]),
     "answers .*'txt': 'Bob'.* must be a list of objects, each with its text"),
    ("record", changed("record", qas=[{"idx": 0, "query": "@placeholder", "answers": "Bob"}]), "answers 'Bob' must be"),
])  # fmt: skip
def test_labels_of_another_kind_are_named_where_they_are_needed(
    name: str, record: dict[str, Any], match: str, tmp_path: Path
) -> None:
    examples = read(name, tmp_path, LINES[name], record)
    BENCHMARKS[name].task.check(examples, labelled=False)
    with pytest.raises(InputError, match=r"val\.jsonl:2: " + match):
        BENCHMARKS[name].task.check(examples, labelled=True)


def test_gender_parity_of_pairs_with_the_same_id(tmp_path: Path) -> None:
    found = BENCHMARKS["ax-g"]
    examples = read("ax-g", tmp_path, *[changed("ax-g", idx=i, pair_id=550 + i // 2) for i in range(6)])
    assert [e.group for e in examples] == ["550", "550", "551", "551", "552", "552"]
    answers = ["entailment", "entailment", "entailment", "not_entailment", "not_entailment", "not_entailment"]
    predictions = [{"id": e.id, "label": label} for e, label in zip(examples, answers, strict=True)]
    assert found.task.metrics(examples, predictions) == {"accuracy": 0.5, "gender_parity": pytest.approx(2 / 3)}
    without = read("ax-g", tmp_path, *[{k: v for k, v in LINES["ax-g"].items() if k != "pair_id"}] * 6)
    found.task.check(without, labelled=True)
    assert found.task.metrics(without, predictions) == {"accuracy": 0.5}


@pytest.mark.parametrize("name", ["multirc", "boolq", "wsc", "wsc-ranking", "record"])
def test_what_asks_about_one_text_is_held_out_together(name: str, tmp_path: Path) -> None:
    def text(example: Any) -> str:
        return example.context if name == "record" else example.text

    lines = []
    for i in range(30):
        line = json.loads(json.dumps(LINES[name.removesuffix("-ranking")]).replace("Ann", f"Ann{i // 3}"))
        line["idx"] = i
        if name == "multirc":
            line["passage"]["text"] = f"P{i // 3}."
        elif name == "record":
            line["passage"]["entities"] = [{"start": 0, "end": 2}, {"start": 9, "end": 11}]
            line["qas"][0]["answers"] = [{"text": line["passage"]["text"][9:12]}]
        else:
            line["passage" if name == "boolq" else "text"] += f" {i // 3}"
        lines.append(json.dumps(line) + "\n")
    (tmp_path / "a.jsonl").write_text("".join(lines))
    data = load_task(name, tmp_path / "a.jsonl", dev_share=0.2).data
    held_out = {text(example) for example in data.held_out["dev"]}
    assert len(held_out) == 2
    assert not {text(example) for example in data.train} & held_out


def test_submissions_are_what_the_server_takes(tmp_path: Path) -> None:
    def written(name: str, *predictions: dict[str, Any]) -> list[Any]:
        found = BENCHMARKS[name]
        path = tmp_path / found.submission[0]
        assert found.write is not None
        found.write(predictions, path)
        return [json.loads(line) for line in path.read_text().splitlines()]

    assert written("boolq", {"id": "3", "label": "true"}) == [{"idx": 3, "label": "true"}]
    assert written("copa", {"id": "1", "label": 0}) == [{"idx": 1, "label": 0}]
    assert written("wsc", {"id": "6", "label": "true"}) == [{"idx": 6, "label": "True"}]
    assert written("record", {"id": "4", "label": 1, "answer": "Bob"}) == [{"idx": 4, "label": "Bob"}]
    answers = [{"id": "5-7-8", "label": "0"}, {"id": "5-7-9", "label": "1"}]
    assert written("multirc", *answers) == [
        {"idx": 5, "passage": {"questions": [{"idx": 7, "answers": [{"idx": 8, "label": 0}, {"idx": 9, "label": 1}]}]}}
    ]
    assert BENCHMARKS["superglue-rte"].submission == ("RTE.jsonl",)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "count"),
    [("boolq", 3270), ("cb", 56), ("copa", 100), ("multirc", 4848), ("superglue-rte", 277), ("wic", 638), ("wsc", 104)],
)
def test_real_files_have_their_rows(name: str, count: int, shared_data: Path) -> None:
    found = BENCHMARKS[name]
    examples = found.read(shared_data / "superglue", "dev")
    found.task.check(examples, labelled=True)
    assert len(examples) == count


@pytest.mark.data
def test_real_record_has_a_right_entity_for_every_query(shared_data: Path) -> None:
    examples = BENCHMARKS["record"].read(shared_data / "superglue", "train")
    BENCHMARKS["record"].task.check(examples, labelled=True)
    assert len(examples) == 32
