"""Records of the release on SQuAD's form: features, searches, scores; and small passages of the tests' own."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "tasks" / "squad"


@cache
def recorded() -> dict[str, Any]:
    """``params``, ``input``, ``features``, ``max_context``, ``cases`` and ``metrics``."""
    return json.loads(gzip.decompress((FOLDER / "recorded.json.gz").read_bytes()))


@cache
def results() -> dict[str, np.ndarray]:
    """Made-up beams for the recorded features, of each case."""
    with np.load(FOLDER / "results.npz") as arrays:
        return dict(arrays)


def write_json(path: Path, values: Any) -> Path:
    """Write JSON and say where."""
    path.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
    return path


def squad_file(questions: list[dict[str, Any]], context: str = "The cat sat on the mat.", title: str = "t") -> Any:
    """A file of one article with one passage."""
    return {"version": "x", "data": [{"title": title, "paragraphs": [{"context": context, "qas": questions}]}]}


NAMES = ["class A", "class B", "class C", "class D", "class E", "class F"]


def toy_squad(count: int = 24, unanswerable: bool = True) -> Any:
    """Questions whose answer is the number beside the name that is asked for; every third has none in 2.0."""
    data = []
    for number in range(count):
        name, other = NAMES[number % 6], NAMES[(number + 1) % 6]
        context = f"The value of {name} is {number + 3} in the module. The value of {other} is {number + 50}."
        impossible = unanswerable and number % 3 == 0
        asked = NAMES[(number + 2) % 6] if impossible else name
        answer = {"text": str(number + 3), "answer_start": context.index(str(number + 3))}
        question: dict[str, Any] = {"id": f"q{number}", "question": f"What is the value of {asked}?",
                                    "answers": [] if impossible else [answer]}  # fmt: skip
        if unanswerable:
            question["is_impossible"] = impossible
        data.append({"title": f"article {number // 4}", "paragraphs": [{"context": context, "qas": [question]}]})
    return {"version": "v2.0" if unanswerable else "1.1", "data": data}
