"""Measures of rankings. One order of the documents is behind all of them, that of trec_eval.

``ndcg@20``, ``mrr`` and ``map`` are trec_eval's, from ir-measures: a document gains its grade. ``ndcg_exp@20`` and
``err@20`` are gdeval's, the scorer of TREC's Web Track, whose queries the paper ranked ClueWeb09-B for: a document of
grade g gains ``2^g - 1``. With grades of 0 and 1 alone both NDCG are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlnet.errors import InputError, MachineError

_CUTOFF = 20
GDEVAL_GRADE = 4.0
"""The highest grade of gdeval, whatever the judgments hold."""


def whole_grade(value: Any, where: str) -> float:
    """A grade of relevance: trec_eval knows whole numbers only, and rounding would make 0.4 irrelevant.

    Args:
        value: a number, or text that is one.
        where: file and line, or query and document.

    Raises:
        InputError: it is none.
    """
    try:
        grade = float(value)
    except (TypeError, ValueError, OverflowError):
        grade = math.nan
    if not grade.is_integer():
        raise InputError(
            f"{where}: the grade of relevance {value!r} must be a whole number, 0 for what is not relevant. "
            "Turn shares and probabilities into grades (0, 1, 2 ...) first."
        )
    return grade


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Documents best first, as trec_eval sorts them: by the score in float32, equal ones by name from last to first.

    Args:
        scores: document -> score, larger is better.
    """
    return sorted(scores, key=lambda document: (np.float32(scores[document]), document), reverse=True)


def exponential_ndcg(grades: Sequence[float], judged: Sequence[float], cutoff: int = _CUTOFF) -> float:
    """NDCG of one ranking with gains of ``2^grade - 1``, as gdeval has it.

    Args:
        grades: of the ranked documents, best first; below 0 counts as 0.
        judged: grades of all judged documents, one of them above 0.
        cutoff: ranks looked at, in the ideal ranking too.
    """
    highest = max(judged)

    def discounted(found: Sequence[float]) -> float:
        # In units of 2^highest, which cancel, so that no grade is too high for a float.
        gains = (2.0 ** (max(0.0, grade) - highest) - 2.0**-highest for grade in found[:cutoff])
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))

    return discounted(grades) / discounted(sorted(judged, reverse=True))


def expected_reciprocal_rank(grades: Sequence[float], max_grade: float = GDEVAL_GRADE, cutoff: int = _CUTOFF) -> float:
    """ERR (Chapelle et al. 2009) of one ranking, as gdeval has it.

    The reader stops at a document of grade g with probability ``(2^g - 1) / 2^max_grade``, and values the rank she
    reaches by its reciprocal.

    Args:
        grades: of the ranked documents, best first; below 0 counts as 0.
        max_grade: the highest grade there is. gdeval takes 4 whatever the judgments hold, so that with grades of 0
            and 1 the reader seldom stops, and the values are small.
        cutoff: ranks looked at.
    """
    reached, value = 1.0, 0.0
    for rank, grade in enumerate(grades[:cutoff], start=1):
        stops = 2.0 ** (max(0.0, grade) - max_grade) - 2.0**-max_grade
        value += reached * stops / rank
        reached *= 1.0 - stops
    return value


def ranking_metrics(
    judgments: Mapping[str, Mapping[str, float]],
    runs: Mapping[str, Mapping[str, float]],
    max_grade: float = GDEVAL_GRADE,
) -> dict[str, float]:
    """``ndcg@20``, ``ndcg_exp@20``, ``err@20``, ``mrr`` and ``map``, averaged over queries with a relevant document.

    Args:
        judgments: query -> document -> grade, a whole number; more than 0 is relevant.
        runs: query -> document -> score, sorted by :func:`ranked`.
        max_grade: the highest grade there is, for ERR alone; with another than gdeval's, ``err@20`` is not gdeval's.

    Raises:
        InputError: a grade that is no whole number or above ``max_grade``; names query and document.
        MachineError: ir-measures is not installed.
    """
    try:
        import ir_measures
        from ir_measures import AP, RR, nDCG
    except ImportError as error:
        raise MachineError("Metrics of ranking need ir-measures: pip install 'xlnet[tasks]'.") from error
    names = {nDCG @ _CUTOFF: "ndcg@20", RR: "mrr", AP: "map"}
    known = {query: _checked(query, grades, max_grade) for query, grades in judgments.items()}
    judged = {query: grades for query, grades in known.items() if any(grades.values())}
    if not judged:
        return {"ndcg@20": 0.0, "ndcg_exp@20": 0.0, "err@20": 0.0, "mrr": 0.0, "map": 0.0}
    order = {query: ranked(runs.get(query, {})) for query in judged}
    run = {query: {name: float(-place) for place, name in enumerate(found)} for query, found in order.items()}
    found = {names[measure]: float(value) for measure, value in
             ir_measures.calc_aggregate(list(names), judged, run).items()}  # fmt: skip
    graded = {query: [judged[query].get(name, 0) for name in found] for query, found in order.items()}
    errs = [expected_reciprocal_rank(grades, max_grade) for grades in graded.values()]
    exponential = [exponential_ndcg(grades, list(judged[query].values())) for query, grades in graded.items()]
    return {
        "ndcg@20": found["ndcg@20"],
        "ndcg_exp@20": sum(exponential) / len(judged),
        "err@20": sum(errs) / len(judged),
        "mrr": found["mrr"],
        "map": found["map"],
    }


def _checked(query: str, grades: Mapping[str, float], max_grade: float) -> dict[str, int]:
    """Grades as trec_eval takes them; 0 for those below."""
    found = {}
    for document, grade in grades.items():
        where = f"query {query}, document {document}"
        found[document] = max(0, int(whole_grade(grade, where)))
        if found[document] > max_grade:
            raise InputError(f"{where}: grade {found[document]} is above max_grade={max_grade:g}, the highest of ERR.")
    return found
