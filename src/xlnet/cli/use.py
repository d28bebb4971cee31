"""``xlnet fill``, ``xlnet score`` and ``xlnet generate``: using a pretrained model.

Texts come as arguments, from a file (``--input``, one text a line; ``.jsonl`` with a field) or from standard input.
``--json`` prints one JSON object a line, in the order of the input.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from xlnet.cli.parsing import read_lines
from xlnet.errors import InputError
from xlnet.float32 import Float32Products
from xlnet.float32 import float32_products as chosen_products
from xlnet.generation import GenerationConfig, SamplingConfig
from xlnet.generation import fill as fill_text
from xlnet.generation import generate as generate_text
from xlnet.generation import score as score_texts
from xlnet.model import XLNetLMHeadModel
from xlnet.text import XLNetTokenizer
from xlnet.training.device import choose_device


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
    lines = gather(texts, input, field)
    with opened(model, device, float32_products) as (network, tokenizer):
        for text in lines:
            filled = fill_text(
                network, tokenizer, text, sampling=sampling, method=method, k=k, alternatives=alternatives
            )
            if json:
                print_json(filled)
                continue
            print(filled.text)
            for number, blank in enumerate(filled.blanks, start=1):
                others = ", ".join(f"{other.text} ({other.probability:.1%})" for other in blank.alternatives)
                print(f"  blank {number}: {blank.text!r}, log p {blank.log_prob:.2f}; {others}")


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
    device: str = "auto",
    float32_products: Float32Products = "auto",
) -> None:
    """Exact log-probability (nats) and perplexity per piece of texts.

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
        device: auto, cpu, cuda, cuda:N or mps
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
    """
    lines = gather(texts, input, field)
    with opened(model, device, float32_products) as (network, tokenizer):
        results = score_texts(network, tokenizer, lines, order=order, orders=orders, given=given, seed=seed)
    for result in results:
        if json:
            print_json(result, perplexity=result.perplexity, spread=result.spread)
        else:
            spread = f" ± {result.spread:.2f}" if orders > 1 else ""
            print(f"{result.total:10.3f}{spread}  perplexity {result.perplexity:10.2f}  {result.text}")


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
    sampling: SamplingConfig = SamplingConfig(top_p=0.95),
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
        sampling: how pieces are chosen
    """
    lines = gather(prompts, input, field)
    with opened(model, device, float32_products) as (network, tokenizer):
        live = len(lines) == 1 and not json and settings.num_beams == 1 and sys.stdout.isatty()
        if live:
            print(lines[0], end="", flush=True)
        shown = (lambda _, text: print(text, end="", flush=True)) if live else None
        results = generate_text(network, tokenizer, lines, config=settings, sampling=sampling, stream=shown)
    for result in results:
        if json:
            print_json(result, log_prob=result.log_prob)
        else:
            print("" if live else result.full_text)


@contextmanager
def opened(model: str, device: str, products: Float32Products) -> Iterator[tuple[XLNetLMHeadModel, XLNetTokenizer]]:
    """A language model in eval mode on its device, and its tokenizer; inside, float32 matrices as chosen."""
    tokenizer = XLNetTokenizer.from_pretrained(model)
    network = XLNetLMHeadModel.from_pretrained(model).to(choose_device(device))
    with chosen_products(products, network.device):
        yield network, tokenizer


def gather(given: Sequence[str], source: str | None, field: str) -> list[str]:
    """Texts from arguments, a file of lines, a ``.jsonl`` file, or standard input.

    Raises:
        InputError: malformed JSON or a missing field, with the line and the fields that are there.
    """
    lines = read_lines(source, given)
    if source is None or not source.endswith(".jsonl"):
        return lines
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{source}, line {number} is not JSON: {error}.") from error
        if not isinstance(record, dict) or not isinstance(record.get(field), str):
            if isinstance(record, dict) and field in record:
                raise InputError(
                    f"{source}, line {number}: {field!r} is {record[field]!r}; it must be a text in quotes."
                )
            keys = ", ".join(record) if isinstance(record, dict) else f"no object, but {line.strip()[:40]}"
            raise InputError(
                f"{source}, line {number} has no text under {field!r} (there is: {keys}). Use --field KEY."
            )
        texts.append(record[field])
    return texts


def print_json(result: Any, **more: float) -> None:
    """One result as a line of JSON."""
    print(json.dumps({**dataclasses.asdict(result), **more}, ensure_ascii=False))
