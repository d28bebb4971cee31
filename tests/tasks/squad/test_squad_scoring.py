"""Scores, thresholds and areas equal those recorded from the official scorer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from squad_recorded import recorded

from xlnet.errors import InputError
from xlnet.tasks.answers import answer_f1, exact_match, normalize_answer
from xlnet.tasks.squad.scoring import (
    apply_threshold,
    average_precision,
    best_threshold,
    evaluate_squad,
    mean_scores,
    raw_scores,
    threshold_search,
    usable_threshold,
)


@pytest.fixture
def level() -> dict[str, Any]:
    """A made-up data set with predictions and odds."""
    return recorded()["metrics"]["dataset_level"]


@pytest.fixture
def gold(level: dict[str, Any]) -> dict[str, list[str]]:
    """Its answers."""
    passages = [passage for article in level["dataset"] for passage in article["paragraphs"]]
    return {q["id"]: [a["text"] for a in q["answers"]] for passage in passages for q in passage["qas"]}


def test_pairs_score_as_recorded() -> None:
    for pair in recorded()["metrics"]["pairs"]:
        assert normalize_answer(pair["gold"]) == pair["norm_gold"]
        assert normalize_answer(pair["pred"]) == pair["norm_pred"]
        assert exact_match(pair["gold"], pair["pred"]) == pair["exact"]
        assert answer_f1(pair["gold"], pair["pred"]) == pair["f1"]


def test_data_set_scores_as_recorded(level: dict[str, Any], gold: dict[str, list[str]]) -> None:
    exact, f1 = raw_scores(gold, level["preds"])
    assert (exact, f1) == (level["exact"], level["f1"])
    answerable, odds = level["qid_to_has_ans"], level["na_scores"]
    assert {name: bool(answers) for name, answers in gold.items()} == answerable
    assert tuple(best_threshold(level["preds"], exact, odds, answerable)) == tuple(level["best_exact_v2"])
    assert tuple(best_threshold(level["preds"], f1, odds, answerable)) == tuple(level["best_f1_v2"])
    found = threshold_search(level["preds"], exact, f1, odds, answerable)
    assert found == level["find_all_best_thresh_v2"]
    assert found.items() >= level["find_all_best_thresh"].items()
    assert average_precision(exact, odds, answerable) == pytest.approx(level["pr_exact"], rel=1e-12)
    assert average_precision(f1, odds, answerable) == pytest.approx(level["pr_f1"], rel=1e-12)
    for threshold, wanted in level["thresholds"].items():
        scores = apply_threshold(exact, odds, answerable, float(threshold))
        assert scores == wanted["scores"]
        for key, names in (
            ("all", None),
            ("has", [name for name in gold if answerable[name]]),
            ("no", [name for name in gold if not answerable[name]]),
        ):
            # Recorded with thresholds on exact match alone.
            assert mean_scores(scores, f1, names) == wanted[key]


def test_recorded_predictions_score_as_recorded() -> None:
    questions = [q for a in recorded()["input"]["data"] for p in a["paragraphs"] for q in p["qas"]]
    gold = {q["id"]: [answer["text"] for answer in q["answers"]] for q in questions}
    for case in recorded()["cases"]:
        found = evaluate_squad(gold, case["predictions"], case["null_odds"])
        assert {key: found[key] for key in case["eval"]} == case["eval"]


def test_all_that_the_official_script_prints(level: dict[str, Any], gold: dict[str, list[str]]) -> None:
    plain = evaluate_squad(gold, level["preds"])
    assert plain["exact"] == 100.0 * 12 / 22
    assert plain["HasAns_total"] == 20.0
    assert plain["NoAns_exact"] == 50.0
    assert "best_f1" not in plain
    strict = evaluate_squad(gold, level["preds"], level["na_scores"], -10.0)
    assert (strict["exact"], strict["HasAns_f1"], strict["NoAns_f1"]) == (100.0 * 2 / 22, 0.0, 100.0)
    assert strict["best_f1"] == level["best_f1"][0]


def used(scores: dict[str, float], odds: dict[str, float], answerable: dict[str, bool]) -> float:
    """Mean in percent once the threshold is used."""
    kept = apply_threshold(scores, odds, answerable, usable_threshold(scores, odds, answerable))
    return 100.0 * sum(kept.values()) / len(kept)


def test_the_usable_threshold_gives_what_the_search_promises(level: dict[str, Any], gold: dict[str, list[str]]) -> None:
    answerable = {name: bool(texts) for name, texts in gold.items()}
    _, f1 = raw_scores(gold, level["preds"])
    odds = level["na_scores"]
    found = best_threshold(level["preds"], f1, odds, answerable)
    assert used(f1, odds, answerable) == pytest.approx(found.score)
    # Never answering is best, and all odds are negative: the official threshold would answer everything.
    scores, odds = {"a": 0.0, "b": 0.0, "c": 0.2}, {"a": -3.0, "b": -2.0, "c": -1.0}
    answerable = {"a": False, "b": False, "c": True}
    found = best_threshold(dict.fromkeys(scores, "x"), scores, odds, answerable)
    assert found.threshold == 0.0
    assert used(scores, odds, answerable) == pytest.approx(found.score)
    assert usable_threshold(scores, odds, answerable) < -3.0
    # Questions of equal odds stand or fall together: trying each level gives the best.
    generator = random.Random(1)
    for _ in range(200):
        names = [str(i) for i in range(generator.randint(1, 7))]
        answerable = {name: generator.random() < 0.5 for name in names}
        scores = {name: generator.choice([0.0, 0.5, 1.0]) for name in names}
        odds = {name: generator.choice([-2.0, -1.0, 0.0, 1.0]) for name in names}
        tried = (apply_threshold(scores, odds, answerable, at) for at in (-9.0, *odds.values()))
        assert used(scores, odds, answerable) == pytest.approx(100 * max(sum(t.values()) for t in tried) / len(names))


def test_a_data_set_with_one_kind_of_question_divides_by_nothing() -> None:
    none = evaluate_squad({"a": [], "b": []}, {"a": "x", "b": ""}, {"a": 1.0, "b": -1.0}, 0.0)
    assert (none["exact"], none["best_exact"], none["has_ans_f1"]) == (100.0, 100.0, 0.0)
    assert "HasAns_total" not in none
    assert average_precision({"a": 0.0}, {"a": 1.0}, {"a": False}) == 0.0
    assert evaluate_squad({}, {}, {})["total"] == 0.0


def test_a_question_without_prediction_or_odds_is_refused() -> None:
    with pytest.raises(InputError, match="1 of 2 questions have no prediction, 'b' is the first"):
        evaluate_squad({"a": ["x"], "b": []}, {"a": "x"})
    with pytest.raises(InputError, match="have no odds"):
        evaluate_squad({"a": ["x"]}, {"a": "x"}, {})
