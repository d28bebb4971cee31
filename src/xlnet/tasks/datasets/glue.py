"""GLUE: CoLA, SST-2, MRPC, QQP, STS-B, MNLI, QNLI, RTE, WNLI and the diagnostic set AX."""

from __future__ import annotations

from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.glue_files import GlueReader, Layout, MrpcReader, write_glue
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import TextTask

_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")


def _classes(
    name: str,
    columns: tuple[str, ...],
    labels: tuple[str, ...] = ("0", "1"),
    scores: tuple[str, ...] = ("accuracy",),
    label_column: str = "label",
) -> TextClassification:
    return TextClassification(
        name=name,
        text_column=columns[0],
        pair_column=columns[1] if len(columns) > 1 else "",
        label_column=label_column,
        label_names=labels,
        scores=scores,
    )


def _layout(task: TextTask, folder: str, together: bool) -> Layout:
    """The usual one: a header, the task's columns, train.tsv, dev.tsv and test.tsv."""
    pairs = (task.pair_column,) if task.pair_column else ()
    return Layout(folder, (task.text_column,), pairs, task.label_column, together=together)


def _plain(summary: str, task: TextTask, folder: str, *, together: bool = False) -> Benchmark:
    reader = GlueReader(_layout(task, folder, together), task)
    return Benchmark(summary, task, reader, submission=(f"{folder}.tsv",), write=write_glue)


def _cola() -> Benchmark:
    task = _classes("cola", ("sentence",), scores=("matthews", "accuracy"))
    # Only the file of the test has a header.
    columns = ("source", "label", "star", "sentence")
    layout = Layout("CoLA", ("sentence",), unnamed={"train": columns, "dev": columns})
    summary = "is the sentence good English (Matthews correlation)"
    return Benchmark(summary, task, GlueReader(layout, task), submission=("CoLA.tsv",), write=write_glue)


def _mrpc() -> Benchmark:
    task = _classes("mrpc", ("#1 String", "#2 String"), scores=("accuracy", "f1"), label_column="Quality")
    layout = Layout("MRPC", ("#1 String", "sentence1"), ("#2 String", "sentence2"), ("Quality", "label"))
    reader = MrpcReader(GlueReader(layout, task))
    summary = "do two sentences say the same (accuracy, F1)"
    return Benchmark(summary, task, reader, submission=("MRPC.tsv",), write=write_glue)


def _qqp() -> Benchmark:
    columns = ("question1", "question2")
    task = _classes("qqp", columns, scores=("accuracy", "f1"), label_column="is_duplicate")
    # The official files have a handful of broken rows.
    layout = Layout("QQP", columns[:1], columns[1:], task.label_column, ("id",), tolerate=1e-3)
    summary = "do two questions ask the same (accuracy, F1)"
    return Benchmark(summary, task, GlueReader(layout, task), submission=("QQP.tsv",), write=write_glue)


def _mnli() -> Benchmark:
    task = _classes("mnli", _PAIR, _NLI, label_column="gold_label")
    held_out, test = ("dev_matched", "dev_mismatched"), ("test_matched", "test_mismatched")
    files = {split: (f"{split}.tsv",) for split in ("train", *held_out, *test)}
    layout = Layout("MNLI", _PAIR[:1], _PAIR[1:], task.label_column, files=files)
    return Benchmark(
        "entailment, neutral or contradiction (accuracy, matched and mismatched)",
        task,
        GlueReader(layout, task),
        held_out=held_out,
        test=test,
        submission=("MNLI-m.tsv", "MNLI-mm.tsv"),
        write=write_glue,
    )


def _ax() -> Benchmark:
    task = _classes("ax", _PAIR, _NLI, ("matthews", "accuracy"), "Label")
    files = {"test": ("diagnostic.tsv", "AX.tsv"), "dev": ("diagnostic-full.tsv",)}
    layout = Layout("AX", ("sentence1", "Premise"), ("sentence2", "Hypothesis"), "Label", files=files)
    return Benchmark(
        "GLUE's diagnostic set, for a model of mnli (Matthews correlation)",
        task,
        GlueReader(layout, task),
        train="",
        held_out=(),
        final=("dev",),
        submission=("AX.tsv",),
        write=write_glue,
    )


_STSB = TextRegression(
    name="stsb",
    text_column=_PAIR[0],
    pair_column=_PAIR[1],
    label_column="score",
    scores=("pearson", "spearman"),
    lowest=0.0,
    highest=5.0,
)

GLUE: dict[str, Benchmark] = {
    "cola": _cola(),
    "sst2": _plain("sentiment of film reviews (accuracy)", _classes("sst2", ("sentence",)), "SST-2"),
    "mrpc": _mrpc(),
    "qqp": _qqp(),
    "stsb": _plain("how alike are two sentences (Pearson, Spearman)", _STSB, "STS-B"),
    "mnli": _mnli(),
    "qnli": _plain(
        "does the sentence hold the answer (accuracy)",
        _classes("qnli", ("question", "sentence"), _ENTAILMENT),
        "QNLI",
        together=True,
    ),
    "rte": _plain("entailment (accuracy)", _classes("rte", _PAIR, _ENTAILMENT), "RTE"),
    "wnli": _plain("Winograd schemas as entailment (accuracy)", _classes("wnli", _PAIR), "WNLI", together=True),
    "ax": _ax(),
}
