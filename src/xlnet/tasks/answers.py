"""How SQuAD and ReCoRD compare answers: normalized text, exact match, and F1 over words (their official scorers)."""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case without ASCII punctuation, articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """1 where both are the same once normalized, else 0."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def answer_f1(gold: str, predicted: str) -> float:
    """F1 of the words of both, as multisets; where one has none it is 1 only if the other has none too."""
    wanted, given = normalize_answer(gold).split(), normalize_answer(predicted).split()
    if not wanted or not given:
        return float(wanted == given)
    common = sum((Counter(wanted) & Counter(given)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
