"""What a pretrained model knows of real text: LAMBADA, WikiText-2, minimal pairs, filled blanks, fill quality by rate.

    python benchmarks/real_text.py --model models/small-books --data ../shared/data/corpus

Prints Markdown. Orders and protocols are stated beside each figure; two orders give two likelihoods.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from xlnet import XLNetLMHeadModel, XLNetTokenizer, fill, score
from xlnet.generation.long_text import WalkConfig, loss_by_memory_length, walk_log_probs

PARTS = ("pairs", "blanks", "rates", "memory", "lambada", "wikitext")
# Written for this script: the first of each pair is the better English.
MINIMAL_PAIRS = {
    "agreement": [
        ("The boys are in the garden.", "The boys is in the garden."),
        ("The dog runs very fast.", "The dog run very fast."),
        ("She has been here before.", "She have been here before."),
        ("The keys to the door were lost.", "The keys to the door was lost."),
        ("He does not know the answer.", "He do not know the answer."),
        ("These men are my friends.", "This men are my friends."),
        ("The women of the village were singing.", "The women of the village was singing."),
        ("I am going home now.", "I is going home now."),
        ("The captain himself saw the ship.", "The captain herself saw the ship."),
        ("My mother washed her hands.", "My mother washed his hands."),
    ],
    "negation and negative words": [
        ("There is not any water left.", "There is any water left."),
        ("He had never seen any of them.", "He had always seen any of them."),
        ("Nobody said anything to me.", "Nobody said nothing to me."),
        ("I do not want to go either.", "I want to go either."),
        ("She did not say a word.", "She not did say a word."),
        ("They had not yet arrived.", "They had yet not arrived not."),
        ("No man has ever lived there.", "A man has ever lived there."),
        ("He could hardly speak at all.", "He could speak at all."),
    ],
    "word order": [
        ("What did you see in the room?", "What you did see in the room?"),
        ("He gave the book to his brother.", "He gave to his the book brother."),
        ("The old man sat by the fire.", "The man old sat by the fire."),
        ("She looked at him for a long time.", "She looked him at for a long time."),
        ("It was a very cold night.", "It was a cold very night."),
        ("They went out of the house together.", "They out went of the house together."),
        ("Where is your father going?", "Where your father is going?"),
        ("I have always loved the sea.", "I have loved always the sea the."),
        ("The door was opened by a servant.", "The door opened was by a servant."),
        ("He put his hand on her shoulder.", "He put hand his on her shoulder."),
    ],
}


def read(path: Path) -> str:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read()


def last_words(path: Path, tokenizer: XLNetTokenizer) -> Iterator[tuple[list[int], int]]:
    """Ids of each LAMBADA passage and how many of them are its last word."""
    for line in read(path).rstrip("\n").split("\n"):
        text = json.loads(line)["text"].strip()
        context, _, word = text.rpartition(" ")
        before = tokenizer.encode(context, special_tokens=False).input_ids
        whole = tokenizer.encode(f"{context} {word}", special_tokens=False).input_ids
        yield whole, len(whole) - len(before)


@torch.inference_mode()
def lambada(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, path: Path, batch_size: int = 64) -> str:
    """Accuracy: every piece of the last word is the most probable one, given the passage and the pieces before it."""
    items = sorted(last_words(path, tokenizer), key=lambda item: len(item[0]))
    right, log_prob = 0, 0.0
    for start in range(0, len(items), batch_size):
        part = items[start : start + batch_size]
        length, count = max(len(ids) for ids, _ in part), max(n for _, n in part)
        ids = torch.full((len(part), length), tokenizer.pad_id)
        real = torch.zeros(len(part), length, dtype=torch.bool)
        order = torch.zeros(len(part), length, dtype=torch.int64)
        targets = torch.full((len(part), count), -1)
        for row, (tokens, last) in enumerate(part):
            ids[row, length - len(tokens) :] = torch.tensor(tokens)
            real[row, length - len(tokens) :] = True
            order[row, length - last :] = torch.arange(1, last + 1)
            targets[row, :last] = torch.arange(length - last, length)
        logits = model(ids, attention_mask=real, order=order, target_positions=targets).logits.log_softmax(-1)
        truth = ids.gather(1, targets.clamp(min=0))
        counted = targets >= 0
        right += int(((logits.argmax(-1) == truth) | ~counted).all(dim=1).sum())
        log_prob += float((logits.gather(-1, truth[..., None])[..., 0] * counted).sum())
    return (
        f"LAMBADA, {len(items):,} passages, last word left to right, greedy: accuracy {right / len(items):.2%}, "
        f"perplexity of the word {math.exp(-log_prob / len(items)):.1f}"
    )


def wikitext(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, path: Path, pieces: int) -> list[str]:
    """Perplexity left to right with memory, per piece and per white-space word of the raw test set."""
    text = read(path)
    ids = tokenizer.encode(text, special_tokens=False).input_ids
    share = min(1.0, pieces / len(ids))
    words = len(text.split()) * share
    ids = ids[:pieces]
    lines = []
    for segment, memory in ((64, 64), (64, 192)):
        total = -sum(
            float(part.double().sum())
            for part in walk_log_probs(model, ids, WalkConfig(segment_length=segment, memory_length=memory))
        )
        lines.append(
            f"WikiText-2 raw test, first {len(ids):,} pieces, left to right, segments of {segment}, memory {memory}: "
            f"perplexity {math.exp(total / len(ids)):.1f} a piece, {math.exp(total / words):.0f} a word"
        )
    return lines


def minimal_pairs(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer) -> list[str]:
    """How often the better sentence is the more probable one."""
    lines = []
    for name, pairs in MINIMAL_PAIRS.items():
        good, bad = (score(model, tokenizer, [pair[i] for pair in pairs]) for i in (0, 1))
        wins = sum(a.total > b.total for a, b in zip(good, bad, strict=True))
        lines.append(f"minimal pairs, {name}, left to right: {wins} of {len(pairs)}")
    return lines


def sentences_of(text: str, seed: int, count: int) -> list[str]:
    """Plain sentences of 10 to 25 words, drawn at random."""
    found = []
    for line in text.split("\n"):
        for sentence in line.replace("? ", "?\n").replace("! ", "!\n").replace(". ", ".\n").split("\n"):
            words = sentence.split()
            if 10 <= len(words) <= 25 and sentence[0].isupper() and sentence[-1] in ".?!":
                found.append(sentence.strip())
    random.Random(seed).shuffle(found)
    return found[:count]


def filled_blanks(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, sentences: Sequence[str], seed: int) -> list[str]:
    """One word of each sentence blanked (its number of pieces is known), the filling beside the truth."""
    draw = random.Random(seed)
    lines, right = [], 0
    for sentence in sentences:
        words = sentence.split()
        place = draw.randrange(1, len(words))
        core = words[place].strip("\"'“”‘’.,;:!?()—-")
        if not core:
            continue
        pieces = len(tokenizer.encode(core, special_tokens=False).input_ids)
        blank = "<mask>" if pieces == 1 else f"<mask:{pieces}>"
        shown = " ".join([*words[:place], words[place].replace(core, blank, 1), *words[place + 1 :]])
        filled = fill(model, tokenizer, shown, alternatives=3).blanks[0]
        right += filled.text == core
        others = ", ".join(f"{other.text} {other.probability:.0%}" for other in filled.alternatives)
        lines.append(f"{shown.replace(blank, '____')} → **{filled.text}** (truth: {core}; {others})")
    return [f"{right} of {len(lines)} as in the text", *lines]


@torch.inference_mode()
def by_mask_rate(
    model: XLNetLMHeadModel,
    tokenizer: XLNetTokenizer,
    text: str,
    rates: Sequence[float],
    rows: int = 64,
    length: int = 96,
) -> list[str]:
    """Joint loss of random targets filled in ascending order (lattice), and first-guess accuracy, by share hidden."""
    ids = tokenizer.encode(text, special_tokens=False).input_ids[: rows * length]
    batch = torch.tensor(ids[: len(ids) // length * length]).view(-1, length)
    lines = []
    for rate in rates:
        generator = torch.Generator().manual_seed(0)
        count = max(1, round(rate * length))
        targets = torch.stack([torch.randperm(length, generator=generator)[:count].sort().values for _ in batch])
        order = torch.zeros_like(batch).scatter(1, targets, torch.arange(1, count + 1).expand(len(batch), -1))
        logits = model(batch, order=order, target_positions=targets).logits.log_softmax(-1)
        truth = batch.gather(1, targets)
        loss = -logits.gather(-1, truth[..., None]).mean().item()
        accuracy = (logits.argmax(-1) == truth).float().mean().item()
        lines.append(f"hidden {rate:.0%}: {loss:.3f} nats a piece, most probable piece right {accuracy:.1%}")
    return lines


def draw(losses: dict[int, float], path: Path) -> None:
    """Loss against memory length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(range(len(losses)), list(losses.values()), "o-")
    axis.set_xticks(range(len(losses)), [str(length) for length in losses])
    axis.set_xlabel("memory length in pieces")
    axis.set_ylabel("nats a piece, left to right")
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with lambada_test, wikitext2_test, books_valid"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--pieces", type=int, default=60_000, help="pieces of WikiText-2 to read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="picture of the loss against memory length")
    options = parser.parse_args()
    tokenizer = XLNetTokenizer.from_pretrained(options.model)
    model = XLNetLMHeadModel.from_pretrained(options.model)
    novel = read(options.data / "books_valid.txt.gz")
    began = time.monotonic()

    def show(title: str, lines: Sequence[str]) -> None:
        print(
            f"\n### {title} ({time.monotonic() - began:.0f} s)\n",
            *(f"* {line}" for line in lines),
            sep="\n",
            flush=True,
        )

    def by_memory() -> list[str]:
        ids = tokenizer.encode(novel, special_tokens=False).input_ids[:12_000]
        losses = loss_by_memory_length(model, ids, (0, 16, 32, 64, 128, 256), WalkConfig(segment_length=32))
        if options.plot:
            draw(losses, options.plot)
        return [f"memory {m}: {loss:.3f}" for m, loss in losses.items()]

    parts: dict[str, tuple[str, Callable[[], Sequence[str]]]] = {
        "pairs": ("Minimal pairs", lambda: minimal_pairs(model, tokenizer)),
        "blanks": (
            "Twenty blanks of an unseen novel",
            lambda: filled_blanks(model, tokenizer, sentences_of(novel, options.seed, 20), 0),
        ),
        "rates": (
            "Fill quality by share hidden",
            lambda: by_mask_rate(model, tokenizer, novel, (0.1, 0.25, 0.5, 0.75, 0.95, 1.0)),
        ),
        "memory": ("Loss by memory length, left to right, segments of 32", by_memory),
        "lambada": ("LAMBADA", lambda: [lambada(model, tokenizer, options.data / "lambada_test.jsonl.gz")]),
        "wikitext": (
            "WikiText-2", lambda: wikitext(model, tokenizer, options.data / "wikitext2_test.txt.gz", options.pieces)
        ),
    }  # fmt: skip
    for name in options.parts:
        title, look = parts[name]
        show(title, look())


if __name__ == "__main__":
    main()
