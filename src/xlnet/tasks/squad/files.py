"""The three files that the release writes and the official scorer reads: answers, n-best lists, odds of no answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlnet.errors import InputError
from xlnet.tasks.contract import Prediction
from xlnet.training.run_files import write_text

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"

_NO_SCORE = -1e6
"""What the release writes where no beam held an answer."""


def write_squad(predictions: Sequence[Prediction], path: Path) -> None:
    """Write ``{id: answer}`` to ``path``, and beside it the n-best lists and the log-odds of "no answer".

    The empty answer says that there is none. ``null_odds.json`` suits ``--na-prob-file`` of the official scorer; give
    it a ``predictions.json`` written with ``null_threshold`` at infinity to search thresholds there.

    Raises:
        InputError: these are no answers, or two of them have one id.
    """
    seen: set[str] = set()
    for prediction in predictions:
        if "null_odds" not in prediction:
            raise InputError(f"{path}: only predictions of question answering can be written in SQuAD's form.")
        if prediction["id"] in seen:
            raise InputError(f"{path}: the id {prediction['id']!r} occurs twice, and only one answer can be kept.")
        seen.add(prediction["id"])
    tables: dict[str, dict[str, Any]] = {
        PREDICTIONS_FILE if path.is_dir() else path.name: {p["id"]: p["label"] for p in predictions},
        NBEST_FILE: {p["id"]: n_best(p) for p in predictions},
        NULL_ODDS_FILE: {p["id"]: p["null_odds"] for p in predictions},
    }
    folder = path if path.is_dir() else path.parent
    for name, table in tables.items():
        write_text(folder / name, json.dumps(table, indent=4, ensure_ascii=False) + "\n")


def n_best(prediction: Prediction) -> list[dict[str, Any]]:
    """The n-best list in the form of the release, which has at least one entry."""
    keys = ("text", "probability", "start_log_prob", "end_log_prob")
    found = [{key: entry[key] for key in keys} for entry in prediction["nbest"]]
    return found or [{"text": "", "probability": 1.0, "start_log_prob": _NO_SCORE, "end_log_prob": _NO_SCORE}]


def read_predictions(path: Path) -> dict[str, Any]:
    """A file of any of the three kinds, by the ids of the questions.

    Raises:
        InputError: it cannot be read, or is no JSON object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must be a JSON object of question ids, but is a {type(values).__name__}.")
    return values
