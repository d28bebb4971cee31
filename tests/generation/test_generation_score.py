"""Log-probabilities: they sum to one, obey the chain rule, leak nothing, and do not depend on the batch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from generation_stand_ins import WordPieces, small_model
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.errors import ConfigurationError, InputError
from xlnet.generation import log_prob, score
from xlnet.generation.engine import evaluating
from xlnet.generation.score import Request, request_log_probs

TOKENIZER = WordPieces()
TEXTS = ["the cat sat on the mat.", "I saw", "a dog (big) ran, unbelievably", "the"]


@pytest.mark.parametrize("given", [[], [0], [1, 4]])
@pytest.mark.parametrize("order", ["left_to_right", "right_to_left", "random"])
def test_all_completions_together_have_probability_one(given: list[int], order: str) -> None:
    model = small_model(4).double()
    targets = [place for place in range(5) if place not in given][:3]
    requests = []
    for ids in itertools.product(range(4), repeat=len(targets)):
        tokens = [1, 2, 3, 0, 2]
        for place, token in zip(targets, ids, strict=True):
            tokens[place] = token
        requests.append(tokens)
    totals = [log_prob(model, tokens, given=given, targets=targets, order=order).total for tokens in requests]
    assert math.fsum(math.exp(total) for total in totals) == pytest.approx(1.0, abs=1e-12)
    assert len({round(total, 6) for total in totals}) > 50


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 1000))
def test_one_pass_equals_one_conditional_at_a_time_with_junk_elsewhere(order: list[int], seed: int) -> None:
    model = small_model(30).double()
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 30, (6,), generator=random).tolist()
    whole = log_prob(model, tokens, order=order)
    assert whole.targets == tuple(order)
    for rank, place in enumerate(order):
        junk = torch.randint(0, 30, (6,), generator=random).tolist()
        for known in order[:rank]:
            junk[known] = tokens[known]
        junk[place] = tokens[place]
        # Earlier targets were decided in their order, so they keep it; what is undecided holds anything.
        alone = log_prob(model, junk, order=order)
        assert alone.per_token[rank] == pytest.approx(whole.per_token[rank], abs=1e-12)


def test_the_first_token_of_an_empty_context_depends_on_nothing_else() -> None:
    model = small_model(30)
    values = [log_prob(model, [7, a, b], order="left_to_right").per_token[0] for a in (1, 9) for b in (3, 8)]
    assert len(set(values)) == 1


def test_hidden_positions_are_seen_by_nobody() -> None:
    model = small_model(30)
    first = log_prob(model, [1, 2, 3, 4, 5], given=[0], targets=[2, 4])
    other = log_prob(model, [1, 9, 3, 8, 5], given=[0], targets=[2, 4])
    assert first == other
    assert first != log_prob(model, [6, 2, 3, 4, 5], given=[0], targets=[2, 4])


def test_given_and_targets_default_to_each_others_rest() -> None:
    model = small_model(30)
    tokens = [1, 2, 3, 4]
    assert log_prob(model, tokens, given=[0, 1]) == log_prob(model, tokens, given=[0, 1], targets=[2, 3])
    assert log_prob(model, tokens, targets=[2, 3]) == log_prob(model, tokens, given=[0, 1], targets=[2, 3])
    assert log_prob(model, tokens).targets == (0, 1, 2, 3)


@pytest.mark.parametrize("order", ["left_to_right", "right_to_left", "lattice", "random", "pseudo", "pseudo_word"])
def test_any_batch_gives_the_same_number(order: str) -> None:
    model = small_model().double()
    together = score(model, TOKENIZER, TEXTS, order=order, batch_size=3)
    for text, result in zip(TEXTS, together, strict=True):
        (alone,) = score(model, TOKENIZER, [text], order=order, batch_size=1)
        assert alone.total == pytest.approx(result.total, abs=1e-10)
        assert alone.log_probs == pytest.approx(result.log_probs, abs=1e-10)
        assert len(result.pieces) == result.token_count
        assert result.perplexity == pytest.approx(math.exp(-result.total / result.token_count))
        assert result.order == order


def test_orders_differ_and_are_averaged_as_probabilities() -> None:
    model = small_model().double()
    (one,) = score(model, TOKENIZER, TEXTS[:1])
    (back,) = score(model, TOKENIZER, TEXTS[:1], order="right_to_left")
    assert abs(one.total - back.total) > 1e-3
    (many,) = score(model, TOKENIZER, TEXTS[:1], order="random", orders=5, seed=3)
    assert len(many.order_totals) == 5
    assert many.spread > 0
    mean = math.log(sum(math.exp(total) for total in many.order_totals) / 5)
    assert many.total == pytest.approx(mean)
    assert sum(many.log_probs) == pytest.approx(sum(many.order_totals) / 5)


def test_given_text_is_context_and_not_scored() -> None:
    model = small_model().double()
    (result,) = score(model, TOKENIZER, ["on the mat."], given="the cat sat ")
    assert result.pieces == ("▁on", "▁the", "▁mat", ".")
    ids = TOKENIZER.encode("the cat sat on the mat.", special_tokens=False).input_ids
    assert result.total == pytest.approx(log_prob(model, ids, given=[0, 1, 2]).total, abs=1e-10)
    (plain,) = score(model, TOKENIZER, ["on the mat."])
    assert plain.total != result.total
    (glued,) = score(model, TOKENIZER, ["able"], given="un")
    assert glued.pieces == ("able",)


def test_pseudo_word_hides_the_rest_of_the_word() -> None:
    model = small_model().double()
    ids = TOKENIZER.encode("a unbelievable cat", special_tokens=False).input_ids
    (result,) = score(model, TOKENIZER, ["a unbelievable cat"], order="pseudo_word")
    assert result.pieces == ("▁a", "▁un", "believ", "able", "▁cat")
    assert result.log_probs[1] == pytest.approx(log_prob(model, ids, given=[0, 4], targets=[1]).total, abs=1e-10)
    assert result.log_probs[2] == pytest.approx(log_prob(model, ids, given=[0, 1, 4], targets=[2]).total, abs=1e-10)
    (pseudo,) = score(model, TOKENIZER, ["a unbelievable cat"], order="pseudo")
    assert pseudo.log_probs[1] == pytest.approx(log_prob(model, ids, targets=[1]).total, abs=1e-10)


def test_evaluation_mode_is_used_and_restored() -> None:
    model = small_model()
    model.encoder.layers[0].eval()
    before = [module.training for module in model.modules()]
    first, second = (score(model, TOKENIZER, TEXTS)[0].total for _ in range(2))
    assert first == second
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ZeroDivisionError), evaluating(model):
        assert not model.training
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == before


def test_requests_may_have_unlike_numbers_of_targets() -> None:
    model = small_model(30).double()
    requests = [Request([1, 2, 3], [2]), Request([4, 5, 6, 7, 8], [0, 3, 1]), Request([9], [0])]
    with evaluating(model):
        together = request_log_probs(model, requests, batch_size=8)
        alone = [request_log_probs(model, [one], batch_size=1)[0] for one in requests]
    for a, b in zip(together, alone, strict=True):
        assert a == pytest.approx(b, abs=1e-12)


def test_bad_input_is_refused() -> None:
    model = small_model()
    with pytest.raises(InputError, match=r"texts\[1\]='' holds no piece"):
        score(model, TOKENIZER, ["the", ""])
    with pytest.raises(InputError, match="one string"):
        score(model, TOKENIZER, "the cat")
    with pytest.raises(InputError, match=r"6 pieces, more than max_length=3.*score_long_text"):
        score(model, TOKENIZER, ["the cat sat on the mat"], max_length=3)
    with pytest.raises(ConfigurationError, match="Did you mean 'left_to_right'"):
        score(model, TOKENIZER, TEXTS, order="left_to_rigt")
    with pytest.raises(ConfigurationError, match="needs order='random'"):
        score(model, TOKENIZER, TEXTS, orders=2)
    with pytest.raises(ConfigurationError, match="orders=0"):
        score(model, TOKENIZER, TEXTS, orders=0)
    with pytest.raises(InputError, match="given holds 1 texts for 4"):
        score(model, TOKENIZER, TEXTS, given=["a"])
    with pytest.raises(ConfigurationError, match="batch_size=0"):
        score(model, TOKENIZER, TEXTS, batch_size=0)
    with pytest.raises(InputError, match=r"Position\(s\) \[1\] are given and to be scored"):
        log_prob(model, [1, 2, 3], given=[0, 1], targets=[1])
    with pytest.raises(InputError, match="position 5; the sequence has positions 0 to 2"):
        log_prob(model, [1, 2, 3], targets=[5])
    with pytest.raises(InputError, match="nothing to score"):
        log_prob(model, [1, 2], given=[0, 1])
    with pytest.raises(InputError, match=r"order=\[0, 0, 1\]"):
        log_prob(model, [1, 2, 3], order=[0, 0, 1])
    with pytest.raises(InputError, match=r"is 999, but ids run from 0"):
        log_prob(model, [1, 999, 3])
