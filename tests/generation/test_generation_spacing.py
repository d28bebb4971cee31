"""Where spaces stand: what may fill a glued blank, what follows white space, and ids that have no piece."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from generation_stand_ins import PIECES, WordPieces, small_model

from xlnet.errors import CheckpointError, ConfigurationError, InputError
from xlnet.generation import (
    GREEDY,
    BeamConfig,
    BlankConstraint,
    FillPlan,
    GenerationConfig,
    SamplingConfig,
    beam_search,
    fill,
    generate,
    score,
)
from xlnet.generation.beam import _highest
from xlnet.generation.blanks import parse
from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.pieces import ends_in_space, fitting, spaced
from xlnet.model import XLNetLMHeadModel
from xlnet.text import XLNetTokenizer

TOKENIZER = WordPieces()
SMALL_BOOKS = Path(__file__).parents[2] / "models" / "small-books"
GOLDEN = Path(__file__).parents[1] / "golden" / "text" / "spiece.model"


@pytest.fixture(scope="module")
def books() -> tuple[XLNetLMHeadModel, XLNetTokenizer]:
    return XLNetLMHeadModel.from_pretrained(SMALL_BOOKS), XLNetTokenizer.from_pretrained(SMALL_BOOKS)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("She put on her hat and went home<mask>", "She put on her hat and went home."),
        ("Where are you going<mask>' he asked.", "Where are you going?' he asked."),
    ],
)
def test_a_glued_blank_takes_punctuation(books: tuple[XLNetLMHeadModel, XLNetTokenizer], text: str, want: str) -> None:
    filled = fill(*books, text)
    assert filled.text == want
    assert filled.log_prob > -1.0


def test_what_fits_a_glued_blank_is_every_piece_without_a_space(
    books: tuple[XLNetLMHeadModel, XLNetTokenizer],
) -> None:
    for tokenizer in (books[1], XLNetTokenizer.from_pretrained(GOLDEN).with_tokens(["語", "[x]", "กา"])):
        size = tokenizer.vocab_size
        glued, opening = fitting(False, tokenizer, size), fitting(True, tokenizer, size)
        assert glued.tolist() == [not piece.startswith("▁") for piece in tokenizer.pieces]
        assert spaced(tokenizer, size).tolist() == (~glued).tolist()
        assert opening.tolist() == tokenizer.starts_word.tolist()
        for piece in (*(p for p in ".,?!;)-" if p in tokenizer.pieces), *tokenizer.added_tokens):
            assert glued[tokenizer.pieces.index(piece)], piece


@pytest.mark.parametrize(
    ("before", "opens"),
    [
        ("", True), ("\ufeff", True), ("\u200b", True), (" \t", True), ("a ", True), ("a\u3000", True),
        ("a\n" * 40, True), ("a\u200b", True), ("a \u0301", True), ("a", False), ("a\u0301", False),
        ("a (", False), ("語", False),
    ],
)  # fmt: skip
def test_the_tokenizer_says_what_a_space_is(before: str, opens: bool) -> None:
    tokenizer = XLNetTokenizer.from_pretrained(GOLDEN)
    (blank,) = parse(f"{before}<mask> is", tokenizer).blanks
    assert blank.opens_word == opens
    assert not ends_in_space(before + "a", tokenizer)
    assert ends_in_space("a" + before, tokenizer) == (opens and before != "")


def test_a_prompt_that_ends_in_white_space_is_followed_by_a_new_word() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_bias[PIECES.index("s")] += 100
        model.lm_bias[PIECES.index("▁dog")] += 50
    shown: list[str] = []
    for config in (GenerationConfig(max_new_tokens=2), GenerationConfig(max_new_tokens=2, num_beams=2)):
        for prompt in ("the cat ", "the cat\n", "the cat  \t"):
            shown.clear()
            (made,) = generate(
                model, TOKENIZER, [prompt], config=config, sampling=GREEDY, stream=lambda _, text: shown.append(text)
            )
            assert made.full_text == prompt + "dogs"
            assert made.ids == (PIECES.index("▁dog"), PIECES.index("s"))
            assert "".join(shown) == made.text == "dogs"
    (made,) = generate(model, TOKENIZER, ["the cat"], config=GenerationConfig(max_new_tokens=1), sampling=GREEDY)
    assert made.full_text == "the cats"


def test_a_stop_string_that_begins_with_the_dropped_space_stops() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_bias[PIECES.index("▁dog")] += 50
    config = GenerationConfig(max_new_tokens=3, stop=(" dog",))
    (made,) = generate(model, TOKENIZER, ["the cat "], config=config, sampling=GREEDY)
    assert (made.finish_reason, made.text) == ("stop", "")


def test_after_white_space_the_text_may_end_and_the_choice_of_the_user_holds() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_bias[TOKENIZER.eod_id] += 100
    (made,) = generate(model, TOKENIZER, ["the cat "], sampling=GREEDY)
    assert made.finish_reason == "end"
    only = SamplingConfig(temperature=None, allowed=(PIECES.index("s"),))
    config = GenerationConfig(max_new_tokens=1, stop_ids=())
    (made,) = generate(model, TOKENIZER, ["the cat "], config=config, sampling=only)
    assert made.full_text == "the cat s"


def test_real_prompts_have_one_space(books: tuple[XLNetLMHeadModel, XLNetTokenizer]) -> None:
    config = GenerationConfig(max_new_tokens=4)
    for prompt in ("She went to the", "It was a fine morning"):
        plain, open_ended = generate(*books, [prompt, prompt + " "], config=config, sampling=GREEDY)
        assert "  " not in open_ended.full_text
        assert plain.text.startswith(" ") and plain.full_text == open_ended.full_text


def test_ids_without_a_piece_are_never_chosen() -> None:
    """As after ``resize_token_embeddings`` to a rounder size."""
    padded = small_model(TOKENIZER.vocab_size + 10)
    with torch.no_grad():
        padded.lm_bias[TOKENIZER.vocab_size :] += 100
    for text in ("the <mask> sat", "un<mask:2> sat", "the ___ sat"):
        filled = fill(padded, TOKENIZER, text)
        assert max(filled.ids) < TOKENIZER.vocab_size
        assert all(i < TOKENIZER.vocab_size for blank in filled.blanks for one in blank.alternatives for i in one.ids)
        assert max(fill(padded, TOKENIZER, text, constraints={0: BlankConstraint(spacing=False)}).ids) < len(PIECES)
    for config in (GenerationConfig(max_new_tokens=5), GenerationConfig(max_new_tokens=3, num_beams=3)):
        for one in generate(padded, TOKENIZER, ["the cat", "a ", ""], config=config):
            assert all(i < TOKENIZER.vocab_size for i in one.ids)
    assert score(padded, TOKENIZER, ["the cat"])[0].token_count == 2


def test_a_tokenizer_with_more_pieces_than_the_model_is_refused() -> None:
    model = small_model(TOKENIZER.vocab_size - 1)
    for call in (
        lambda: fill(model, TOKENIZER, "the <mask>"),
        lambda: generate(model, TOKENIZER, ["the"]),
        lambda: score(model, TOKENIZER, ["the"]),
    ):
        with pytest.raises(CheckpointError, match="has 70 pieces, but the model knows only 69"):
            call()


def test_each_text_and_prompt_draws_from_its_own_stream() -> None:
    model = small_model()
    sampling = SamplingConfig(seed=3)
    drawn = [fill(model, TOKENIZER, "the <mask:3> sat", sampling=sampling, number=i).ids for i in range(4)]
    assert len(set(drawn)) == 4
    assert drawn[0] == fill(model, TOKENIZER, "the <mask:3> sat", sampling=sampling).ids
    prompts = ["the cat", "a dog", "the cat", "the cat"]
    config = GenerationConfig(max_new_tokens=6)
    together = generate(model, TOKENIZER, prompts, config=config, sampling=sampling)
    apart = [
        one
        for first in (0, 1, 3)
        for one in generate(
            model, TOKENIZER, prompts[first : {0: 1, 1: 3, 3: 4}[first]],
            config=config, sampling=sampling, first_number=first,
        )
    ]  # fmt: skip
    assert [one.ids for one in apart] == [one.ids for one in together]


@pytest.mark.parametrize(
    "changes", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.9}, {"repetition_penalty": 1.2}, {"seed": 1}]
)
def test_beams_refuse_what_they_would_pass_over(changes: dict) -> None:
    config = GenerationConfig(max_new_tokens=2, num_beams=2)
    with pytest.raises(ConfigurationError, match=f"{next(iter(changes))}=.* has no effect with num_beams=2"):
        generate(small_model(), TOKENIZER, ["the"], config=config, sampling=SamplingConfig(**changes))
    banned = SamplingConfig(banned=(PIECES.index("▁cat"),))
    for one in generate(small_model(), TOKENIZER, ["the"], config=config, sampling=banned):
        assert PIECES.index("▁cat") not in one.ids


@pytest.mark.parametrize("penalty", [float("nan"), float("inf"), -0.5])
def test_the_length_penalty_is_a_finite_number(penalty: float) -> None:
    for make in (lambda: BeamConfig(2, penalty), lambda: GenerationConfig(num_beams=2, length_penalty=penalty)):
        with pytest.raises(ConfigurationError, match=r"length_penalty=.* must be a finite number"):
            make()


def test_beams_that_tie_take_the_lower_ids() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_bias.zero_()
        model.output_weight.zero_()
    with evaluating(model):
        found = beam_search(conditionals(model, 1), FillPlan.of([9, 9], [1]), BeamConfig(5))
    assert [one.ids for one in found] == [(0,), (1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("size", [7, 300, 5000])
def test_the_highest_are_those_of_a_stable_sort(size: int) -> None:
    values = torch.randint(0, 9, (size,), generator=torch.Generator().manual_seed(size)).double()
    values[::3] = -torch.inf
    for count in (1, 4, size):
        best, places = _highest(values, count)
        want, order = values.sort(descending=True, stable=True)
        finite = int((want[:count] > -torch.inf).sum())
        assert best.tolist() == want[:finite].tolist()
        assert places.tolist() == order[:finite].tolist()


def test_a_contradiction_still_speaks() -> None:
    with pytest.raises(InputError, match="no piece that fits the space"):
        fill(small_model(), TOKENIZER, "un<mask>", constraints={0: BlankConstraint(allowed=(PIECES.index("▁cat"),))})
