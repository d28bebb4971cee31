"""``xlnet finetune``, ``evaluate`` and ``predict``, and the recipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from task_toys import toy_config, toy_texts, toy_tokenizer

from xlnet.cli import call, main
from xlnet.cli.finetune import FineTuneOptions, finetune, read_inputs
from xlnet.cli.parsing import build_parser
from xlnet.cli.recipes import recipes
from xlnet.errors import InputError
from xlnet.model import XLNetForSequenceClassification, XLNetLMHeadModel
from xlnet.tasks.datasets.registry import BENCHMARKS

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
