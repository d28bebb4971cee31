"""Measures of rankings: NDCG, MRR and MAP from ir-measures, and ERR as TREC's gdeval defines it."""

from __future__ import annotations

from collections.abc import Mapping

from xlnet.errors import MachineError

_CUTOFF = 20


def expected_reciprocal_rank(grades: list[float], max_grade: float, cutoff: int = _CUTOFF) -> float:
    """ERR (Chapelle et al. 2009) of one ranking.

    The reader stops at a document of grade g with probability ``(2^g - 1) / 2^max_grade``, and values the rank she
    reaches by its reciprocal.

    Args:
        grades: of the ranked documents, best first; below 0 counts as 0.
        max_grade: the highest grade there is (4 in gdeval).
        cutoff: ranks looked at.
    """
    reached, value = 1.0, 0.0
    for rank, grade in enumerate(grades[:cutoff], start=1):
        stops = (2.0 ** max(0.0, grade) - 1.0) / 2.0**max_grade
        value += reached * stops / rank
        reached *= 1.0 - stops
    return value


def ranking_metrics(
    judgments: Mapping[str, Mapping[str, float]], runs: Mapping[str, Mapping[str, float]], max_grade: float
) -> dict[str, float]:
    """``ndcg@20``, ``err@20``, ``mrr`` and ``map``, averaged over the queries that have a relevant document.

    Args:
        judgments: query -> document -> grade; more than 0 is relevant. Grades count as whole numbers.
        runs: query -> document -> score, larger is better; equal scores in the order of the document's names.
        max_grade: the highest grade there is.

    Raises:
        MachineError: ir-measures is not installed.
    """
    try:
        import ir_measures
        from ir_measures import AP, RR, nDCG
    except ImportError as error:
        raise MachineError("Metrics of ranking need ir-measures: pip install 'xlnet[tasks]'.") from error
    names = {nDCG @ _CUTOFF: "ndcg@20", RR: "mrr", AP: "map"}
    judged = {query: grades for query, grades in judgments.items() if any(grade > 0 for grade in grades.values())}
    if not judged:
        return {"ndcg@20": 0.0, "err@20": 0.0, "mrr": 0.0, "map": 0.0}
    relevances = {query: {d: round(max(0.0, g)) for d, g in grades.items()} for query, grades in judged.items()}
    run = {query: dict(runs.get(query, {})) for query in judged}
    found = ir_measures.calc_aggregate(list(names), relevances, run)
    errs = []
    for query, scores in run.items():
        order = sorted(scores, key=lambda document: (-scores[document], document))
        errs.append(expected_reciprocal_rank([judged[query].get(d, 0.0) for d in order], max_grade))
    values = {name: float(found[measure]) for measure, name in names.items()}
    return {"ndcg@20": values["ndcg@20"], "err@20": sum(errs) / len(errs), "mrr": values["mrr"], "map": values["map"]}
