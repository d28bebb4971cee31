"""What the SuperGLUE server takes: one JSONL file a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xlnet.tasks.contract import Prediction


def _write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def _index(name: str) -> int | str:
    return int(name) if name.isdecimal() else name


def write_labels(predictions: Sequence[Prediction], path: Path) -> None:
    """BoolQ, CB, RTE, WiC, AX-b, AX-g: the name of the class."""
    _write(path, ({"idx": _index(p["id"]), "label": p["label"]} for p in predictions))


def write_wsc(predictions: Sequence[Prediction], path: Path) -> None:
    """WSC: ``True`` or ``False``."""
    _write(path, ({"idx": _index(p["id"]), "label": p["label"].capitalize()} for p in predictions))


def write_choices(predictions: Sequence[Prediction], path: Path) -> None:
    """COPA: the number of the choice."""
    _write(path, ({"idx": _index(p["id"]), "label": p["label"]} for p in predictions))


def write_answers(predictions: Sequence[Prediction], path: Path) -> None:
    """ReCoRD: the text of the entity."""
    _write(path, ({"idx": _index(p["id"]), "label": p["answer"]} for p in predictions))


def write_multirc(predictions: Sequence[Prediction], path: Path) -> None:
    """MultiRC: answers within questions within passages; ids are ``passage-question-answer``."""
    passages: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for prediction in predictions:
        passage, question, answer = prediction["id"].rsplit("-", 2)
        answers = passages.setdefault(passage, {}).setdefault(question, [])
        answers.append({"idx": _index(answer), "label": int(prediction["label"])})
    _write(
        path,
        (
            {
                "idx": _index(passage),
                "passage": {"questions": [{"idx": _index(q), "answers": answers} for q, answers in questions.items()]},
            }
            for passage, questions in passages.items()
        ),
    )
