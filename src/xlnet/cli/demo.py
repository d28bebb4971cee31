"""``xlnet demo``: the whole story in minutes, on English text that every Python carries (the topics of ``pydoc``).

Text -> tokenizer -> corpus -> pretraining -> held-out loss beside counting baselines -> filling, scoring, continuing.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonargparse
from rich.console import Console
from rich.table import Table

from xlnet.cli.corpus import report, run_prepare
from xlnet.cli.outputs import refuse_other_run
from xlnet.cli.pretrain import fitting_model_config, open_stream
from xlnet.cli.progress import say
from xlnet.cli.recipes import find_recipe
from xlnet.cli.training_text import Places, trained_tokenizer
from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, MachineError
from xlnet.generation import GenerationConfig, SamplingConfig, fill, generate, score
from xlnet.model import XLNetLMHeadModel
from xlnet.pretraining.baselines import BaselineLoss, CountingModel, baseline_loss
from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.evaluate import held_out_loss
from xlnet.pretraining.fixed_batches import FixedBatches
from xlnet.pretraining.pretrain import PretrainResult
from xlnet.pretraining.pretrain import pretrain as pretrain_model
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.text import XLNetTokenizer
from xlnet.training.config import FitConfig
from xlnet.training.distributed import World

_HELD_OUT_BATCHES = 24
_PROMPTS = ("The statement", "If the object is", "A class is")


def demo(*, output: str = "runs/demo", steps: int | None = None, seed: int = 0, resume: bool = False) -> None:
    """Pretrain a tiny XLNet on real English text in minutes on two CPU cores, then use it.

    Args:
        output: folder of the run; everything ends up there
        steps: training steps; by default those of the recipe "tiny"
        seed: of weights, data and examples
        resume: go on with an interrupted demo
    """
    if steps is not None and steps < 1:
        raise ConfigurationError(f"--steps {steps} must be at least 1; leave it out for those of the recipe.")
    began = time.monotonic()
    places = Places(Path(output))
    refuse_other_run(places.output, resume)
    model, stream, fit, most_pieces = tiny_recipe()
    steps = steps or fit.steps
    schedule = replace(fit.schedule, warmup_steps=min(fit.schedule.warmup_steps, steps // 10))
    fit = replace(fit, steps=steps, schedule=schedule, seed=seed, resume=resume)

    say("1. Text: the reference topics that come with Python")
    source = write_topics(places.output / "text")
    config = PrepareConfig(format="wrapped", valid_fraction=0.1, seed=seed)
    say("2. Tokenizer and corpus")
    tokenizer = trained_tokenizer([str(source)], places.tokenizer, (None, most_pieces), config)
    report(run_prepare([str(source)], tokenizer, places.corpus, config), places.corpus)

    say("3. Pretraining: permutation language modelling with two streams and memory")
    batches, held_out, _ = open_stream(
        places.corpus, replace(stream, seed=seed), tokenizer, _HELD_OUT_BATCHES, World(), 0
    )
    if held_out is None:
        raise MachineError("This Python's pydoc topics are too short to hold out text: use another CPython.")
    import torch

    torch.manual_seed(seed)
    network = XLNetLMHeadModel(fitting_model_config(model, stream, tokenizer))
    before = held_out_loss(network, held_out, network.config)["loss"]
    result = pretrain_model(network, tokenizer, batches, fit, places.output, held_out=held_out)
    counted = baseline_loss(CountingModel(TokenCorpus.open(places.corpus, "train"), tokenizer.vocab_size), held_out)
    show_losses(before, result, counted, held_out)

    say("4. Use, on sentences it has never seen")
    sentences = held_out_sentences(places.corpus, tokenizer, seed)
    show_fillings(result.model, tokenizer, sentences, seed)
    show_scores(result.model, tokenizer, sentences, seed)
    show_continuations(result.model, tokenizer, seed)
    say(f"\nAll in {time.monotonic() - began:.0f} s. What lies where:")
    for name, what in (
        ("loss.png", "the falling loss as a picture"),
        ("model", "model and tokenizer: xlnet fill --model " + str(result.folder) + " 'The ___ statement'"),
        ("corpus", "token shards"),
        ("metrics.jsonl", "every number of the run"),
        ("tensorboard", "the same for TensorBoard"),
    ):
        say(f"  {places.output / name}: {what}")


def tiny_recipe() -> tuple[XLNetConfig, StreamConfig, FitConfig, int]:
    """The settings of ``recipes/tiny.yaml``."""
    parser = jsonargparse.ArgumentParser()
    parser.add_argument("--config", action="config")
    parser.add_argument("--max_vocab_size", type=int)
    for name, kind in (("model", XLNetConfig), ("stream", StreamConfig), ("fit", FitConfig)):
        parser.add_argument(f"--{name}", type=kind, default=kind())
    values: Any = parser.instantiate_classes(parser.parse_args(["--config", str(find_recipe("tiny"))]))
    return values.model, values.stream, values.fit, values.max_vocab_size


def write_topics(folder: Path) -> Path:
    """Write each topic of ``pydoc`` as a hard-wrapped text file."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise MachineError("This Python lacks pydoc_data.topics, the text of the demo: use a full CPython.") from error
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in topics.items():
        path = folder / f"{name}.txt"
        if not path.exists():  # kept as it is on resumption: the corpus remembers when its input changed
            path.write_text(text, encoding="utf-8")
    return folder


def held_out_sentences(folder: Path, tokenizer: XLNetTokenizer, seed: int) -> list[str]:
    """Held-out sentences of 8 to 24 plain words that the vocabulary covers, shuffled."""
    corpus = TokenCorpus.open(folder, "valid")
    ids, flags = corpus.tokens[0 : len(corpus)], corpus.sentence_ids(0, len(corpus))
    borders = [0, *(i for i in range(1, len(ids)) if flags[i] != flags[i - 1]), len(ids)]
    texts = [tokenizer.decode(ids[a:b].tolist()) for a, b in itertools.pairwise(borders)]
    plain = [
        text
        for text in texts
        if 8 <= len(text.split()) <= 24
        and text[0].isupper()
        and text[-1] in ".!?"
        and not any(mark in text for mark in (">>>", "<unk>"))
    ]
    random.Random(seed).shuffle(plain)
    return plain


def show_losses(before: float, result: PretrainResult, counted: BaselineLoss, held_out: FixedBatches) -> None:
    """The held-out loss before and after, beside what counting reaches on the same targets."""
    table = Table(title=f"held-out loss, nats per predicted piece ({counted.targets:,} targets)")
    table.add_column("model")
    table.add_column("loss", justify="right")
    for name, value in (
        ("XLNet before training", before),
        ("unigram", counted.unigram),
        ("bigram, where the order shows the left neighbour", counted.bigram),
        ("bigram, left neighbour always visible", counted.bigram_always_visible),
        ("XLNet after training", result.fit.metrics["loss"]),
    ):
        table.add_row(name, f"{value:.3f}")
    Console().print(table)


def show_fillings(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, sentences: list[str], seed: int) -> None:
    """Blank two words of each of six sentences, fill them jointly, and show the truth beside."""
    draw = random.Random(seed)
    right = total = 0
    for sentence in sentences[:6]:
        words = sentence.split()
        chosen = sorted(draw.sample(range(1, len(words) - 1), 2))
        blanked = list(words)
        for place in chosen:
            core = words[place].strip(".,;:()'\"")
            count = len(tokenizer.encode(core, special_tokens=False).input_ids)
            if core:
                blanked[place] = words[place].replace(core, "<mask>" if count == 1 else f"<mask:{count}>", 1)
        if blanked == words:
            continue
        filled = fill(model, tokenizer, " ".join(blanked), alternatives=3)
        truth = [words[p].strip(".,;:()'\"") for p in chosen if blanked[p] != words[p]]
        print(f"\n  {' '.join(blanked)}")
        for blank, true in zip(filled.blanks, truth, strict=True):
            right, total = right + (blank.text == true), total + 1
            options = ", ".join(f"{other.text} {other.probability:.0%}" for other in blank.alternatives)
            print(f"    {blank.text!r} (truth {true!r}; {options})")
    print(f"\n  {right} of {total} blanks as in the text")


def show_scores(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, sentences: list[str], seed: int) -> None:
    """Real sentences against the same words in random order: the real one should be more probable."""
    draw = random.Random(seed)
    chosen = sentences[:50]
    shuffled = [" ".join(draw.sample(words, len(words))) for words in map(str.split, chosen)]
    real, mixed = (score(model, tokenizer, texts) for texts in (chosen, shuffled))
    wins = sum(a.total > b.total for a, b in zip(real, mixed, strict=True))
    for a, b in list(zip(real, mixed, strict=True))[:2]:
        print(f"\n  {a.total:8.1f}  {a.text}\n  {b.total:8.1f}  {b.text}")
    print(f"\n  the real sentence is more probable than its shuffled self in {wins} of {len(chosen)} cases")


def show_continuations(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, seed: int) -> None:
    """Continue a few prompts."""
    config = GenerationConfig(max_new_tokens=30)
    sampling = SamplingConfig(temperature=0.8, top_p=0.9, seed=seed)
    for result in generate(model, tokenizer, list(_PROMPTS), config=config, sampling=sampling):
        print(f"\n  {result.prompt} ...{result.text}")
