"""``xlnet finetune``, ``evaluate`` and ``predict``, and the recipes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from task_toys import toy_config, toy_texts, toy_tokenizer

from xlnet.cli import call, main
from xlnet.cli.finetune import FineTuneOptions, finetune
from xlnet.cli.parsing import build_parser
from xlnet.cli.recipes import recipes
from xlnet.cli.task_inputs import asked_task, read_inputs
from xlnet.errors import InputError
from xlnet.model import XLNetForSequenceClassification, XLNetLMHeadModel
from xlnet.tasks.datasets.registry import BENCHMARKS
from xlnet.tasks.families.token_classification import TokenClassification
from xlnet.tasks.fine_tuned import FineTuned, read_task

RECIPES = {name: path for name, path in recipes().items() if name.startswith("finetune/")}
# learning rate, batch, steps, length, weight decay, decay of layers, warm-up: paper, table 8 of both versions, and the
# release's scripts.
PUBLISHED = {
    "race_v1": (2e-5, 32, 12000, 512, 0.0, 1.0, 1000), "race_v2": (2e-5, 32, 12000, 512, 0.01, 1.0, 1000),
    "squad_v1": (3e-5, 48, 8000, 512, 0.0, 0.75, 1000), "squad_v2": (3e-5, 48, 8000, 512, 0.01, 0.75, 1000),
    "mnli_v1": (3e-5, 128, 10000, 128, 0.0, 1.0, 0.1), "mnli_v2": (2e-5, 128, 10000, 128, 0.01, 1.0, 0.1),
    "yelp5_v1": (2e-5, 128, 10000, 512, 0.0, 1.0, 0.1), "yelp5_v2": (1e-5, 128, 10000, 512, 0.01, 1.0, 0.1),
    "stsb": (5e-5, 32, 1200, 128, 0.0, 1.0, 120), "imdb": (2e-5, 32, 4000, 512, 0.0, 1.0, 500),
    "squad_base": (2e-5, 24, 12000, 512, 0.0, 0.75, 1000), "glue_bert": (2e-5, 32, 0, 128, 0.01, 1.0, 0.1),
}  # fmt: skip
SMALL = ["--steps", "3", "--batch_size", "8", "--learning_rate", "1e-3", "--device", "cpu", "--max_length", "32"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_loads_with_the_published_settings(name: str) -> None:
    parser = build_parser("finetune", finetune)
    arguments = ["sst2", "--config", str(RECIPES[name]), "--data", "d", "--model", "m", "--output", "o"]
    values = parser.parse_args(arguments)
    rate, batch, steps, length, decay, layers, warmup = PUBLISHED[name.removeprefix("finetune/")]
    found = (values.learning_rate, values.batch_size, values.steps, values.max_length, values.weight_decay,
             values.layer_decay, values.warmup)  # fmt: skip
    assert found == (rate, batch, steps, length, decay, layers, warmup)
    assert values.epsilon == 1e-6
    options = FineTuneOptions(learning_rate=rate, batch_size=batch, steps=steps, max_length=length, dropout=0.1)
    assert options.task_changes() == {"max_length": length}


def test_there_is_a_recipe_for_each_published_setting() -> None:
    assert {name.removeprefix("finetune/") for name in RECIPES} == set(PUBLISHED)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    XLNetLMHeadModel(toy_config(mem_len=8, reuse_len=4)).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split, count in (("train", 20), ("dev", 9)):
        lines = "".join(f"{e.text}\t{e.label}\n" for e in toy_texts(count, seed=count))
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + lines)
    (folder / "test.tsv").write_text("index\tsentence\n0\tgood\n1\t\n2\tbad value\n")
    return folder


def test_finetune_evaluate_predict_and_submission(
    pretrained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    call(["finetune", "sst2", "--data", str(data), "--model", str(pretrained), "--output", str(run), *SMALL])
    metrics = json.loads(capsys.readouterr().out)
    assert 0.0 <= metrics["accuracy"] <= 1.0
    assert json.loads((run / "result.json").read_text())["held_out_examples"] == {"dev": 9}
    model = str(run / "model")

    call(["evaluate", str(data), "--model", model, "--device", "cpu"])
    assert json.loads(capsys.readouterr().out) == pytest.approx(metrics, abs=1e-6)

    call(["predict", str(data / "test.tsv"), "--model", model, "--device", "cpu"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    source = tmp_path / "mine.jsonl"
    source.write_text('{"review": "good"}\n{"review": ""}\n')
    out = tmp_path / "out.tsv"
    call(["predict", str(source), "--model", model, "--output", str(out), "--text_column", "review", "--device", "cpu"])
    assert [line.split("\t")[0] for line in out.read_text().splitlines()] == ["id", "0", "1"]
    call(
        ["predict", str(data), "--model", model, "--submission", "--output", str(tmp_path / "glue"), "--device", "cpu"]
    )
    lines = (tmp_path / "glue" / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 4

    assert main(["finetune", "sst2", "--data", str(data), "--model", str(pretrained), "--output", str(run)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(["evaluate", str(data), "--model", model, "--task", "mnli", "--device", "cpu"]) == 2
    assert "was trained on sst2" in capsys.readouterr().err
    again = ["--model", str(run), "--output", str(tmp_path / "again")]
    assert main(["finetune", "sst2", "--data", str(data), *again]) == 2
    message = capsys.readouterr().err
    assert f"lies in {run / 'model'}" in message
    assert main(["predict", str(data / "nowhere.tsv"), "--model", str(pretrained)]) == 2
    assert "no fine-tuned model" in capsys.readouterr().err


def test_from_mnli_to_rte_by_command(pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nli = ("entailment", "neutral", "contradiction")
    columns = "\t".join(f"c{i}" for i in range(8))
    for folder, head, row in (
        ("MNLI", f"{columns}\tsentence1\tsentence2\tgold_label\n", "x\t" * 8 + "{0}\t{0}\t{1}\n"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n", "0\t{0}\t{0}\t{1}\n"),
    ):
        labels = nli if folder == "MNLI" else ("entailment", "not_entailment")
        (tmp_path / folder).mkdir()
        for split in ("train", "dev", "dev_matched", "dev_mismatched"):
            rows = "".join(row.format(e.text, labels[i % len(labels)]) for i, e in enumerate(toy_texts(12)))
            (tmp_path / folder / f"{split}.tsv").write_text(head + rows)
    first, second = tmp_path / "mnli", tmp_path / "rte"
    more = ["--data", str(tmp_path), *SMALL]
    call(["finetune", "mnli", "--model", str(pretrained), "--output", str(first), "--summary", "mean", *more])
    assert "dev_mismatched/accuracy" in json.loads(capsys.readouterr().out)
    # At a rate of nothing the weights stay what they were at the start.
    still = ["--learning_rate", "1e-30", "--weight_decay", "0"]
    call(["finetune", "rte", "--model", str(first / "model"), "--output", str(second), *more, *still])
    assert set(json.loads(capsys.readouterr().out)) == {"accuracy"}
    before, after = (XLNetForSequenceClassification.from_pretrained(run / "model") for run in (first, second))
    assert after.config.labels == ("entailment", "not_entailment")
    assert after.config.summary_type == "mean"
    kept = before.state_dict()
    changed = {name for name, value in after.state_dict().items() if not torch.equal(value, kept[name])
               if value.shape == kept[name].shape}  # fmt: skip
    assert changed == set()
    assert after.classifier.weight.shape[0] == 2


def test_own_files_and_seeds(pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("review,mood\n" + "".join(f'"{e.text}",{"ab"[int(e.label)]}\n' for e in toy_texts(20)))
    call([
        "finetune", "classify", "--data", str(path), "--model", str(pretrained), "--output", str(tmp_path / "run"),
        "--text_column", "review", "--label_column", "mood", "--seeds", "2", "--class_weights", "balanced",
        "--task_settings", '{"scores": ["accuracy", "macro_f1"]}', *SMALL,
    ])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"accuracy", "macro_f1"}
    assert found["accuracy"]["lowest"] <= found["accuracy"]["median"] <= found["accuracy"]["highest"]
    values = json.loads((tmp_path / "run" / "seeds.json").read_text())
    model = tmp_path / "run" / f"seed-{values['best_seed']}" / "model"
    assert json.loads((model / "task.json").read_text())["settings"]["label_names"] == ["a", "b"]
    call(["evaluate", str(path), "--model", str(model), "--device", "cpu"])
    assert "accuracy" in json.loads(capsys.readouterr().out)


def test_a_file_of_the_benchmarks_own_form_is_read_by_its_split(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("gj04\t1\t\tIt works.\ngj04\t0\t*\tWorks it.\n")

    class Tuned:
        task = BENCHMARKS["cola"].task

    with pytest.raises(InputError, match=r"no column 'sentence'.*own form, add --split dev\."):
        read_inputs(Tuned(), path, "", labelled=False)  # type: ignore[arg-type]
    assert [e.text for e in read_inputs(Tuned(), path, "dev", labelled=False)] == ["It works.", "Works it."]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def mine(pretrained: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of sst2."""
    run = tmp_path_factory.mktemp("runs") / "sst2"
    call(["finetune", "sst2", "--data", str(data), "--model", str(pretrained), "--output", str(run), *SMALL])
    return run / "model"


def test_the_diagnostic_sets_are_predicted_with_another_tasks_model(
    pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AX has no training data: its file for the server comes from a model of mnli, read at that model's length."""
    labels = ("entailment", "neutral", "contradiction")
    head = "".join(f"c{i}\t" for i in range(8)) + "sentence1\tsentence2\tgold_label\n"
    rows = [f"{e.text}\t{e.text}\t{labels[i % 3]}" for i, e in enumerate(toy_texts(12))]
    (tmp_path / "MNLI").mkdir()
    for split in ("train", "dev_matched", "dev_mismatched"):
        (tmp_path / "MNLI" / f"{split}.tsv").write_text(head + "".join("x\t" * 8 + row + "\n" for row in rows))
    (tmp_path / "AX").mkdir()
    text = "index\tsentence1\tsentence2\n" + "".join(f"{i}\t{row.rsplit(chr(9), 1)[0]}\n" for i, row in enumerate(rows))
    (tmp_path / "AX" / "diagnostic.tsv").write_text(text)
    run, out = tmp_path / "run", tmp_path / "out"
    places = ["--data", str(tmp_path), "--model", str(pretrained), "--output", str(run)]
    call(["finetune", "mnli", *places, *SMALL])
    model = ["--model", str(run / "model"), "--device", "cpu"]
    call(["predict", str(tmp_path), "--task", "ax", "--submission", "--output", str(out), *model])
    lines = (out / "AX.tsv").read_text().splitlines()
    assert len(lines) == 13
    assert {line.split("\t")[1] for line in lines[1:]} <= set(labels)
    assert main(["predict", str(tmp_path), "--task", "ax-b", "--submission", "--output", str(out), *model]) == 2
    assert "was trained on mnli with" in capsys.readouterr().err
    trained = read_task(run / "model")[0]
    assert asked_task(trained, "ax", "").settings()["max_length"] == trained.settings()["max_length"] == 32


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.txt", "end in .jsonl"),
        ("out.run", "only rankings"),
        ("nowhere/out.tsv", "is not there"),
        ("there.tsv", "is a folder"),
    ],
)
def test_where_predictions_go_is_looked_at_before_the_work(
    mine: Path, data: Path, name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "there.tsv").mkdir()
    (tmp_path / "out.run").write_text("kept")
    monkeypatch.setattr(FineTuned, "predict", lambda *values, **more: pytest.fail("work was done"))
    output = str(tmp_path / name)
    assert main(["predict", str(data / "test.tsv"), "--model", str(mine), "--output", output, "--device", "cpu"]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "out.run").read_text() == "kept"


def test_labelled_files_in_other_forms_and_under_other_names_are_measured(
    mine: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", str(mine), "--device", "cpu"]
    call(["evaluate", str(data / "dev.tsv"), *model])
    expected = json.loads(capsys.readouterr().out)
    rows = [{"sentence": e.text, "label": e.label} for e in toy_texts(9, seed=9)]
    plain, named = tmp_path / "plain.jsonl", tmp_path / "named.csv"
    plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named.write_text("review,mood\n" + "".join(f'"{row["sentence"]}",{row["label"]}\n' for row in rows))
    call(["evaluate", str(plain), *model])
    assert json.loads(capsys.readouterr().out) == expected
    call(["evaluate", str(named), "--text_column", "review", "--label_column", "mood", *model])
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["evaluate", str(named), *model]) == 2
    assert "Nor is it a table or JSONL with the columns of sst2" in capsys.readouterr().err


def test_the_last_test_set_is_looked_at_before_training_and_kept_in_the_result(
    pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split, count in (("train", 12), ("dev", 6), ("test", 6)):
        lines = "".join(f"{e.text}\t{e.label}\n" for e in toy_texts(count, seed=count))
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + lines)
    places = ["classify", "--data", str(tmp_path), "--model", str(pretrained)]
    call(["finetune", *places, "--output", str(tmp_path / "run"), *SMALL])
    found = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "result.json").read_text())
    assert kept["final_metrics"] == {"test/accuracy": found["test/accuracy"]}
    (tmp_path / "test.tsv").write_text("text\tlabel\ngood\t7\n")
    assert main(["finetune", *places, "--output", str(tmp_path / "other"), *SMALL]) == 2
    message = capsys.readouterr().err
    assert "test.tsv:2" in message
    assert "7" in message
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["eng.testb", "words.txt", "words.txt.gz", "words.conll"])
def test_words_are_read_by_any_name(name: str, tmp_path: Path) -> None:
    text = "Good B-X\ntext O\n\n"
    packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (tmp_path / name).write_bytes(packed)

    class Tuned:
        task = TokenClassification(name="tag", label_names=("B-X", "O"))

    (example,) = read_inputs(Tuned(), tmp_path / name, "", labelled=True)  # type: ignore[arg-type]
    assert example.words == ("Good", "text")
