"""Filling blanks: syntax, constraints, alternatives, unknown lengths, natural spacing."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from generation_stand_ins import PIECES, WordPieces, small_model

from xlnet.errors import ConfigurationError, InputError
from xlnet.generation import (
    GREEDY,
    BlankConstraint,
    FillPlan,
    LengthPrior,
    SamplingConfig,
    fill,
    fill_ids,
    log_prob,
)
from xlnet.generation.blanks import parse
from xlnet.generation.orders import decision_order
from xlnet.text import XLNetTokenizer

GOLDEN = Path(__file__).parents[1] / "golden"
TOKENIZER = WordPieces()
SPECIAL = set(WordPieces.special_ids)


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, special_tokens=False).input_ids


def test_blanks_are_found_and_the_text_around_keeps_its_spacing() -> None:
    template = parse("the cat <mask> on un<mask:2>able ___.", TOKENIZER)
    assert [(blank.length, blank.opens_word) for blank in template.blanks] == [(1, True), (2, False), (None, True)]
    pieces = [[PIECES[i] for i in segment] for segment in template.segments]
    assert pieces == [["▁the", "▁cat"], ["▁on", "▁un"], ["able"], ["."]]
    ids, places = template.lay_out([1, 2, 3], 0)
    assert places == [[2], [5, 6], [8, 9, 10]]
    assert len(ids) == 12
    (first,) = parse("<mask> sat", TOKENIZER).blanks
    assert first.opens_word
    assert [blank.opens_word for blank in parse("the <mask><mask>", TOKENIZER).blanks] == [True, False]


@pytest.mark.parametrize("text,words", [
    ("the cat", "holds no blank"), ("a <mask:0> b", "<mask:0>"), ("a <mask:x> b", "<mask:x>"),
    ("<mask:-1>", "<mask:-1>"),
])  # fmt: skip
def test_malformed_blanks_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fill(small_model(), TOKENIZER, text)


@pytest.mark.parametrize("method", ["sequential", "speculative", "one_pass"])
@pytest.mark.parametrize("order", ["lattice", "right_to_left", "random"])
def test_several_blanks_are_decided_jointly(method: str, order: str) -> None:
    model = small_model().double()
    filled = fill(model, TOKENIZER, "the <mask> sat on <mask:2> in ( <mask> ).", method=method, order=order, k=3)
    blanks = [1, 4, 5, 8]
    targets = decision_order(order, blanks, seed=0)
    assert filled.log_prob == pytest.approx(log_prob(model, filled.ids, targets=blanks, order=targets).total, abs=1e-9)
    assert filled.log_prob == pytest.approx(sum(blank.log_prob for blank in filled.blanks))
    assert (
        filled == fill(model, TOKENIZER, "the <mask> sat on <mask:2> in ( <mask> ).", order=order)
        or method != "sequential"
    )
    assert not set(filled.ids) & SPECIAL
    assert filled.text == TOKENIZER.decode(filled.ids)
    assert filled.text.startswith("the ")
    assert filled.calls <= 4
    assert filled.tokens_per_call == 4 / filled.calls
    assert [len(blank.ids) for blank in filled.blanks] == [1, 2, 1]


def test_greedy_takes_the_best_fitting_piece() -> None:
    model = small_model().double()
    filled = fill(model, TOKENIZER, "the <mask> sat")
    tried = {}
    for i in range(len(PIECES)):
        if i not in SPECIAL and TOKENIZER.starts_word[i]:
            tried[i] = log_prob(model, [*ids_of("the"), i, *ids_of("sat")], targets=[1]).total
    best = sorted(tried, key=tried.get, reverse=True)
    assert filled.blanks[0].ids == (best[0],)
    found = filled.blanks[0].alternatives
    assert [one.ids[0] for one in found] == best[:5]
    assert [one.probability for one in found] == pytest.approx([math.exp(tried[i]) for i in best[:5]], abs=1e-9)
    assert found[0].text == PIECES[best[0]].removeprefix("▁")


def test_alternatives_of_a_longer_blank_are_its_best_contents() -> None:
    model = small_model().double()
    small = (9, 10, 11, 12)
    rule = BlankConstraint(allowed=small)
    filled = fill(model, TOKENIZER, "the <mask:2> sat", alternatives=16, constraints={0: rule})
    values = {
        pair: math.exp(log_prob(model, [ids_of("the")[0], *pair, *ids_of("sat")], targets=[1, 2]).total)
        for pair in itertools.product(small, repeat=2)
    }
    found = filled.blanks[0].alternatives
    assert [one.ids for one in found] == sorted(values, key=values.get, reverse=True)
    assert [one.probability for one in found] == pytest.approx(sorted(values.values(), reverse=True), abs=1e-9)
    assert fill(model, TOKENIZER, "the <mask> sat", alternatives=0).blanks[0].alternatives == ()


def test_spacing_fits_and_can_be_switched_off() -> None:
    model = small_model()
    for seed in range(8):
        sampling = SamplingConfig(seed=seed)
        opened = fill(model, TOKENIZER, "the <mask> sat", sampling=sampling, alternatives=0)
        assert TOKENIZER.starts_word[opened.blanks[0].ids[0]]
        glued = fill(model, TOKENIZER, "un<mask> sat", sampling=sampling, alternatives=0)
        assert not PIECES[glued.blanks[0].ids[0]].startswith("▁")
        assert glued.text.startswith("un" + PIECES[glued.blanks[0].ids[0]] + " sat")
    with torch.no_grad():
        model.lm_bias[PIECES.index("ly")] += 100
    free = fill(model, TOKENIZER, "the <mask> sat", constraints={0: BlankConstraint(spacing=False)})
    assert free.text == "thely sat"


def test_constraints_belong_to_their_blank() -> None:
    model = small_model()
    cat, dog = PIECES.index("▁cat"), PIECES.index("▁dog")
    rules = {0: BlankConstraint(allowed=(cat, dog)), 1: BlankConstraint(banned=tuple(range(8, len(PIECES) - 3)))}
    for seed in range(6):
        filled = fill(
            model, TOKENIZER, "the <mask> saw a <mask>", constraints=rules, sampling=SamplingConfig(seed=seed)
        )
        assert filled.blanks[0].ids[0] in (cat, dog)
        assert all(one.ids[0] in (cat, dog) for one in filled.blanks[0].alternatives)
        assert filled.blanks[1].ids[0] >= len(PIECES) - 3
    with pytest.raises(InputError, match="name blank 2; the text has blanks 0 to 0"):
        fill(model, TOKENIZER, "the <mask>", constraints={2: BlankConstraint()})
    with pytest.raises(ConfigurationError, match="every allowed id is banned"):
        fill(model, TOKENIZER, "the <mask>", constraints={0: BlankConstraint(allowed=(cat,), banned=(cat,))})
    with pytest.raises(InputError, match="no piece that fits the space"):
        fill(model, TOKENIZER, "the <mask>", constraints={0: BlankConstraint(allowed=(PIECES.index("ly"),))})
    with pytest.raises(InputError, match="position 1 contradict"):
        fill(
            model, TOKENIZER, "the <mask>", constraints={0: BlankConstraint(allowed=(cat,))},
            sampling=SamplingConfig(banned=(cat,)),
        )  # fmt: skip


def test_unknown_length_maximizes_density_and_prior() -> None:
    model = small_model().double()
    prior = LengthPrior((0.2, 0.5, 0.3))
    filled = fill(model, TOKENIZER, "the ___ sat", length_prior=prior)
    values = {}
    for n in (1, 2, 3):
        fixed = fill(model, TOKENIZER, f"the <mask:{n}> sat")
        values[n] = fixed.log_prob + prior.log(n)
    best = max(values, key=values.get)
    assert filled.ids == fill(model, TOKENIZER, f"the <mask:{best}> sat").ids
    assert len(fill(model, TOKENIZER, "the ___ sat", length_prior=LengthPrior((0, 0, 0, 1))).blanks[0].ids) == 4
    two = fill(model, TOKENIZER, "the ___ sat on ___.", length_prior=LengthPrior.uniform(2))
    assert all(1 <= len(blank.ids) <= 2 for blank in two.blanks)
    many = fill(model, TOKENIZER, "___ a ___ the ___", length_prior=LengthPrior.uniform(5), alternatives=0)
    assert len(many.blanks) == 3


def test_the_length_prior_is_counted_over_word_spans() -> None:
    prior = LengthPrior.from_texts(TOKENIZER, ["the unbelievable cat"], longest=6)
    # Words of 1, 3 and 1 pieces; spans of one word: 1, 3, 1; of two (half weight): 4, 4; of three (a third): 5.
    assert prior.probabilities == pytest.approx([p / (3 + 1 + 1 / 3) for p in (2, 0, 1, 1, 1 / 3, 0)])
    assert prior.log(2) == -math.inf
    assert prior.candidates == (1, 3, 4, 5)
    assert sum(LengthPrior.default().probabilities) == pytest.approx(1.0)
    for bad in ((), (0.0,), (-1.0, 2.0), (math.nan,)):
        with pytest.raises(ConfigurationError, match="probabilities"):
            LengthPrior(bad)
    with pytest.raises(InputError, match="no word"):
        LengthPrior.from_texts(TOKENIZER, [""])


def test_plans_of_ids_run_side_by_side() -> None:
    model = small_model(30).double()
    plans = [FillPlan.of(range(9, 9 + n), [0, n - 2], "random", seed=n) for n in (4, 6, 9)]
    for sampling in (GREEDY, SamplingConfig(seed=3)):
        together = fill_ids(model, plans, sampling=sampling, method="one_pass")
        uncached = fill_ids(model, plans, sampling=sampling, method="one_pass", cached=False)
        assert [run.decided for run in together] == [run.decided for run in uncached]
        for plan, run in zip(plans, together, strict=True):
            tokens = list(plan.tokens)
            for place, token in zip(plan.targets, run.decided, strict=True):
                tokens[place] = token
            want = log_prob(model, tokens, targets=plan.targets, order=plan.targets)
            assert run.log_probs == pytest.approx(want.per_token, abs=1e-9)
    assert fill_ids(model, []) == []


def test_bad_plans_are_refused() -> None:
    with pytest.raises(InputError, match="position 9 lies outside the text of 4 tokens"):
        FillPlan.of([1, 2, 3, 4], [9])
    with pytest.raises(InputError, match="names a position twice"):
        FillPlan.of([1, 2, 3, 4], [1, 1])
    with pytest.raises(InputError, match=r"lacks position\(s\) \[2\]"):
        FillPlan.of([1, 2, 3, 4], [1, 2], [1])
    with pytest.raises(InputError, match=r"holds position\(s\) \[3\] that are not"):
        FillPlan.of([1, 2, 3, 4], [1, 2], [1, 2, 3])
    with pytest.raises(ConfigurationError, match="Did you mean 'random'"):
        FillPlan.of([1, 2, 3, 4], [1, 2], "randon")
    with pytest.raises(InputError, match="must not be negative"):
        FillPlan((1, 2), (-1,))
    with pytest.raises(InputError, match=r"is 77, but ids run from 0 to 29"):
        fill_ids(small_model(30), [FillPlan.of([77, 2], [1])])
    for k in (0, -3):
        with pytest.raises(ConfigurationError, match=f"k={k} must be at least 1"):
            fill_ids(small_model(30), [], k=k)
    with pytest.raises(InputError, match="alternatives=-1"):
        fill(small_model(), TOKENIZER, "a <mask>", alternatives=-1)


AS_TYPED = [
    "the 🙂 <mask> sat", "Ünknown <mask> wörds, <mask:2>!", "  the\tcat\n<mask>   sat \n", "☃<mask>☃", "<mask>☃ ___",
    "the <mask><mask:2> sat ___", "___", "<mask> 语 <mask>", "THE Cat <mask>", "a\u00a0<mask>\u3000b", "un<mask>able ☃",
]  # fmt: skip


def stretches(text: str) -> list[str]:
    return re.split(r"<mask(?::\d+)?>|_{3,}", text)


@pytest.mark.parametrize("text", AS_TYPED)
@pytest.mark.parametrize("real", [False, True])
def test_what_stands_outside_of_blanks_comes_back_as_it_was_typed(text: str, real: bool) -> None:
    """Characters that the vocabulary lacks, white space of every kind, case, and nothing added at the borders."""
    tokenizer = lower_case() if real else TOKENIZER
    sampling = SamplingConfig(seed=len(text))
    filled = fill(small_model(tokenizer.vocab_size), tokenizer, text, sampling=sampling, alternatives=2)
    place = 0
    for blank, before in zip(filled.blanks, stretches(text), strict=False):
        content = "".join(pieces_of(tokenizer)[i] for i in blank.ids).replace("▁", " ")
        if not content.startswith(" ") and before[-1:].isspace():  # a full stop and the like
            before = before.rstrip(" \t")
        assert filled.text[place:].startswith(before)
        place += len(before)
        content = content.removeprefix(" ") if before[-1:].isspace() or place == 0 else content
        assert filled.text[place:].startswith(content)
        place += len(content)
        assert "<unk>" not in blank.text and not any("<unk>" in other.text for other in blank.alternatives)
    assert filled.text[place:] == stretches(text)[-1]
    assert "<unk>" not in filled.text


def lower_case() -> XLNetTokenizer:
    return XLNetTokenizer.from_pretrained(GOLDEN / "text" / "spiece.model", lower=True)


def pieces_of(tokenizer: XLNetTokenizer | WordPieces) -> Sequence[str]:
    return PIECES if isinstance(tokenizer, WordPieces) else tokenizer.pieces


def test_no_space_is_left_before_a_full_stop() -> None:
    """What the pieces say, and what was scored, is ``sat.``; lines stay apart all the same."""
    tokenizer = lower_case()
    rule = BlankConstraint(allowed=(tokenizer.pieces.index("."),))
    model = small_model(tokenizer.vocab_size)
    rules = {0: rule, 1: rule}
    assert fill(model, tokenizer, "The Cat sat <mask>\n<mask> the mat", constraints=rules).text == (
        "The Cat sat.\n. the mat"
    )


def test_an_added_word_keeps_the_space_before_it() -> None:
    tokenizer = lower_case().with_tokens(["[x]"])
    rule = BlankConstraint(allowed=(tokenizer.vocab_size - 1,))
    model = small_model(tokenizer.vocab_size)
    assert fill(model, tokenizer, "The <mask> Sat", constraints={0: rule}).text == "The [x] Sat"
    free = BlankConstraint(allowed=rule.allowed, spacing=False)
    assert fill(model, tokenizer, "The (<mask>) Sat", constraints={0: free}).text == "The ([x]) Sat"
