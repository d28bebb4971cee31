"""Generation chooses the float32 products itself, and they change no token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from generation_stand_ins import WordPieces, small_model

from xlnet.float32 import float32_products
from xlnet.generation import GenerationConfig, fill, generate, score
from xlnet.generation.fill import fill_ids
from xlnet.generation.long_text import WalkConfig, walk_log_probs, walk_states
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import GREEDY
from xlnet.generation.score import log_prob

TOKENIZER = WordPieces()
IDS = list(range(9, 30))
CALLS: dict[str, Callable] = {
    "generate": lambda model: generate(model, TOKENIZER, ["the cat"], config=GenerationConfig(max_new_tokens=2)),
    "beams": lambda model: generate(
        model, TOKENIZER, ["the cat"], config=GenerationConfig(max_new_tokens=2, num_beams=2)
    ),
    "fill": lambda model: fill(model, TOKENIZER, "the <mask> sat"),
    "fill_ids": lambda model: fill_ids(model, [FillPlan((9, 10), (2, 3))]),
    "score": lambda model: score(model, TOKENIZER, ["the cat sat"]),
    "log_prob": lambda model: log_prob(model, IDS),
    "walk_log_probs": lambda model: list(walk_log_probs(model, IDS, WalkConfig(segment_length=8))),
    "walk_states": lambda model: list(walk_states(model, IDS, WalkConfig(segment_length=8))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_every_entry_chooses(call: Callable, products_seen: Callable) -> None:
    model = small_model()
    before, seen = torch.backends.mkldnn.matmul.fp32_precision, products_seen(model)
    call(model)
    assert seen
    assert set(seen) == {"bf16"}
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    seen.clear()
    with float32_products("default"):
        call(model)
    assert set(seen) == {before}, "a surrounding context decides"


def test_a_walk_that_is_left_midway_leaves_the_switch(products_seen: Callable) -> None:
    model = small_model()
    before, seen = torch.backends.mkldnn.matmul.fp32_precision, products_seen(model)
    walk = walk_log_probs(model, IDS, WalkConfig(segment_length=4))
    next(walk)
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    assert set(seen) == {"bf16"}


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("products", ["torch", "compiled", "auto"])
def test_cached_equals_uncached_token_for_token(products: str) -> None:
    """A model wide enough for oneDNN's products; prompts of unlike lengths, side by side and alone."""
    model = small_model(n_layer=2, d_model=128, n_head=2, d_head=64, d_inner=256, initializer_range=0.2)
    texts = ["the cat sat", "I saw a big red house on the mat", "you ran", "unbelievably", "we see it, the dog ran on"]
    config = {"max_new_tokens": 12, "stop_ids": (), "products": products}
    made = [
        generate(model, TOKENIZER, texts, config=GenerationConfig(**config, **changes), sampling=GREEDY)
        for changes in ({}, {"cached": False}, {"batch_size": 1})
    ]
    ids = [[one.ids for one in some] for some in made]
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == len(texts)
