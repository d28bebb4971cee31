"""Metrics by name, from scikit-learn and SciPy; where those have none, a few lines of our own.

Each takes a :class:`Scored` and returns a number in the units of the official scorers (fractions, not percent). Where a
metric is not defined (Matthews correlation with a single class, correlation of a constant) it is 0, never NaN.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xlnet.errors import ConfigurationError, MachineError, did_you_mean

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scored:
    """What a metric looks at.

    Attributes:
        gold: true label of each example: a name, a number, or a tuple of names.
        predicted: the same, as predicted.
        labels: all names, in the order of their ids; the last is the positive class of ``f1``.
        groups: name of the question (MultiRC) or pair (AX-g) each example belongs to, empty where there is none.
    """

    gold: Sequence[Any]
    predicted: Sequence[Any]
    labels: Sequence[str] = ()
    groups: Sequence[str] = field(default_factory=tuple)


def sklearn_metrics() -> Any:
    """The module ``sklearn.metrics``, or an error that says what to install."""
    try:
        import sklearn.metrics
    except ImportError as error:
        raise MachineError("Metrics of tasks need scikit-learn: pip install 'xlnet[tasks]'.") from error
    return sklearn.metrics


def accuracy(scored: Scored) -> float:
    """Share of right ones; where several labels may hold, of those with exactly the right ones in any order."""
    pairs = zip(scored.gold, scored.predicted, strict=True)
    return sum(set(g) == set(p) if isinstance(g, tuple) else g == p for g, p in pairs) / len(scored.gold)


def f1(scored: Scored) -> float:
    """F1 of the positive class, the last label (MRPC, QQP)."""
    positive = scored.labels[-1]
    gold, predicted = ([value == positive for value in values] for values in (scored.gold, scored.predicted))
    return float(sklearn_metrics().f1_score(gold, predicted, zero_division=0.0))


def macro_f1(scored: Scored) -> float:
    """Mean F1 over the classes that occur (CB)."""
    return float(sklearn_metrics().f1_score(scored.gold, scored.predicted, average="macro", zero_division=0.0))


def matthews(scored: Scored) -> float:
    """Matthews correlation (CoLA); 0 where either side has a single class."""
    if len(set(scored.gold)) < 2 or len(set(scored.predicted)) < 2:
        return 0.0
    return float(sklearn_metrics().matthews_corrcoef(scored.gold, scored.predicted))


def _correlation(scored: Scored, kind: str) -> float:
    if len(set(scored.gold)) < 2 or len(set(scored.predicted)) < 2:
        return 0.0
    try:
        import scipy.stats
    except ImportError as error:
        raise MachineError("Correlations need SciPy: pip install 'xlnet[tasks]'.") from error
    function = scipy.stats.pearsonr if kind == "pearson" else scipy.stats.spearmanr
    return float(function(scored.gold, scored.predicted)[0])


def pearson(scored: Scored) -> float:
    """Pearson correlation (STS-B)."""
    return _correlation(scored, "pearson")


def spearman(scored: Scored) -> float:
    """Spearman rank correlation (STS-B)."""
    return _correlation(scored, "spearman")


def negative_rmse(scored: Scored) -> float:
    """Minus the root of the mean squared error, so that larger is better."""
    difference = np.asarray(scored.gold, dtype=np.float64) - np.asarray(scored.predicted, dtype=np.float64)
    return -float(np.sqrt(np.mean(difference**2)))


def answer_f1(scored: Scored) -> float:
    """F1a of MultiRC: F1 of right answers over all answers of all questions."""
    return f1(scored)


def question_exact_match(scored: Scored) -> float:
    """EM of MultiRC: share of questions all of whose answers are judged right."""
    right: dict[str, bool] = defaultdict(lambda: True)
    for group, gold, predicted in zip(scored.groups, scored.gold, scored.predicted, strict=True):
        right[group] &= gold == predicted
    return sum(right.values()) / len(right)


def gender_parity(scored: Scored) -> float:
    """Share of the pairs that are answered alike, rightly or not (AX-g: texts that differ in a pronoun's gender)."""
    answers = defaultdict(list)
    for group, predicted in zip(scored.groups, scored.predicted, strict=True):
        answers[group].append(predicted)
    alike = [len(set(found)) == 1 for found in answers.values() if len(found) > 1]
    return sum(alike) / max(1, len(alike))


def _indicators(scored: Scored) -> tuple[np.ndarray, np.ndarray]:
    # A single name is one label, not a text to look for names in.
    gold, predicted = (
        np.array([[name in _names(value) for name in scored.labels] for value in values], dtype=np.int64)
        for values in (scored.gold, scored.predicted)
    )
    return gold, predicted


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def micro_f1(scored: Scored) -> float:
    """F1 over all decisions; labels are tuples of names where several may hold at once."""
    return float(sklearn_metrics().f1_score(*_indicators(scored), average="micro", zero_division=0.0))


def label_macro_f1(scored: Scored) -> float:
    """Mean over labels of the F1 of each; for tuples of names."""
    return float(sklearn_metrics().f1_score(*_indicators(scored), average="macro", zero_division=0.0))


METRICS: dict[str, Callable[[Scored], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "negative_rmse": negative_rmse,
    "f1a": answer_f1,
    "em": question_exact_match,
    "gender_parity": gender_parity,
    "micro_f1": micro_f1,
    "label_macro_f1": label_macro_f1,
}


GROUPED = ("em", "gender_parity")
"""Metrics of groups of examples."""


def check_metrics(names: Sequence[str], allowed: Sequence[str] = tuple(METRICS), what: str = "this task") -> None:
    """Refuse unknown names, those that another kind of label needs, and an empty list.

    Args:
        names: of metrics.
        allowed: those that fit.
        what: they must fit, for the message.

    Raises:
        ConfigurationError: names those allowed, or offers the nearest name.
    """
    if isinstance(names, str):
        raise ConfigurationError(f'scores={names!r} must be a list of metrics: ["{names}"].')
    if not names:
        raise ConfigurationError(f"scores must name at least one metric: {', '.join(allowed)}.")
    for name in names:
        if name not in METRICS:
            raise ConfigurationError(
                f"scores: {name!r} is no metric; known are {', '.join(allowed)}.{did_you_mean(name, allowed)}"
            )
        if name not in allowed:
            raise ConfigurationError(f"scores: {name!r} does not fit {what}; it has {', '.join(allowed)}.")


def score(names: Sequence[str], scored: Scored) -> dict[str, float]:
    """The named metrics; those of groups are left out with a warning where examples belong to none."""
    left_out = [name for name in names if name in GROUPED and not (scored.groups and all(scored.groups))]
    if left_out:
        _log.warning("%s: not measured, since not every example says which group it belongs to.", ", ".join(left_out))
    return {name: METRICS[name](scored) for name in names if name not in left_out}
