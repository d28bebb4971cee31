"""``xlnet pretrain``: text in, a pretrained model out; tokenizer, corpus and training in one go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xlnet.cli.corpus import report, run_prepare
from xlnet.cli.outputs import refuse_other_run
from xlnet.cli.progress import say
from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, InputError
from xlnet.float32 import products_in_words
from xlnet.model import XLNetLMHeadModel
from xlnet.pretraining.any_subset import AnySubsetConfig
from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.readers import read_texts
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.fixed_batches import FixedBatches, evaluation_batches
from xlnet.pretraining.pretrain import PretrainResult, check_settings, check_shapes
from xlnet.pretraining.pretrain import pretrain as pretrain_model
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.pretraining.vocabulary import resize_vocabulary
from xlnet.text import XLNetTokenizer, train_tokenizer
from xlnet.training.config import FitConfig
from xlnet.training.device import choose_device
from xlnet.training.distributed import World

MANIFEST = "manifest.json"
TRAINING_RECORD = "training.json"


@dataclass(frozen=True)
class Places:
    """What lies where in the folder of a run."""

    output: Path

    @property
    def tokenizer(self) -> Path:
        """Folder of the tokenizer."""
        return self.output / "tokenizer"

    @property
    def corpus(self) -> Path:
        """Folder of the token shards."""
        return self.output / "corpus"


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
        init: continue from these weights (own, official TensorFlow, Hugging Face folder or hub name)
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
    check_shapes(model if model.reuse_len else model.replace(reuse_len=stream.reuse_len), stream)
    chosen, corpus_folder = text_to_corpus(inputs, places, (tokenizer, init), (vocab_size, max_vocab_size), prepare)
    config = fitting_model_config(model, stream, chosen)
    stream = replace(stream, micro_batches=max(stream.micro_batches, fit.accumulation))
    world = World.from_environment()
    batches, held_out, subsets = open_stream(corpus_folder, stream, chosen, evaluation_count, world, workers)
    network = build_model(config, init, chosen)
    check_settings(network, chosen, batches)
    if world.is_main:
        say(f"model: {network.parameter_count():,} parameters, {config.n_layer} layers of width {config.d_model}")
        say(f"stream: {batches.describe()}")
        if fit.precision == "float32":
            say(arithmetic)
        save_settings(places.output, locals())
    fit = replace(fit, resume=resume, device=device, accumulation=stream.micro_batches)
    result = pretrain_model(
        network, chosen, batches, fit, places.output, held_out=held_out, any_subset_held_out=subsets
    )
    if world.is_main:
        summarize(result)


def text_to_corpus(
    inputs: Sequence[str],
    places: Places,
    sources: tuple[str | None, str | None],
    sizes: tuple[int | None, int],
    config: PrepareConfig,
) -> tuple[XLNetTokenizer, Path]:
    """The tokenizer and the corpus folder to train on; made here unless they are given.

    Args:
        inputs: text, or one corpus folder.
        places: where to put what is made.
        sources: a given tokenizer, and given weights that bring one.
        sizes: number of pieces asked for, and the most where none is asked for.
        config: how text becomes tokens.
    """
    tokenizer, init = sources
    vocab_size = sizes[0]
    ready = len(inputs) == 1 and (Path(inputs[0]) / MANIFEST).is_file()
    if ready and tokenizer is None and init is None:
        raise ConfigurationError(
            f"{inputs[0]} is a prepared corpus: say which tokenizer made it with --tokenizer FOLDER, "
            "or give the text itself."
        )
    source = tokenizer or init
    if source is not None:
        if vocab_size is not None:
            raise ConfigurationError(
                f"--vocab_size {vocab_size} is for a tokenizer trained here, but {source!r} brings its own."
            )
        chosen = XLNetTokenizer.from_pretrained(source)
    else:
        chosen = trained_tokenizer(inputs, places.tokenizer, sizes, config)
    if ready:
        return chosen, Path(inputs[0])
    report(run_prepare(inputs, chosen, places.corpus, config), places.corpus)
    return chosen, places.corpus


def trained_tokenizer(
    inputs: Sequence[str], folder: Path, sizes: tuple[int | None, int], config: PrepareConfig
) -> XLNetTokenizer:
    """Train a tokenizer, or take the one an interrupted start of the same command left."""
    record = {"inputs": list(inputs), "sizes": list(sizes), "format": config.format, "field": config.field}
    path = folder / TRAINING_RECORD
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) == record:
        return XLNetTokenizer.from_pretrained(folder)
    texts = read_texts(list(inputs), config.format, config.field)
    trained = train_tokenizer(texts, sizes[0], max_vocab_size=sizes[1], progress=say)
    trained.save_pretrained(folder)
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return trained


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


def build_model(config: XLNetConfig, init: str | None, tokenizer: XLNetTokenizer) -> XLNetLMHeadModel:
    """A fresh model, or a loaded one whose vocabulary is fitted to the tokenizer."""
    if init is None:
        return XLNetLMHeadModel(config)
    network = XLNetLMHeadModel.from_pretrained(init, mem_len=config.mem_len, reuse_len=config.reuse_len)
    say(f"weights from {init}")
    if network.config.vocab_size != tokenizer.vocab_size:
        say(resize_vocabulary(network, tokenizer.vocab_size))
    return network


def save_settings(output: Path, values: dict[str, Any]) -> None:
    """Write the settings as resolved to ``settings.json``, so that a run can be understood and repeated."""
    kept = {key: values[key] for key in ("inputs", "output", "tokenizer", "vocab_size", "init", "evaluation_count")}
    groups = {key: asdict(values[key]) for key in ("prepare", "stream", "fit")}
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**kept, "model": values["config"].to_dict(), **groups}, indent=2, default=list)
    (output / "settings.json").write_text(text + "\n", encoding="utf-8")


def summarize(result: PretrainResult) -> None:
    """The last words: how it went and what to do next."""
    metrics = result.fit.metrics
    held_out = f", held-out loss {metrics['loss']:.3f} nats" if "loss" in metrics else ""
    say(f"done: {result.fit.step:,} steps, training loss {result.fit.loss:.3f} nats{held_out}")
    say(f"model in {result.folder}\ntry: xlnet fill --model {result.folder} 'Once upon a ___ there was'")
