"""``xlnet pretrain``: text in, a pretrained model out; tokenizer, corpus and training in one go."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from xlnet.checkpoints.hub import resolve
from xlnet.cli.outputs import refuse_other_run
from xlnet.cli.parsing import GIVEN
from xlnet.cli.progress import say
from xlnet.cli.training_text import Places, text_to_corpus
from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.float32 import products_in_words
from xlnet.model import XLNetLMHeadModel
from xlnet.pretraining.any_subset import AnySubsetConfig
from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.fixed_batches import FixedBatches, evaluation_batches
from xlnet.pretraining.pretrain import PretrainResult, check_settings, check_shapes
from xlnet.pretraining.pretrain import pretrain as pretrain_model
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.pretraining.vocabulary import resize_vocabulary
from xlnet.text import XLNetTokenizer
from xlnet.training.config import FitConfig
from xlnet.training.device import choose_device
from xlnet.training.distributed import World
from xlnet.training.precision import check_precision
from xlnet.training.run import check_resume
from xlnet.training.run_files import write_text

METRICS = ("loss", "perplexity", "any_subset_loss")
CHANGEABLE = frozenset({
    "attn_type", "same_length", "clamp_len", "dropout", "dropatt", "mem_len", "reuse_len", "attention_backend",
    "pack_padding",
})  # fmt: skip
"""Settings of a model that can be others than those its weights were trained with."""


def pretrain(
    inputs: list[str],
    *,
    output: str,
    tokenizer: str | None = None,
    vocab_size: int | None = None,
    max_vocab_size: int = 32000,
    init: str | None = None,
    resume: bool = False,
    device: str = "auto",
    workers: int = 0,
    evaluation_count: int = 50,
    prepare: PrepareConfig = PrepareConfig(),
    model: XLNetConfig = XLNetConfig(),
    stream: StreamConfig = StreamConfig(),
    fit: FitConfig = FitConfig(),
) -> None:
    """Pretrain an XLNet from plain text.

    The output folder will hold tokenizer/, corpus/, model/ (what you load), checkpoints/ (to resume from),
    metrics.jsonl, tensorboard/ and loss.png. Without --config the recipe "small" applies; other options change it.

    Args:
        inputs: text files, globs or folders, plain or gzip; or one corpus folder made by `xlnet prepare`
        output: folder of the run
        tokenizer: folder or spiece.model to use; by default one is trained on the text
        vocab_size: pieces of a tokenizer trained here; an error where the text does not support so many
        max_vocab_size: most pieces of a tokenizer trained here where no size is asked for
        init: continue from these weights (own, official TensorFlow, Hugging Face folder or hub name); they bring their
            shape and settings, of which --model.* or a --config can change dropout, memory and what a row may see
        resume: go on with the run in the output folder; give the same other options
        device: auto, cpu, cuda, cuda:N or mps
        workers: background processes that prepare batches; 0 does it in this one
        evaluation_count: held-out batches per evaluation
        prepare: how text becomes tokens
        model: shape of the model; vocab_size follows the tokenizer, reuse_len the stream
        stream: how tokens become sequences, targets and orders
        fit: how long and how to train
    """
    places = Places(Path(output))
    # Either spelling counts; the settings of a run have both, for use without a command line.
    resume, device = resume or fit.resume, fit.device if device == "auto" else device
    refuse_other_run(places.output, resume)
    arithmetic = products_in_words(fit.float32_products, choose_device(device))
    for key, value in (("workers", workers), ("evaluation_count", evaluation_count)):
        if value < 0:
            raise ConfigurationError(f"--{key} {value} must not be negative; 0 is none.")
    check_fit(fit, choose_device(device), evaluation_count)
    check_shapes(model if model.reuse_len else model.replace(reuse_len=stream.reuse_len), stream)
    world = World.from_environment()
    if init is not None:
        resolve(init)  # a name that is not there is refused before hours of work
    chosen, corpus_folder = text_to_corpus(
        inputs, places, (tokenizer, init), (vocab_size, max_vocab_size), prepare, resume=resume, alone=world.size == 1
    )
    config = fitting_model_config(model, stream, chosen)
    stream = replace(stream, micro_batches=max(stream.micro_batches, fit.accumulation))
    batches, held_out, subsets = open_stream(corpus_folder, stream, chosen, evaluation_count, world, workers)
    # A run can be repeated: the first weights follow from its seed too.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fit.seed)
        network = build_model(config, init, chosen, GIVEN.get())
    config = network.config
    check_settings(network, chosen, batches)
    fit = replace(fit, resume=resume, device=device, accumulation=stream.micro_batches)
    if resume:
        check_resume(places.output, fit, network)
    if world.is_main:
        say(f"model: {network.parameter_count():,} parameters, {config.n_layer} layers of width {config.d_model}")
        say(f"stream: {batches.describe()}")
        if fit.precision == "float32":
            say(arithmetic)
        save_settings(places.output, locals())
    result = pretrain_model(
        network, chosen, batches, fit, places.output, held_out=held_out, any_subset_held_out=subsets
    )
    if world.is_main:
        summarize(result)


def check_fit(fit: FitConfig, device: torch.device, evaluation_count: int) -> None:
    """Refuse before tokenizer and corpus are made what the loop would refuse after.

    Raises:
        ConfigurationError: an arithmetic that the device does not have, or a metric that will not be measured.
    """
    check_precision(fit.precision, device)
    if fit.best_metric and evaluation_count == 0:
        raise ConfigurationError(
            f"--fit.best_metric {fit.best_metric} needs an evaluation, but --evaluation_count is 0."
        )
    if fit.best_metric and fit.best_metric not in METRICS:
        raise ConfigurationError(
            f"--fit.best_metric {fit.best_metric} is not measured; there are {', '.join(METRICS)}."
            + did_you_mean(fit.best_metric, METRICS)
        )


def fitting_model_config(model: XLNetConfig, stream: StreamConfig, tokenizer: XLNetTokenizer) -> XLNetConfig:
    """The model's configuration with what follows from tokenizer and stream filled in."""
    default = XLNetConfig().vocab_size
    if model.vocab_size not in (default, tokenizer.vocab_size):
        raise ConfigurationError(
            f"--model.vocab_size {model.vocab_size}, but the tokenizer has {tokenizer.vocab_size} pieces: leave it out."
        )
    changes: dict[str, Any] = {"vocab_size": tokenizer.vocab_size}
    if model.reuse_len == 0:
        changes["reuse_len"] = stream.reuse_len
    return model.replace(**changes)


def open_stream(
    folder: Path,
    config: StreamConfig,
    tokenizer: XLNetTokenizer,
    evaluation_count: int,
    world: World,
    workers: int,
) -> tuple[PermutationStream, FixedBatches | None, FixedBatches | None]:
    """Training batches, and held-out ones where the corpus has a held-out split long enough for a sequence.

    The held-out batches follow ``order_kind`` alone; where the stream has any-subset batches, the last ones are such.
    """
    corpus = TokenCorpus.open(folder, "train")
    made_with = corpus.manifest.tokenizer_fingerprint
    if made_with != tokenizer.fingerprint:
        raise InputError(
            f"The corpus in {folder} was made with another tokenizer (fingerprint {made_with[:12]}, not "
            f"{tokenizer.fingerprint[:12]}): its ids would mean other pieces. Give the tokenizer that made it, "
            "or prepare the text again."
        )
    starts_word = tokenizer.starts_word
    stream = PermutationStream(corpus, config, starts_word, rank=world.rank, world_size=world.size, workers=workers)
    if "valid" not in corpus.manifest.splits or evaluation_count == 0:
        say("no held-out text: the loss on unseen text will not be reported")
        return stream, None, None
    kinds = [AnySubsetConfig()]
    if config.any_subset.share:
        kinds.append(replace(config.any_subset.at_full_width(), share=1.0))
    try:
        valid = TokenCorpus.open(folder, "valid")
        held_out = [
            evaluation_batches(valid, replace(config, any_subset=kind), starts_word, evaluation_count) for kind in kinds
        ]
    except InputError as error:
        say(f"no held-out evaluation: {error}")
        return stream, None, None
    return stream, held_out[0], held_out[1] if held_out[1:] else None


def build_model(
    config: XLNetConfig, init: str | None, tokenizer: XLNetTokenizer, given: Collection[str] = ()
) -> XLNetLMHeadModel:
    """A fresh model, or a loaded one whose vocabulary is fitted to the tokenizer.

    Args:
        config: the settings as resolved.
        init: weights to begin with; they bring their own settings.
        tokenizer: of the text.
        given: dotted names of the settings that were asked for; those of the model that do not make its shape are
            changed in the loaded one.

    """
    if init is None:
        return XLNetLMHeadModel(config)
    asked = {name.removeprefix("model.") for name in given if name.startswith("model.")}
    changes = {key: getattr(config, key) for key in ("mem_len", "reuse_len", *sorted(asked & CHANGEABLE))}
    network = XLNetLMHeadModel.from_pretrained(init, **changes)
    say(f"weights from {init}")
    for key in sorted(asked - CHANGEABLE - {"vocab_size"}):
        mine, theirs = getattr(config, key, None), getattr(network.config, key, None)
        if mine != theirs:
            say(f"note: {key} stays {theirs}, as the weights have it; the settings ask for {mine}")
    if network.config.vocab_size != tokenizer.vocab_size:
        say(resize_vocabulary(network, tokenizer.vocab_size))
    return network


def save_settings(output: Path, values: dict[str, Any]) -> None:
    """Write the settings as resolved to ``settings.json``, so that a run can be understood and repeated."""
    kept = {key: values[key] for key in ("inputs", "output", "tokenizer", "vocab_size", "init", "evaluation_count")}
    groups = {key: asdict(values[key]) for key in ("prepare", "stream")}
    groups["fit"] = asdict(replace(values["fit"], resume=False))
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**kept, "model": values["config"].to_dict(), **groups}, indent=2, default=list)
    write_text(output / "settings.json", text + "\n")


def summarize(result: PretrainResult) -> None:
    """The last words: how it went and what to do next."""
    metrics = result.fit.metrics
    held_out = f", held-out loss {metrics['loss']:.3f} nats" if "loss" in metrics else ""
    say(f"done: {result.fit.step:,} steps, training loss {result.fit.loss:.3f} nats{held_out}")
    say(f"model in {result.folder}\ntry: xlnet fill --model {result.folder} 'Once upon a ___ there was'")
