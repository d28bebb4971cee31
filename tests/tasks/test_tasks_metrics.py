"""Metrics against values worked out by hand, and the ranking measures against other implementations."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from xlnet.errors import ConfigurationError, InputError
from xlnet.tasks.answers import answer_f1, exact_match, normalize_answer
from xlnet.tasks.entities import entities, entity_f1, has_entities
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.multi_label import MultiLabelClassification
from xlnet.tasks.families.regression import TextRegression
from xlnet.tasks.families.text import TextExample, TextTask
from xlnet.tasks.metrics import METRICS, Scored, check_metrics, score
from xlnet.tasks.ranking_metrics import expected_reciprocal_rank, ranking_metrics

# 3 true positives, 1 false positive, 2 false negatives, 4 true negatives.
BINARY = Scored(list("1111100000"), list("1110010000"), labels=("0", "1"))
THREE = Scored(list("aabbcc"), list("abbbca"), labels=("a", "b", "c"))


def test_binary_metrics_by_hand() -> None:
    found = score(["accuracy", "f1", "matthews", "macro_f1"], BINARY)
    assert found["accuracy"] == 0.7
    assert found["f1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert found["matthews"] == pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6))
    assert found["macro_f1"] == pytest.approx((6 / 9 + 8 / 11) / 2)


def test_macro_f1_of_three_classes_by_hand() -> None:
    # a: 1 right of 2 wanted and 2 given; b: 2 of 2 and 3; c: 1 of 2 and 1.
    assert score(["macro_f1"], THREE)["macro_f1"] == pytest.approx((0.5 + 4 / 5 + 2 / 3) / 3)


def test_correlations_by_hand() -> None:
    found = score(["pearson", "spearman", "negative_rmse"], Scored([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 9.0]))
    # Means 2.5 and 4; products of deviations: (-1.5)(-2) + (-.5)(-3) + (.5)(0) + (1.5)(5) = 12.
    assert found["pearson"] == pytest.approx(12 / math.sqrt(5 * 38))
    # Ranks 1 2 3 4 and 2 1 3 4: 1 - 6 * 2 / (4 * 15).
    assert found["spearman"] == pytest.approx(0.8)
    assert found["negative_rmse"] == pytest.approx(-math.sqrt((1 + 1 + 1 + 25) / 4))


def test_multirc_by_hand() -> None:
    scored = Scored(list("10110"), list("10010"), ("0", "1"), groups=["p", "p", "q", "q", "r"])
    found = score(["f1a", "em"], scored)
    assert found["f1a"] == pytest.approx(2 * 2 / (2 * 2 + 1))
    assert found["em"] == pytest.approx(2 / 3)


def test_multi_label_by_hand() -> None:
    scored = Scored([("a",), ("a", "b"), ()], [("a",), ("b",), ("b",)], ("a", "b"))
    found = score(["micro_f1", "label_macro_f1"], scored)
    assert found["micro_f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert found["label_macro_f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_several_labels_are_right_in_any_order_and_a_single_name_is_no_text_to_look_in() -> None:
    assert score(["accuracy"], Scored([("b", "a"), ("a",)], [("a", "b"), ("b",)], ("a", "b")))["accuracy"] == 0.5
    names = ("entailment", "not_entailment")
    single = Scored([names[1], names[0]], [names[1], names[1]], names)
    assert score(["micro_f1"], single)["micro_f1"] == 0.5


def test_gender_parity_by_hand() -> None:
    # Pair 1 is answered alike and wrongly, pair 2 unlike, pair 3 alike; 4 stands alone and is no pair.
    scored = Scored(list("1111001"), list("0010000"), ("0", "1"), groups=list("1122334"))
    assert score(["gender_parity"], scored)["gender_parity"] == pytest.approx(2 / 3)


def test_metrics_of_groups_are_left_out_where_there_are_none(caplog: pytest.LogCaptureFixture) -> None:
    scored = Scored(list("10"), list("10"), ("0", "1"), groups=["p", ""])
    assert score(["accuracy", "gender_parity", "em"], scored) == {"accuracy": 1.0}
    assert "gender_parity, em: not measured" in caplog.text
    task = TextClassification(scores=("em",))
    with pytest.raises(InputError, match=r"f:2: the first of scores is em.*belongs to none"):
        task.check([TextExample("0", "x", label="1", where="f:2")], labelled=True)


@pytest.mark.parametrize(("family", "scores"), [
    (TextClassification, ("accuracy", "micro_f1")), (TextClassification, ("pearson",)),
    (MultiLabelClassification, ("macro_f1",)), (MultiLabelClassification, ("matthews",)),
    (TextRegression, ("accuracy",)), (TextRegression, ("f1",)),
])  # fmt: skip
def test_metrics_of_another_kind_of_label_are_refused_when_the_task_is_made(
    family: type[TextTask], scores: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError, match=f"'{scores[-1]}' does not fit {family.family}; it has .*") as found:
        family(scores=scores)
    allowed = str(found.value).split("it has ")[1].removesuffix(".").split(", ")
    assert tuple(allowed) == family.known_scores
    assert family(scores=family.known_scores).scores == family.known_scores
    assert set(family.known_scores) <= set(METRICS)


@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman"])
def test_what_is_not_defined_is_zero(name: str) -> None:
    one: list[object] = [1.0, 1.0] if name != "matthews" else ["1", "1"]
    two: list[object] = [1.0, 2.0] if name != "matthews" else ["0", "1"]
    assert METRICS[name](Scored(one, two, ("0", "1"))) == 0.0
    assert METRICS[name](Scored(two, one, ("0", "1"))) == 0.0


def test_unknown_metrics_get_a_hint() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'accuracy'"):
        check_metrics(["acuracy"])
    with pytest.raises(ConfigurationError, match="at least one"):
        check_metrics([])
    with pytest.raises(ConfigurationError, match=r'must be a list of metrics: \["accuracy"\]'):
        check_metrics("accuracy")


def test_answers_as_the_official_scorers_compare_them() -> None:
    assert normalize_answer("The  U.S., an Ally!") == "us ally"
    assert exact_match("The cat", "cat.") == 1.0
    assert answer_f1("the big cat", "a cat sat") == pytest.approx(2 * 0.5 * 0.5 / 1.0)
    assert answer_f1("", "the") == 1.0
    assert answer_f1("cat", "") == 0.0


def test_entities_as_conlleval_counts_them() -> None:
    assert entities(["B-X", "I-X", "B-X", "O", "I-Y", "I-X"]) == {(0, 2, "X"), (2, 3, "X"), (4, 5, "Y"), (5, 6, "X")}
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O"]]
    found = entity_f1(gold, [["B-PER", "O", "O", "B-LOC"], ["B-ORG"]])
    assert found == pytest.approx({"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4})
    assert entity_f1([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert has_entities(["O", "B-A"])
    assert not has_entities(["NN", "VB"])


def test_err_by_hand() -> None:
    # Stops at grade 2 of 2 with 3/4, at grade 1 with 1/4.
    assert expected_reciprocal_rank([2, 0, 1], 2.0) == pytest.approx(3 / 4 + (1 / 4) * (1 / 4) / 3)
    assert expected_reciprocal_rank([0] * 20 + [2], 2.0) == 0.0


def test_ranking_measures_by_hand() -> None:
    judgments = {"1": {"a": 2.0, "b": 1.0, "z": 1.0}, "2": {"c": 1.0}, "3": {"d": 0.0}}
    runs = {"1": {"a": 1.0, "x": 3.0, "b": 2.0}, "2": {"c": 5.0}}
    found = ranking_metrics(judgments, runs, 2.0)
    ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    ndcg = (1 / math.log2(3) + 2 / math.log2(4)) / ideal
    assert found["ndcg@20"] == pytest.approx((ndcg + 1.0) / 2, abs=1e-4)
    assert found["mrr"] == pytest.approx((0.5 + 1.0) / 2)
    # Query 1: relevant at ranks 2 and 3 of three relevant documents, one of them not retrieved.
    assert found["map"] == pytest.approx(((1 / 2 + 2 / 3) / 3 + 1.0) / 2, abs=1e-4)
    err = (1 / 4) / 2 + (3 / 4) * (3 / 4) / 3
    assert found["err@20"] == pytest.approx((err + 1 / 4) / 2)
    assert ranking_metrics({"3": {"d": 0.0}}, {}, 1.0)["map"] == 0.0


def test_err_is_the_one_of_gdeval(tmp_path: Path) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    judgments = {"1": {"1": 3, "2": 1, "3": 0}, "2": {"4": 4, "5": 2}}
    runs = {"1": {"1": 1.0, "2": 2.0, "3": 3.0}, "2": {"5": 2.0, "4": 1.0, "9": 0.5}}
    try:
        theirs = ir_measures.calc_aggregate([ir_measures.ERR @ 20], judgments, runs)[ir_measures.ERR @ 20]
    except Exception as error:
        pytest.skip(f"gdeval needs Perl: {error}")
    graded = {q: {d: float(g) for d, g in found.items()} for q, found in judgments.items()}
    assert ranking_metrics(graded, runs, 4.0)["err@20"] == pytest.approx(theirs, abs=1e-4)
