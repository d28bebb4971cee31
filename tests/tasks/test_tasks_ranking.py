"""Ranking: measures against trec_eval's and gdeval's own, ties, grades, and records that are refused."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xlnet.errors import InputError
from xlnet.tasks.datasets.outputs import write_predictions
from xlnet.tasks.families.ranking import Document, Ranking, RankingExample
from xlnet.tasks.ranking_metrics import expected_reciprocal_rank, exponential_ndcg, ranked, ranking_metrics

# Two documents of query 1 and all of query 2 have equal scores, two of query 3 differ beyond float32 alone.
JUDGMENTS = {
    "1": {"10": 3.0, "2": 1.0, "3": 0.0, "7": -2.0},
    "2": {"4": 4.0, "5": 2.0},
    "3": {"a": 1.0, "z": 0.0},
}
RUNS = {
    "1": {"10": 1.0, "2": 2.0, "3": 2.0, "7": 3.0},
    "2": {"5": 0.5, "4": 0.5, "9": 0.5},
    "3": {"a": 1.0 + 1e-9, "z": 1.0},
}


def whole(judgments: dict[str, dict[str, float]]) -> dict[str, dict[str, int]]:
    return {query: {name: int(grade) for name, grade in found.items()} for query, found in judgments.items()}


def test_equal_scores_are_sorted_as_trec_eval_does() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    found = ranking_metrics(JUDGMENTS, RUNS)
    wanted = {"ndcg@20": ir_measures.nDCG @ 20, "mrr": ir_measures.RR, "map": ir_measures.AP}
    # Each query by itself, with its scores as they are, so that the order is that of the other side.
    for query in RUNS:
        alone = ranking_metrics({query: JUDGMENTS[query]}, RUNS)
        judged = {query: {name: max(0, grade) for name, grade in whole(JUDGMENTS)[query].items()}}
        theirs = ir_measures.calc_aggregate(list(wanted.values()), judged, {query: RUNS[query]})
        for name, measure in wanted.items():
            assert alone[name] == pytest.approx(theirs[measure], abs=1e-9), (query, name)
    assert ranked(RUNS["1"]) == ["7", "3", "2", "10"]
    assert ranked(RUNS["3"]) == ["z", "a"]
    assert found["mrr"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 2) / 3)


@pytest.mark.parametrize("highest", [1, 2, 4])
def test_exponential_ndcg_and_err_are_those_of_gdeval(highest: int) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    if shutil.which("perl") is None:
        pytest.skip("gdeval needs Perl")
    generator = np.random.default_rng(highest)
    judgments = {str(q): {f"d{d}": float(generator.integers(-2, highest + 1)) for d in range(30)} for q in range(4)}
    # Few different scores, so that there are ties; a quarter of the documents has no judgment.
    runs = {str(q): {f"d{d}": float(generator.integers(0, 6)) for d in range(40)} for q in range(4)}
    theirs = {"ndcg_exp@20": ir_measures.nDCG(dcg="exp-log2") @ 20, "err@20": ir_measures.ERR @ 20}
    found = ranking_metrics(judgments, runs)
    wanted = ir_measures.calc_aggregate(list(theirs.values()), whole(judgments), runs)
    for name, measure in theirs.items():
        assert found[name] == pytest.approx(wanted[measure], abs=1e-4), name
    assert (found["ndcg_exp@20"] == pytest.approx(found["ndcg@20"])) == (highest == 1)


def test_exponential_ndcg_by_hand() -> None:
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert exponential_ndcg([0, 1, 2], [1, 2, 0]) == pytest.approx((1 / math.log2(3) + 3 / math.log2(4)) / ideal)
    assert exponential_ndcg([0] * 20 + [2], [2]) == 0.0
    assert exponential_ndcg([2000.0], [2000.0]) == 1.0


def test_err_stops_as_in_gdeval_whatever_the_highest_grade_of_the_data() -> None:
    assert expected_reciprocal_rank([1]) == 1 / 16
    example = RankingExample("q", "text", (Document("a", ""), Document("b", "")), {"a": 1.0})
    prediction = {"id": "q", "label": "a", "ranking": [{"id": "a", "score": 1.0}, {"id": "b", "score": 0.0}]}
    for max_grade in (1.0, 2.0, 4.0):
        assert Ranking(max_grade=max_grade).metrics([example], [prediction])["err@20"] == 1 / 16
    # gdeval knows no grade above 4.
    assert Ranking(max_grade=5.0).metrics([example], [prediction])["err@20"] == 1 / 32
    with pytest.raises(InputError, match="query q, document a: grade 5 is above max_grade=4"):
        ranking_metrics({"q": {"a": 5.0}}, {})


def test_predictions_stand_in_the_order_that_is_measured() -> None:
    examples = [RankingExample("q", "text", tuple(Document(name, "") for name in ("b", "c", "a")), {"b": 1.0})]
    task = Ranking()
    rows = [type("Row", (), {"example": 0, "extra": {"documents": [0, 1, 2]}})()]
    (found,) = task.predictions(examples, rows, [np.array([0.5, 0.5, 0.5], dtype=np.float32)])
    assert [item["id"] for item in found["ranking"]] == ["c", "b", "a"]
    assert found["label"] == "c"
    pytest.importorskip("ir_measures")
    assert task.metrics(examples, [found])["mrr"] == 0.5


@pytest.mark.parametrize("grade", [0.4, math.nan, math.inf, "yes", "0.5", [1], 10**400])
def test_grades_are_whole_numbers(grade: Any) -> None:
    record = {"query": "x", "documents": [{"text": "a", "label": 1}, {"text": "b", "label": grade}]}
    with pytest.raises(InputError, match=r"a\.jsonl:3, document 2: the grade of relevance .* must be a whole number"):
        Ranking().example(record, "a.jsonl:3", 0)
    example = RankingExample("7", "x", (Document("d", ""),), {"d": grade})
    with pytest.raises(InputError, match=r"query 7, document d: the grade of relevance .* must be a whole number"):
        Ranking(max_grade=4.0).check([example], labelled=True)
    pytest.importorskip("ir_measures")
    with pytest.raises(InputError, match=r"query 7, document d: the grade of relevance .* must be a whole number"):
        ranking_metrics({"7": {"d": grade}}, {})


def test_null_is_no_judgment_and_no_score() -> None:
    documents = [{"text": "a", "label": None, "score": None}, {"text": "b", "label": 2, "score": "1.5"}]
    found = Ranking().example({"query": "x", "documents": documents}, "a:1", 0)
    assert found.label == {"1": 2.0}
    assert [document.score for document in found.documents] == [0.0, 1.5]
    assert Ranking().example({"query": "x", "documents": documents[:1]}, "a:1", 0).label is None


@pytest.mark.parametrize(("document", "match"), [
    ({"text": "b", "score": "high"}, "a:1, document 2: score must be a number .* but is 'high'"),
    ({"text": "b", "score": math.nan}, "a:1, document 2: score must be a number"),
    ({"text": "b", "score": [1]}, "a:1, document 2: score must be a number"),
    ("b", "a:1, document 2 must be a record with a text .* but is 'b'"),
])  # fmt: skip
def test_documents_that_cannot_be_used_are_named(document: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Ranking().example({"query": "x", "documents": [{"text": "a"}, document]}, "a:1", 0)


def test_a_query_stands_once_where_it_is_measured() -> None:
    documents = (Document("d", ""), Document("e", ""))
    examples = [RankingExample("q", "x", documents, {"d": 1.0}, f"a.jsonl:{line}") for line in (1, 4)]
    with pytest.raises(InputError, match=r"a\.jsonl:4: the query id 'q' stands there again, first in a\.jsonl:1"):
        Ranking().check(examples, labelled=True)
    with pytest.raises(InputError, match="'q' stands there again"):
        Ranking().metrics(examples, [])
    Ranking().check(examples, labelled=False)


def test_a_grade_above_those_of_training_says_what_to_do() -> None:
    example = RankingExample("q", "x", (Document("d", ""),), {"d": 3.0}, "dev.jsonl:2")
    with pytest.raises(InputError, match=r"dev\.jsonl:2, document d: grade 3 is above max_grade=2.*--task_settings"):
        Ranking(max_grade=2.0).check([example], labelled=True)
    Ranking(max_grade=3.0).check([example], labelled=True)


def test_a_run_file_keeps_apart_what_the_measures_kept_apart(tmp_path: Path) -> None:
    """trec_eval on the file must see the order that we measured."""
    close = np.nextafter(np.float32(0.1), np.float32(1))
    items = [{"id": "a", "score": float(close)}, {"id": "z", "score": float(np.float32(0.1))}]
    write_predictions([{"id": "q", "ranking": items}], tmp_path / "x.run")
    scores = [np.float32(line.split()[4]) for line in (tmp_path / "x.run").read_text().splitlines()]
    assert scores[0] == close > scores[1]
