"""``xlnet fill``, ``xlnet score`` and ``xlnet generate``: using a pretrained model.

Texts come as arguments, from a file (``--input``, one text a line; ``.jsonl`` with a field) or from standard input.
``--json`` prints one JSON object a line, in the order of the input. All texts are looked at before the model is read;
results are printed as they come, so that what is done stays when something later fails.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xlnet.cli.texts import Texts, chunks, gather, named
from xlnet.errors import ConfigurationError, InputError
from xlnet.float32 import Float32Products
from xlnet.float32 import float32_products as chosen_products
from xlnet.generation import GenerationConfig, SamplingConfig, TextScore, WalkConfig, score_long_text
from xlnet.generation import fill as fill_text
from xlnet.generation import generate as generate_text
from xlnet.generation import score as score_texts
from xlnet.generation.blanks import parse
from xlnet.generation.generate import check_beam_sampling
from xlnet.generation.pieces import check_vocabulary
from xlnet.generation.score import check_order, pieces_behind
from xlnet.model import XLNetLMHeadModel
from xlnet.text import XLNetTokenizer
from xlnet.training.device import choose_device

_DRAWING = SamplingConfig(top_p=0.95)
_MOST_SCORED, _PIECES_SCORED = 64, 8192
_SEGMENT = 256


def fill(
    texts: list[str] = [],  # noqa: B006  (never changed; the parser reads it as "any number")
    *,
    model: str,
    input: str | None = None,
    field: str = "text",
    json: bool = False,
    alternatives: int = 3,
    method: str = "sequential",
    k: int = 4,
    device: str = "auto",
    float32_products: Float32Products = "auto",
    sampling: SamplingConfig = SamplingConfig(temperature=None),
) -> None:
    """Fill the blanks of texts: <mask> is one piece, <mask:3> three pieces, ___ a blank of unknown length.

    Args:
        texts: texts with blanks
        model: folder of a pretrained model and its tokenizer, or a hub name
        input: file with a text a line, or .jsonl; - for standard input
        field: key of the text in a .jsonl file
        json: print JSON lines
        alternatives: other contents to show for each blank
        method: sequential, speculative or one_pass: the same result where the most probable is taken, the same law
            where it is drawn; other speed
        k: pieces drafted at once by the last two
        device: auto, cpu, cuda, cuda:N or mps
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
        sampling: how pieces are chosen; by default the most probable
    """
    if alternatives < 0:
        raise ConfigurationError(f"--alternatives {alternatives} must not be negative; 0 shows none.")
    given = gather(texts, input, field)
    tokenizer = XLNetTokenizer.from_pretrained(model)
    for number, text in enumerate(given.texts):
        with named(given.where(number)):
            parse(text, tokenizer)
    with opened(model, tokenizer, device, float32_products) as network:
        for number, text in enumerate(given.texts):
            with named(given.where(number), "Use a shorter text, fewer blanks, or a smaller model."):
                filled = fill_text(
                    network, tokenizer, text,
                    sampling=sampling, method=method, k=k, alternatives=alternatives, number=number,
                )  # fmt: skip
            if json:
                print_json(filled)
                continue
            print(filled.text)
            for place, blank in enumerate(filled.blanks, start=1):
                others = ", ".join(f"{other.text} ({other.probability:.1%})" for other in blank.alternatives)
                print(f"  blank {place}: {blank.text!r}, log p {blank.log_prob:.2f}; {others}", flush=True)


def score(
    texts: list[str] = [],  # noqa: B006
    *,
    model: str,
    input: str | None = None,
    field: str = "text",
    json: bool = False,
    order: str = "left_to_right",
    orders: int = 1,
    given: str | None = None,
    seed: int = 0,
    max_length: int = 2048,
    batch_size: int = 16,
    device: str = "auto",
    float32_products: Float32Products = "auto",
) -> None:
    """Log-probability (nats) and perplexity per piece of texts: exact up to --max_length pieces.

    Args:
        texts: what to score
        model: folder of a pretrained model and its tokenizer, or a hub name
        input: file with a text a line, or .jsonl; - for standard input
        field: key of the text in a .jsonl file
        json: print JSON lines, with the log-probability of each piece
        order: left_to_right, right_to_left, lattice, random, pseudo or pseudo_word
        orders: number of random orders to average over
        given: text in front of each that is not scored
        seed: of random orders
        max_length: pieces that are read at once (time and memory grow with the square); a longer text is walked from
            left to right, each piece given at most so many before it, and its order is called left_to_right_walk
        batch_size: texts side by side
        device: auto, cpu, cuda, cuda:N or mps
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
    """
    check_order(order, orders)
    for name, value in (("max_length", max_length), ("batch_size", batch_size)):
        if value < 1:
            raise ConfigurationError(f"--{name} {value} must be at least 1.")
    lines = gather(texts, input, field)
    tokenizer = XLNetTokenizer.from_pretrained(model)
    sizes = _sizes(lines, tokenizer, given or "", max_length, walks=order == "left_to_right" and not given)
    advice = "Use a smaller --batch_size or --max_length, shorter texts, or a smaller model."
    with opened(model, tokenizer, device, float32_products) as network:
        for part in chunks(sizes, _MOST_SCORED, _PIECES_SCORED):
            whole = [number for number in part if sizes[number] <= max_length]
            results: dict[int, TextScore] = {}
            with named(lines.where(part[0], part[-1]), advice):
                found = score_texts(
                    network, tokenizer, [lines.texts[number] for number in whole], order=order, orders=orders,
                    given=given, seed=seed, max_length=max_length, batch_size=batch_size,
                )  # fmt: skip
                results.update(zip(whole, found, strict=True))
                for number in (number for number in part if number not in results):
                    results[number] = _walked(network, tokenizer, lines, number, max_length)
            for number in part:
                _print_score(results[number], json, spread=orders > 1)


def generate(
    prompts: list[str] = [],  # noqa: B006
    *,
    model: str,
    input: str | None = None,
    field: str = "text",
    json: bool = False,
    device: str = "auto",
    float32_products: Float32Products = "auto",
    settings: GenerationConfig = GenerationConfig(),
    sampling: SamplingConfig = _DRAWING,
) -> None:
    """Continue prompts from left to right. Nothing is put in front of them.

    Args:
        prompts: beginnings of texts
        model: folder of a pretrained model and its tokenizer, or a hub name
        input: file with a prompt a line, or .jsonl; - for standard input
        field: key of the prompt in a .jsonl file
        json: print JSON lines
        device: auto, cpu, cuda, cuda:N or mps
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
        settings: length, stops, beams, method
        sampling: how pieces are chosen; with beams only banned and allowed apply
    """
    if settings.num_beams > 1:
        # The default of drawing is nobody's wish; what was set otherwise is refused.
        sampling = dataclasses.replace(sampling, top_p=None) if sampling.top_p == _DRAWING.top_p else sampling
        check_beam_sampling(sampling, settings.num_beams)
    lines = gather(prompts, input, field)
    tokenizer = XLNetTokenizer.from_pretrained(model)
    for number, text in enumerate(lines.texts):
        with named(lines.where(number)):
            tokenizer.encode(text, special_tokens=False)
    advice = "Use --window (bounds memory for any length), shorter prompts, a smaller --batch_size, or a smaller model."
    together = settings.batch_size if settings.num_beams == 1 and settings.window is None else 1
    live = len(lines.texts) == 1 and not json and settings.num_beams == 1 and sys.stdout.isatty()
    shown = (lambda _, text: print(text, end="", flush=True)) if live else None
    with opened(model, tokenizer, device, float32_products) as network:
        if live:
            print(lines.texts[0], end="", flush=True)
        for part in chunks([1] * len(lines.texts), together, together):
            with named(lines.where(part[0], part[-1]), advice):
                results = generate_text(
                    network, tokenizer, lines.texts[part.start : part.stop],
                    config=settings, sampling=sampling, stream=shown, first_number=part.start,
                )  # fmt: skip
            for result in results:
                if json:
                    print_json(result, log_prob=result.log_prob)
                else:
                    print("" if live else result.full_text, flush=True)


@contextmanager
def opened(model: str, tokenizer: XLNetTokenizer, device: str, products: Float32Products) -> Iterator[XLNetLMHeadModel]:
    """A language model in eval mode on its device; inside, float32 matrices as chosen.

    Raises:
        CheckpointError: the tokenizer has pieces that the model does not know.
    """
    network = XLNetLMHeadModel.from_pretrained(model).to(choose_device(device))
    with named(model):
        check_vocabulary(tokenizer, network.config.vocab_size)
    with chosen_products(products, network.device):
        yield network


def _sizes(lines: Texts, tokenizer: XLNetTokenizer, given: str, max_length: int, *, walks: bool) -> list[int]:
    """Pieces of each text with what stands in front; texts that cannot be scored are refused, all before any is."""
    sizes = []
    for number, text in enumerate(lines.texts):
        where = lines.where(number)
        with named(where):
            ids, _, first = pieces_behind(tokenizer, given, text)
        if len(ids) <= first:
            raise InputError(f"{where}: {text!r} holds no piece to score: leave it out.")
        if len(ids) > max_length and not walks:
            raise InputError(
                f"{where} has {len(ids):,} pieces, more than --max_length {max_length}: raise it (time and memory grow "
                "with its square), or use --order left_to_right without --given, which walks texts of any length."
            )
        sizes.append(len(ids))
    return sizes


def _walked(
    network: XLNetLMHeadModel, tokenizer: XLNetTokenizer, lines: Texts, number: int, max_length: int
) -> TextScore:
    """Score of a text too long to be read at once."""
    text = lines.texts[number]
    segment = min(_SEGMENT, max(1, max_length // 2))
    found = score_long_text(
        network, tokenizer, text, config=WalkConfig(segment_length=segment, memory_length=max_length - segment)
    )
    print(
        f"{lines.where(number)}: {found.token_count:,} pieces are more than --max_length {max_length}; the text is "
        "walked, each piece given at most so many before it.",
        file=sys.stderr,
    )
    values = tuple(found.log_probs.tolist())
    return TextScore(text, tuple(tokenizer.tokenize(text)), values, found.total, "left_to_right_walk", (found.total,))


def _print_score(result: TextScore, as_json: bool, *, spread: bool) -> None:
    if as_json:
        print_json(result, perplexity=result.perplexity, spread=result.spread)
        return
    deviation = f" ± {result.spread:.2f}" if spread else ""
    print(f"{result.total:10.3f}{deviation}  perplexity {result.perplexity:10.2f}  {result.text}", flush=True)


def print_json(result: Any, **more: float) -> None:
    """One result as a line of JSON."""
    print(json.dumps({**dataclasses.asdict(result), **more}, ensure_ascii=False), flush=True)
