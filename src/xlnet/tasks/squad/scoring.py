"""What the official scorer ``evaluate-v2.0.py`` computes, in its units (percent) and with its names.

It serves for SQuAD 1.1 too, as in the release. All functions take dicts by the id of the question; *odds* are any
numbers that are larger the surer a model is that a question has no answer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from xlnet.errors import InputError
from xlnet.tasks.answers import answer_f1, exact_match, normalize_answer

Scores = dict[str, float]


class BestThreshold(NamedTuple):
    """Where to stop answering.

    Attributes:
        score: of all questions at that threshold, percent.
        threshold: a question whose odds are above it gets no answer.
        answerable_score: mean over the questions that have an answer, were all of them answered; a fraction.
    """

    score: float
    threshold: float
    answerable_score: float


def raw_scores(gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> tuple[Scores, Scores]:
    """Exact match and F1 of each question that has a prediction, against the best of its answers.

    Args:
        gold: texts of the answers, empty where there is none; those without a letter after normalization do not count.
        predictions: the empty text says that there is no answer.
    """
    exact, f1 = {}, {}
    for name, answers in gold.items():
        if name not in predictions:
            continue
        wanted = [answer for answer in answers if normalize_answer(answer)] or [""]
        exact[name] = max(exact_match(answer, predictions[name]) for answer in wanted)
        f1[name] = max(answer_f1(answer, predictions[name]) for answer in wanted)
    return exact, f1


def apply_threshold(
    scores: Mapping[str, float], odds: Mapping[str, float], answerable: Mapping[str, bool], threshold: float
) -> Scores:
    """Scores were no answer given to questions whose odds are above ``threshold``."""
    return {name: float(not answerable[name]) if odds[name] > threshold else score for name, score in scores.items()}


def mean_scores(exact: Mapping[str, float], f1: Mapping[str, float], names: Collection[str] | None = None) -> Scores:
    """``exact``, ``f1`` in percent and ``total`` over these questions (by default all); scores are 0 without one."""
    chosen = list(exact) if names is None else list(names)
    count = max(1, len(chosen))
    return {
        "exact": 100.0 * sum(exact[name] for name in chosen) / count,
        "f1": 100.0 * sum(f1[name] for name in chosen) / count,
        "total": float(len(chosen)),
    }


def best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> BestThreshold:
    """The threshold that gives the best score, as the official scorer searches it: over the odds that occur, and 0.

    Questions of equal odds are taken one by one, in the order of ``odds``, as there.

    Args:
        predictions: the answers were all questions answered.
        scores: of these, for each question.
        odds: of the same questions.
        answerable: whether each has an answer.
    """
    current = best = float(sum(not answerable[name] for name in scores))
    threshold = 0.0
    for name in sorted((name for name in odds if name in scores), key=lambda name: odds[name]):
        if answerable[name]:
            current += scores[name]
        elif predictions[name]:
            current -= 1.0
        if current > best:
            best, threshold = current, odds[name]
    having = [scores[name] for name in scores if answerable[name]]
    return BestThreshold(100.0 * best / max(1, len(scores)), threshold, sum(having) / max(1, len(having)))


def usable_threshold(scores: Mapping[str, float], odds: Mapping[str, float], answerable: Mapping[str, bool]) -> float:
    """The threshold at which :func:`apply_threshold` gives the best mean; of equals the lowest.

    It is that of :func:`best_threshold` but for two things that matter once it is used: where no answer at all is best,
    it lies below all odds (the official search says 0, as if odds were never negative), and questions of equal odds are
    answered together, since no threshold can part them.

    Args:
        scores: were all questions answered.
        odds: of the same questions.
        answerable: whether each has an answer.
    """
    gains: dict[float, float] = {}
    for name, score in scores.items():
        gains[odds[name]] = gains.get(odds[name], 0.0) + score - float(not answerable[name])
    threshold = math.nextafter(min(gains, default=0.0), -math.inf)
    current = best = 0.0
    for level in sorted(gains):
        current += gains[level]
        if current > best:
            best, threshold = current, level
    return threshold


def average_precision(scores: Mapping[str, float], odds: Mapping[str, float], answerable: Mapping[str, bool]) -> float:
    """Area under precision over recall as ever more questions are answered, least odds first; percent.

    0 where no question has an answer.
    """
    names = sorted(odds, key=lambda name: odds[name])
    positives = sum(answerable[name] for name in scores)
    right = recall = area = 0.0
    if not positives:
        return 0.0
    for place, name in enumerate(names):
        right += scores[name] if answerable[name] else 0.0
        # A threshold can only lie between different odds.
        if place + 1 == len(names) or odds[name] != odds[names[place + 1]]:
            now = right / positives
            area += right / (place + 1) * (now - recall)
            recall = now
    return 100.0 * area


def threshold_search(
    predictions: Mapping[str, str],
    exact: Mapping[str, float],
    f1: Mapping[str, float],
    odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> Scores:
    """``best_exact``, ``best_exact_thresh``, ``best_f1``, ``best_f1_thresh``, ``has_ans_exact``, ``has_ans_f1``."""
    by_exact, by_f1 = (best_threshold(predictions, scores, odds, answerable) for scores in (exact, f1))
    return {
        "best_exact": by_exact.score,
        "best_exact_thresh": by_exact.threshold,
        "best_f1": by_f1.score,
        "best_f1_thresh": by_f1.threshold,
        "has_ans_exact": by_exact.answerable_score,
        "has_ans_f1": by_f1.answerable_score,
    }


def evaluate_squad(
    gold: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> Scores:
    """All that the official script prints for a data file, a ``predictions.json`` and (optional) a file of odds.

    Args:
        gold: texts of the answers of each question.
        predictions: one for each question.
        odds: of no answer; questions above ``threshold`` count as unanswered.
        threshold: as ``--na-prob-thresh``.

    Raises:
        InputError: a question without prediction or odds (the script leaves those without prediction out unseen).
    """
    for what, given in (("prediction", predictions), ("odds", odds)):
        missing = [name for name in gold if given is not None and name not in given]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(gold)} questions have no {what}, {missing[0]!r} is the first. "
                "A question that is not to be answered gets the empty text."
            )
    answerable = {name: bool(answers) for name, answers in gold.items()}
    exact, f1 = raw_scores(gold, predictions)
    exact_shown, f1_shown = exact, f1
    if odds is not None:
        exact_shown, f1_shown = (apply_threshold(scores, odds, answerable, threshold) for scores in (exact, f1))
    found = mean_scores(exact_shown, f1_shown)
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        names = [name for name in gold if answerable[name] == wanted]
        if names:
            found |= {f"{prefix}_{key}": value for key, value in mean_scores(exact_shown, f1_shown, names).items()}
    if odds is not None:
        found |= threshold_search(predictions, exact, f1, odds, answerable)
    return found
