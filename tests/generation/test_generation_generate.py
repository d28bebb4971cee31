"""Left-to-right text: cached equals uncached, batches equal single prompts, stops and streams are exact."""

from __future__ import annotations

import random

import pytest
import torch
from generation_stand_ins import PIECES, WORDS, WordPieces, small_model

from xlnet.errors import ConfigurationError, InputError
from xlnet.generation import GREEDY, GenerationConfig, SamplingConfig, generate, log_prob

TOKENIZER = WordPieces()


def prompts(count: int, seed: int = 0) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(0, 9))) for _ in range(count)]


@pytest.mark.parametrize("context", ["bidirectional", "left_to_right"])
@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingConfig(seed=4), SamplingConfig(top_p=0.8, repetition_penalty=1.3)]
)
def test_cached_equals_uncached_on_a_hundred_prompts(context: str, sampling: SamplingConfig) -> None:
    model, texts = small_model(), prompts(100)
    settings = {"max_new_tokens": 8, "batch_size": 16, "stop_ids": (), "context": context}
    fast = generate(model, TOKENIZER, texts, config=GenerationConfig(**settings), sampling=sampling)
    slow = generate(model, TOKENIZER, texts, config=GenerationConfig(**settings, cached=False), sampling=sampling)
    assert [one.ids for one in fast] == [one.ids for one in slow]
    assert len({one.ids for one in fast}) > 40
    assert all(len(one.ids) == 8 for one in fast)


@pytest.mark.parametrize("changes", [{"mem_len": 1}, {"mem_len": 4, "reuse_len": 3}, {"attn_type": "uni"}])
def test_memory_settings_do_not_change_the_text(changes: dict) -> None:
    texts = prompts(10)
    config = {"max_new_tokens": 6, "stop_ids": ()}
    results = []
    for cached in (True, False):
        for beams in (1, 3):
            model = small_model(seed=3, **changes)
            made = generate(
                model, TOKENIZER, texts, sampling=GREEDY,
                config=GenerationConfig(**config, cached=cached, num_beams=beams),
            )  # fmt: skip
            results.append([one.ids for one in made])
    assert results[0] == results[2]
    assert results[1] == results[3]


@pytest.mark.parametrize("method", ["sequential", "speculative", "one_pass"])
def test_a_prompt_gives_the_same_text_in_any_batch(method: str) -> None:
    """Streams belong to a prompt's number, so each prompt is put at the same place of another list."""
    model, texts = small_model(), prompts(9, seed=2)
    config = {"max_new_tokens": 7, "method": method, "k": 3}
    together = generate(model, TOKENIZER, texts, config=GenerationConfig(**config), sampling=SamplingConfig(seed=1))
    single = generate(
        model, TOKENIZER, texts, config=GenerationConfig(**config, batch_size=1), sampling=SamplingConfig(seed=1)
    )
    assert [(one.ids, one.calls) for one in together] == [(one.ids, one.calls) for one in single]
    assert [one.log_prob for one in together] == pytest.approx([one.log_prob for one in single], abs=1e-3)


@pytest.mark.parametrize("method", ["speculative", "one_pass"])
def test_parallel_greedy_text_is_the_sequential_one(method: str) -> None:
    model, texts = small_model(), prompts(20, seed=5)
    plain = generate(model, TOKENIZER, texts, config=GenerationConfig(max_new_tokens=10), sampling=GREEDY)
    fast = generate(model, TOKENIZER, texts, config=GenerationConfig(max_new_tokens=10, method=method), sampling=GREEDY)
    assert [(one.ids, one.finish_reason) for one in plain] == [(one.ids, one.finish_reason) for one in fast]
    assert all(b.calls <= a.calls for a, b in zip(plain, fast, strict=True))


@pytest.mark.parametrize("context", ["bidirectional", "left_to_right"])
def test_log_probabilities_are_those_of_scoring(context: str) -> None:
    model = small_model().double()
    (made,) = generate(
        model, TOKENIZER, ["the cat sat"], config=GenerationConfig(max_new_tokens=5, stop_ids=(), context=context)
    )
    ids = [*TOKENIZER.encode("the cat sat", special_tokens=False).input_ids, *made.ids]
    if context == "bidirectional":
        want = log_prob(model, ids, given=[0, 1, 2]).per_token
    else:
        want = log_prob(model, ids).per_token[3:]
    assert made.log_probs == pytest.approx(want, abs=1e-10)


def test_nothing_is_put_before_a_prompt() -> None:
    model = small_model().double()
    (made,) = generate(model, TOKENIZER, [""], config=GenerationConfig(max_new_tokens=4, stop_ids=()))
    assert made.log_probs == pytest.approx(log_prob(model, list(made.ids)).per_token, abs=1e-10)


def test_special_ids_are_never_chosen_and_stop_ids_end_the_text() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_bias[:8] += 8.0
    made = generate(model, TOKENIZER, prompts(12), config=GenerationConfig(max_new_tokens=30))
    for one in made:
        assert not set(one.ids) & set(range(8))
        assert len(one.log_probs) == len(one.ids)
    assert sum(one.finish_reason == "end" for one in made) > 6
    full = generate(model, TOKENIZER, prompts(12), config=GenerationConfig(max_new_tokens=30, stop_ids=()))
    assert all(len(one.ids) == 30 and one.finish_reason == "length" for one in full)


@pytest.mark.parametrize("method", ["sequential", "one_pass"])
def test_stop_strings_cut_the_text(method: str) -> None:
    model, texts = small_model(), prompts(10)
    config = {"max_new_tokens": 25, "stop_ids": (), "method": method}
    free = generate(model, TOKENIZER, texts, config=GenerationConfig(**config), sampling=GREEDY)
    seen = free[0].text
    stop = seen[4:6]
    shown: dict[int, str] = {}

    def stream(number: int, text: str) -> None:
        shown[number] = shown.get(number, "") + text

    cut = generate(
        model, TOKENIZER, texts, config=GenerationConfig(**config, stop=(stop,)), sampling=GREEDY, stream=stream
    )
    assert cut[0].text == seen[: seen.index(stop)]
    assert cut[0].finish_reason == "stop"
    assert len(cut[0].ids) < 25
    for number, (one, whole) in enumerate(zip(cut, free, strict=True)):
        assert stop not in one.text
        assert whole.text.startswith(one.text)
        assert shown.get(number, "") == one.text


def test_streaming_comes_piece_by_piece() -> None:
    parts: list[str] = []
    (made,) = generate(
        small_model(), TOKENIZER, ["the cat"], config=GenerationConfig(max_new_tokens=12, stop_ids=()),
        stream=lambda number, text: parts.append(text),
    )  # fmt: skip
    assert "".join(parts) == made.text
    assert len(parts) > 6


def test_continuations_keep_their_space() -> None:
    model = small_model()
    with torch.no_grad():
        model.lm_bias[PIECES.index("▁dog")] += 50
    (made,) = generate(model, TOKENIZER, ["the big"], config=GenerationConfig(max_new_tokens=1), sampling=GREEDY)
    assert made.full_text == "the big dog"
    with torch.no_grad():
        model.lm_bias[PIECES.index("s")] += 100
    (made,) = generate(model, TOKENIZER, ["the cat"], config=GenerationConfig(max_new_tokens=1), sampling=GREEDY)
    assert made.full_text == "the cats"


@pytest.mark.parametrize("context", ["bidirectional", "left_to_right"])
def test_a_wide_window_changes_nothing(context: str) -> None:
    model, texts = small_model(), prompts(6, seed=8)
    made = [
        generate(
            model, TOKENIZER, texts, sampling=GREEDY,
            config=GenerationConfig(max_new_tokens=6, stop_ids=(), context=context, window=window),
        )
        for window in (None, 50)
    ]  # fmt: skip
    assert [one.ids for one in made[0]] == [one.ids for one in made[1]]


def test_a_long_prompt_is_read_in_segments() -> None:
    """One layer, strictly causal: the last W tokens are all that a token can see, so they alone give the same text."""
    model = small_model(n_layer=1)
    text = " ".join(random.Random(1).choices(WORDS, k=100))
    last = " ".join(text.split()[-12:])
    config = GenerationConfig(max_new_tokens=9, stop_ids=(), window=8, context="left_to_right")
    whole, part = generate(model, TOKENIZER, [text, last], config=config, sampling=GREEDY)
    assert whole.ids == part.ids
    both_ways = GenerationConfig(max_new_tokens=9, stop_ids=(), window=8)
    (again,) = generate(model, TOKENIZER, [text], config=both_ways, sampling=GREEDY)
    assert len(again.ids) == 9


def test_a_window_bounds_the_cache_for_any_length() -> None:
    model = small_model()
    config = GenerationConfig(max_new_tokens=150, window=8, stop_ids=())
    (made,) = generate(model, TOKENIZER, ["the cat"], config=config)
    assert len(made.ids) == 150


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_generate(dtype: torch.dtype) -> None:
    made = generate(
        small_model().to(dtype), TOKENIZER, prompts(5), config=GenerationConfig(max_new_tokens=6, stop_ids=())
    )
    assert all(len(one.ids) == 6 for one in made)


def test_beams_are_better_than_greedy_and_exact_when_wide() -> None:
    model = small_model(5).double()
    tokenizer = FivePieces()
    config = {"max_new_tokens": 3, "stop_ids": ()}
    (greedy,) = generate(model, tokenizer, ["x"], config=GenerationConfig(**config), sampling=GREEDY)
    (wide,) = generate(model, tokenizer, ["x"], config=GenerationConfig(**config, num_beams=25))
    best = max(log_prob(model, [1, a, b, c], given=[0]).total for a in range(5) for b in range(5) for c in range(5))
    assert wide.log_prob == pytest.approx(best, abs=1e-10)
    assert wide.log_prob >= greedy.log_prob - 1e-12
    values = [wide.log_prob, *(one.log_prob for one in wide.others)]
    assert values == sorted(values, reverse=True)
    assert len({(one.ids) for one in (wide, *wide.others)}) == 25


class FivePieces(WordPieces):
    """Ids 0 to 4, all of them text."""

    vocab_size = 5
    special_ids = ()
    pieces = PIECES[:5]

    def encode(self, text: str, *, special_tokens: bool = True):
        out = super().encode("a", special_tokens=False)
        out.input_ids[:] = [1]
        return out

    def decode(self, ids):
        return "x".join(str(i) for i in ids)


def test_bad_settings_are_refused() -> None:
    model = small_model()
    for changes, words in (
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"num_beams": 0}, "num_beams=0"),
        ({"k": 0}, "k=0"),
        ({"window": 0}, "window=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"stop": ("",)}, "empty string"),
        ({"method": "one-pass"}, "Did you mean 'one_pass'"),
        ({"num_beams": 2, "method": "one_pass"}, "num_beams=2"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            GenerationConfig(**changes)
    with pytest.raises(ConfigurationError, match="context='both'"):
        generate(model, TOKENIZER, ["a"], config=GenerationConfig(context="both"))
    with pytest.raises(InputError, match="one string"):
        generate(model, TOKENIZER, "the cat")
    with pytest.raises(InputError, match="window=4 needs the cache"):
        generate(model, TOKENIZER, ["a"], config=GenerationConfig(window=4, cached=False))
    assert generate(model, TOKENIZER, []) == []
